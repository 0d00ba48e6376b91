"""Plans side by side: one row for every combination, with the numbers of each plan by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedtide
from fedtide.cli.main import app
from fedtide.config import split_axes
from fedtide.errors import FedtideError

SMALL = [
    "data.name=synthetic",
    "data.num_train=60",
    "data.num_shards=40",
    "fleet.num_devices=8",
    "timeline.horizon=2",
    "radio.num_symbols=3000",
]
BASE = fedtide.experiment(*SMALL)
LIMITS = {"policy.limit": [1, 2, 4]}


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, ["plan", *SMALL, *words])


def test_a_row_has_the_numbers_of_the_plan_by_itself() -> None:
    rate = fedtide.experiment(BASE, radio={"symbol_rate": 100.0}, fleet={"joules_per_sample": 0.5})
    made = fedtide.plans(rate, axes={**LIMITS, "policy.scheduler": ["random", "proposed"]})
    rows = made.rows()
    assert [(row["policy.limit"], row["policy.scheduler"]) for row in rows[:3]] == [
        (1, "random"),
        (1, "proposed"),
        (2, "random"),
    ]
    assert len(rows) == 6
    for row in rows:
        keys = {"policy.limit": row["policy.limit"], "policy.scheduler": row["policy.scheduler"]}
        alone = fedtide.plan(fedtide.experiment(rate, keys)).summary
        assert row["aggregations"] == alone["aggregations"]
        assert row["uploads"] == alone["uploads"]
        assert row["num_ready"] == alone["ready"]["mean"]
        assert row["mean_age"] == alone["mean_age"]
        assert row["budget_bits"] == alone["budget_bits_per_upload"]["median"]
        assert row["kept_share"] == alone["kept_share"]["mean"]
        assert (row["symbols"], row["symbols_sent"]) == (alone["symbols"], alone["symbols_sent"])
        assert (row["air_time"], row["air_time_sent"]) == (alone["symbols"] / 100, alone["symbols_sent"] / 100)
        assert row["joules"] == alone["joules"] > 0
        assert row["never_heard"] == alone["never_heard"]
    frame = made.frame()
    assert np.asarray(frame["policy.limit"]).tolist() == [1, 1, 2, 2, 4, 4]


def test_what_is_the_same_for_all_is_told_once() -> None:
    made = fedtide.plans(BASE, axes=LIMITS)
    headings, cells, same = made.table()
    assert headings[0] == "limit"
    assert [row[0] for row in cells] == ["1", "2", "4"]
    assert "uploads" in headings
    assert not {"ticks", "airtime granted", "joules"} & {*headings}
    assert "ticks 8" in same
    assert "airtime" not in same
    assert repr(made).count("\n") == 4
    assert "<table>" in made._repr_html_()
    assert len(fedtide.plans(BASE).table()[0]) > 8  # one plan has nothing to share


def test_parameters_of_parts_variants_files_and_seeds(tmp_path: Path) -> None:
    rician = fedtide.plans(
        "data.name=synthetic", axes={"radio.channel.k_factor": [1, 8]}, variants={"r": {"radio.channel": "rician"}}
    )
    assert [run.experiment.radio.channel.args for run in rician.study.runs] == [{"k_factor": 1}, {"k_factor": 8}]
    assert rician.table()[0][:2] == ["variant", "k_factor"]
    seeds = fedtide.plans(BASE, axes={"policy.limit": [1, 2]}, seeds=[3, 5])
    assert [(row["seed"], row["policy.limit"]) for row in seeds.rows()] == [(3, 1), (3, 2), (5, 1), (5, 2)]
    assert seeds.table()[0][:2] == ["limit", "seed"]
    assert fedtide.plans({"seed": 7, "data.name": "synthetic"}).study.runs[0].experiment.seed == 7
    file = tmp_path / "study.yaml"
    file.write_text(
        "version: 1\nname: two\nbase: {data.name: synthetic}\naxes: {timeline.horizon: [1, 2]}\nseeds: [4]\n"
    )
    assert [row["aggregations"] for row in fedtide.plans(file).rows()] == [4, 8]


def test_the_command_prints_one_table() -> None:
    found = invoke("policy.limit=1,2,4", "policy.scheduler=random,proposed")
    assert found.exit_code == 0, found.output
    assert "First" not in found.stdout
    lines = [line.split()[:2] for line in found.stdout.splitlines()]
    wanted = [[limit, scheduler] for limit in "124" for scheduler in ("random", "proposed")]
    assert [line for line in lines if line in wanted] == wanted
    told = json.loads(invoke("policy.limit=1,2", "--json").stdout)["plans"]
    assert [plan["summary"]["uploads"] for plan in told] == [plan["uploads"] for plan in told] == [8, 16]
    assert len(json.loads(invoke("seed=0,1", "--json").stdout)["plans"]) == 2


def test_expected_run_time_is_told_when_asked_for() -> None:
    assert "run time" not in invoke("policy.limit=2").stdout
    text = " ".join(invoke("policy.limit=2", "--time").stdout.split())
    assert "expected run time about" in text
    assert "samples a second, measured now with" in text
    pace = json.loads(invoke("--time", "--json").stdout)["summary"]["run_time"]
    assert pace["training"] > 0 < pace["evaluation"]
    used = json.loads(invoke("--time", "--json").stdout)["summary"]["ledger"]["samples_used"]
    assert pace["training"] * pace["samples_per_second"] == pytest.approx(used)
    assert "run time" in " ".join(invoke("policy.limit=1,2", "--time").stdout.split())
    unknown = " ".join(invoke("policy.scheduler=best_channel_best_norm", "--time").stdout.split())
    assert "expected run time not known" in unknown


@pytest.mark.parametrize(
    ("words", "rest", "axes"),
    [
        (["policy.limit=2,4"], [], {"policy.limit": [2, 4]}),
        (["a.b=x, y"], [], {"a.b": ["x", "y"]}),
        (["e.yaml", "a=1"], ["e.yaml", "a=1"], {}),
        (["a={b: 1, c: 2}", "d=[1,2]"], ["a={b: 1, c: 2}", "d=[1,2]"], {}),
        (["a={b: 1, c: 2},x"], [], {"a": [{"b": 1, "c": 2}, "x"]}),
        (["a=[1,2],[3,4]"], [], {"a": [[1, 2], [3, 4]]}),
        (['a="x,y"'], ['a="x,y"'], {}),
        (["data.folder=/x,y"], ["data.folder=/x,y"], {}),
        (["a=1,2", "a=3"], ["a=3"], {}),
        (["a=3", "a=1,2"], ["a=3"], {"a": [1, 2]}),
        (["a=1,,2", "b=[1,2"], ["a=1,,2", "b=[1,2"], {}),
        (["a,b.yaml"], ["a,b.yaml"], {}),
    ],
)
def test_commas_outside_brackets_and_quotes_separate_values(words: list[str], rest: list[str], axes: Any) -> None:
    assert split_axes(words) == (rest, axes)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["policy.limt=2,4"], "did you mean policy.limit"),
        (["policy.limit=2,2"], "repeats the value 2"),
        (["policy.limit=2,400"], "limit=400: policy.limit=400 (R) exceeds"),
        (["policy.limit=2,x"], "valid integer"),
        (["policy.limit=2,,4"], "valid integer"),
        (["seed=1,1"], "repeats a seed"),
        (["policy.scheduler=random,nofile.py:f"], "file nofile.py not found"),
        (["radio.channel.k_factor=1,2"], "does not accept the arguments"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(words: list[str], says: str) -> None:
    found = invoke(*words)
    assert found.exit_code == 2
    assert says in found.stderr
    assert found.stderr.count("\n") == 1


def test_an_error_of_one_plan_names_it_and_keeps_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.py").write_text("def f(candidates, limit, rng):\n    return [99]\n")
    found = invoke("policy.scheduler=random,p.py:f")
    assert found.exit_code == 5
    assert "scheduler=p.py:f: " in found.stderr
    with pytest.raises(FedtideError, match="not a mapping"):
        fedtide.plans(BASE, axes=[1])  # type: ignore[arg-type]
