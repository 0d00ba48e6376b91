"""Rounds of every format: older and newer ones are read, and a run stays in the one that it was begun in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.engine.step import initial_state
from fedtide.errors import FedtideError, RunFolderError
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
SECOND = FULL._replace(
    ledger=FULL.ledger._replace(bits_down=0.0, air_time=0.0, joules=0.0)
)  # what format 2 knows of it

OLD = (
    '{"index":1,"time":0.25,"ready":[0,2],"picked":[2],"age":[1],"capacity":[3.5],"symbols":[400.0],"budget_bits":[1400.0],'
    '"sent_bits":[1399],"overhead_bits":[12],"num_kept":[7],"label_variance":0.5,"proved_minimal":null,"weight":[1.0],'
    '"test_accuracy":0.5,"test_loss":1.5,"train_loss":null,"ledger":{"symbols":400.0,"bits":1399.0,"samples_used":8,'
    '"samples_trained":16}}'
)


def changed(**changes: Any) -> str:
    tree = {**json.loads(FULL.to_json()), **changes}
    return json.dumps({key: value for key, value in tree.items() if value is not ...})


def test_format_1_is_to_the_byte_what_it_was() -> None:
    assert FIRST.to_json(1) == FULL.to_json(1) == OLD
    assert RoundRecord.from_json(OLD) == FIRST


def test_format_2_is_to_the_byte_what_it_was() -> None:
    beginning = '{"format":2,' + OLD[1 : OLD.index('"ledger"')]
    ending = (
        '"ledger":{"symbols":400.0,"bits":1399.0,"samples_used":8,"samples_trained":16,"control_bits":64.0},'
        '"lost":[2],"metrics":{"fairness":0.75,"count":3.0}}'
    )
    assert FULL.to_json(2) == SECOND.to_json(2) == beginning + ending
    assert RoundRecord.from_json(FULL.to_json(2)) == SECOND


def test_format_3_says_so_first_and_comes_back() -> None:
    assert FULL.to_json().startswith('{"format":3,"index":1,')
    assert RoundRecord.from_json(FULL.to_json()) == FULL
    assert RoundRecord.from_json(FIRST.to_json()) == FIRST


@given(st.integers(0, 400), st.integers(0, 2**32))
def test_rounds_of_any_length_come_back(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    picked = np.sort(rng.choice(10**6, count, replace=False)).tolist()
    record = FULL._replace(
        ready=picked, picked=picked, age=rng.integers(0, 9, count).tolist(), capacity=rng.exponential(size=count).tolist(),
        weight=rng.random(count).tolist(), sent_bits=[7.5, *range(count)][:count], lost=picked[::2],
    )  # fmt: skip
    again = RoundRecord.from_json(record.to_json(), 10**6)
    assert again == record
    assert RoundRecord.from_json(record.to_json(1)) == record._replace(lost=[], metrics={}, ledger=FIRST.ledger)


def test_a_million_devices_do_not_cost_megabytes() -> None:
    ready = np.sort(np.random.default_rng(1).choice(10**6, 250_000, replace=False)).tolist()
    line = FULL._replace(ready=ready).to_json()
    assert len(line) < 200_000
    assert RoundRecord.from_json(line, 10**6).ready == ready


def test_fields_of_later_versions_are_passed_over() -> None:
    later = changed(format=3, colour="red", ledger={**FULL.ledger._asdict(), "money": 3})
    assert RoundRecord.from_json(later) == FULL
    assert RoundRecord.from_json(changed(format=1, colour="red")) == FULL


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (changed(format=9, ready=..., picked=...), "lacks ready, picked; it is of format 9, and this fedtide knows up to 4"),
        (changed(ledger={"bits": 3}), "lacks a whole ledger"),
        (changed(ledger=...), "lacks ledger"),
        (changed(ledger=7), "lacks a whole ledger"),
        (changed(index=...), "lacks index"),
        (changed(format=0), "format 0"),
        (changed(format=True), "format True"),
        (changed(format="2"), "format '2'"),
        (changed(ready="<i8:x"), "broken"),
        (changed(ready=3), "neither a list"),
        (changed(lost=None), "neither a list"),
        (changed(ready=list(range(7))), "7 entries, and 6 are the most"),
        (changed(metrics=[1]), "metrics are a list"),
        (changed(metrics={"a": "b"}), "metric 'a' is 'b'"),
        (changed(metrics={"a": float("nan")}), "metric 'a' is nan"),
        (changed(metrics={"a": True}), "metric 'a' is True"),
        ("[]", "not a list"),
        ("3", "not a int"),
    ],
)  # fmt: skip
def test_what_is_no_round(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RoundRecord.from_json(line, 6)


@pytest.mark.parametrize("metrics", [{"a": float("inf")}, {"a": "b"}, {"a": None}, {3: 1.0}, {"a": True}])
def test_metrics_are_finite_numbers(metrics: Any) -> None:
    with pytest.raises(FedtideError, match="metrics are finite numbers by name") as caught:
        FIRST._replace(metrics=metrics).to_json()
    assert "\n" not in str(caught.value)


def test_metrics_may_be_numpys() -> None:
    record = FIRST._replace(metrics={"a": np.float32(0.1), "b": np.int64(3)})
    assert RoundRecord.from_json(record.to_json()).metrics == {"a": float(np.float32(0.1)), "b": 3}


# ---- folders


def append(folder: Path, record: RoundRecord, begun_in: int | None = None) -> Ledger:
    """Add one round to a folder, after what it holds; return the ledger that it goes on with."""
    opened = RunFolder.open(folder, EXPERIMENT)
    saved = opened.load()
    index, model = saved[0].version if saved else 1, np.zeros(3, np.float32)
    if begun_in is not None:
        opened._format = begun_in
    state = initial_state(model, 6)._replace(version=index + 1, models={1: model, index + 1: model})
    opened.append(record._replace(index=index), state)
    opened.close()
    return saved[1] if saved else Ledger()


def test_a_new_folder_is_of_format_3_and_keeps_the_whole_ledger(tmp_path: Path) -> None:
    append(tmp_path / "run", FULL)
    assert append(tmp_path / "run", FULL) == FULL.ledger
    assert [each._replace(index=1) for each in read_run(tmp_path / "run").rounds] == [FULL, FULL]
    with np.load(tmp_path / "run" / "checkpoint.npz") as saved:
        assert float(saved["control_bits"]) == 64.0
        assert saved["ledger_later"].tolist() == [192.0, 0.2, 1.5]


def test_a_folder_of_format_2_stays_one(tmp_path: Path) -> None:
    append(tmp_path / "run", SECOND, begun_in=2)
    assert append(tmp_path / "run", FULL) == SECOND.ledger
    assert append(tmp_path / "run", FULL) == SECOND.ledger
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert lines == [SECOND._replace(index=index).to_json(2) for index in (1, 2, 3)]
    with np.load(tmp_path / "run" / "checkpoint.npz") as saved:
        assert float(saved["control_bits"]) == 64.0
        assert "ledger_later" not in saved


def test_a_folder_of_format_1_stays_one(tmp_path: Path) -> None:
    append(tmp_path / "run", FIRST, begun_in=1)
    assert append(tmp_path / "run", FULL) == FIRST.ledger  # a run of now would count control bits; its file cannot
    assert append(tmp_path / "run", FULL) == FIRST.ledger
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert lines == [OLD.replace('"index":1', f'"index":{index}') for index in (1, 2, 3)]
    with np.load(tmp_path / "run" / "checkpoint.npz") as saved:
        assert "control_bits" not in saved


def test_a_run_of_a_later_version_is_shown_and_not_continued(tmp_path: Path) -> None:
    append(tmp_path / "run", FULL, begun_in=5)
    assert read_run(tmp_path / "run").rounds == read_rounds(tmp_path / "run") == [FULL]
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    with pytest.raises(
        RunFolderError, match=r"begun by a later fedtide .*format 5.*continue it with that one"
    ) as caught:
        append(tmp_path / "run", FULL)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before
