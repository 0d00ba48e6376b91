"""Damaged traces: each is refused with one line, or gives the same result; never another error, never other numbers."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import random
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in ("flwr.app", "flwr.clientapp", "flwr.serverapp"):
        importlib.import_module(name)

from flwr.app import Message, RecordDict
from judge import contents, refused, wrong
from memory_grid import Federation, terms

from fedtide.deploy import trace
from fedtide.deploy.replay import replay
from fedtide.deploy.trace import read_trace_history
from fedtide.errors import FedtideError, RunFolderError

TINY = {
    "data": {"num_train": 48, "num_test": 10, "num_shards": 12},
    "timeline": {"horizon": 50.0},
    "radio": {"num_symbols": 3000},
}


def small(*trees: dict[str, Any], **settings: Any) -> Any:
    return terms(TINY, *trees, **settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small federation with a refused reply and an upload that never comes."""
    folder = tmp_path_factory.mktemp("federation") / "run"
    federation = Federation(small(), folder)
    federation.node(1).act = lambda node, message, reply: [(9.0, reply)]
    federation.node(0).act = lambda node, message, reply: [
        (0.5, reply if message.metadata.message_type == "train" else Message(RecordDict(), reply_to=message))
    ]
    federation.coordinator().run()
    assert any(each.refused for each in trace.read_trace(folder).periods)
    return folder


def copied(run: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run, folder)
    return folder


def lines_of(folder: Path) -> list[bytes]:
    return (folder / trace.NAME).read_bytes().split(b"\n")[:-1]


def put(folder: Path, lines: list[bytes], end: bytes = b"\n") -> None:
    (folder / trace.NAME).write_bytes(b"\n".join(lines) + end)


# -- seeded mutations -----------------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 2**70, -0.5, 1e308, "1", "", "x" * 50, [], [1], [[1]], {}, {"a": 1}, float("nan"), float("inf"),
)  # fmt: skip


def place_in(dice: random.Random, tree: Any) -> tuple[Any, Any]:
    """Return a container somewhere in a tree and one of its keys."""
    while True:
        key = dice.choice(list(tree)) if isinstance(tree, dict) else dice.randrange(len(tree))
        deeper = tree[key]
        if isinstance(deeper, (dict, list)) and deeper and dice.random() < 0.6:
            tree = deeper
            continue
        return tree, key


def edited(change: Callable[[random.Random, Any, Any], None]) -> Callable[[random.Random, list[bytes]], bytes]:
    """Return a mutation that changes a value in one line."""

    def mutate(dice: random.Random, lines: list[bytes]) -> bytes:
        number = dice.randrange(len(lines))
        tree = json.loads(lines[number])
        change(dice, *place_in(dice, tree))
        return b"\n".join([*lines[:number], json.dumps(tree).encode(), *lines[number + 1 :]]) + b"\n"

    return mutate


def delete(dice: random.Random, holder: Any, key: Any) -> None:
    del holder[key]


def retype(dice: random.Random, holder: Any, key: Any) -> None:
    holder[key] = dice.choice(ODD)


def nudge(dice: random.Random, holder: Any, key: Any) -> None:
    value = holder[key]
    holder[key] = value + dice.choice((-1, 1)) if isinstance(value, (int, float)) else str(value)


def double(dice: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[f"{key}_"] = holder[key]


def flip(dice: random.Random, lines: list[bytes]) -> bytes:
    data = bytearray(b"\n".join(lines) + b"\n")
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)


def drop(dice: random.Random, lines: list[bytes]) -> bytes:
    number = dice.randrange(len(lines))
    return b"\n".join(lines[:number] + lines[number + 1 :]) + b"\n"


def swap(dice: random.Random, lines: list[bytes]) -> bytes:
    one, other = dice.sample(range(len(lines)), 2)
    lines = list(lines)
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines) + b"\n"


def repeat(dice: random.Random, lines: list[bytes]) -> bytes:
    number = dice.randrange(len(lines))
    return b"\n".join(lines[: number + 1] + lines[number:]) + b"\n"


def truncate(dice: random.Random, lines: list[bytes]) -> bytes:
    data = b"\n".join(lines) + b"\n"
    return data[: dice.randrange(len(data))]


def junk(dice: random.Random, lines: list[bytes]) -> bytes:
    number = dice.randrange(len(lines) + 1)
    extra = dice.choice([b"", b"{}", b"null", b"[" * 5000, b"\xff\xfe\x00", b'{"kind":"note"}', b"9" * 5000])
    return b"\n".join([*lines[:number], extra, *lines[number:]]) + b"\n"


MUTATIONS: dict[str, Callable[[random.Random, list[bytes]], bytes]] = {
    "delete": edited(delete), "retype": edited(retype), "nudge": edited(nudge), "double": edited(double),
    "flip": flip, "drop": drop, "swap": swap, "repeat": repeat, "truncate": truncate, "junk": junk,
}  # fmt: skip


