"""How a claim is decided: a sentence of the paper as comparisons between runs, with a verdict that follows from intervals.

A comparison says which of two variants should be higher by some metric. A claim holds if every comparison is resolved in the
claimed direction (95 % interval of the paired difference). It is contradicted if one of its m comparisons is resolved the
other way by an interval of 1 - 5 %/m: else a claim of many comparisons would be contradicted by chance (Bonferroni). A claim
that some variant exists has several groups of comparisons: one that holds is enough (at 1 - 5 %/groups), and all must be
contradicted. A claim that neither holds nor is contradicted says `no difference above m` if every comparison of every group
is shown to be within the margin of its metric (two one-sided tests at 5 %). No share of the 5 % is needed there, since all
tests must agree (an intersection-union test). All groups count, not the best one alone: else a claim could say so although
another group is far off. Otherwise it is not resolved; the seeds that would resolve it are those of the whole claim at these
levels.
Every claim is decided a second time by another measure, for the reader: the paper does not say what "better" or "smooth" is.
With a plan, a claim has no verdict before all its comparisons have the planned seeds, and later seeds do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedtide.studies import (
    CONFIDENCE,
    EQUIVALENT,
    POWER,
    Comparison,
    RunResult,
    diverged_runs_note,
    metric_margin,
    metric_named,
    mixed_pairs_note,
    paired_difference,
    paired_results,
    seeds_needed,
)

# The number per run that decides, and the one by which the verdict is given a second time.
_OTHER = {
    "mean_accuracy": "final_accuracy",
    "mean_train_loss": "final_train_loss",
    "variation": "roughness",
    "uploads": "bits",
    "bits_down": "bits",
    "kept_share": "bits",
}

# A side of a comparison: a curve, or the gain of one curve over another.
Side = str | tuple[str, str]


class Check(NamedTuple):
    """One comparison: `better` should exceed `worse` by the metric (or stay below it, if lower is better)."""

    figure: str
    better: Side
    worse: Side
    metric: str = "mean_accuracy"
    lower_is_better: bool = False
    margin: float | None = None  # the smallest difference that matters; None: the metric's own
    least: float = 0.0  # the claim is that the difference exceeds this


class Claim(NamedTuple):
    """A sentence of the paper and the comparisons that decide it; or an observation of ours, of which nothing is claimed."""

    name: str
    text: str  # in our words, short
    checks: tuple[Check, ...]
    # Further ways in which the claim may hold, for "there is one that ...".
    otherwise: tuple[tuple[Check, ...], ...] = ()
    quote: str = ""  # the paper's words, with mathematics as plain text
    section: str = ""  # where they stand
    reading: str = ""  # "we read it as ...": what the words leave to the reader; of ours: what the paper says about it

    def by_other_measure(self) -> Claim:
        """Return the same claim, decided by the other number per run."""
        groups = [
            tuple(check._replace(metric=_OTHER.get(check.metric, check.metric)) for check in group)
            for group in self.groups
        ]
        return self._replace(checks=groups[0], otherwise=tuple(groups[1:]))

    @property
    def groups(self) -> tuple[tuple[Check, ...], ...]:
        """All groups of comparisons; one that holds is enough."""
        return (self.checks, *self.otherwise)


class Finding(NamedTuple):
    """One comparison, made: the differences are better minus worse (worse minus better where lower is better)."""

    check: Check
    difference: tuple[float, ...]  # by seed, less `least`
    missing: bool = False  # no seed has all sides; else, without differences, runs are too short to tell
    awaited: int = 0  # seeds of the plan that are not there yet
    paths_note: str = ""  # pairs on different instruction paths
    diverged_note: str = ""  # runs that did not stay finite

    def at(self, confidence: float) -> Comparison | None:
        """Compare with an interval of this confidence, and test for equivalence if the metric has a margin."""
        if not self.difference:
            return None
        margin = None if self.check.least else metric_margin(self.check.metric, self.check.margin)
        return paired_difference(self.difference, [0.0] * len(self.difference), confidence, margin)

    @property
    def within(self) -> float | None:
        """The margin that the difference is shown not to exceed, resolved or not; None: not shown."""
        found = self.at(CONFIDENCE)
        return None if found is None else found.within

    def answer(self, confidence: float = CONFIDENCE) -> str:
        """`holds`, `contradicted`, `no difference above m`, `not resolved` or `runs missing`, for this comparison alone."""
        found = self.at(confidence)
        if found is None:
            return "runs missing" if self.missing else "not resolved"
        return {"higher": "holds", "lower": "contradicted"}.get(found.verdict) or _unresolved([self.within])

    def seeds_needed(self, sign: int, confidence: float, power: float) -> float:
        """Return about how many seeds would resolve it in this direction; infinite if its mean lies the other way."""
        found = self.at(confidence)
        if found is None or found.mean * sign <= 0:
            return math.inf
        if found.verdict in ("higher", "lower"):
            return len(self.difference)
        return seeds_needed(np.array(self.difference), confidence, power) or math.inf

    def p_value(self, sign: int) -> float:
        """Return the p value of the paired t test, both sides, if the mean lies in this direction; else 1."""
        from scipy.special import stdtr

        count, mean = len(self.difference), float(np.mean(self.difference)) if self.difference else 0.0
        if count < 2 or mean * sign <= 0:
            return 1.0
        error = float(np.std(self.difference, ddof=1)) / math.sqrt(count)
        return 2 * float(stdtr(count - 1, -abs(mean) / error)) if error else 0.0

    @property
    def strength(self) -> float:
        """How many half-widths the difference is from zero, in the claimed direction; minus infinity if there is none."""
        found = self.at(CONFIDENCE)
        if found is None:
            return -math.inf
        width = found.high - found.mean
        return found.mean / width if width else math.copysign(math.inf, found.mean) if found.mean else 0.0


class Verdict(NamedTuple):
    """A claim, decided."""

    claim: Claim
    groups: tuple[tuple[Finding, ...], ...]
    other_groups: tuple[tuple[Finding, ...], ...]  # the same by the other number per run

    @property
    def other(self) -> Verdict:
        """The same claim, decided by the other measure."""
        return Verdict(self.claim.by_other_measure(), self.other_groups, self.groups)

    @property
    def decisive(self) -> tuple[Finding, ...]:
        """The group on which the claim hangs: the one whose weakest comparison is strongest."""
        return max(self.groups, key=lambda each: min(finding.strength for finding in each))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every comparison of the claim."""
        return tuple(finding for group in self.groups for finding in group)

    @property
    def weakest(self) -> Finding:
        """The comparison on which the claim hangs."""
        return min(self.decisive, key=lambda finding: finding.strength)

    @property
    def verdict(self) -> str:
        """The claim's, as the module says; `runs missing` while seeds of the plan are awaited."""
        return "runs missing" if self.awaited else self.so_far

    @property
    def awaited(self) -> int:
        """How many seeds of the plan are not there yet, of the comparison that lacks most."""
        return max(finding.awaited for finding in self.findings)

    @property
    def so_far(self) -> str:
        """What the rule says of the seeds that are there."""

        def each(group: tuple[Finding, ...], sign: int) -> list[str]:
            return [finding.answer(self._level(sign, len(group))) for finding in group]

        if all("contradicted" in each(group, -1) for group in self.groups):
            return "contradicted"  # whatever is missing
        if any(set(each(group, 1)) == {"holds"} for group in self.groups):
            return "holds"
        if any(finding.missing for finding in self.findings):
            return "runs missing"
        return _unresolved([finding.within for finding in self.findings])

    @property
    def p_value(self) -> float:
        """The least level at which the module's rule says that the claim holds or is contradicted; 1 at most."""
        if self.awaited:
            return 1.0
        holds = len(self.groups) * min(max(each.p_value(1) for each in group) for group in self.groups)
        contradicted = max(len(group) * min(each.p_value(-1) for each in group) for group in self.groups)
        return min(holds, contradicted, 1.0)

    @property
    def seeds_needed(self) -> int | None:
        """About how many seeds would decide the claim with POWER, if differences and spreads are as measured.

        It holds once all comparisons of a group do, and is contradicted once one comparison of every group is. Each of
        those that must come true together gets its share of what POWER leaves to chance. None: decided, or not to be told.
        """
        if self.verdict != "not resolved":
            return None
        holds = min(
            max(each.seeds_needed(1, self._level(1, len(group)), _power(len(group))) for each in group)
            for group in self.groups
        )
        contradicted = max(
            min(each.seeds_needed(-1, self._level(-1, len(group)), _power(len(self.groups))) for each in group)
            for group in self.groups
        )
        found = min(holds, contradicted)
        return int(found) if math.isfinite(found) else None

    def more_seeds(self, finding: Finding, num_checks: int) -> int | None:
        """About how many seeds would resolve one comparison at the level of its claim; None: it is resolved, or not known."""
        found = finding.at(CONFIDENCE)
        if found is None or found.verdict != "not resolved":
            return None
        sign = -1 if found.mean < 0 else 1
        needed = finding.seeds_needed(sign, self._level(sign, num_checks), POWER)
        return int(needed) if math.isfinite(needed) else None

    def _level(self, sign: int, num_checks: int) -> float:
        """Return the confidence at which a comparison counts for the claim (sign 1) or against it, in a group of so many."""
        return 1 - (1 - CONFIDENCE) / (len(self.groups) if sign > 0 else num_checks)


