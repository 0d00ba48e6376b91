"""fedtide.race: who leaves, when and why; stopped and resumed; budgets; what is told of candidates that break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedtide
from fedtide.errors import FedtideError
from fedtide.studies.race_input import race_budget
from fedtide.studies.results import RunResult
from fedtide.studies.run import Outcome

BASE: dict[str, Any] = {
    "data": {"name": "synthetic", "num_train": 400, "num_test": 100, "partition": "iid"},
    "fleet": {"num_devices": 4},
    "timeline": {"horizon": 2.5},
    "policy": {"limit": 2},
    "learning": {"model": "softmax", "local_epochs": 1, "learning_rate": 0.1},
}
GOOD = {"learning.learning_rate": 0.1}
BAD = {"learning.learning_rate": 0.0001}
SLOW = {"learning.learning_rate": 0.0002}


def race(candidates: Any, **more: Any) -> fedtide.RaceResult:
    return fedtide.race(candidates, base=BASE, **{"seeds": 8, "confirm": 3, **more})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, fedtide.RaceResult]:
    """A race with a fidelity, and the folder of its results."""
    folder = tmp_path_factory.mktemp("race") / "results"
    fidelity = {"timeline.horizon": 1.0, "seeds": 3}
    return folder, race({"bad": BAD, "good": GOOD, "slow": SLOW}, store=folder, fidelities=[fidelity])


def test_more_seeds_than_any_race_needs_are_refused() -> None:
    with pytest.raises(FedtideError, match="seeds=99999999999 is more than any race needs"):
        race({"bad": BAD, "good": GOOD}, seeds=99_999_999_999)


def test_the_winner_is_found_and_confirmed_on_fresh_seeds(stored: tuple[Path, fedtide.RaceResult]) -> None:
    _, found = stored
    assert (found.leader, found.tied, found.stopped) == ("good", (), "one candidate is left")
    assert [row.candidate for row in found.eliminated] == ["bad", "slow"]
    assert all("worse than good by" in row.reason and row.low and row.low > 0 for row in found.eliminated)
    assert found.against == "bad"
    assert found.confirmed is not None
    assert (found.confirmed.verdict, found.confirmed.num_seeds) == ("higher", 3)
    assert found.num_runs < 3 * 3 + 3 * 8 + 2 * 3
    assert json.loads(json.dumps(found.as_json()))["confirmed"]["verdict"] == "higher"
    assert len(found.table()["candidate"]) == 3
    assert "good leads in mean_accuracy" in repr(found)


def test_stopped_and_called_again_it_decides_the_same(stored: tuple[Path, fedtide.RaceResult], tmp_path: Path) -> None:
    _, whole = stored
    calls = 0

    def stop(_: Outcome) -> None:
        nonlocal calls
        calls += 1
        if calls == 11:
            raise KeyboardInterrupt

    how = {"store": tmp_path / "results", "fidelities": [{"timeline.horizon": 1.0, "seeds": 3}]}
    entries = {"bad": BAD, "good": GOOD, "slow": SLOW}
    with pytest.raises(KeyboardInterrupt):
        race(entries, **how, on_done=stop)
    done: list[Outcome] = []
    again = race(entries, **how, on_done=done.append)
    assert again._replace(seconds=0) == whole._replace(seconds=0)
    assert len(done) == whole.num_runs - 11
    assert race(entries, **how, on_done=done.append)._replace(seconds=0) == whole._replace(seconds=0)
    assert len(done) == whole.num_runs - 11  # everything was there


def test_worker_processes_decide_the_same(stored: tuple[Path, fedtide.RaceResult]) -> None:
    fidelity = {"timeline.horizon": 1.0, "seeds": 3}
    again = race({"bad": BAD, "good": GOOD, "slow": SLOW}, fidelities=[fidelity], workers=2)
    assert again._replace(seconds=0) == stored[1]._replace(seconds=0)


def test_who_diverges_is_out_and_told() -> None:
    found = race({"good": GOOD, "wild": {"learning.learning_rate": 1e300}}, seeds=3, confirm=2)
    (row,) = found.eliminated
    assert (row.candidate, row.outcome) == ("wild", "diverged")
    assert row.reason.startswith("diverged on seed 0 at time")
    assert found.stopped == "one candidate is left"
    with pytest.raises(FedtideError, match=r"no candidate is left \(wild: diverged on seed 0.*kept"):
        race({"wild": {"learning.learning_rate": 1e300}, "wilder": {"learning.learning_rate": 1e301}}, seeds=2)


def test_a_winner_that_diverges_on_a_fresh_seed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one did in a league that was tuned on a single seed."""
    whole = RunResult.diverged
    late = property(lambda run: 0.5 if run.experiment["seed"] == 2 else whole.fget(run))  # type: ignore[attr-defined]
    monkeypatch.setattr(RunResult, "diverged", late)
    found = race({"bad": BAD, "good": GOOD}, seeds=2, confirm=2)
    assert found.note == f"{found.leader} diverged on the fresh seed 2; bad diverged on the fresh seed 2"


def test_a_candidate_that_cannot_run_is_out_with_the_reason(tmp_path: Path) -> None:
    broken = f"{tmp_path / 'broken.py'}:part"
    (tmp_path / "broken.py").write_text("def part(candidates, limit, rng):\n    raise RuntimeError\n")
    found = race({"good": GOOD, "none": {"policy.scheduler": "nofile.py:x"}}, seeds=2, confirm=0, against="good")
    (row,) = found.eliminated
    assert (row.outcome, row.mean, row.num_seeds) == ("failed", None, 0)
    with pytest.raises(FedtideError, match="no candidate is left") as error:
        race({"broken": {"policy.scheduler": broken}}, seeds=2)
    assert error.value.exit_code == 5


