"""Short runs that find promising settings, and whole runs of the best of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from fedtide import columns
from fedtide.core import faults
from fedtide.errors import FedtideError
from fedtide.studies import spec
from fedtide.studies.design_space import Choice, DesignSpace, Setting, replaced_options
from fedtide.studies.metrics import UNCOUNTED, amount_spent
from fedtide.studies.results import RunResult
from fedtide.studies.run import expected_run_work, run_study
from fedtide.studies.store import Store
from fedtide.studies.table import by_label

SCREENING_SEEDS: Final = (1000, 1001)  # of no race: who is chosen by its luck on a seed must not race on it
WHOLE_SEED: Final = 1002  # on which the best of the short runs run over the whole horizon
VALIDATION: Final = 0.1  # share of the training samples on which settings are chosen, and which no device holds
_MIXTURES: Final = 24
_WHOLE_PART: Final = 0.3  # of the limit, for whole runs
_PROMISING: Final = 3  # options of a choice that are mixed, the base's among them
_MOST_ROUNDS: Final = 6
_LEAST_GAIN: Final = (
    0.002  # of accuracy that a change must bring: of settings that are alike, the one with fewer changes leads
)

BySetting = dict[Setting, dict[int, RunResult]]


@dataclass
class Bench:
    """Runs of settings, kept in a store, and what they took of a core."""

    space: DesignSpace
    store: Store
    how: Mapping[str, Any]  # as `run_study` takes it
    seconds: float = 0.0
    work: float = 0.0  # samples that these runs visit, about
    counted: set[str] = field(default_factory=set)  # names of runs, each of which counts once
    num_runs: int = 0

    def study(self, settings: Iterable[Setting], seeds: Sequence[int], share: float, more: Mapping[str, Any]) -> Any:
        """Return settings over a share of the horizon as a study. more: keys for all of them."""
        if share < 1:
            more = {"timeline.horizon": self.horizon(share), **more}
        trees = {self.space.text(setting): self.space.experiment(setting, more) for setting in settings}
        return spec.make_study("advice", trees, seeds)

    def horizon(self, share: float) -> float:
        """Return a share of the horizon, as a number with few digits."""
        return float(f"{self.space.base.timeline.horizon * share:.3g}")

    def runs(
        self,
        settings: Sequence[Setting],
        seeds: Sequence[int],
        share: float,
        more: Mapping[str, Any] = {},  # read only
    ) -> BySetting:
        """Do the runs that are missing, and return all results. A setting whose run fails has none; if the base's does, raise."""
        study = self.study(settings, seeds, share, more)
        labels = {self.space.text(setting): setting for setting in settings}
        for failed in run_study(study, self.store, **self.how):
            if failed.exit_code == faults.MACHINE or labels[failed.run.label] == self.space.base_setting:
                error = FedtideError(f"{failed.run.label}, seed {failed.run.experiment.seed}: {failed.reason}")
                error.exit_code = failed.exit_code
                raise error
        found = by_label(study, self.store)
        new = [run for run in study.runs if run.name not in self.counted and run.experiment.seed in found[run.label]]
        done = [found[run.label][run.experiment.seed] for run in new]
        known = [seconds for run in done if (seconds := run.totals.get("seconds")) is not None]
        self.num_runs += len(done)
        self.seconds += math.fsum(known) * len(done) / max(len(known), 1)
        self.work += math.fsum(map(expected_run_work, new))
        self.counted.update(run.name for run in new)
        return {labels[label]: runs for label, runs in found.items()}

    def expected_seconds(self, setting: Setting, share: float) -> float:
        """Return what a run would take, by what the runs so far took."""
        return expected_run_work(self.study([setting], [0], share, {}).runs[0]) * self.seconds / max(self.work, 1.0)


