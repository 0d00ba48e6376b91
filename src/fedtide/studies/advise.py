"""The search for advice: plans rule settings out, short runs find good ones, a race decides, fresh seeds confirm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedtide import config
from fedtide.config import Experiment
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.report.plan import plan_experiment
from fedtide.runs import provenance
from fedtide.studies.advice import Advice, FrontPoint, Reached, Worth, count_reached, front_points
from fedtide.studies.design_space import DesignSpace, Setting, design_space, replaced_options
from fedtide.studies.metrics import metric_margin, metric_named, metric_sign
from fedtide.studies.pruning import prune_by_plans
from fedtide.studies.race import RaceResult, race
from fedtide.studies.race_input import race_budget
from fedtide.studies.race_state import NoCandidateLeftError
from fedtide.studies.results import RunResult
from fedtide.studies.run import Outcome, expected_run_work, study_backend
from fedtide.studies.screening import SHORT_SEED, VALIDATION, WHOLE_SEED, Bench, Screening
from fedtide.studies.spec import Given, given_base
from fedtide.studies.statistics import FEWEST_SEEDS, paired_difference
from fedtide.studies.store import kept_results
from fedtide.studies.table import by_label

GOALS: Final = {"accuracy": "time", "time": "time", "airtime": "air_time", "joules": "joules"}  # what each counts
_RACE_SEEDS: Final = 20
_MOST_CONFIRM: Final = 10  # fresh seeds
_SEARCH_PART: Final = 0.5  # of the budget, for the runs of one seed that find good settings
_RACE_PART: Final = 0.36  # of the budget, with the runs that confirm
_CONFIRM_PART: Final = 0.2  # of the budget
_LEAST_RACE: Final = 8.5  # whole runs that a race must hold: six confirm, two race
_LEAST_RUNS: Final = (
    12  # whole runs that a budget must hold: the race, two that tell how long they take, many short ones
)
_SHORT_RUNS: Final = 300  # that the search should have, about
_LEAST_SHARE: Final = 1 / 16  # of the horizon
_LEAST_TICKS: Final = 8  # aggregations of a short run of the base
_LEAST_LONG_TICKS: Final = 4  # aggregations of a short run with the longest period
_LEAST_SECONDS: Final = 0.05  # of a whole run; shorter ones are not timed reliably
_SHORT_RACE_SEEDS: Final = 3
_FINALISTS: Final = 6


class AdviceProgress(NamedTuple):
    """How far the search is."""

    phase: str  # plans, short runs, race, what each choice is worth
    seconds: float = 0.0  # of one core that were used
    num_runs: int = 0
    leader: str = ""  # the settings that are ahead
    gain: str = ""  # of the leader over the base


def search_advice(
    base: Given,
    *,
    target: float | None = None,
    goal: str = "accuracy",
    budget: str = "20m",
    only: Sequence[str] | None = None,
    store: Path | str | None = None,
    workers: int = 1,
    backend: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    on_step: Callable[[AdviceProgress], None] = lambda _: None,
    on_done: Callable[[Outcome], None] = lambda _: None,
) -> Advice:
    """Find good settings for an experiment; the arguments are those of `fedtide.advise`."""
    metric = _metric(goal, target)
    experiment = config.experiment(given_base(base))
    if experiment.data.validation:
        raise FedtideError(
            f"data.validation={experiment.data.validation:g}: advice is confirmed on the test set; leave this key out"
        )
    how = {**study_backend(workers, backend), "on_done": on_done}
    seconds = (race_budget(budget).seconds if isinstance(budget, str) else math.inf) * workers
    if seconds == math.inf:
        raise FedtideError(f"budget={shown(budget)} must be a time on the clock, such as 90s, 20m or 1.5h")
    space = design_space(experiment, only)
    least_share = _least_share(space, seconds, budget, say)
    pruned, is_left = prune_by_plans(
        space, say, lambda done, total: on_step(AdviceProgress(f"plans, {done} of {total}")) if done % 50 == 0 else None
    )
    if pruned.left < 2:
        why = ", ".join(f"{count:,} {reason}" for reason, count in pruned.reasons.items()) or "there is no choice"
        raise FedtideError(
            f"nothing is left to choose from, of {pruned.considered:,} settings: {why}; offer more choices, or change the base"
        )
    with kept_results(store) as kept:
        bench = Bench(space, kept, how)
        whole = _whole_run_seconds(bench, least_share, seconds, budget, workers)
        race_seconds = max(_RACE_PART * seconds, _LEAST_RACE * whole)
        limit = min(_SEARCH_PART * seconds, seconds - race_seconds)
        share = min(max(float(f"{limit / (_SHORT_RUNS * whole):.2g}"), least_share), 1.0)
        confirm = min(max(int(_CONFIRM_PART * seconds / (2 * whole)), FEWEST_SEEDS), _MOST_CONFIRM)
        ends = {} if goal == "accuracy" else {"learning.target_accuracy": target}
        short = (
            [{"timeline.horizon": bench.horizon(share), "seeds": _SHORT_RACE_SEEDS}] if share < 1 and not ends else []
        )
        # Without a short horizon, the first seed of the race takes a whole run of the base and of every finalist.
        held = _FINALISTS if short else max(int(race_seconds / whole) - 2 * confirm - 1, 1)

        def on_leader(setting: Setting, gain: float, share: float) -> None:
            told = f"{gain:+.4f} over the base on one seed and {share:.0%} of the horizon"
            on_step(AdviceProgress("short runs", bench.seconds, bench.num_runs, space.text(setting), told))

        screening = Screening(bench, is_left, GOALS[goal], target if ends else None, share, limit, on_leader)
        best = screening.finalists(min(held, _FINALISTS))
        if not best:
            ran = len(screening.scores[SHORT_SEED])
            raise FedtideError(
                f"budget={budget}: only the base had a short run; give more. Finished runs are kept"
                if ran == 1
                else f"all settings that ran diverged, {ran} of them: lower "
                f"learning.learning_rate={experiment.learning.learning_rate:g} of the base; finished runs are kept"
            )

        def on_race(found: RaceResult) -> None:
            used, runs = bench.seconds + found.seconds, bench.num_runs + found.num_runs
            on_step(AdviceProgress("race", used, runs, found.leader, _lead(found)))

        entries = {space.text(each): config.nest(space.keys(each)) for each in (space.base_setting, *best)}
        found = _raced(
            entries, config.experiment(experiment, config.nest(ends)), target if ends else None,
            seeds=_RACE_SEEDS, fidelities=short, budget=f"{race_seconds:.3f}s", metric=metric, confirm=confirm,
            validation=VALIDATION, against="base", name="advice", store=kept.folder, workers=workers, backend=backend,
            on_done=on_done, on_step=on_race,
        )  # fmt: skip
        settings = {space.text(each): each for each in (space.base_setting, *best)}
        winner = settings[found.leader]
        used, runs = bench.seconds + found.seconds, bench.num_runs + found.num_runs
        on_step(AdviceProgress("what each choice is worth", used, runs, found.leader, _lead(found)))
        fresh, pair = range(_RACE_SEEDS, _RACE_SEEDS + confirm), [space.base_setting, winner]
        bench.counted.update(run.name for run in bench.study(pair, fresh, 1.0, ends).runs)  # by the race
        worth, worth_share = _worths(bench, winner, metric, ends, fresh, share, seconds - used)
        on_fresh = by_label(bench.study([*pair, *_reverted(space, winner).values()], fresh, 1.0, ends), kept)
        aim, front = _front(on_fresh, fresh, target)
        counts = [count_reached(on_fresh[name], target or 1.0) for name in (found.leader, "base")]
        return Advice(
            base=experiment,
            experiment=space.experiment(winner),
            keys=space.keys(winner),
            goal=goal,
            metric=metric,
            worth=worth,
            worth_share=worth_share,
            race=found,
            pruned=pruned,
            notes=space.notes,
            screened=len({setting for scores in screening.scores.values() for setting in scores}),
            screened_share=share,
            front=front,
            target=aim,
            reached=Reached(counts[0], counts[1], confirm) if ends else None,
            seeds=f"{SHORT_SEED} and {WHOLE_SEED} chose, 0 to {_RACE_SEEDS - 1} at most raced, "
            f"{_RACE_SEEDS} to {_RACE_SEEDS + confirm - 1} confirmed",
            num_runs=bench.num_runs + found.num_runs,
            seconds=bench.seconds + found.seconds,
            provenance={key: value for key, value in provenance(experiment).items() if key != "date"},
        )


def _metric(goal: str, target: float | None) -> str:
    if goal not in GOALS:
        raise FedtideError(f"advice for {shown(goal)} is not known; it is for {', '.join(GOALS)}")
    if target is not None and (isinstance(target, bool) or not isinstance(target, float) or not 0 < target < 1):
        raise FedtideError(f"target={shown(target)} must be an accuracy between 0 and 1, such as 0.9")
    if goal == "accuracy":
        return "mean_accuracy"
    if target is None:
        raise FedtideError(f"advice for {goal} needs an accuracy to be reached: give a target, such as 0.9")
    return f"{GOALS[goal]}_to_{target:g}"


# What a budget holds.


def _least_share(space: DesignSpace, seconds: float, budget: str, say: Callable[[str], None]) -> float:
    """Return the share of the horizon that a short run has at least; raise if the budget does not hold one such run."""
    summary, timeline = plan_experiment(space.base, say, 1).summary, space.base.timeline
    ticks = summary["aggregations"] if summary["times_known"] else timeline.horizon / timeline.period
    offered = [keys.get("timeline.period", 0.0) for choice in space.choices for keys in choice.options.values()]
    needed = max(_LEAST_TICKS, _LEAST_LONG_TICKS * max(offered, default=0.0) / timeline.period)
    share, pace = min(max(_LEAST_SHARE, needed / ticks), 1.0), summary["run_time"]
    one = (pace["training"] + pace["evaluation"]) * share if pace else 0.0
    if one > seconds:
        raise FedtideError(f"budget={budget}: the shortest run takes about {one:.0f} s of a core; give more")
    return share


def _whole_run_seconds(bench: Bench, share: float, seconds: float, budget: str, workers: int) -> float:
    """Return how long the base runs over the whole horizon, by short runs of it; raise if the budget holds too few."""
    base, took = bench.space.base_setting, 0.0
    for seed in (
        SHORT_SEED,
        WHOLE_SEED,
    ):  # the first run loads the data, so the second counts, unless it was stopped and went on
        run = bench.runs([base], [seed], share, {"data.validation": VALIDATION})[base][seed]
        took = run.totals.get("seconds") or took
    work, part = (expected_run_work(bench.study([base], [0], each, {}).runs[0]) for each in (1.0, share))
    whole = max(took * work / part, _LEAST_SECONDS)
    if seconds < _LEAST_RUNS * whole:
        raise FedtideError(
            f"budget={budget}: a run of the base takes about {whole:.1f} s, and advice takes {_LEAST_RUNS} of them at least; "
            f"give {math.ceil(1.1 * _LEAST_RUNS * whole / workers)}s or more. The runs so far are kept"
        )
    return whole


# The race.


def _raced(entries: dict[str, Any], base: Experiment, target: float | None, **how: Any) -> RaceResult:
    """Race, and say in one line if no candidate reaches the target."""
    highest = 0.0
    on_done = how.pop("on_done")

    def watch(outcome: Outcome) -> None:
        nonlocal highest
        if outcome.result is not None:
            highest = max(highest, float(outcome.result.column("test_accuracy").max()))
        on_done(outcome)

    try:
        return race(entries, base=base, on_done=watch, **how)
    except NoCandidateLeftError as error:
        if target is None:
            raise
        best = f", the best reached {highest:.3g}" if highest else ""
        raise FedtideError(
            f"no setting reaches an accuracy of {target:g} on every seed within timeline.horizon={base.timeline.horizon:g}{best}; "
            "lower the target or lengthen the horizon. Finished runs are kept"
        ) from error


def _lead(found: RaceResult) -> str:
    """Write the leader's lead over the base with its interval, if both are known."""
    row = next((row for row in found.rows if row.candidate == "base"), None)
    if row is None or row.behind is None:
        return ""
    if row.low is None or row.high is None:
        return f"{row.behind:+.4g} over the base on {row.num_seeds} seeds"
    return f"{row.behind:+.4g} over the base ({row.low:+.4g} to {row.high:+.4g}; {row.num_seeds} seeds)"


