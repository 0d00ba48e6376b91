"""Ages, picks and capacities of single uploads in stored results."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedtide import config
from fedtide.errors import FedtideError, RunFolderError
from fedtide.studies.results import results_from_rounds, write_result_tables
from fedtide.studies.spec import make_study, spec_run_name
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, long_table_rows
from helpers import run, small
from stored import forge_cell, name, result, same

EXPERIMENT = small()
ROUNDS = run(EXPERIMENT).rounds
LOSSY = [ROUNDS[0]._replace(lost=ROUNDS[0].picked[:1]), *ROUNDS[1:]]
RESULT = results_from_rounds(EXPERIMENT, LOSSY, 30, 1.0)
NAME = spec_run_name(EXPERIMENT)


@pytest.mark.parametrize("compacted", [False, True])
def test_every_upload_comes_back_from_the_store(tmp_path, compacted):
    store = Store(tmp_path)
    store.save(NAME, RESULT)
    if compacted:
        store.compact("one")
    found = Store(tmp_path).load(NAME)
    assert same(found, RESULT)
    sent = found.uploads
    assert all(
        np.array_equal(one, other) and np.asarray(one).dtype == np.asarray(other).dtype
        for one, other in zip(sent, RESULT.uploads, strict=True)
    )
    assert len(sent.offsets) == len(ROUNDS) + 1
    for column in ("picked", "age", "capacity"):
        for t, each in enumerate(ROUNDS):
            values = getattr(sent, column)[sent.offsets[t] : sent.offsets[t + 1]]
            assert values.tolist() == pytest.approx(getattr(each, column), rel=1e-7)
    assert sent.lost.sum() == sent.lost[0] == 1
    assert sent.time.tolist() == [each.time for each in ROUNDS]
    assert sent.num_ready.tolist() == [len(each.ready) for each in ROUNDS]
    assert sent.counts.tolist() == np.diff(sent.offsets).tolist()


def test_control_bits_are_a_column_once_there_are_any():
    assert "control_bits" not in RESULT.columns
    assert RESULT.column("control_bits").tolist() == [0.0] * len(RESULT.column("time"))
    spent = [each._replace(ledger=each.ledger._replace(control_bits=8.0 * each.index)) for each in ROUNDS]
    assert results_from_rounds(EXPERIMENT, spent, 30, None).column("control_bits")[0] == 8.0


def test_a_result_without_uploads_says_so():
    with pytest.raises(FedtideError, match=r"stored without its single uploads; run it again"):
        _ = result().uploads
    assert same(RESULT, dataclasses.replace(RESULT, sent=None))
    assert not same(RESULT, results_from_rounds(EXPERIMENT, ROUNDS, 30, 1.0))


def test_a_run_that_diverged_is_exported_with_what_it_sent(tmp_path):
    study, store, rounds = make_study("one", {"one": EXPERIMENT}, [EXPERIMENT.seed]), Store(tmp_path), ROUNDS[:2]
    last = rounds[-1].time
    store.save(NAME, results_from_rounds(EXPERIMENT, rounds, 30, None, left=[(3, last), (4, last)]))
    rows = long_table_rows(study, by_label(study, store))
    assert [row["uploads"] for row in rows[-2:]] == [sum(len(each.picked) for each in rounds)] * 2


U = sum(len(each.picked) for each in ROUNDS)


@pytest.mark.parametrize(
    ("table", "column", "value", "says"),
    [
        ("uploads", "device", "x", "could not convert"),
        ("uploads", "device", "-1", "device of run 0 is -1"),
        ("uploads", "age", "0.5", r"age of run 0 is 0\.5, and should be a whole number"),
        ("uploads", "age", "NaN", "age of run 0 is nan, and should be a whole number"),
        ("uploads", "lost", "2", "from 0 to 1"),
        ("uploads", "run", "7", "not those of 1 runs"),
        ("rounds", "uploads", "0", f"has {U} uploads, and should have"),
    ],
)
def test_uploads_that_cannot_be(tmp_path, table, column, value, says):
    forge_cell(tmp_path, table, column, value, made=RESULT)
    found = Store(tmp_path).load(name())
    with pytest.raises(RunFolderError, match=says) as caught:
        found.uploads_if_stored()
    assert "\n" not in str(caught.value)


def test_a_run_of_the_default_size_stays_small(tmp_path):
    rng, default = np.random.default_rng(0), config.experiment({})
    rounds = [
        ROUNDS[0]._replace(
            index=t, time=0.25 * t, picked=np.sort(rng.choice(30, 8, replace=False)).tolist(),
            age=rng.integers(0, 8, 8).tolist(), num_kept=[9] * 8,
            capacity=rng.exponential(4.0, 8).tolist(), ready=list(range(20)),
            test_accuracy=rng.random(), test_loss=rng.random(),
        )
        for t in range(1, 141)
    ]  # fmt: skip
    store = Store(tmp_path)
    store.save(spec_run_name(default), results_from_rounds(default, rounds, 1000, 1.0))
    store.compact("default")
    assert sum(file.stat().st_size for file in tmp_path.glob("*.gz")) < 16_000
    assert set(write_result_tables([])) == {"runs", "curves", "rounds", "uploads"}
