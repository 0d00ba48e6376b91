"""Each variant is compared with the one that differs from it in one thing only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.errors import FedtideError
from fedtide.studies.spec import Study, make_study, read_study
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, table_references, table_rows
from stored import put

AXES = "axes: {policy.limit: [8, 4], data.partition: [iid, shards]}\n"


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(f"version: 1\nname: grid\n{AXES}seeds: 2\n")
    return path


def compared(study: Study, against: str | None = None) -> dict[str, str | None]:
    return {label: each.label if each else None for label, each in table_references(study, against).items()}


def test_the_first_axis_within_the_others(grid: Path) -> None:
    assert compared(read_study(grid)) == {
        "limit=8, partition=iid": None,
        "limit=8, partition=shards": None,
        "limit=4, partition=iid": "limit=8, partition=iid",
        "limit=4, partition=shards": "limit=8, partition=shards",
    }
    assert table_references(read_study(grid))["limit=4, partition=iid"].text == "limit=8"


@pytest.mark.parametrize("against", ["partition=shards", "data.partition=shards", "shards"])
def test_a_value_of_another_axis(grid: Path, against: str) -> None:
    assert compared(read_study(grid), against) == {
        "limit=8, partition=iid": "limit=8, partition=shards",
        "limit=8, partition=shards": None,
        "limit=4, partition=iid": "limit=4, partition=shards",
        "limit=4, partition=shards": None,
    }


@pytest.mark.parametrize("against", ["limit=4, partition=iid", "iid,4", "4, iid"])
def test_one_variant_for_all(grid: Path, against: str) -> None:
    found = compared(read_study(grid), against)
    assert set(found.values()) == {None, "limit=4, partition=iid"}
    assert found["limit=4, partition=iid"] is None


def test_variants_come_before_axes_and_an_axis_of_one_value_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "version: 1\nname: x\nvariants: {a: {}, b: {policy: {age_base: 2}}}\naxes: {policy.limit: [8, 4]}\n"
    )
    assert compared(read_study(path))["b, limit=4"] == "a, limit=4"
    assert compared(read_study(path), "b")["a, limit=4"] == "b, limit=4"
    path.write_text("version: 1\nname: x\naxes: {policy.limit: [8], data.partition: [iid, shards]}\n")
    assert compared(read_study(path))["limit=8, partition=shards"] == "limit=8, partition=iid"
    listed = make_study("x", {"one": {}, "two": {"policy": {"limit": 2}}, "three": {"policy": {"limit": 3}}}, [0])
    assert compared(listed) == {"one": None, "two": "one", "three": "one"}


@pytest.mark.parametrize(
    ("against", "says"),
    [
        ("nobody", "is no variant; there are 'limit=8'"),
        ("", "is no variant"),
        ("limit=8, nobody", "'nobody' is no variant"),
        ("x" * 500, "is no variant"),
    ],
)
def test_what_is_no_variant_is_said(grid: Path, against: str, says: str) -> None:
    with pytest.raises(FedtideError, match=says) as caught:
        table_references(read_study(grid), against)
    assert len(str(caught.value)) < 400


def test_a_value_on_two_axes_is_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("version: 1\nname: x\naxes: {policy.limit: [8, 4], codec.num_levels: [8, 4]}\n")
    with pytest.raises(FedtideError, match=r"'4' is on several axes \(policy.limit, codec.num_levels\)"):
        table_references(read_study(path), "4")


def filled(path: Path, folder: Path) -> Study:
    """Results whose accuracy is 0.5 + limit/100 + seed/1000, and 0.2 more with i.i.d. data."""
    study, store = read_study(path), Store(folder)
    for run in study.runs:
        e = run.experiment
        level = 0.5 + e.policy.limit / 100 + e.seed / 1000 + 0.2 * (e.data.partition.name == "iid")
        put(store, run, level=level)
    return study


def test_the_table_compares_within_the_other_axes(grid: Path, tmp_path: Path) -> None:
    study = filled(grid, tmp_path / "r")
    rows = table_rows(study, by_label(study, Store(tmp_path / "r")), "final_accuracy")
    table = {row["variant"]: row for row in rows}
    assert table["limit=8, partition=shards"]["against"] is None
    assert "difference" not in table["limit=8, partition=shards"]
    assert table["limit=8, partition=shards"]["mean"] == pytest.approx(0.5805)
    for partition in ("iid", "shards"):
        row = table[f"limit=4, partition={partition}"]
        assert row["against"] == f"limit=8, partition={partition}"
        assert row["difference"] == pytest.approx(-0.04)


def test_the_command_line(grid: Path, tmp_path: Path) -> None:
    filled(grid, tmp_path / "r")
    words = ["study", "show", str(grid), "-s", str(tmp_path / "r"), "--against", "shards", "-m", "final_accuracy"]
    table = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert {"variant", "seeds", "done", "mean", "verdict", "against"} <= set(table[0])
    assert table[0]["difference"] == pytest.approx(0.2)
    shown = CliRunner().invoke(app, words).stdout
    assert "difference from" in shown
    assert "(others' reference)" in shown
    plot = ["study", "plot", str(grid), "-s", str(tmp_path / "r"), "--against", "shards", "-o", str(tmp_path / "plot")]
    assert CliRunner().invoke(app, plot).exit_code == 0
    assert (tmp_path / "plot.png").exists()
