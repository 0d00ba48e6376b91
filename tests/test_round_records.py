"""Records of aggregations: written, read, and refused in one line when they are none."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fedtide.cli.main import app
from fedtide.engine.step import initial_state
from fedtide.errors import RunFolderError
from fedtide.runs import Ledger, RoundRecord, RunFolder, read_rounds, read_run
from helpers import small

EXPERIMENT = small({"timeline": {"horizon": 2.0}})
FIRST = RoundRecord(
    *(1, 0.25, [0, 2], [2], [1], [3.5], [400.0], [1400.0], [1399], [12], [7], 0.5, None, [1.0], 0.5, 1.5, None),
    Ledger(400.0, 1399.0, 8, 16),
)
FULL = FIRST._replace(
    lost=[2],
    metrics={"fairness": 0.75, "count": 3.0},
    ledger=Ledger(400.0, 1399.0, 8, 16, control_bits=64.0, bits_down=192.0, air_time=0.2, joules=1.5),
)
AGAIN = FULL._replace(retransmitted=[2], ledger=FULL.ledger._replace(symbols_sent=399.5))


def changed(**changes: Any) -> str:
    tree = {**json.loads(FULL.to_json()), **changes}
    return json.dumps({key: value for key, value in tree.items() if value is not ...})


def test_a_round_says_its_format_first_and_comes_back() -> None:
    assert FULL.to_json().startswith('{"format":1,"index":1,')
    assert RoundRecord.from_json(FULL.to_json()) == FULL
    assert RoundRecord.from_json(FIRST.to_json()) == FIRST
    assert RoundRecord.from_json(AGAIN.to_json()) == AGAIN
    assert type(RoundRecord.from_json(FIRST.to_json()).sent_bits[0]) is int


def test_what_older_versions_did_not_record_is_not_written() -> None:
    assert not {"retransmitted", "symbols_sent"} & {*FULL._fields} - {*json.loads(AGAIN.to_json())}
    for record in (FIRST, FULL):
        tree = json.loads(record.to_json())
        assert "retransmitted" not in tree
        assert "symbols_sent" not in tree["ledger"]
    with pytest.raises(ValueError, match="retransmitted has a device that is not one of 3"):
        RoundRecord.from_json(AGAIN._replace(retransmitted=[3]).to_json(), 3)


def test_every_picked_device_arrived_was_lost_or_stayed_silent() -> None:
    several = FIRST._replace(
        **{name: getattr(FIRST, name) * 4 for name in ("age", "capacity", "symbols", "budget_bits", "weight")},
        picked=[1, 2, 4, 7], overhead_bits=[12, 12, 0, 12], num_kept=[7, 0, 0, 3], sent_bits=[9, 0, 0, 4], lost=[7],
    )  # fmt: skip
    assert (several.silent, several.lost, several.num_arrived) == ([2, 4], [7], 1)
    uncoded = several._replace(sent_bits=[0, 0, 0, 0], lost=[])
    assert (uncoded.silent, uncoded.num_arrived) == ([2, 4], 2)


@given(st.integers(0, 400), st.integers(0, 2**32))
def test_rounds_of_any_length_come_back(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    picked = np.sort(rng.choice(10**6, count, replace=False)).tolist()
    record = FULL._replace(
        ready=picked, picked=picked, age=rng.integers(0, 9, count).tolist(), capacity=rng.exponential(size=count).tolist(),
        weight=rng.random(count).tolist(), sent_bits=[7.5, *range(count)][:count], lost=picked[::2],
        symbols=[1.5] * count, budget_bits=[9.0] * count, overhead_bits=[8] * count, num_kept=[3] * count,
    )  # fmt: skip
    again = RoundRecord.from_json(record.to_json(), 10**6)
    assert again == record


def test_a_million_devices_do_not_cost_megabytes() -> None:
    ready = np.sort(np.random.default_rng(1).choice(10**6, 250_000, replace=False)).tolist()
    line = FULL._replace(ready=ready).to_json()
    assert len(line) < 200_000
    assert RoundRecord.from_json(line, 10**6).ready == ready


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (changed(format=9), "a round of format 9; this fedtide reads format 1"),
        (changed(format=0), "format 0"),
        (changed(format=True), "format True"),
        (changed(format="1"), "format '1'"),
        (changed(format=...), "format None"),
        (changed(colour="red"), "colour='red'"),
        (changed(ledger={"bits": "3"}), "ledger.bits='3'"),
        (changed(ledger=...), "ledger=.*required"),
        (changed(ledger=7), "ledger=7"),
        (changed(index=...), "index=.*required"),
        (changed(index="1"), "index='1'"),
        (changed(index=1.0), "index=1.0"),
        (changed(time=None), "time=None"),
        (changed(test_accuracy="high"), "test_accuracy='high'"),
        (changed(proved_minimal=1), "proved_minimal=1"),
        (changed(age=["1"]), "age.0='1'"),
        (changed(age=[True]), "age.0=True"),
        (changed(capacity=[None]), "capacity.0=None"),
        (changed(weight=[[1.0]]), r"weight.0=\[1.0\]"),
        (changed(ready="<i8:x"), "broken"),
        (changed(ready=3), "neither a list"),
        (changed(lost=None), "neither a list"),
        (changed(ready=list(range(7))), "7 entries, and 6 are the most"),
        (changed(unnamed=5), "7 ready devices, and there are 6"),
        (changed(unnamed=-1), "unnamed=-1"),
        (changed(picked=[1, 2]), "1 entries of age and 2 uploads"),
        (changed(weight=[]), "0 entries of weight and 1 uploads"),
        (changed(picked=[6]), "picked has a device that is not one of 6"),
        (changed(ready=[-1]), "ready has a device"),
        (changed(lost=[10**30]), "lost has a device"),
        (changed(metrics=[1]), "metrics="),
        (changed(metrics={"a": "b"}), "metrics.a='b'"),
        (changed(metrics={"a": float("nan")}), "metrics.a=nan"),
        (changed(metrics={"a": True}), "metrics.a=True"),
        ("[]", "not a list"),
        ("3", "not a int"),
    ],
)  # fmt: skip
def test_what_is_no_round(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        RoundRecord.from_json(line, 6)
    assert "\n" not in str(caught.value)


# ---- folders


def append(folder: Path, record: RoundRecord) -> Ledger:
    """Add one round to a folder, after what it holds; return the ledger that it goes on with."""
    opened = RunFolder.open(folder, EXPERIMENT)
    saved = opened.load()
    index, model = saved[0].version if saved else 1, np.zeros(3, np.float32)
    state = initial_state(model, 6)._replace(version=index + 1, models={1: model, index + 1: model})
    opened.append(record._replace(index=index), state)
    opened.checkpoint()
    opened.close()
    return saved[1] if saved else Ledger()


def test_a_folder_keeps_the_whole_ledger(tmp_path: Path) -> None:
    assert append(tmp_path / "run", FULL) == Ledger()
    assert append(tmp_path / "run", FULL) == FULL.ledger
    assert [record._replace(index=1) for record in read_run(tmp_path / "run").rounds] == [FULL, FULL]
    assert read_rounds(tmp_path / "run") == read_run(tmp_path / "run").rounds


FORGERIES = [
    {"picked": "x"}, {"age": ["1"]}, {"ledger": 3}, {"ledger": {"joules": [1]}}, {"test_accuracy": {}}, {"time": "1"},
    {"metrics": []}, {"picked": [5, 5]}, {"ready": [99]}, {"format": 4}, {"extra": 1}, {"label_variance": None},
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGERIES, ids=str)
def test_forged_rounds_with_the_right_checksum_are_one_line(tmp_path: Path, forged: dict[str, Any]) -> None:
    """Someone edits a round and the checksum in the checkpoint with it."""
    append(tmp_path / "run", FULL)
    line = json.dumps({**json.loads(FULL.to_json()), **forged}).encode() + b"\n"
    (tmp_path / "run" / "rounds.jsonl").write_bytes(line)
    with np.load(tmp_path / "run" / "checkpoint.npz") as saved:
        arrays = {name: saved[name] for name in saved.files}
    manifest = json.loads(str(arrays["manifest"]))
    manifest |= {"rounds_bytes": len(line), "rounds_sha256": hashlib.sha256(line).hexdigest()}
    np.savez(tmp_path / "run" / "checkpoint.npz", **{**arrays, "manifest": json.dumps(manifest)})
    with pytest.raises(RunFolderError, match=r"rounds\.jsonl is damaged") as caught:
        read_run(tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert CliRunner().invoke(app, ["show", str(tmp_path / "run")]).exit_code == 4
