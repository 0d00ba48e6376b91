"""The claims ledger: each claim of the paper as comparisons between runs, with a verdict that follows from intervals.

A comparison says which of two variants should be higher by some metric. A claim holds if every comparison is resolved in the
claimed direction (95 % interval of the paired difference). It is contradicted if one of its m comparisons is resolved the
other way by an interval of 1 - 5 %/m: else a claim of many comparisons would be contradicted by chance (Bonferroni). A claim
that some variant exists has several groups of comparisons: one that holds is enough (at 1 - 5 %/groups), and all must be
contradicted. Otherwise it is not resolved. Every claim is decided a second time by another measure, for the reader: the paper
does not say what "better" or "smooth" is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.paper.figures import FIGURES, FRESH, OLD, label
from fedtide.study.pairing import note, paired
from fedtide.study.result import RunResult
from fedtide.study.statistics import CONFIDENCE, METRICS, Comparison, compare

IID, NON_IID = "i.i.d.", "non-i.i.d."
BOTH = (IID, NON_IID)


# The number per run that decides, and the one by which the verdict is given a second time.
OTHER = {"mean_accuracy": "final_accuracy", "mean_train_loss": "final_train_loss", "variation": "roughness"}

# A side of a comparison: a curve, or the gain of one curve over another.
Side = str | tuple[str, str]


class Check(NamedTuple):
    """One comparison: `better` should exceed `worse` by the metric (or stay below it, if lower is better)."""

    figure: str
    better: Side
    worse: Side
    metric: str = "mean_accuracy"
    lower_is_better: bool = False


class Claim(NamedTuple):
    """A sentence of the paper and the comparisons that decide it."""

    name: str
    text: str
    checks: tuple[Check, ...]
    # Further ways in which the claim may hold, for "there is one that ...".
    otherwise: tuple[tuple[Check, ...], ...] = ()

    def by_other_measure(self) -> Claim:
        """Return the same claim, decided by the other number per run."""
        groups = [tuple(check._replace(metric=OTHER[check.metric]) for check in group) for group in self.groups]
        return self._replace(checks=groups[0], otherwise=tuple(groups[1:]))

    @property
    def groups(self) -> tuple[tuple[Check, ...], ...]:
        """All groups of comparisons; one that holds is enough."""
        return (self.checks, *self.otherwise)


class Finding(NamedTuple):
    """One comparison, made: the differences are better minus worse (worse minus better where lower is better)."""

    check: Check
    difference: tuple[float, ...]  # by seed
    missing: bool = False  # a side has no run on a shared seed; else, without differences, runs are too short to tell
    paths_note: str = ""  # pairs on different instruction paths

    def at(self, confidence: float) -> Comparison | None:
        """Compare with an interval of this confidence."""
        return compare(self.difference, [0.0] * len(self.difference), confidence) if self.difference else None

    def answer(self, confidence: float = CONFIDENCE) -> str:
        """`holds`, `contradicted`, `not resolved` or `runs missing`, for this comparison alone."""
        found = self.at(confidence)
        if found is None:
            return "runs missing" if self.missing else "not resolved"
        return {"higher": "holds", "lower": "contradicted"}.get(found.verdict, "not resolved")

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
        """The claim's, as the module says."""

        def each(group: tuple[Finding, ...], parts: int) -> list[str]:
            return [finding.answer(1 - (1 - CONFIDENCE) / parts) for finding in group]

        if all("contradicted" in each(group, len(group)) for group in self.groups):
            return "contradicted"  # whatever is missing
        if any(set(each(group, len(self.groups))) == {"holds"} for group in self.groups):
            return "holds"
        return "runs missing" if any(finding.missing for finding in self.findings) else "not resolved"


def _all(figure: str, better: str, worse: Sequence[str], settings: Sequence[str], **kind: Any) -> tuple[Check, ...]:
    return tuple(
        Check(figure, label(better, setting), label(other, setting), **kind) for setting in settings for other in worse
    )


def _gain(curve: str, over: str, setting: str) -> tuple[str, str]:
    return label(curve, setting), label(over, setting)


