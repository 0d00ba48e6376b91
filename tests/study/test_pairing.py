"""A study over two instruction paths says so, everywhere that results are compared."""

from __future__ import annotations

import csv
import dataclasses
import json

import pytest
import yaml
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.studies import plot
from fedtide.studies.metrics import mean_accuracy
from fedtide.studies.spec import read_study
from fedtide.studies.statistics import (
    _is_mixed,
    _on_one_path,
    aligned_seeds,
    difference_band,
    mixed_pairs_note,
    pair_paths_summary,
    paired_results,
    unknown_pairs_note,
)
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, export_table, long_table_rows, table_effect, table_rows
from fedtide_lab.paper import draw
from fedtide_lab.paper.claims import Check, Claim, decide_claim
from fedtide_lab.paper.figures import Figure
from fedtide_lab.paper.reproduce import claims_rows
from stored import TINY, put, result, two_variants


def both(*isas, level=0.5):
    """A result that the store has on several paths."""
    first, *others = (result(isa=isa, level=level + 0.1 * position) for position, isa in enumerate(isas))
    return dataclasses.replace(first, elsewhere=tuple(others))


@pytest.mark.parametrize(
    ("sides", "read_on"),
    [
        ([("avx512",), ("avx512",)], ["avx512", "avx512"]),
        ([("avx512", "avx2"), ("avx2",)], ["avx2", "avx2"]),
        ([("avx2",), ("avx512", "avx2")], ["avx2", "avx2"]),
        ([("avx512", "avx2"), ("avx512", "avx2")], ["avx512", "avx512"]),  # the first of equals
        ([(None, "avx2"), (None, "avx2")], ["avx2", "avx2"]),  # what is known goes before what is not
        ([(None,), (None,)], ["unknown", "unknown"]),
        ([(None,), ("avx2",)], ["unknown", "avx2"]),
        ([("avx512",), ("avx2",)], ["avx512", "avx2"]),
        ([("avx512",), ("avx512", "avx2"), ("avx2",), ("avx2",)], ["avx512", "avx2", "avx2", "avx2"]),
    ],
)
def test_a_seed_is_read_on_one_path_if_it_can_be(sides, read_on):
    assert [each.path for each in _on_one_path(both(*isas) for isas in sides)] == read_on


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([("avx2", "avx2"), (None, None)], ""),
        ([("avx2", "avx512"), ("avx2", "avx2")], "1 of 2 pairs mixes instruction paths (avx2, avx512)"),
        ([("avx2", "avx512"), ("avx512", "avx2")], "2 of 2 pairs mix instruction paths (avx2, avx512)"),
        ([("avx2", None), ("avx2", "avx2"), ("avx2", None)], "2 of 3 pairs may mix instruction paths (avx2, unknown)"),
        ([("avx2", None), ("avx2", "baseline")], "2 of 2 pairs mix instruction paths (avx2, baseline, unknown)"),
        ([], ""),
    ],
)
def test_mixed_pairs_are_said(pairs, says):
    assert mixed_pairs_note([tuple(result(isa=isa) for isa in pair) for pair in pairs]) == says


def test_variants_that_differ_in_the_trainer_differ_on_purpose():
    torch = dataclasses.replace(
        result({**TINY, "learning": {"trainer": "torch"}}), provenance={"torch": "2.13.0", "isa": None}
    )
    assert not _is_mixed([torch, result(isa="avx2")])
    assert _is_mixed([torch, dataclasses.replace(torch, provenance={"torch": "2.14.0"})])


def test_differences_and_means_are_read_on_one_path():
    a, b = {0: both("avx512", "avx2", level=0.5)}, {0: both("avx2", level=0.3)}
    assert [each.path for each in paired_results(a, b)[0]] == ["avx2", "avx2"]
    assert [runs[0].path for runs in aligned_seeds({"a": a, "b": b}).values()] == ["avx2", "avx2"]
    drawn = difference_band(a, b, "test_accuracy")
    assert drawn is not None
    assert drawn.mean[-1] == pytest.approx(0.3 / 2)  # 0.6 - 0.3, from half-time on
    assert drawn.note == ""
    claim = Claim("c", "text", (Check("R", "a", "b"),))
    assert decide_claim(claim, {"R": {"a": a, "b": b}}).findings[0].difference == pytest.approx((0.15,))


def test_a_claim_says_which_of_its_pairs_mix_paths():
    results = {"R": {"a": {0: result(isa="avx2"), 1: result(isa="avx2")}, "b": {0: result(isa="avx512"), 1: result()}}}
    row = claims_rows([decide_claim(Claim("c", "text", (Check("R", "a", "b"),)), results)])[0]["comparisons"][0]
    assert row["paths_note"] == "2 of 2 pairs mix instruction paths (avx2, avx512, unknown)"
    assert table_effect(row).endswith("; 2 of 2 pairs mix instruction paths (avx2, avx512, unknown)")
    gain = Claim("c", "text", (Check("R", ("a", "b"), ("a", "a")),))
    assert decide_claim(gain, results).findings[0].paths_note


