"""Ages, picks and capacities of single uploads in stored results."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from fedtide.studies.stored_format import EACH, FLAT, unpack_result

from fedtide import config
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs.record import pack_column
from fedtide.studies.results import from_rounds, same
from fedtide.studies.spec import name_of
from fedtide.studies.store import Store
from helpers import run, small

EXPERIMENT = small()
ROUNDS = run(EXPERIMENT).rounds
LOSSY = [ROUNDS[0]._replace(lost=ROUNDS[0].picked[:1]), *ROUNDS[1:]]
RESULT = from_rounds(EXPERIMENT, LOSSY, 30, 1.0)
NAME = name_of(EXPERIMENT)
COMMITTED = Path(__file__).parents[2] / "results" / "paper"


def test_every_upload_comes_back_from_the_store(tmp_path):
    Store(tmp_path).save(NAME, RESULT)
    found = Store(tmp_path).load(NAME)
    assert found == RESULT
    for column in ("picked", "age", "capacity"):
        flat, offsets = found.ragged(column)
        assert len(offsets) == len(ROUNDS) + 1
        for t, each in enumerate(ROUNDS):
            assert flat[offsets[t] : offsets[t + 1]].tolist() == pytest.approx(getattr(each, column), rel=1e-7)
    lost, offsets = found.ragged("lost")
    assert lost.sum() == lost[0] == 1
    assert found.each_round("time").tolist() == [each.time for each in ROUNDS]
    assert found.each_round("num_ready").tolist() == [len(each.ready) for each in ROUNDS]
    assert found.each_round("counts").tolist() == np.diff(offsets).tolist()


def test_control_bits_are_a_column_once_there_are_any():
    assert "control_bits" not in RESULT.columns
    assert RESULT.column("control_bits").tolist() == [0.0] * len(RESULT.column("time"))
    spent = [each._replace(ledger=each.ledger._replace(control_bits=8.0 * each.index)) for each in ROUNDS]
    assert from_rounds(EXPERIMENT, spent, 30, None).column("control_bits")[0] == 8.0


def test_older_results_say_that_they_have_none():
    store = Store(COMMITTED)
    old = store.load(next(iter(store.all_files())))
    with pytest.raises(FedtideError, match=r"stored without its picked .by an older fedtide.; run it again"):
        old.ragged("picked")
    with pytest.raises(FedtideError, match="'bits' is no such column; use one of picked, age, capacity, lost"):
        RESULT.ragged("bits")
    assert same(RESULT, RESULT._replace(rounds=None))
    assert not same(RESULT, from_rounds(EXPERIMENT, ROUNDS, 30, 1.0))


def test_one_look_at_the_folder_is_enough_for_all(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.save(NAME, RESULT)
    kept = store.all_files()
    monkeypatch.setattr(Store, "all_files", None)
    assert store.load(NAME, kept) == RESULT


N, U = len(ROUNDS), sum(len(each.picked) for each in ROUNDS)
BOMB = pack_column(np.zeros(10**6, np.int64))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([], "rounds are a list"),
        ({"picked": None}, "the picked of its rounds: a column is neither"),
        ({"picked": BOMB}, rf"the picked of its rounds: a packed column has more than {U}"),
        ({"time": BOMB.replace("<i8", "<f8")}, f"time of its rounds: a packed column has more than {N}"),
        ({"age": pack_column(np.zeros(U))}, "age of its rounds has .* entries of float64"),
        ({"age": pack_column(np.zeros(U - 1, np.int64))}, f"entries of int64, and should have {U}"),
        ({"age": pack_column(np.full(U, -1))}, "age of its rounds holds what cannot be"),
        ({"picked": pack_column(np.full(U, 6))}, "picked of its rounds holds what cannot be: they go from 0 to 5"),
        ({"capacity": pack_column(np.full(U, np.nan, np.float32))}, "capacity of its rounds holds"),
        ({"lost": pack_column(np.full(U, 2))}, "from 0 to 1"),
        ({"counts": pack_column(np.zeros(N, np.int64))}, "counts of its rounds are not those"),
    ],
)
def test_columns_that_cannot_be(tmp_path, changes, says):
    tree = {"format": FORMAT, **RESULT.stored()}
    tree["rounds"] = tree["rounds"] | changes if isinstance(changes, dict) else changes
    (tmp_path / f"{NAME}.json.gz").write_bytes(gzip.compress(json.dumps(tree).encode()))
    with pytest.raises(RunFolderError, match=says) as caught:
        Store(tmp_path).load(NAME)
    assert "\n" not in str(caught.value)


def test_a_run_of_the_default_size_stays_small(tmp_path):
    rng, default = np.random.default_rng(0), config.experiment({})
    rounds = [
        ROUNDS[0]._replace(
            index=t, time=0.25 * t, picked=np.sort(rng.choice(30, 8, replace=False)).tolist(),
            age=rng.integers(0, 8, 8).tolist(),
            capacity=rng.exponential(4.0, 8).tolist(), ready=list(range(20)),
            test_accuracy=rng.random(), test_loss=rng.random(),
        )
        for t in range(1, 141)
    ]  # fmt: skip
    store = Store(tmp_path)
    store.save(name_of(default), from_rounds(default, rounds, 1000, 1.0))
    (file,) = tmp_path.glob("*.json.gz")
    assert set(unpack_result(file.read_bytes())["rounds"]) == {*EACH, *FLAT}
    assert file.stat().st_size < 12_000
