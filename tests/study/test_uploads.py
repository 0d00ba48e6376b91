"""Ages, picks and capacities of single uploads in stored results."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedtide import config
from fedtide.errors import FedtideError, RunFolderError
from fedtide.studies.metrics import metric_named
from fedtide.studies.plot import check_drawable
from fedtide.studies.results import read_results, results_from_rounds, write_result_tables
from fedtide.studies.spec import make_study, spec_run_name
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, long_table_rows, table_rows
from helpers import run, small
from stored import forge_cell, name, result, same

EXPERIMENT = small()
ROUNDS = run(EXPERIMENT).rounds
LOSSY = [ROUNDS[0]._replace(lost=ROUNDS[0].picked[:1]), *ROUNDS[1:]]
RESULT = results_from_rounds(EXPERIMENT, LOSSY, 30, 1.0)
NAME = spec_run_name(EXPERIMENT)
U = sum(len(each.picked) for each in ROUNDS)


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


WHO = ROUNDS[1].picked
FATES = [
    ROUNDS[0],
    ROUNDS[1]._replace(
        lost=WHO[:1], retransmitted=WHO[:1], num_kept=[0] * len(WHO), sent_bits=[9, *[0] * (len(WHO) - 1)],
        metrics={"gap, in %": -0.5, "label_gap": 2.0},
    ),
    *ROUNDS[2:],
]  # fmt: skip


@pytest.mark.parametrize("compacted", [False, True])
def test_what_became_of_uploads_and_what_was_measured_come_back(tmp_path, compacted):
    made, store = results_from_rounds(EXPERIMENT, FATES, 30, 1.0), Store(tmp_path)
    store.save(NAME, made)
    if compacted:
        store.compact("one")
    found = Store(tmp_path).load(NAME)
    assert same(found, made)
    sent, first = found.uploads, len(ROUNDS[0].picked)
    assert (sent.lost.sum(), sent.silent.sum(), sent.retransmitted.sum()) == (1, len(WHO) - 1, 1)
    assert sent.retransmitted[first] == sent.lost[first] == 1
    assert found.metrics == ["metrics/gap, in %", "metrics/label_gap"]
    assert found.column("metrics/gap, in %")[1] == -0.5
    assert np.isnan(found.column("metrics/label_gap")).sum() == len(FATES) - 1
    study = make_study("one", {"one": EXPERIMENT}, [EXPERIMENT.seed])
    last = long_table_rows(study, by_label(study, store))[-1]
    assert (last["lost"], last["silent"], last["retransmitted"]) == (1, len(WHO) - 1, 1)
    assert {"metrics/gap, in %", "metrics/label_gap", "symbols_sent"} <= {*last}
    wanted = {"arrived_share": U - len(WHO), "lost_share": 1, "silent_share": len(WHO) - 1, "retransmitted_share": 1}
    for metric, count in wanted.items():
        assert metric_named(metric)(found) == pytest.approx(count / U)
    (row,) = table_rows(study, by_label(study, store), "mean_accuracy")
    assert {name: row[name] for name in wanted} == pytest.approx({name: count / U for name, count in wanted.items()})


def older(result):
    """Return a result as an older version stored it: nothing of what is sent, or silent."""
    columns = {name: values for name, values in result.columns.items() if name != "symbols_sent"}
    return dataclasses.replace(result, columns=columns, sent=result.uploads._replace(silent=None))


def test_results_of_older_versions_are_written_as_they_were(tmp_path):
    old = older(RESULT)
    tables = {name: text.decode() for name, text in write_result_tables([(NAME, old)]).items()}
    assert tables["curves"].startswith(
        "run,index,time,test_accuracy,test_loss,train_loss,symbols,bits,samples_used,samples_trained,control_bits,"
        "bits_down,air_time,joules\n"
    )
    assert tables["uploads"].startswith("run,index,device,age,capacity,lost\n")
    store = Store(tmp_path)
    store.save(NAME, old)
    found = store.load(NAME)
    assert same(found, old)
    assert found.uploads.silent is None
    assert metric_named("lost_share")(found) == 1 / U
    for unknown in ("silent_share", "arrived_share", "idle_share", "metrics/x"):
        assert np.isnan(metric_named(unknown)(found)), unknown
    newer = results_from_rounds(small({"seed": 7}), LOSSY, 30, 1.0)
    both = {name: text.decode() for name, text in write_result_tables([(NAME, old), ("f00d", newer)]).items()}
    (_, back), (_, other) = read_results(both["runs"].encode(), both["curves"].encode())
    assert "symbols_sent" not in back.columns
    assert other.column("symbols_sent").tolist() == newer.column("symbols_sent").tolist()


def test_joules_of_older_and_newer_versions_are_not_compared():
    priced = [each._replace(ledger=each.ledger._replace(joules=2.0 * each.index)) for each in ROUNDS]
    keys = {"old": EXPERIMENT, "new": small({"policy": {"limit": 2}})}
    study = make_study("two", keys, [EXPERIMENT.seed])
    results = {label: {EXPERIMENT.seed: results_from_rounds(each, priced, 30, 1.0)} for label, each in keys.items()}
    before = {"old": {seed: older(each) for seed, each in results["old"].items()}, "new": results["new"]}
    rows = {row["variant"]: row for row in table_rows(study, before, "joules_to_0.001")}
    assert "1 of 2 runs count the symbols granted, of the others those sent: run the older" in rows["new"]["reason"]
    assert "difference" not in rows["new"]
    assert rows["old"]["counts_note"].startswith("airtime and joules count the symbols granted")
    for row in table_rows(study, results, "joules_to_0.001"):
        assert (row["reason"], row["counts_note"]) == ("", "")
    assert all(row["reason"] == "" for row in table_rows(study, before, "time_to_0.001"))


def test_a_metric_that_was_not_measured_says_what_was(tmp_path):
    study = make_study("one", {"one": EXPERIMENT}, [EXPERIMENT.seed])
    made = results_from_rounds(
        EXPERIMENT, [each._replace(metrics={"gap": 0.25 * each.index}) for each in ROUNDS], 30, 1.0
    )
    results = {"one": {EXPERIMENT.seed: made}}
    with pytest.raises(
        FedtideError, match=r"metric metrics/gab needs runs that measured it .* measured was metrics/gap"
    ):
        table_rows(study, results, "metrics/gab")
    (row,) = table_rows(study, results, "metrics/gap")
    late = [0.25 * each.index for each in ROUNDS if each.time >= 0.9 * EXPERIMENT.timeline.horizon]
    assert row["mean"] == pytest.approx(np.mean(late))
    check_drawable(results, "metrics/gap", "time")
    with pytest.raises(FedtideError, match=r"column='metrics/gab' is not recorded; use one of .*, metrics/gap"):
        check_drawable(results, "metrics/gab", "time")


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
            age=rng.integers(0, 8, 8).tolist(), num_kept=[9] * 8, sent_bits=[80] * 8,
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
