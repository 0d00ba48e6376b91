"""What a plan, a trace or the records tell of a run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.deploy import trace
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.pages import run_rows
from fedtide.pages.run import run_page
from fedtide.pages.run_view import _job_numbers, _jobs_of, _recorded, view_run
from fedtide.runs import read_run
from helpers import small

MARKOV = {"fleet": {"num_devices": 12, "availability": "markov"}, "radio": {"csi": "pilots"}, "policy": {"limit": 4}}
MANY = {"data": {"partition": "iid"}, "fleet": {"num_devices": 400}, "timeline": {"horizon": 1.0}}
WORLDS: list[dict[str, Any]] = [
    {},
    MARKOV,
    {"framework": "fedavg"},
    {"framework": "fedasync", "fleet": {"num_devices": 8}, "timeline": {"horizon": 2.0}},
    {"fleet": {"num_devices": 8, "duration": "shifted_exponential"}},
]


@pytest.mark.parametrize("world", WORLDS, ids=lambda each: "-".join(map(str, each)) or "paper")
def test_trainings_fit_the_records(made_run: Callable[..., Path], world: dict[str, Any]) -> None:
    found = view_run(made_run(**world))
    system, jobs = build(found.experiment), found.jobs
    assert (found.kind, found.why) == ("simulated", "")
    ended = np.isfinite(jobs.ready)
    assert ended.sum() == sum(len(each.ready) for each in found.rounds)
    for name, earlier, later in (("begin", 2, 3), ("done", 3, 4), ("back", 4, 5), ("ready", 5, 6)):
        assert np.all(jobs[earlier][ended] <= jobs[later][ended] + 1e-9), name
    ages = [tick.index - tick.start for tick in system.ticks[: len(found.rounds)]]
    assert jobs.age[ended].tolist() == np.concatenate(ages).tolist()
    for row, each in enumerate(found.rounds):
        if not each.lost and found.experiment.radio.csi.name == "perfect":
            assert found.capacity[row, each.picked] == pytest.approx(each.capacity)
    assert found.label_counts is not None
    assert found.label_counts.tolist() == system.fleet.label_counts.tolist()


def test_whoever_was_gone_when_the_server_acted_was_away(made_run: Callable[..., Path]) -> None:
    found = view_run(made_run(**MARKOV))
    jobs, time = found.jobs, np.array([0.0, *found.time])
    ended = np.isfinite(jobs.ready)
    before = time[np.searchsorted(time, jobs.ready[ended]) - 1]
    gone = before >= jobs.done[ended]
    assert gone.any()
    assert np.all(jobs.back[ended][gone] > before[gone])


def test_records_alone_tell_when_trainings_may_have_begun(made_run: Callable[..., Path]) -> None:
    folder = made_run()
    run = read_run(folder)
    found = _recorded(run.experiment, run.rounds, run.complete, "because")
    whole = view_run(folder)
    assert found.jobs.age.tolist() == whole.jobs.age.tolist()
    assert found.jobs.received.tolist() == whole.jobs.received.tolist()
    assert np.isnan(found.jobs.done).all()


def test_a_plan_that_does_not_fit_is_not_shown(made_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made_run()
    monkeypatch.setattr("fedtide.pages.run_view._matches", lambda tick, born, each: each.index < 5)
    found = view_run(folder)
    assert found.kind == "recorded"
    assert "not what was recorded" in found.why
    assert "not what was recorded" in run_page([folder])


@pytest.mark.parametrize("whole", [True, False])
def test_a_deployment_is_read_from_its_trace(deployed_run: Callable[[bool], Path], whole: bool) -> None:
    found = view_run(deployed_run(whole))
    periods = trace.read_trace(deployed_run(whole)).periods[: len(found.rounds)]
    assert (found.kind, found.unit) == ("deployed", "s")
    ended = np.isfinite(found.jobs.ready)
    assert ended.sum() == sum(len(each.ready) for each in periods)
    told = [
        at + each.time - period.wall
        for period, each in zip(periods, found.rounds, strict=True)
        for at in period.ready_at
    ]
    assert found.jobs.done[ended] == pytest.approx(told)
    for row, period in enumerate(periods):
        assert found.capacity[row, period.ready].tolist() == period.capacity
        assert np.isnan(np.delete(found.capacity[row], period.ready)).all()


def test_jobs_by_hand() -> None:
    jobs = _jobs_of([np.array([0]), np.array([0, 1])], [1.0, 2.0], 2)
    assert jobs.device.tolist() == [0, 0, 1, 0, 1]
    assert jobs.age.tolist() == [0, 0, 1, 0, 0]
    assert jobs.received.tolist() == [0.0, 1.0, 0.0, 2.0, 2.0]
    assert jobs.ready.tolist() == [1.0, 2.0, 2.0, np.inf, np.inf]
    assert _job_numbers(jobs.device).tolist() == [1, 2, 1, 3, 2]


def test_shares_of_time_are_those_of_the_trainings(made_run: Callable[..., Path]) -> None:
    found = view_run(made_run())
    made = run_rows.row_grid(found, 4)  # groups
    assert not made.fine
    edges, jobs = np.array([0.0, *found.time[made.keep]]), found.jobs
    got = run_rows._share(jobs, jobs.begin, jobs.done, edges, made) / 255
    for column, row in ((0, 0), (3, 1), (len(edges) - 2, len(made.size) - 1)):
        of = made.row[jobs.device] == row
        low, high = edges[column], edges[column + 1]
        spent = np.clip(np.minimum(jobs.done[of], high) - np.maximum(jobs.begin[of], low), 0, None).sum()
        assert got[column, row] == pytest.approx(spent / (high - low) / made.size[row], abs=0.003)


def test_same_bytes_and_small_and_says_what_it_leaves_out(made_run: Callable[..., Path]) -> None:
    one = made_run()
    assert run_page([one]) == run_page([one])
    many = run_page([made_run(**MANY)])
    assert len(many.encode()) <= 2_000_000
    assert "400 devices in 100 rows" in many


@pytest.mark.parametrize("count", [0, 33])
def test_one_run_or_several(made_run: Callable[..., Path], count: int) -> None:
    with pytest.raises(FedtideError, match=f"{count} runs: "):
        run_page([made_run()] * count)


def test_records_that_do_not_name_the_ready_devices_show_the_same_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a large fleet count them, and the plan knows who they were."""
    experiment = small({"learning": {"trainer": "native"}, "data": {"num_train": 48, "num_test": 20}})
    fedtide.simulate(experiment, tmp_path / "named")
    monkeypatch.setattr("fedtide.engine.simulate.LARGE_FLEET_DEVICES", 5)
    counted = fedtide.simulate(experiment, tmp_path / "counted").rounds
    assert not any(each.ready for each in counted)
    one, other = view_run(tmp_path / "named"), view_run(tmp_path / "counted")
    assert (one.kind, one.rounds) == (other.kind, other.rounds) == ("simulated", other.rounds)
    for mine, theirs in zip(one.jobs, other.jobs, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    monkeypatch.setattr("fedtide.core.memory_budget._available_bytes", lambda: 100)
    with pytest.raises(FedtideError, match="a page of 6 devices in 12 aggregations would need"):
        view_run(tmp_path / "counted")