def _unresolved(within: Sequence[float | None]) -> str:
    """Return the verdict on what is not resolved, from the margins that its comparisons are shown not to exceed."""
    shown = [margin for margin in within if margin is not None]
    return f"{EQUIVALENT} {max(shown):g}" if shown and len(shown) == len(within) else "not resolved"


def adjusted_p_values(values: Sequence[float]) -> dict[str, list[float]]:
    """Return p values adjusted for their number: Holm (any one false at all), Benjamini-Hochberg (the share of false ones)."""
    from scipy.stats import false_discovery_control

    order, least, holm = np.argsort(values, kind="stable"), 0.0, [0.0] * len(values)
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        holm[place] = least
    return {"Holm": holm, "Benjamini-Hochberg": false_discovery_control(values).tolist() if values else []}


def _power(together: int) -> float:
    """Return the power of each of so many comparisons with which all come true with POWER, whatever they share."""
    return 1 - (1 - POWER) / together


FigureResults = Mapping[str, Mapping[str, Mapping[int, RunResult]]]  # figure -> label -> seed -> result


def decide_claim(claim: Claim, results: FigureResults, plan: Mapping[str, Sequence[int]] | None = None) -> Verdict:
    """Make the claim's comparisons over the seeds that both sides have, by both measures.

    plan: the seeds of each figure; without them all the claim has no verdict. None: whatever is there counts.
    """
    both = (each.groups for each in (claim, claim.by_other_measure()))
    return Verdict(
        claim, *(tuple(tuple(_find(check, results, plan) for check in group) for group in groups) for groups in both)
    )