def _gamma(scheduler: str, age_base: float) -> str:
    return f"{scheduler}, $\\gamma$={age_base:g}"


def _between(limit: int) -> tuple[Check, ...]:
    return _all("R", f"R={limit}", ["R=2", "R=20"], (NON_IID,))


_LOSS: dict[str, Any] = {"metric": "mean_train_loss", "lower_is_better": True}

CLAIMS: tuple[Claim, ...] = (
    Claim("R, i.i.d.", "With i.i.d. data a smaller R is better.", tuple(
        Check("R", label(f"R={a}", IID), label(f"R={b}", IID)) for a, b in ((2, 4), (4, 8), (8, 12), (12, 20))
    )),
    Claim("R, non-i.i.d.",
          "With non-i.i.d. data there is a trade-off, which we read as: one of R = 4, 8, 12 beats both 2 and 20.",
          _between(4), (_between(8), _between(12))),
    Claim("period", "T~ = T_max/4 is the best period.", _all(
        "period", "$T_{\\max}/4$", ["$T_{\\max}/8$", "$T_{\\max}/2$", "$T_{\\max}$"], BOTH
    )),
    Claim("period against FedAvg", "Periodic aggregation at T_max/4 beats FedAvg.", _all(
        "period", "$T_{\\max}/4$", ["FedAvg"], BOTH
    )),
    Claim("frameworks", "The periodic design (random) beats FedAvg and FedAsync (0.4 and 0.8) in both settings.", _all(
        "frameworks", "periodic, random", ["FedAvg", "FedAsync 0.4", "FedAsync 0.8"], BOTH
    )),
    Claim("frameworks, proposed", "So does the periodic design with the proposed schedule.", _all(
        "frameworks", "periodic, proposed", ["FedAvg", "FedAsync 0.4", "FedAsync 0.8"], BOTH
    )),
    Claim("FedAsync fluctuates", "FedAsync's accuracy fluctuates more than the periodic design's.", tuple(
        Check("frameworks", label(f"FedAsync {mixing}", setting), label("periodic, random", setting), "variation")
        for setting in BOTH for mixing in (0.4, 0.8)
    )),
    Claim("FedAsync, data", "FedAsync fluctuates most with non-i.i.d. data.", tuple(
        Check("frameworks", label(f"FedAsync {mixing}", NON_IID), label(f"FedAsync {mixing}", IID), "variation")
        for mixing in (0.4, 0.8)
    )),
    Claim("loss, data", "The training loss is lower with i.i.d. than with non-i.i.d. data.", tuple(
        Check("training_loss", label(name, IID), label(name, NON_IID), **_LOSS) for name in ("random", "proposed")
    )),
    Claim("loss, scheduling", "The proposed schedule has a lower training loss than random, in both settings.", _all(
        "training_loss", "proposed", ["random"], BOTH, **_LOSS
    )),
    Claim("loss, asynchrony", "Per iteration, synchronous updates have a lower training loss (random, i.i.d.).", (
        Check("training_loss", label("random, synchronous", IID), label("random", IID), **_LOSS),
    )),
    Claim("schedulers", "The proposed schedule beats random, BC, BCBN2 and age-based in both settings.", _all(
        "schedulers", "proposed", ["random", "BC", "BCBN2", "age-based"], BOTH
    )),
    Claim("schedulers, non-i.i.d.", "With non-i.i.d. data it beats pure channel awareness (BC and BCBN2).", _all(
        "schedulers", "proposed", ["BC", "BCBN2"], (NON_IID,)
    )),
    Claim("schedulers, data", "Its gain over each of the others is larger with non-i.i.d. than with i.i.d. data.", tuple(
        Check("schedulers", _gain("proposed", other, NON_IID), _gain("proposed", other, IID))
        for other in ("random", "BC", "BCBN2", "age-based")
    )),
    *(Claim(f"weights, {word}",
            f"Favouring {word} updates (gamma = {gamma:g}) beats gamma = 1, under both schedulers, in both settings.",
            tuple(Check("weights", label(_gamma(scheduler, gamma), setting), label(_gamma(scheduler, 1.0), setting))
                  for setting in BOTH for scheduler in ("proposed", "random")))
      for word, gamma in (("fresh", FRESH), ("old", OLD))),
    Claim("weights, fresh, i.i.d.", "With i.i.d. data favouring fresh updates is outstanding: it beats both others.", tuple(
        Check("weights", label(_gamma(scheduler, FRESH), IID), label(_gamma(scheduler, other), IID))
        for scheduler in ("proposed", "random") for other in (1.0, OLD)
    )),
    Claim("weights, random", "With non-i.i.d. data the gain of age-aware weights is clearer under random scheduling.", tuple(
        Check("weights", _gain(_gamma("random", gamma), _gamma("random", 1.0), NON_IID),
              _gain(_gamma("proposed", gamma), _gamma("proposed", 1.0), NON_IID))
        for gamma in (FRESH, OLD)
    )),
    Claim("weights, proposed",
          "Favouring fresh updates gains more under the proposed schedule than under random (section III).", tuple(
        Check("weights", _gain(_gamma("proposed", FRESH), _gamma("proposed", 1.0), setting),
              _gain(_gamma("random", FRESH), _gamma("random", 1.0), setting))
        for setting in BOTH
    )),
    Claim("fast and smooth",
          "The proposed schedule with fresh updates favoured is faster and smoother than random with gamma = 1 (section III).",
          tuple(
        Check("weights", label(_gamma("proposed", FRESH), setting), label(_gamma("random", 1.0), setting), *kind)
        for setting in BOTH for kind in (("mean_accuracy",), ("variation", True))
    )),
    Claim("smoothness", "A smaller period makes the non-i.i.d. curves less smooth.", tuple(
        Check("period", label(a, NON_IID), label(b, NON_IID), "variation")
        for a, b in (("$T_{\\max}/8$", "$T_{\\max}/4$"), ("$T_{\\max}/4$", "$T_{\\max}/2$"), ("$T_{\\max}/2$", "$T_{\\max}$"))
    )),
)  # fmt: skip