@dataclass
class Screening:
    """Settings scored by short runs on a few seeds."""

    bench: Bench
    is_left: Callable[[Setting], bool]
    spends: str  # what the goal counts: time, air_time or joules
    target: float | None  # accuracy beyond which more does not count
    share: float  # of the horizon
    limit: float  # seconds of one core
    on_step: Callable[[Setting, float, int], None]  # told who leads, its gain over the base, on how many seeds
    scores: dict[int, dict[Setting, float]] = field(default_factory=dict)  # by seed; higher is better
    spent: dict[int, float] = field(default_factory=dict)  # by the base, by seed

    def finalists(self, count: int) -> list[Setting]:
        """Search as long as the limit allows, and return the best settings, the base not among them.

        Short runs rank settings that start slowly too low. So the best half a dozen and more run over the whole horizon, if a part of
        the limit holds twice as many as are asked for.
        """
        base = self.bench.space.base_setting
        num_whole = int(_WHOLE_PART * self.limit / max(self.bench.expected_seconds(base, 1.0), 1e-9)) - 1
        held = num_whole >= 2 * count and self.share < 1
        self._search(count, (1 - _WHOLE_PART) * self.limit if held else self.limit)
        if not held:
            return [setting for setting in self.ranked() if setting != base][:count]
        self.score([base, *self.ranked()[:num_whole]], WHOLE_SEED, self.limit)
        return [setting for setting in self.ranked([WHOLE_SEED]) if setting != base][:count]

    def _search(self, count: int, limit: float) -> None:
        """Do short runs: one other option at a time, mixtures of those that helped, then around the best so far."""
        space, first, second = self.bench.space, *SCREENING_SEEDS
        base = space.base_setting
        options = {choice.name: list(choice.options) for choice in space.choices}
        self.score([base, *space.neighbours(base, options)], first, limit)
        options = {choice.name: self._by_gain(at, choice) for at, choice in enumerate(space.choices)}
        together = tuple(options[choice.name][0] for choice in space.choices)
        self.score([together, *self._mixtures(options)], first, limit)
        around: set[Setting] = set()
        for number in range(_MOST_ROUNDS):
            seed, leaders = (second, first)[number % 2], self.ranked()[:count]
            best = next((each for each in leaders if each not in around), None)
            if best is None or self.bench.seconds > limit:
                break
            around.add(best)
            self.score([base, *leaders, *space.neighbours(best, options)], seed, limit)

    def score(self, settings: Iterable[Setting], seed: int, limit: float) -> None:
        """Score those settings that are left and new on a seed, in this order, as many as the limit allows."""
        known, base = self.scores.setdefault(seed, {}), self.bench.space.base_setting
        share = 1.0 if seed == WHOLE_SEED else self.share
        left, chosen = limit - self.bench.seconds, []
        for setting in dict.fromkeys(settings):
            if setting not in known and self.is_left(setting):
                left -= self.bench.expected_seconds(setting, share)
                if left < 0 and setting != base:
                    break
                chosen.append(setting)
        if not chosen:
            return
        for setting, runs in self.bench.runs(chosen, [seed], share, {"data.validation": VALIDATION}).items():
            known[setting] = self._value(runs[seed], seed, setting == base) if seed in runs else -math.inf
        best = next(iter(self.ranked()), base)
        self.on_step(best, self.gain(best), sum(best in self.scores.get(seed, {}) for seed in SCREENING_SEEDS))

    def gain(self, setting: Setting, seeds: Sequence[int] = SCREENING_SEEDS) -> float:
        """Return the mean gain over the base, on those seeds that a setting has; -inf if it has none, or diverged."""
        base = self.bench.space.base_setting
        scores = [self.scores.get(seed, {}) for seed in seeds]
        gains = [known[setting] - known[base] for known in scores if setting in known]
        return float(np.mean(gains)) if gains else -math.inf

    def ranked(self, seeds: Sequence[int] = SCREENING_SEEDS) -> list[Setting]:
        """Return the settings that learned something, the best first; half of a gain on one of several seeds counts."""
        known = dict.fromkeys(setting for seed in seeds for setting in self.scores.get(seed, {}))
        base = self.bench.space.base_setting
        sure = {}
        for each in known:
            changes = sum(option != before for option, before in zip(each, base, strict=True))
            gain, is_sure = self.gain(each, seeds), all(each in self.scores.get(seed, {}) for seed in seeds)
            sure[each] = (gain if is_sure else min(gain, gain / 2)) - _LEAST_GAIN * changes
        return sorted((each for each in known if sure[each] > -math.inf), key=lambda each: -sure[each])

    def _by_gain(self, at: int, choice: Choice) -> list[str]:
        """Return the options of a choice, those first that helped most in the place of the base's."""
        gains = {
            each: self.gain(replaced_options(self.bench.space.base_setting, [at], [each])) for each in choice.options
        }
        return sorted(gains, key=lambda option: -gains[option])

    def _value(self, run: RunResult, seed: int, is_base: bool) -> float:
        """Return the mean accuracy of a run, up to the target, over time or over what the base spends in the same time."""
        if run.diverged is not None and not is_base:
            return -math.inf
        spent = amount_spent(run, self.spends)
        if is_base:
            if np.isnan(spent).any():
                raise FedtideError(f"the cost that the advice is about is not counted: {UNCOUNTED[self.spends]}")
            self.spent[seed] = run.horizon if self.spends == "time" else max(float(spent[-1]), 1e-300)
        whole = self.spent[seed]
        edges = np.concatenate([[0.0], np.minimum(spent, whole), [whole]])
        levels = np.minimum(run.column("test_accuracy"), 1.0 if self.target is None else self.target)
        return float(np.concatenate([[run.chance], levels]) @ np.diff(edges) / whole)

    def _mixtures(self, options: Mapping[str, Sequence[str]]) -> list[Setting]:
        """Draw settings of options that did not harm alone; of two that helped, the better one twice as often."""
        space, rows = self.bench.space, []
        for at, choice in enumerate(space.choices):
            gains = {
                option: self.gain(replaced_options(space.base_setting, [at], [option]))
                for option in options[choice.name]
            }
            good = [option for option in options[choice.name] if gains[option] >= 0][:_PROMISING]
            weights = np.array([2.0**-rank for rank in range(len(good))])
            draws = columns.uniform(0, "advice", np.arange(_MIXTURES), at)
            rows.append([good[int(each)] for each in np.searchsorted(np.cumsum(weights / weights.sum()), draws)])
        return list(zip(*rows, strict=True))