@pytest.fixture
def two_paths(tmp_path):
    """A study whose pairs are: on avx512, on avx512 and avx2, on one path since one run is there on both."""
    path = tmp_path / "two.yaml"
    tree = {"version": 1, "name": "two", "base": TINY, "axes": {"policy.limit": [1, 2]}, "seeds": 3}
    path.write_text(yaml.safe_dump(tree))
    study, store = read_study(path), Store(tmp_path / "store")
    isas = {0: (["avx512"], ["avx512"]), 1: (["avx512"], ["avx2"]), 2: (["avx512", "avx2"], ["avx2"])}
    for run in study.runs:
        for position, isa in enumerate(isas[run.experiment.seed][run.label != "limit=1"]):
            put(store, run, isa, 0.4 + 0.1 * position + 0.01 * run.experiment.seed)
    return path, study, store


NOTE = "1 of 3 pairs mixes instruction paths (avx2, avx512)"


def test_the_table_says_so(two_paths):
    path, study, store = two_paths
    first, second = table_rows(study, by_label(study, store), "mean_accuracy")
    assert (first["paths_note"], second["paths_note"]) == ("", NOTE)
    assert (first["paths"], second["paths"]) == ({"avx512": 3, "avx2": 1}, {"avx512": 1, "avx2": 2})
    assert second["num_seeds"] == 3
    found = CliRunner().invoke(app, ["study", "show", str(path), "--store", str(store.folder)])
    words = " ".join(found.stdout.split())
    assert "1 of 3 pairs mixes" in words
    assert words.count("shifts by 0.0002 to 0.0022") == 1
    assert "is unknown" not in words
    found = CliRunner().invoke(app, ["study", "show", str(path), "--store", str(store.folder), "--json"])
    assert json.loads(found.stdout)[1]["paths_note"] == NOTE


def test_the_table_says_of_how_many_results_nothing_is_known(tmp_path):
    study, store = two_variants(2), Store(tmp_path)
    for run in study.runs:
        put(store, run)
    assert [row["paths_note"] for row in table_rows(study, by_label(study, store), "mean_accuracy")] == ["", ""]
    every = [each for runs in by_label(study, store).values() for each in runs.values()]
    assert unknown_pairs_note(every) == "The instruction path of 4 of 4 results is unknown."
    assert pair_paths_summary([*every, *every]) == "Instruction paths of the 4 runs: 4 on a path that is not known."
    assert pair_paths_summary([*every, result(isa="avx2")]).startswith(
        "Instruction paths of the 4 runs: 1 on avx2, 3 on a path"
    )


def test_figures_say_so(two_paths, tmp_path, monkeypatch):
    _, study, store = two_paths
    drawn = []
    monkeypatch.setattr(plot, "save_figure", lambda figure, stem: drawn.append(figure) or [])
    for against in (None, "limit=1"):
        plot.draw_study(study, by_label(study, store), tmp_path / "x", "test_accuracy", "time", against)
    mean, difference = (figure.legends[0] for figure in drawn)
    assert mean.get_title().get_text() == "1 of 3 seeds mixes instruction paths (avx2, avx512)"
    assert [text.get_text() for text in difference.get_texts()] == [f"R=2 (3)\n{NOTE}"]
    figure = Figure("R", "t", "c", {}, {"limit=1": {}, "limit=2": {}}, settings=("i.i.d.",), against={"": "limit=1"})
    curves = {f"{label} | i.i.d.": runs for label, runs in by_label(study, store).items()}
    monkeypatch.setattr(draw, "save_figure", lambda figure, stem: drawn.append(figure) or [])
    draw.draw_figure(figure, curves, tmp_path / "x")
    draw.draw_difference(figure, curves, tmp_path / "x")
    assert [each.axes[0].get_title() for each in drawn[2:]] == [
        "i.i.d. data (3 seeds)\n1 of 3 seeds mixes instruction paths (avx2, avx512)",
        f"i.i.d. data (3 seeds)\n{NOTE}",
    ]


def test_an_export_says_what_made_each_row(two_paths, tmp_path):
    _, study, store = two_paths
    found = {(row["variant"], row["seed"]): row for row in long_table_rows(study, by_label(study, store))}
    assert found["limit=1", 2]["path"] == "avx2"  # as its pair
    assert found["limit=1", 1]["path"] == "avx512"
    assert (found["limit=1", 0]["version"], found["limit=1", 0]["date"][:4]) == ("0.1", "2026")
    export_table(study, by_label(study, store), tmp_path / "x.csv")
    with open(tmp_path / "x.csv") as file:
        assert {row["path"] for row in csv.DictReader(file)} == {"avx2", "avx512"}


def test_old_results_are_exported_with_columns_of_words(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    study, store = two_variants(1), Store(tmp_path)
    for run in study.runs:
        put(store, run)
    export_table(study, by_label(study, store), tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert str(table.schema.field("version").type) == "string"
    assert set(table["path"].to_pylist()) == {"unknown"}


def test_the_numbers_are_those_of_the_path_that_was_chosen(two_paths):
    _, study, store = two_paths
    chosen = paired_results(*by_label(study, store).values())[2]
    assert [mean_accuracy(each) for each in chosen] == pytest.approx([(0.1 + 0.52) / 2, (0.1 + 0.42) / 2])