Results = Mapping[str, Mapping[str, Mapping[int, RunResult]]]  # figure -> label -> seed -> result


def decide(claim: Claim, results: Results) -> Verdict:
    """Make the claim's comparisons over the seeds that both sides have."""
    return Verdict(claim, tuple(tuple(_find(check, results) for check in group) for group in claim.groups))


def _find(check: Check, results: Results) -> Finding:
    curves, sign = results.get(check.figure, {}), -1 if check.lower_is_better else 1
    names = [*_curves(check.better), *_curves(check.worse)]
    together = paired(
        *(curves.get(name, {}) for name in names)
    )  # all that a difference is made of, on one path per seed
    difference = []
    for seed in together:
        values = dict(zip(names, map(METRICS[check.metric], together[seed]), strict=True))
        difference.append(sign * (_value(check.better, values) - _value(check.worse, values)))
    known = tuple(each for each in difference if not math.isnan(each))
    return Finding(check, known, not together, note(together.values()))


def _curves(side: Side) -> tuple[str, ...]:
    return (side,) if isinstance(side, str) else side


def _value(side: Side, values: Mapping[str, float]) -> float:
    """Return a side's number on one seed: a curve's, or the gain of one over another."""
    return values[side] if isinstance(side, str) else values[side[0]] - values[side[1]]


def side_label(side: Side) -> str:
    """Name a side of a comparison."""
    return side if isinstance(side, str) else f"gain of {side[0]} over {side[1].partition(' | ')[0]}"


def caption_check() -> None:
    """Raise if a claim names a figure or a curve that does not exist; a test calls it."""
    for claim in CLAIMS:
        for check in (check for group in claim.groups for check in group):
            for side in (check.better, check.worse):
                for curve in (side,) if isinstance(side, str) else side:
                    if curve not in FIGURES[check.figure].variants():
                        raise ValueError(f"{claim.name}: {check.figure} has no curve {curve!r}")
