from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.core import yaml12
from fedtide.errors import FedtideError
from fedtide.report.summary import summarise
from fedtide.runs import Ledger, RoundRecord
from fedtide.studies.metrics import metric_named
from fedtide.studies.results import RunResult
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, table_rows
from helpers import small
from stored import TINY, put, result, two_variants

COLUMNS = {
    "index": [1, 2, 3],
    "time": [1.0, 2.0, 4.0],
    "test_accuracy": [0.3, 0.8, 0.7],
    "symbols": [10.0, 20.0, 40.0],
    "bits": [100.0, 200.0, 300.0],
    "samples_trained": [5, 6, 7],
}
JOULES = [22.5, 43.0, 83.5]


def made(**more) -> RunResult:
    return RunResult({}, {**COLUMNS, **more}, {})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_to_0.3", 1.0),
        ("time_to_0.5", 2.0),
        ("time_to_.8", 2.0),
        ("bits_to_0.75", 200.0),
        ("joules_to_0.3", 22.5),
        ("joules_to_0.8", 43.0),
        ("time_to_0.81", None),
        ("joules_to_1", None),
    ],
)
def test_the_first_evaluation_that_shows_it_counts(name, value):
    found = metric_named(name)(made(joules=JOULES))
    assert math.isnan(found) if value is None else found == value


def test_what_was_not_counted_is_not_a_number():
    counted = {"joules": [1.0, 3.0, 9.0], "bits_down": [64.0, 128.0, 192.0], "air_time": [0.5, 1.5, 2.0]}
    for name, value in (("joules", 3.0), ("bits_down", 128.0), ("air_time", 1.5)):
        assert metric_named(f"{name}_to_0.8")(made(**counted)) == value
        assert math.isnan(metric_named(f"{name}_to_0.8")(made()))
    assert metric_named("air_time_to_0.8").reason([made()]).startswith("radio.symbol_rate is 0")  # type: ignore[attr-defined]
    assert metric_named("bits_down_to_0.8").reason([made()]).startswith("stored by an older fedtide")  # type: ignore[attr-defined]
    assert metric_named("bits_down_to_0.9").reason([made(**counted)]) == "0 of 1 seeds reach 0.9"  # type: ignore[attr-defined]


def test_bits_are_those_of_control_too():
    assert metric_named("bits_to_0.8")(made(control_bits=[1.0, 2.0, 3.0])) == 202.0


@pytest.mark.parametrize("name", ["time_to_0", "time_to_2", "time_to_", "time_to_0.9x", "cost_to_0.9", "bits_to_-0.5"])
def test_what_is_no_such_metric(name):
    with pytest.raises(FedtideError, match=f"^metric '{name}' is not known; use one of mean_accuracy"):
        metric_named(name)


def test_why_there_is_no_number():
    assert metric_named("time_to_0.9").reason([made(), made(test_accuracy=[0.9, 0.9, 0.9])]) == "1 of 2 seeds reach 0.9"  # type: ignore[attr-defined]
    assert metric_named("time_to_0.8").reason([made()]) == ""  # type: ignore[attr-defined]
    assert "radio.joules_per_symbol and fleet.joules_per_sample" in metric_named("joules_to_0.8").reason([made()])  # type: ignore[attr-defined]
    assert metric_named("joules_to_0.9").reason([made(joules=JOULES)]) == "0 of 1 seeds reach 0.9"  # type: ignore[attr-defined]


def filled(folder: Path, levels):
    store = Store(folder)
    for run in two_variants(2).runs:
        put(store, run, level=levels[run.label])
    return by_label(two_variants(2), store)


def test_the_table_compares_what_is_reached(tmp_path):
    table = table_rows(two_variants(2), filled(tmp_path, {"a": 0.5, "b": 0.6}), "bits_to_0.5")
    assert [(row["median"], row["reached"], row["reached_of"]) for row in table] == [(5.0, 2, 2)] * 2
    assert [row["reason"] for row in table] == ["", ""]
    assert table[1]["verdict"] == "no difference"


@pytest.mark.parametrize(
    ("metric", "levels", "medians", "reasons"),
    [
        ("time_to_0.6", {"a": 0.5, "b": 0.6}, [None, 0.5], ["0 of 2 seeds", "a: 0 of 2 seeds reach 0.6"]),
        ("time_to_0.6", {"a": 0.6, "b": 0.5}, [0.5, None], ["", "0 of 2 seeds reach 0.6"]),
        ("joules_to_0.5", {"a": 0.6, "b": 0.5}, [None, None], ["are both 0", "are both 0"]),
    ],
)
def test_the_table_says_why_there_is_nothing_to_compare(tmp_path, metric, levels, medians, reasons):
    table = table_rows(two_variants(2), filled(tmp_path, levels), metric)
    assert [row["median"] for row in table] == medians
    for row, reason in zip(table, reasons, strict=True):
        assert reason in row["reason"]
        assert "difference" not in row
        assert json.dumps(row, allow_nan=False)


