"""Damaged traces: each is refused with one line, or gives the same result; never another error, never other numbers."""

from __future__ import annotations

import importlib
import importlib.util
import json
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
from fedtide.deploy.trace import read_history
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
    ({"tick": 2}, "periods must count"),
    ({"tick": "3"}, "tick is '3'"),
    ({"tick": 3.0}, "tick is 3.0"),
    ({"wall": -1.0}, "wall is -1.0"),
    ({"wall": "30"}, "wall is '30'"),
    ({"wall": 0.5}, "before the .* of the line before"),
    ({"ready": [1, 0]}, "devices must ascend"),
    ({"ready": [0, 0]}, "devices must ascend"),
    ({"ready": [0, 6]}, "ready has device 6, which is not in 0 to 5"),
    ({"ready": "01"}, "ready is '01': input should be a valid list"),
    ({"start": []}, "start has 0 entries"),
    ({"learning_rate": None}, "it lacks learning_rate"),
    ({"label_counts": None}, "it lacks label_counts"),
    ({"picked": [5]}, "picked has device 5, which is not in ready|devices"),
    ({"model": "xyz"}, "model is 'xyz': string should match"),
    ({"model": "0" * 64}, "another model after period 3|does not fit"),
    ({"nodes": {"9": 1}}, "nodes has the key '9'"),
    ({"nodes": {"a": 1}}, "nodes has the key 'a'"),
    ({"nodes": []}, r"nodes is \[\]: input should be a valid dictionary"),
    ({"rate": {"0": -1.0}}, "rate.'0' is -1.0"),
    ({"rate": {"0": "fast"}}, "rate.'0' is 'fast'"),
    ({"symbols": ["1"]}, "symbols.0 is '1': input should be a valid number"),
    ({"bits": []}, "bits has 0 entries"),
    ({"arrived": list(range(6))}, "not in picked"),
    ({"isa": ["a\nb"] * 2}, "isa"),
]


@pytest.mark.parametrize(("changes", "says"), IMPOSSIBLE, ids=lambda each: str(each)[:40])
def test_sealed_but_impossible(run: Path, tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    rejected(resealed(run, tmp_path / "run", **changes), says)


def test_more_rows_of_a_period(run: Path, tmp_path: Path) -> None:
    """Columns that depend on how many are ready."""
    period = trace.read_trace(run).periods[2]
    count = len(period.ready)
    assert count
    rows: list[tuple[dict[str, Any], str]] = [
        ({"start": [4] * count}, "start has 4"),
        ({"start": [True] * count}, "start.0 is True"),
        ({"data": [6] * count}, "data has 6"),
        ({"node": [-1] * count}, "node.0 is -1"),
        ({"node": [2**64] * count}, "node.0 is 18446744073709551616"),
        ({"num_samples": [0] * count}, "num_samples.0 is 0"),
        ({"num_samples": [9] * count}, "adds up to"),
        ({"learning_rate": [0.0] * count}, "learning_rate.0 is 0.0"),
        ({"learning_rate": ["0.1"] * count}, "learning_rate.0 is '0.1'"),
        ({"capacity": [-1.0] * count}, "capacity.0 is -1.0"),
        ({"capacity": [1.0] * count}, "in period 3 capacity differs"),
        ({"update_sq_norm": [1.0] * count}, "update norms"),
        ({"loss": [1.0] * count}, "whether it looks at losses"),
        (
            {"label_counts": [[period.num_samples[k]] for k in range(count)]},
            "counts 1 labels in period 3, and the data has 10",
        ),
        ({"label_counts": [[1]] + [[1, 2]] * (count - 1)}, "adds up to|entries"),
        ({"ready_at": [-1] * count}, "ready_at.0 is -1"),
        ({"refused": [trace.Refusal(device=9, node=1, why="x")]}, "refused has device 9"),
        ({"refused": [{"device": 0, "node": 1, "why": 5}]}, "refused.0.why is 5"),
    ]
    for changes, says in rows:
        rejected(resealed(run, tmp_path / "run", **changes), says)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1: it has no whole line"),
        (b"\n", "line 1"),
        (b"\x00\x01\xff" * 50 + b"\n", "line 1"),
        (b"[]\n", "names its format"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b'{"format":1}\n', "does not end with its seal"),
        (b'{"format":99}\n', "is of format 99, and this version reads format 1"),
        (b'{"format":true}\n', "names its format"),
        (b'{"format":"1"}\n', "names its format"),
        (b'{"format":1,"format":1}\n', "a field twice"),
        (b'{"format":1,"num_devices":NaN}\n', "NaN is no number"),
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
        ({"num_devices": None}, "it lacks num_devices"),
        ({"num_symbols": -1}, "num_symbols is -1"),
        ({"isa": 5}, "isa is 5"),
        ({"deployment": []}, "deployment is .*: input should be a valid dictionary"),
        ({"num_devices": 7}, "of another run"),
        ({}, "0 periods and rounds.jsonl 5"),
        ({"x": 1}, "it has x, which is no field of it"),
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
    # the same experiment, another federation: the seals and the digest fit, the rounds do not
    Federation(small(), tmp_path / "again", durations=(12.0, 3.0, 8.0, 3.0, 3.0, 3.0)).coordinator().run()
    shutil.copy(tmp_path / "again" / trace.NAME, folder / trace.NAME)
    refused(wrong("replay", str(folder), says=r"does not fit rounds\.jsonl: in period 1 ready differs", code=4))


def test_settings_in_the_header(run: Path, tmp_path: Path) -> None:
    for settings, says, code in [
        ({"deadline": 7}, "deadline=7", 4),
        ({"loader": "nope"}, "loader='nope'", 2),
        ({"x": 1}, "x is not a", 4),
    ]:
        folder = copied(run, tmp_path / "run")
        whole = trace.read_trace(folder)
        trace.write_trace(folder, whole._replace(header=whole.header.model_copy(update={"deployment": settings})))
        refused(wrong("replay", str(folder), says=says, code=code))


def test_a_longer_trace_than_the_horizon(run: Path, tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_bytes((run / "experiment.yaml").read_bytes())
    whole = trace.read_trace(run)
    trace.write_trace(
        tmp_path, whole._replace(periods=[*whole.periods, whole.periods[-1].model_copy(update={"tick": 6})])
    )
    refused(wrong("replay", str(tmp_path), says="6 periods and timeline.horizon ends after 5", code=4))


def test_in_place_of_files(run: Path, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    (folder / trace.NAME).unlink()
    refused(wrong("replay", str(folder), says=r"holds no trace\.jsonl", code=4))
    (folder / trace.NAME).mkdir()
    refused(wrong("replay", str(folder), says=r"trace\.jsonl cannot be read \(Is a directory\)", code=4))
    refused(wrong("replay", str(tmp_path / "nowhere"), says="there is no run folder", code=4))
    refused(wrong("replay", str(run / "experiment.yaml"), says="there is no run folder", code=4))
    folder = copied(run, tmp_path / "run")
    (folder / "experiment.yaml").unlink()
    refused(wrong("replay", str(folder), says=r"no experiment\.yaml", code=4))


def test_a_whole_history_is_read(run: Path) -> None:
    history = read_history(run)
    assert len(history.trace.periods) == len(history.rounds) == 5