@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutations_of_a_sealed_trace(run: Path, tmp_path: Path, kind: str) -> None:
    """Forty each: all are refused, since a checksum can tell, and the folder is as it was."""
    folder, dice = copied(run, tmp_path / "run"), random.Random(f"{kind} sealed")
    whole = (run / trace.NAME).read_bytes()
    for _ in range(40):
        data = MUTATIONS[kind](dice, lines_of(run))
        if data == whole:
            continue
        (folder / trace.NAME).write_bytes(data)
        before = contents(folder)
        with pytest.raises(RunFolderError) as failure:
            replay(folder)
        assert "\n" not in str(failure.value)
        assert len(str(failure.value)) < 700
        assert contents(folder) == before


def test_half_a_last_line_is_a_kill_and_no_damage(run: Path, tmp_path: Path) -> None:
    for name in ("experiment.yaml", trace.NAME):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    lines = lines_of(run)
    put(tmp_path, lines[:-1], b"\n" + lines[-1][:50])
    assert replay(tmp_path).compared == 4


# -- by hand --------------------------------------------------------------------------------------------------------


def resealed(run: Path, folder: Path, **changes: Any) -> Path:
    """Change fields of the third period and seal the trace again, as only fedtide itself could."""
    whole = trace.read_trace(copied(run, folder))
    whole.periods[2] = whole.periods[2].model_copy(update=changes)
    (folder / trace.NAME).unlink()
    trace.write_trace(folder, whole)
    return folder


def rejected(folder: Path, says: str) -> None:
    """Check that a replay is refused in one line that says so, and that the folder is as it was."""
    before = contents(folder)
    with pytest.raises(RunFolderError, match=says) as failure:
        replay(folder)
    assert "\n" not in str(failure.value)
    assert len(str(failure.value)) < 700
    assert contents(folder) == before


@pytest.mark.parametrize("kind", ["delete", "retype", "nudge", "double"])
def test_mutations_that_are_sealed_again(run: Path, tmp_path: Path, kind: str) -> None:
    """Refused by the fields or by the other files; what neither shows comes out as the same bits or is told as others."""
    folder, dice = copied(run, tmp_path / "run"), random.Random(f"{kind} sealed again")
    model, refusals = np.load(run / "model.npy"), 0
    for _ in range(25):
        seal, data = b"", b""
        for line in MUTATIONS[kind](dice, [json.dumps(unsealed(line)).encode() for line in lines_of(run)]).splitlines():
            seal = trace._sealed(line, seal)
            data += line[:-1] + b',"seal":"' + seal + b'"}\n'
        (folder / trace.NAME).write_bytes(data)
        try:
            result = replay(folder)
        except FedtideError:
            refusals += 1
            continue
        assert result.first_difference is not None or np.array_equal(result.model, model)
    assert refusals >= (1 if kind in ("nudge", "retype") else 8), refusals


def unsealed(line: bytes) -> dict[str, Any]:
    tree = json.loads(line)
    del tree["seal"]
    return tree


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"tick": 4}, "tick is 4, and this is period 3"),
    ({"tick": "3"}, "tick='3'"),
    ({"tick": 3.5}, r"tick=3\.5"),
    ({"wall": -1.0}, r"wall=-1\.0"),
    ({"wall": "30"}, "wall='30'"),
    ({"ready": "01"}, "ready='01': input should be a valid array"),
    ({"ready": [-1]}, r"ready\.0=-1"),
    ({"ready": [1, 0]}, "entries for 2 devices|ready has devices that do not ascend"),
    ({"start": []}, "start has 0 entries"),
    ({"picked": [5], "symbols": [1.0], "bits": [1.0]}, "picked has devices"),
    ({"bits": []}, "bits has 0 entries"),
    ({"arrived": [9], "arrived_at": [1.0]}, "arrived has devices"),
    ({"nodes": {"9": 1}}, "beyond the 6 there are"),
    ({"nodes": {"a": 1}}, "invalid literal"),
    ({"refused": [trace.Refusal(device=9, node=1, why="x")]}, "beyond the 6 there are"),
    ({"start": [True, True]}, r"start\.0=True"),
    ({"node": [2**64]}, r"node\.0=18446744073709551616"),
    ({"num_samples": [0]}, r"num_samples\.0=0"),
    ({"learning_rate": None}, "learning_rate is missing"),
    ({"learning_rate": [0.0]}, r"learning_rate\.0=0\.0"),
    ({"label_counts": None}, "label_counts is missing"),
    ({"capacity": [-1.0]}, r"capacity\.0=-1\.0"),
    ({"model": "xyz"}, "model='xyz': string should match"),
    ({"nodes": []}, r"nodes=\[\]: input should be an object"),
    ({"rate": {"0": -1.0}}, r"rate\.0=-1\.0"),
    ({"rate": {"0": "fast"}}, r"rate\.0='fast'"),
    ({"symbols": ["1"]}, r"symbols\.0='1': input should be a valid number"),
    ({"isa": ["a\nb"] * 2}, "isa"),
    ({"refused": [{"device": 0, "node": 1, "why": 5}]}, r"refused\.0\.why=5"),
]


