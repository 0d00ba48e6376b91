"""The payload of a study's page: columns kept once, comparisons as the house makes them, reasons for what is not there."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest

from fedtide.errors import FedtideError
from fedtide.pages import study
from fedtide.pages.html import BLACK, CONTRAST, WHITE, _color_contrast, html_line_styles
from fedtide.pages.run_rows import PAGE_BYTES
from fedtide.pages.study_curves import (
    Family,
    PageCurve,
    Pool,
    _axes_of,
    _coded,
    _differing,
    _ledger_rows,
    study_curves_in_store,
)
from fedtide.plot.style import LINE_STYLES
from fedtide.studies.statistics import half_width
from fedtide.studies.store import Store
from fedtide.studies.table import table_references, table_rows
from grown import grown, studied
from helpers import ROOT
from stored import TINY

HOSTILE = (
    "</script><script>alert(1)</script>",
    "x" * 10_000,
    "אבג שלום",
    "<img src=x onerror=alert(1)>",
    "$a$ & \u2028 b",
)


def payload(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def whole(stored):
    return np.cumsum(stored["steps"]) if isinstance(stored, dict) else np.array(stored)


def family(labels, **more) -> Family:
    made, results = studied(labels, **more)
    return Family("f", "f", "", tuple(PageCurve(label, label, "", results[label]) for label in made.labels))


@pytest.mark.parametrize("values", [[1.0, 5.0, 5.0, 2.0**40], [0.25, 0.5], [3.0], [0.0, -2.0]])
def test_columns_come_back(values) -> None:
    assert whole(_coded(np.array(values))).tolist() == values


def test_a_pool_keeps_a_column_and_a_run_once() -> None:
    pool, run = Pool(), grown(TINY, 0.7, 9)
    assert pool.run(run) == pool.run(dataclasses.replace(run, provenance=None)) == 0
    other = pool.run(grown(TINY, 0.8, 9))
    assert other == 1
    assert len(pool.runs) == 2
    assert pool.runs[0]["time"] == pool.runs[1]["time"]
    assert pool.runs[0]["test_accuracy"] != pool.runs[1]["test_accuracy"]
    for name in ("bits", "test_accuracy"):
        assert whole(pool.columns[pool.runs[0][name]]).tolist() == run.column(name).tolist()


def test_thinning_keeps_the_end_and_says_so() -> None:
    pool, run = Pool(5), grown(TINY, 0.7, 99)
    pool.run(run)
    kept = whole(pool.columns[pool.runs[0]["time"]])
    assert pool.is_thinned
    assert len(kept) == 5
    assert kept[-1] == run.column("time")[-1]


def test_comparisons_are_those_of_study_show() -> None:
    made, results = studied({"a": 12, "b": 30, "c": 12})
    data = payload(study._results_page(made, results))
    for metric in ("mean_accuracy", "final_accuracy", "mean_train_loss"):
        sign = -1 if metric in study.LOWER_IS_BETTER else 1
        expected = {row["variant"]: row for row in table_rows(made, results, metric) if row["against"]}
        (group,) = data["forest"]["groups"]
        assert [row["words"] for row in group["rows"]] == list(expected)
        for row in group["rows"]:
            found, want = row["by"][metric], expected[row["words"]]
            assert found["mean"] == pytest.approx(sign * want["difference"], rel=1e-6)
            assert sorted((found["low"], found["high"])) == pytest.approx(
                sorted((sign * want["low"], sign * want["high"])), rel=1e-6
            )
            assert found["num_seeds"] == 4


def test_a_lower_loss_is_a_gain() -> None:
    _, results = studied({"a": 12, "b": 12})
    pairs = list(zip(results["b"].values(), results["a"].values(), strict=True))
    assert (
        study._gain_row(pairs, "mean_accuracy")["verdict"]
        == study._gain_row(pairs, "mean_train_loss")["verdict"]
        == "gains"
    )
    assert study._gain_row([], "mean_accuracy") == {"verdict": "runs missing"}


def test_axes_that_were_not_counted_say_why() -> None:
    axes, absent = _axes_of([grown(TINY, 0.7, 9)])
    assert axes == ["time", "index", "bits", "symbols", "samples_trained"]
    assert "radio.symbol_rate is 0" in absent["air_time"]
    assert "joules_per_symbol" in absent["joules"]
    axes, absent = _axes_of([grown(TINY, 0.7, 9, joules=0.5, air_time=0.1, bits_down=7)])
    assert not absent
    assert {"joules", "air_time", "bits_down"} <= set(axes)
    _, absent = _axes_of([grown(TINY, 0.7, 9, joules=0.5), grown(TINY, 0.7, 9)])
    assert absent["joules"].startswith("1 of 2 runs did not count it")


def test_the_ledger_is_the_mean_of_what_runs_spent() -> None:
    found = family({"a": 10, "b": 20}, joules=0.5)
    first, second = _ledger_rows(found)
    assert (first["uploads"], second["uploads"], first["seeds"]) == (20, 40, 4)
    assert first["bits"] == pytest.approx(np.mean([run.column("bits")[-1] for run in found.curves[0].runs.values()]))
    assert (second["joules"], second["air_time"]) == (10.0, None)
    assert first["wasted"] == pytest.approx(0.4)


def test_only_settings_that_differ_are_told() -> None:
    assert _differing(family({"a": 5, "b": 5})) == {"policy.limit": ["1", "2"]}


def test_widths_are_students() -> None:
    widths = study._unit_widths([family({"a": 5}, seeds=6)])
    values = np.array([0.1, 0.5, 0.2, 0.9])
    assert set(widths) == {2, 3, 4, 5, 6}
    assert widths[4] * values.std(ddof=1) == pytest.approx(float(half_width(values)))


@pytest.mark.parametrize("name", list(LINE_STYLES))
def test_lines_are_seen_on_both_papers(name) -> None:
    look = html_line_styles([name])[name]
    assert _color_contrast(look["light"], WHITE) >= CONTRAST[WHITE]
    assert _color_contrast(look["dark"], BLACK) >= CONTRAST[BLACK]


def test_contrast_is_as_defined() -> None:
    assert _color_contrast("#000000", "#ffffff") == pytest.approx(21)
    assert _color_contrast("#777777", "#777777") == 1


def test_labels_do_nothing() -> None:
    made, results = studied(dict.fromkeys(HOSTILE, 5), seeds=2)
    page = study._results_page(made, results)
    assert page.count("<script") == 1 + len(study.PARTS)
    assert "<img" not in page
    assert "x" * 400 not in page
    labels = [curve["label"] for curve in payload(page)["families"][0]["curves"]]
    assert labels[0] == HOSTILE[0]
    assert len(labels[1]) == 300
    assert labels[2] == HOSTILE[2]


def test_a_page_is_the_same_every_time_and_small() -> None:
    made, results = studied({f"variant {number}": 140 for number in range(12)}, seeds=3)
    page = study._results_page(made, results)
    assert page == study._results_page(made, results)
    assert len(page.encode()) < PAGE_BYTES
    assert not payload(page)["thinned"]


def test_a_page_too_large_is_thinned_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr("fedtide.pages.run_rows.PAGE_BYTES", 250_000)
    made, results = studied({f"variant {number}": 300 for number in range(12)}, seeds=3)
    data = payload(study._results_page(made, results))
    assert "thinned to" in data["thinned"]
    assert len(whole(data["columns"][data["runs"][0]["time"]])) < 300


def test_a_grid_is_compared_within_its_settings() -> None:
    from fedtide.studies.spec import cross_study

    made = cross_study("grid", TINY, {"policy.limit": [1, 2], "data.partition": ["iid", "shards"]}, {}, 2)
    results = {label: {} for label in made.labels}
    for run in made.runs:
        results[run.label][run.experiment.seed] = grown(run.experiment.model_dump(), 0.7, 6)
    data = payload(study._results_page(made, results))
    assert data["families"][0]["settings"] == ["partition=iid", "partition=shards"]
    assert [group["setting"] for group in data["forest"]["groups"]] == ["partition=iid", "partition=shards"]
    assert data["families"][0]["reference"] == {"limit=2": "limit=1"}
    assert table_references(made)["limit=2, partition=iid"].label == "limit=1, partition=iid"


def test_a_folder_without_its_study(tmp_path) -> None:
    made, results = studied({"a": 5, "b": 5}, seeds=3)
    store = Store(tmp_path / "kept")
    for run in made.runs:
        store.save(run.name, results[run.label][run.experiment.seed])
    found, runs = study_curves_in_store(store, "kept")
    assert found.labels == ["limit=1", "limit=2"]
    assert {len(each) for each in runs.values()} == {3}
    data = payload(study.study_or_run_page([store.folder]))
    assert data["title"] == "kept"
    assert [row["words"] for row in data["forest"]["groups"][0]["rows"]] == ["limit=2"]


def test_nothing_to_show_says_what_to_do(tmp_path) -> None:
    with pytest.raises(FedtideError, match="is neither a run folder nor a folder of results; name a run, or"):
        study._folder_page(tmp_path)
    with pytest.raises(
        FedtideError, match=r"holds no run of 'proposed against random'; run it first: `fedtide study run"
    ):
        study.study_or_run_page([ROOT / "examples" / "study.yaml"], tmp_path)


def test_the_axis_holds_nearly_all() -> None:
    found = [{"mean": 0.01, "low": 0.0, "high": 0.02 + each / 1000} for each in range(40)]
    assert study._extent([*found, {"mean": 0.5, "low": -4.0, "high": 5.0}]) < 0.1
    assert study._extent([{}, {"mean": 0.2, "low": None, "high": None}]) == pytest.approx(0.2)
    assert study._extent([]) > 0
    assert study._ticks(0.25)[0] == 0
    assert study._ticks(0.25)[-1] == 0.2
    assert all(math.isfinite(each) for each in study._ticks(1e-4))


def test_without_scripts_there_is_a_table() -> None:
    from xml.etree import ElementTree

    made, results = studied({"a": 5, HOSTILE[0]: 5, "c & d": 5})
    page = study._results_page(made, results)
    still = re.search(r'<figure class="still">(<table>.*?</table>)', page, re.DOTALL)[1]
    rows = [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(still).iter("tr")]
    assert [row[0] for row in rows[2:]] == [HOSTILE[0], "c & d"]
    data = payload(page)
    for row, compared in zip(rows[2:], data["forest"]["groups"][0]["rows"], strict=True):
        found = compared["by"]["mean_accuracy"]
        assert row[1:] == [
            f"{found['mean']:+.4f}",
            f"{found['low']:+.4f} to {found['high']:+.4f}",
            "4",
            found["verdict"],
        ]
    assert "style=" not in still


def test_variants_that_differ_by_less_than_matters_say_so() -> None:
    """In the table, in its JSON, on the page and in its lead; not where no margin is asked for, as in the laboratory."""
    made, results = studied({"a": 12, "b": 12})
    for seed, run in results["a"].items():
        accuracy = run.column("test_accuracy") + (0.001 if seed % 2 else -0.001)
        results["b"][seed] = dataclasses.replace(run, columns={**run.columns, "test_accuracy": accuracy})
    row = table_rows(made, results, "mean_accuracy")[1]
    assert (row["verdict"], row["within"]) == ("no difference above 0.01", 0.01)
    assert table_rows(made, results, "mean_accuracy", margin=0.0005)[1]["verdict"] == "not resolved"
    assert table_rows(made, results, "mean_accuracy", margin=0)[1]["verdict"] == "not resolved"
    assert table_rows(made, results, "mean_train_loss")[1]["within"] is None
    page = study._results_page(made, results)
    assert "1 comparison: 1 no difference above 0.01." in page
    assert payload(page)["forest"]["groups"][0]["rows"][0]["by"]["final_accuracy"]["verdict"] == row["verdict"]
    pairs = list(zip(results["b"].values(), results["a"].values(), strict=True))
    assert study._gain_row(pairs, "mean_accuracy")["verdict"] == "not resolved"
    with pytest.raises(FedtideError, match="margin=-1 must be a number of at least 0"):
        table_rows(made, results, "mean_accuracy", margin=-1)
