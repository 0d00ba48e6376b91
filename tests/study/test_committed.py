"""Every result that is committed is found by the study that it was run for, under the name that it was given then."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtide.studies.run import missing_runs
from fedtide.studies.spec import Study, read_study
from fedtide.studies.store import Store
from fedtide_lab.paper.figures import FIGURES, figure_study

ROOT = Path(__file__).parents[2]
STORE = Store(ROOT / "results" / "paper")
# How many runs of each study were found among the results of a day: never fewer.
FOUND = {
    "R": 30, "period": 58, "frameworks": 0, "frameworks_more": 0, "frameworks_no_minimum": 30, "training_loss": 15,
    "asynchrony": 0, "labels": 6, "schedulers": 170, "weights": 60, "slow_labels": 0, "gammas_random": 30, "gammas_proposed": 30,
    "unequal": 0, "regularisation": 20, "inversion": 20, "profiles": 21,
    "codec-weights.yaml": 12, "codec.yaml": 48, "gamma.yaml": 30, "study.yaml": 10,
}  # fmt: skip


def the_study(name: str) -> Study:
    return (
        read_study(ROOT / "examples" / name)
        if name.endswith(".yaml")
        else figure_study(FIGURES[name], FIGURES[name].seed_numbers())
    )


@pytest.mark.parametrize("name", FOUND)
def test_a_study_finds_its_results(name: str) -> None:
    wanted = the_study(name)
    assert len(wanted.runs) - len(missing_runs(wanted, STORE)) >= FOUND[name]


def test_every_figure_of_runs_is_in_the_table() -> None:
    assert {*FIGURES} | {path.name for path in (ROOT / "examples").glob("*.yaml")} - {
        "experiment.yaml",
        "edges.yaml",
        "million.yaml",
        "shakespeare.yaml",
        "private.yaml",  # results/private
    } == {*FOUND}


def test_every_committed_result_belongs_to_a_study() -> None:
    studies = [figure_study(figure, figure.seed_numbers()) for figure in FIGURES.values()]
    studies += [the_study(name) for name in FOUND if name.endswith(".yaml")]
    known = {run.name for each in studies for run in each.runs}
    assert STORE.names() <= known
