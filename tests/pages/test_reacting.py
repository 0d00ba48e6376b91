"""Pages, progress and studies of runs whose clock follows decisions."""

from __future__ import annotations

import io
import math
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fedtide
from fedtide import config
from fedtide.cli import progress
from fedtide.errors import DivergedError
from fedtide.pages.run import run_page, run_page_data
from fedtide.pages.run_rows import row_grid, run_row_ages
from fedtide.pages.run_view import view_run
from fedtide.report.plan import plan_experiment
from fedtide.report.plan_text import plan_facts
from fedtide.studies.results import results_from_rounds

FIVE = {"concurrency": 5, "release": "aggregation"}
WORLDS: dict[str, dict[str, Any]] = {
    "keep": {"fleet": {"unpicked": "keep"}, "radio": {"csi": "noisy"}},
    "later": {"timeline": {"uploads": "later"}, "radio": {"symbol_rate": 2e6}},
    "wait": {"timeline": {"uploads": "wait", "name": "buffered"}, "radio": {"symbol_rate": 2e6}},
    "harq": {"radio": {"retransmission": "harq", "csi": "noisy"}},
    "concurrency": {"fleet": {"concurrency": 7, "release": "aggregation", "unpicked": "keep"}},
    "all": {"timeline": {"name": "all"}, "fleet": {"availability": "markov", "absent": "fetch", **FIVE}},
}


@dataclass(frozen=True)
class Sooner:
    """Acts sooner while the accuracy is high."""

    needs_progress = True

    def when(self, situation: Any) -> float:
        good = situation.progress.get("test_accuracy", 0.0) > 0.3
        return max(situation.time, situation.last + (0.25 if good else 0.5))


@pytest.mark.parametrize("name", WORLDS)
def test_a_page_shows_trainings_as_they_were(made_run: Callable[..., Path], name: str) -> None:
    folder = made_run(**WORLDS[name])
    view = view_run(folder)
    assert (view.kind, view.why) == ("simulated", "")
    jobs = view.jobs
    assert np.all((jobs.received <= jobs.begin) & (jobs.begin <= jobs.done))
    assert np.all((jobs.done <= jobs.back) & (jobs.back <= jobs.ready))
    for device in range(view.num_devices):  # one training after the other
        mine = jobs.device == device
        order = np.argsort(jobs.received[mine])
        assert np.all(jobs.done[mine][order][:-1] <= jobs.received[mine][order][1:] + 1e-12)
    # who was picked had trained from the version that the record says, and each training is there once
    trained = set(zip(jobs.device.tolist(), jobs.received.tolist(), strict=True))
    assert len(trained) == len(jobs.device)
    picked = {device for record in view.rounds for device in record.picked}
    assert picked <= set(jobs.device.tolist())
    assert view.label_counts is not None
    assert np.isfinite(view.capacity).all()
    assert run_page([folder], "").startswith("<!")
    assert run_page_data([folder], "")
    # an update that waits is ready once more at every aggregation, and older each time
    ages = run_row_ages(view, row_grid(view, 0))
    ready, picked = (
        np.frombuffer(b64decode(ages[key]["packed"]), f"<{ages[key]['type']}") for key in ("ready", "picked")
    )
    assert np.all(picked <= ready)
    last = ages["count"]
    uploaded = sum(len(record.picked) for record in view.rounds)
    assert picked[-last:].sum() == uploaded
    assert ready[-last:].sum() == uploaded + sum(len({*record.ready} - {*record.picked}) for record in view.rounds)


def test_a_page_says_what_only_the_training_tells(made_run: Callable[..., Path]) -> None:
    folder = made_run(timeline={"name": f"{__file__}:Sooner"}, fleet={"unpicked": "keep"})
    view = view_run(folder)
    assert view.kind == "recorded"
    assert "follows what only the training tells" in view.why
    assert run_page([folder], "").startswith("<!")


def test_a_plan_says_that_times_are_not_known() -> None:
    tree = {
        "data": {"name": "synthetic"},
        "learning": {"model": "softmax"},
        "timeline": {"name": f"{__file__}:Sooner"},
        "fleet": {"unpicked": "keep"},
    }
    plan = plan_experiment(config.experiment(tree), lambda _: None)
    assert not plan.summary["times_known"]
    assert plan_facts(plan)["aggregations"].startswith("not known before training")
    tree["timeline"] = {"name": "all"}
    assert plan_experiment(config.experiment(tree), lambda _: None).summary["times_known"]


class Record:
    """As much of a record as a bar looks at."""

    picked = lost = silent = retransmitted = ()

    def __init__(self, index: int, time: float) -> None:
        self.index, self.time, self.test_accuracy = index, time, 0.5


def test_lines_go_by_simulated_time_where_nobody_knows_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(progress, "say", said.append)
    monkeypatch.setattr(progress, "LINE_SECONDS", -1.0)
    tell = progress._lines("training", 10.0)
    for index in range(1, 6):
        tell(Record(index, 2.0 * index), 0)
    assert said[0].startswith("training: aggregation 1, time 2 of 10, accuracy 0.5000")
    assert len(said) == 4
    assert all("left" in line and "-" not in line for line in said[1:])
    said.clear()
    tell = progress._lines("training", 10.0)
    tell(Record(3, 2.0), 12)
    assert said == ["training: aggregation 3 of 12, time 2, accuracy 0.5000, about 0 s left"]


def test_a_bar_goes_by_simulated_time_where_nobody_knows_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "err", console)
    with progress.shown_progress("training", 10.0) as tell:
        tell(Record(3, 2.5), 0)
    assert "3, time 2.5/10" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_that_diverges_is_a_guess_from_then_on() -> None:
    tree = {"learning": {"learning_rate": 1e30, "model": "softmax"}, "fleet": {"unpicked": "keep"}}
    e = config.experiment({"data": {"name": "synthetic"}, "timeline": {"horizon": 5.0}}, tree)
    with pytest.raises(DivergedError) as found:
        fedtide.simulate(e)
    assert found.value.so_far is not None
    rounds, num_parameters, left = found.value.so_far
    result = results_from_rounds(e, rounds, num_parameters, None, 10, left)
    assert result.diverged is not None
    assert left[-1][1] == 5.0
    assert math.isclose(float(np.asarray(result.columns["test_accuracy"])[-1]), 0.1)