def test_ties_are_ties_and_small_differences_are_said_to_be_small() -> None:
    near = {"one": GOOD, "other": {"learning.learning_rate": 0.1000001}}
    tied = race(near, seeds=2, confirm=0)
    assert (tied.tied, tied.stopped, tied.confirmed) == (
        ("other",) if tied.leader == "one" else ("one",),
        "all 2 seeds are used",
        None,
    )
    same = race(near, margin=0.05, confirm=0)
    assert same.stopped == "those left differ from the leader by less than 0.05"
    assert {row.outcome for row in same.rows} == {"leader", "no difference above 0.05"}


def test_a_lower_loss_wins_and_so_does_a_shorter_time() -> None:
    base = {**BASE, "learning": {**BASE["learning"], "training_loss": True}}
    found = fedtide.race({"bad": BAD, "good": GOOD}, base=base, metric="mean_train_loss", seeds=8, confirm=0)
    assert found.leader == "good"
    found = race({"bad": BAD, "good": GOOD}, metric="time_to_0.3", seeds=3, confirm=0)
    assert [(row.candidate, row.outcome) for row in found.eliminated] == [("bad", "target not reached")]
    with pytest.raises(FedtideError, match=r"no candidate is left \(bad: does not reach 0.99 on seed 0"):
        race({"bad": BAD, "good": GOOD}, metric="time_to_0.99", seeds=3)


def test_the_race_is_decided_on_samples_apart_from_the_test_set() -> None:
    seen: list[Outcome] = []
    race({"bad": BAD, "good": GOOD}, seeds=2, confirm=1, on_done=seen.append)
    shares = [outcome.run.experiment.data.validation for outcome in seen]
    seeds = [outcome.run.experiment.seed for outcome in seen]
    assert shares == [0.1] * 4 + [0.0] * 2
    assert seeds == [0, 0, 1, 1, 2, 2]


def test_a_budget_counts_all_runs() -> None:
    found = race({"one": GOOD, "other": {"learning.learning_rate": 0.09}}, budget=11, seeds=8, confirm=2, margin=0)
    assert found.stopped == "the budget is used up"
    assert found.num_runs == 2 * 3 + 2 * 2
    with pytest.raises(FedtideError, match=r"budget=3 runs: one seed of 2 candidates and the runs that confirm need 6"):
        race({"one": GOOD, "bad": BAD}, budget=3, confirm=2)
    many = race({"one": GOOD, "other": {"learning.learning_rate": 0.09}}, budget=11, confirm=2, margin=0, block=6)
    assert many.num_runs == found.num_runs
    short = race({"one": GOOD, "bad": BAD}, budget="0.01s", confirm=0, seeds=8)
    assert short.stopped in ("the budget is used up", "one candidate is left")
    assert (race_budget("20m").seconds, race_budget(" 1.5h").seconds, race_budget(7).runs) == (1200, 5400, 7)


def test_without_budget_for_all_the_last_are_set_aside_and_not_called_worse() -> None:
    rates = (0.0001, 0.0002, 0.0003, 0.0004, 0.08, 0.1, 0.12, 0.14)
    found = race({"learning.learning_rate": list(rates)}, budget=8 + 4 + 2 + 4, confirm=0)
    assert found.num_runs <= 18
    aside = [row for row in found.rows if row.outcome == "set aside"]
    assert len(aside) == 6
    assert all("set aside for lack of budget" in row.reason and row.low is None for row in aside)
    assert float(found.leader.partition("=")[2]) >= 0.08


def test_grids_and_lists_need_no_names() -> None:
    found = race({"learning.learning_rate": [0.0001, 0.1]}, seeds=1, confirm=0)
    assert [row.candidate for row in found.rows] == ["learning_rate=0.0001", "learning_rate=0.1"]
    found = race([GOOD, BAD], seeds=1, confirm=0)
    assert [row.candidate for row in found.rows] == ["learning.learning_rate: 0.1", "learning.learning_rate: 0.0001"]
    assert race({"one": GOOD}, seeds=2, confirm=1).leader == "one"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"candidates": {}}, "has no candidates"),
        ({"candidates": 3}, "has no candidates"),
        ({"candidates": {"one": GOOD, "same": GOOD}}, "'one' and 'same' are the same experiment"),
        ({"budget": "soon"}, "budget='soon' must be a number of runs"),
        ({"workers": 0}, "workers=0 must be a whole number"),
        ({"store": 5}, "store=5 names no folder"),
        ({"budget": 0}, "budget=0 must be"),
        ({"level": 1.5}, "level=1.5 must be between 0 and 0.5"),
        ({"confirm": -1}, "confirm=-1 must be"),
        ({"block": 0}, "block=0 must be"),
        ({"against": "nobody"}, "against='nobody' is not a candidate"),
        ({"seeds": 0}, "seeds=0 leaves nothing to run"),
        ({"fidelities": [3]}, "the fidelity 3 is not a mapping"),
        ({"fidelities": [{"seeds": 9}]}, "seeds=9 of a fidelity must be"),
        ({"fidelities": [{"timeline.horizn": 1}]}, "timeline.horizn"),
        ({"metric": "speed"}, "metric 'speed' is not known"),
        ({"validation": "x"}, "validation='x' must be a share"),
        ({"metric": "mean_train_loss"}, "metric mean_train_loss is not known of good: let runs measure it"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(FedtideError) as told:
        race(**{"candidates": {"good": GOOD, "bad": BAD}, **given})
    assert reason in str(told.value)
    assert "\n" not in str(told.value)