@pytest.mark.parametrize(
    ("levels", "median", "reached"),
    [
        ([0.6, 0.6, 0.6, 0.5, 0.5], 0.5, 3),  # the others are later than all that reach it
        ([0.6, 0.6, 0.5, 0.5, 0.5], None, 2),
        ([0.6, 0.6, 0.5, 0.5], None, 2),  # half is not more than half
        ([0.6, 0.6, 0.6, 0.6, 0.6], 0.5, 5),
    ],
)
def test_a_seed_that_does_not_get_there_is_later_than_all(tmp_path, levels, median, reached):
    study, store = two_variants(len(levels)), Store(tmp_path)
    for run in study.runs:
        put(store, run, level=levels[run.experiment.seed] if run.label == "a" else 0.6)
    row, other = table_rows(study, by_label(study, store), "time_to_0.6")
    assert (row["median"], row["reached"], row["reached_of"]) == (median, reached, len(levels))
    late = [0.5 if level >= 0.6 else 1.0 for level in levels]  # who does not get there counts until its end
    assert other["difference"] == pytest.approx(np.mean([0.5 - time for time in late]))
    assert ("seeds reach" in other["censored_note"]) == (reached < len(levels))
    assert reached == len(levels) or f"{reached} of {len(levels)} seeds reach 0.6" in row["reason"]
    assert json.dumps(row, allow_nan=False)


def test_the_command_says_how_many_seeds_get_there(tmp_path):
    study, store = two_variants(3), Store(tmp_path / "r")
    for run in study.runs:
        put(store, run, level=0.5 if run.label == "b" and run.experiment.seed == 2 else 0.6)
    (tmp_path / "two.yaml").write_text(
        yaml12.to_yaml(
            {"version": 1, "name": "two", "seeds": 3, "base": TINY,
             "variants": {"a": {"policy": {"limit": 1}}, "b": {"policy": {"limit": 2}}}}
        )
    )  # fmt: skip
    words = ["study", "show", str(tmp_path / "two.yaml"), "-s", str(tmp_path / "r"), "-m", "time_to_0.6"]
    found = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert "0.5000, 2 of 3" in found.stdout
    assert "2 of 3 seeds reach 0.6" in " ".join(found.stdout.split())


def test_an_unknown_metric_is_told_of_these(tmp_path):
    with pytest.raises(FedtideError, match=r"time_to_A, bits_to_A, joules_to_A, .* with an accuracy A"):
        table_rows(two_variants(2), filled(tmp_path, {"a": 0.5, "b": 0.5}), "time_to_2")


def test_the_command_shows_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtide.cli.console.out._width", 200)
    (tmp_path / "two.yaml").write_text(
        "version: 1\nname: two\nseeds: 1\nvariants: {a: {policy.limit: 1}, b: {policy.limit: 2}}\n"
        "base: {data: {name: synthetic, num_train: 100, num_test: 20, num_shards: 10}, fleet.num_devices: 4, "
        "timeline.horizon: 1, learning.model: softmax}\n"
    )
    filled(tmp_path / "r", {"a": 0.5, "b": 0.5})
    words = ["study", "show", str(tmp_path / "two.yaml"), "-s", str(tmp_path / "r"), "-m", "time_to_0.9"]
    found = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert found.exit_code == 0
    assert "0 of 1 seeds reach 0.9" in found.stdout
    assert "not reached" in found.stdout


def test_a_runs_summary_has_them():
    rounds = [
        RoundRecord(  # type: ignore[call-arg]
            index,
            1.0 * index,
            *([[]] * 9),
            0.0,
            None,
            [],
            0.4 * index,
            None,
            None,
            Ledger(10.0, 7.0 * index, 1, 2, 1.0),
        )
        for index in (1, 2)
    ]
    found = summarise(small(), rounds, 30)
    assert found["time_to_accuracy"] == {"0.5": 2.0, "0.8": 2.0, "0.9": None, "0.95": None}
    assert found["bits_to_accuracy"] == {"0.5": 15.0, "0.8": 15.0, "0.9": None, "0.95": None}
    assert set(found["joules_to_accuracy"].values()) == {None}
    assert found["control_bits"] == 1.0


def test_results_made_by_hand_are_as_before():
    assert metric_named("time_to_0.5")(result()) == 0.5
