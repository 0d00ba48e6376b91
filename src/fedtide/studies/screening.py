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
from fedtide.studies.design_space import DesignSpace, Setting
from fedtide.studies.metrics import UNCOUNTED, amount_spent
from fedtide.studies.results import RunResult
from fedtide.studies.run import expected_run_work, run_study
from fedtide.studies.store import Store
from fedtide.studies.surrogate import (
    Surrogate,
    coordinates,
    expected_improvement,
    fit_surrogate,
    is_numeric,
    with_believed,
)
from fedtide.studies.table import by_label
from fedtide.types import Floats

SHORT_SEED: Final = 1000  # of no race: who is chosen by its luck on a seed must not race on it
WHOLE_SEED: Final = 1001  # on which the best of the short runs run over the whole horizon
VALIDATION: Final = 0.1  # share of the training samples on which settings are chosen, and which no device holds
_WHOLE_PART: Final = 0.4  # of the limit, for whole runs
_ALONE_PART: Final = 0.4  # of the limit, for changes of one choice
_BATCH: Final = 8  # settings that run before the next ones are chosen
_PARENTS: Final = 8  # settings that others are varied from
_VARIED: Final = 1000  # settings that differ from these in some choices, among which the next ones are chosen
_OTHERS: Final = 400  # settings of any options, likewise
_CHANGED: Final = 0.25  # of the choices of a varied setting
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
    """Settings scored by short runs on one seed, and by whole runs on another."""

    bench: Bench
    is_left: Callable[[Setting], bool]
    spends: str  # what the goal counts: time, air_time or joules
    target: float | None  # accuracy beyond which more does not count
    share: float  # of the horizon
    limit: float  # seconds of one core
    on_step: Callable[[Setting, float, float], None]  # told who leads, its gain, and on which share of the horizon
    scores: dict[int, dict[Setting, float]] = field(default_factory=dict)  # by seed; higher is better
    spent: dict[int, float] = field(default_factory=dict)  # by the base, by seed

    def finalists(self, count: int) -> list[Setting]:
        """Search as long as the limit allows, and return the best settings, the base not among them.

        Short runs rank settings that start slowly too low. So the most promising ones run over the whole horizon, if a part of the
        limit holds twice as many as are asked for.
        """
        space = self.bench.space
        num_whole = int(_WHOLE_PART * self.limit / max(self.bench.expected_seconds(space.base_setting, 1.0), 1e-9)) - 1
        held = num_whole >= 2 * count and self.share < 1
        alone = space.neighbours(space.base_setting, {choice.name: [*choice.options] for choice in space.choices})
        self._search(SHORT_SEED, alone, _ALONE_PART, (1 - _WHOLE_PART) * self.limit if held else self.limit)
        if held:
            self._search(WHOLE_SEED, self.ranked(SHORT_SEED)[: num_whole // 2], 1.0, self.limit)
        ranked = self.ranked(WHOLE_SEED if held else SHORT_SEED)
        return [setting for setting in ranked if setting != space.base_setting][:count]

    def _search(self, seed: int, first: Sequence[Setting], part: float, limit: float) -> None:
        """Run these settings first, for a part of the limit, then those of which most is to be hoped."""
        self.score([self.bench.space.base_setting, *first], seed, part * limit)
        while self.score(self._promising(seed), seed, limit):
            pass

    def score(self, settings: Iterable[Setting], seed: int, limit: float) -> bool:
        """Score those settings that are left and new on a seed, in this order, that the limit allows; say if there was one."""
        known, base = self.scores.setdefault(seed, {}), self.bench.space.base_setting
        share = 1.0 if seed == WHOLE_SEED else self.share
        left, chosen = limit - self.bench.seconds, []
        for setting in dict.fromkeys(settings):
            if setting not in known and self.is_left(setting):
                took = self.bench.expected_seconds(setting, share)
                if took <= left or setting == base:
                    left -= took
                    chosen.append(setting)
        if not chosen:
            return False
        for setting, runs in self.bench.runs(chosen, [seed], share, {"data.validation": VALIDATION}).items():
            known[setting] = self._value(runs[seed], seed, setting == base) if seed in runs else -math.inf
        best = max(known, key=known.__getitem__)
        self.on_step(best, known[best] - known[base], share)
        return True

    def _model(self, seed: int, settings: Sequence[Setting]) -> tuple[Surrogate, Floats]:
        """Return a model of all scores, as gains over the base, and where it has some settings."""
        choices, rows, scores = self.bench.space.choices, [], []
        for stage, known in self.scores.items():
            finite = {setting: score for setting, score in known.items() if score > -math.inf}
            worst = min(finite.values())
            rows += [coordinates(choices, [*known], stage != SHORT_SEED)]
            scores += [max(score, worst) - known[self.bench.space.base_setting] for score in known.values()]
        numeric = [*map(is_numeric, choices), True]
        return fit_surrogate(np.vstack(rows), np.array(scores), numeric), coordinates(
            choices, settings, seed != SHORT_SEED
        )

    def _promising(self, seed: int) -> list[Setting]:
        """Return settings that did not run on a seed and may well beat the best."""
        known = self.scores[seed]
        ranked = self.ranked(seed)
        pool = [each for each in self._varied(ranked[:_PARENTS]) if each not in known and self.is_left(each)]
        if not pool:
            return []
        model, places = self._model(seed, [*ranked, *pool])
        best = float(model.predict(places[: len(ranked)])[0].max())
        places, chosen = places[len(ranked) :], list[int]()
        for _ in range(min(_BATCH, len(pool))):
            hope = expected_improvement(*model.predict(places), best)
            hope[chosen] = -1.0
            chosen.append(int(hope.argmax()))
            model = with_believed(model, places[chosen[-1]])
        return [pool[each] for each in chosen]

    def _varied(self, parents: Sequence[Setting]) -> list[Setting]:
        """Draw settings that differ from good ones in some choices, and some of any options."""
        space, number = self.bench.space, sum(map(len, self.scores.values()))
        index, columns_of = np.arange(_VARIED + _OTHERS), []
        for at, choice in enumerate(space.choices):
            options = [*choice.options]
            changed, option = columns.uniform_pair(0, "advice", index, number, at)
            anew = (changed < _CHANGED) | (index >= _VARIED)
            drawn = [options[int(each * len(options))] for each in option]
            kept = [parents[each % len(parents)][at] for each in index.tolist()]
            columns_of.append([new if is_new else old for new, old, is_new in zip(drawn, kept, anew, strict=True)])
        return [*dict.fromkeys(zip(*columns_of, strict=True))]

    def ranked(self, seed: int) -> list[Setting]:
        """Return the settings that learned something on a seed, the best first, by what the model makes of all scores."""
        base = self.bench.space.base_setting
        finite = [setting for setting, score in self.scores[seed].items() if score > -math.inf]
        model, places = self._model(seed, finite)
        changes = [sum(option != before for option, before in zip(each, base, strict=True)) for each in finite]
        likely = model.predict(places)[0] - _LEAST_GAIN * np.array(changes)
        return [finite[at] for at in np.argsort(-likely, kind="stable")]

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