# What each choice is worth.


def _reverted(space: DesignSpace, winner: Setting) -> dict[str, Setting]:
    """Return by choice the winner with the base's option."""
    base = space.base_setting
    return {
        choice.name: replaced_options(winner, [at], [base[at]])
        for at, choice in enumerate(space.choices)
        if winner[at] != base[at]
    }


def _worths(
    bench: Bench, winner: Setting, metric: str, ends: Any, seeds: Sequence[int], share: float, seconds: float
) -> tuple[tuple[Worth, ...], float]:
    """Take back one choice at a time, on the fresh seeds; over the whole horizon, if the budget allows, else over a share."""
    space, reverted = bench.space, _reverted(bench.space, winner)
    pairs = zip(space.choices, space.base_setting, winner, strict=True)
    rows = [Worth(choice.name, choice.key, before, after) for choice, before, after in pairs]
    if not reverted:
        return tuple(rows), 1.0
    whole = math.fsum(bench.expected_seconds(each, 1.0) for each in reverted.values())
    short = math.fsum(bench.expected_seconds(each, share) for each in (winner, *reverted.values()))
    if ends or seconds >= FEWEST_SEEDS * whole:
        share, cost = 1.0, whole
    else:
        cost = short
    count = min(int(seconds / max(cost, 1e-9)), len(seeds))
    if count < FEWEST_SEEDS:
        return tuple(row._replace(note="no budget left to tell what it is worth") for row in rows), share
    found = bench.runs([winner, *reverted.values()], seeds[:count], share, ends)
    measure, sign = metric_named(metric), metric_sign(metric)
    told = []
    for row in rows:
        runs = found.get(reverted.get(row.choice, winner), {}) if row.choice in reverted else {}
        shared = [seed for seed in seeds[:count] if seed in runs and seed in found[winner]]
        ours, theirs = ([sign * measure(side[seed]) for seed in shared] for side in (found[winner], runs))
        if row.choice not in reverted:
            told.append(row)
        elif len(shared) < count or any(map(math.isnan, ours + theirs)):
            told.append(row._replace(note=f"with {row.base} not every run has a {metric}"))
        else:
            told.append(row._replace(gain=paired_difference(ours, theirs, margin=metric_margin(metric))))
    return tuple(told), share


def _front(
    runs: Mapping[str, Mapping[int, RunResult]], seeds: Sequence[int], target: float | None
) -> tuple[float | None, tuple[FrontPoint, ...]]:
    """Return the target, and what every setting spends up to it on the seeds that all settings with runs share."""
    ran = {label: found for label, found in runs.items() if found}
    shared = [seed for seed in seeds if all(seed in found for found in ran.values())]
    results = {label: [found[seed] for seed in shared] for label, found in ran.items()}
    if target is None:
        reached = [float(run.column("test_accuracy").max(initial=0.0)) for run in results.get("base", ())]
        target = math.floor(100 * min(reached)) / 100 if reached else None
    return target, front_points(results, target) if target else ()