@pytest.mark.parametrize(("changes", "says"), IMPOSSIBLE, ids=lambda each: str(each)[:40])
def test_sealed_but_impossible(run: Path, tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    rejected(resealed(run, tmp_path / "run", **changes), says)


def test_labels_of_other_data(run: Path, tmp_path: Path) -> None:
    period = trace.read_trace(run).periods[2]
    counts = [[number] for number in period.num_samples]
    rejected(resealed(run, tmp_path / "run", label_counts=counts), "counts 1 labels in period 3, and the data has 10")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1: it does not end with its seal"),
        (b"\n", "line 1"),
        (b"\x00\x01\xff" * 50 + b"\n", "line 1"),
        (b"[]\n", "does not end with its seal"),
        (b"[" * 100_000 + b"\n", "does not end with its seal"),
        (b'{"format":1}\n', "does not end with its seal"),
        (b"9" * 5000 + b"\n", "line 1"),
    ],
)
def test_files_that_are_no_trace(run: Path, tmp_path: Path, data: bytes, says: str) -> None:
    folder = copied(run, tmp_path / "run")
    (folder / trace.NAME).write_bytes(data)
    rejected(folder, says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 99}, r"of another version \(line 1: format=99: input should be 1"),
        ({"num_devices": None}, "num_devices is missing"),
        ({"num_symbols": -1}, "num_symbols=-1"),
        ({"num_symbols": math.nan}, "num_symbols=nan"),
        ({"isa": 5}, "isa=5"),
        ({"deployment": []}, r"deployment=\[\]: input should be an object"),
        ({"experiment": "0" * 16}, "of another run"),
        ({}, "0 periods and rounds.jsonl 5"),
        ({"x": 1}, "x is not a field"),
    ],
)
def test_headers_that_are_sealed_but_wrong(run: Path, tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    folder = copied(run, tmp_path / "run")
    tree = {**unsealed(lines_of(run)[0]), **changes}
    line = json.dumps({name: value for name, value in tree.items() if value is not None}).encode()
    put(folder, [line[:-1] + b',"seal":"' + trace._sealed(line, b"") + b'"}'])
    rejected(folder, says)


def test_another_runs_trace(run: Path, tmp_path: Path) -> None:
    Federation(small({"seed": 4}), tmp_path / "other").coordinator().run()
    folder = copied(run, tmp_path / "run")
    shutil.copy(tmp_path / "other" / trace.NAME, folder / trace.NAME)
    refused(wrong("replay", str(folder), says="is of another run than experiment.yaml", code=4))
    # the same experiment, another federation: the seals and the digest fit, the models do not
    Federation(small(), tmp_path / "again", durations=(12.0, 3.0, 8.0, 3.0, 3.0, 3.0)).coordinator().run()
    shutil.copy(tmp_path / "again" / trace.NAME, folder / trace.NAME)
    refused(wrong("replay", str(folder), says=r"of another run than checkpoint\.npz", code=4))


def test_settings_in_the_header(run: Path, tmp_path: Path) -> None:
    for settings, says in [
        ({"deadline": 7}, "deadline=7"),
        ({"loader": "nope"}, "loader='nope'"),
        ({"x": 1}, "x is not a"),
    ]:
        folder = copied(run, tmp_path / "run")
        whole = trace.read_trace(folder)
        trace.write_trace(folder, whole._replace(header=whole.header.model_copy(update={"deployment": settings})))
        refused(wrong("replay", str(folder), says=says))


def test_in_place_of_files(run: Path, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    (folder / trace.NAME).unlink()
    refused(wrong("replay", str(folder), says=r"holds no trace\.jsonl", code=4))
    (folder / trace.NAME).mkdir()
    refused(wrong("replay", str(folder), says=r"trace\.jsonl cannot be read \(Is a directory\)", code=4))
    refused(wrong("replay", str(tmp_path / "nowhere"), says=r"holds no trace\.jsonl", code=4))
    refused(wrong("replay", str(run / "experiment.yaml"), says=r"holds no trace\.jsonl", code=4))
    folder = copied(run, tmp_path / "run")
    (folder / "experiment.yaml").unlink()
    refused(wrong("replay", str(folder), says=r"no experiment\.yaml", code=4))


def test_a_whole_history_is_read(run: Path) -> None:
    history = read_trace_history(run)
    assert len(history.trace.periods) == len(history.rounds) == 5