def _find(check: Check, results: FigureResults, plan: Mapping[str, Sequence[int]] | None) -> Finding:
    curves, sign = results.get(check.figure, {}), -1 if check.lower_is_better else 1
    names = [*_curves(check.better), *_curves(check.worse)]
    together = paired_results(
        *(curves.get(name, {}) for name in names)
    )  # all that a difference is made of, on one path per seed
    if plan is not None:
        together = {seed: together[seed] for seed in plan[check.figure] if seed in together}
    awaited = 0 if plan is None else len(plan[check.figure]) - len(together)
    measure, difference = metric_named(check.metric), []
    for seed in together:
        values = dict(zip(names, map(measure, together[seed]), strict=True))
        difference.append(sign * (_value(check.better, values) - _value(check.worse, values)) - check.least)
    known = tuple(each for each in difference if not math.isnan(each))
    runs = [result for group in together.values() for result in group]
    notes = mixed_pairs_note(together.values()), diverged_runs_note(runs)
    return Finding(check, known, not together, awaited, *notes)


def _curves(side: Side) -> tuple[str, ...]:
    return (side,) if isinstance(side, str) else side


def _value(side: Side, values: Mapping[str, float]) -> float:
    """Return a side's number on one seed: a curve's, or the gain of one over another."""
    return values[side] if isinstance(side, str) else values[side[0]] - values[side[1]]


def claim_side_label(side: Side) -> str:
    """Name a side of a comparison."""
    return side if isinstance(side, str) else f"gain of {side[0]} over {side[1].partition(' | ')[0]}"
