"""The claims ledger: each claim of the paper as comparisons between runs, with a verdict that follows from intervals.

A claim is a list of comparisons, each saying which of two variants should be higher by some metric. It holds if every one
is resolved in the claimed direction, is contradicted if any is resolved the other way, and is not resolved otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.paper.figures import FIGURES, FRESH, OLD, label
from fedtide.study.result import RunResult
from fedtide.study.statistics import METRICS, Comparison, compare

IID, NON_IID = "i.i.d.", "non-i.i.d."
BOTH = (IID, NON_IID)


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


class Finding(NamedTuple):
    """One comparison, made: the difference is better minus worse (worse minus better where lower is better)."""

    check: Check
    comparison: Comparison | None  # None: runs are missing

    @property
    def verdict(self) -> str:
        """`holds`, `contradicted` or `not resolved`, for this comparison alone."""
        if self.comparison is None:
            return "runs missing"
        return {"higher": "holds", "lower": "contradicted"}.get(self.comparison.verdict, "not resolved")


class Verdict(NamedTuple):
    """A claim, decided."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """The claim's: it holds only if all of its comparisons do."""
        each = {finding.verdict for finding in self.findings}
        for answer in ("runs missing", "contradicted", "not resolved"):
            if answer in each:
                return answer
        return "holds"


def _all(figure: str, better: str, worse: Sequence[str], settings: Sequence[str], **kind: Any) -> tuple[Check, ...]:
    return tuple(
        Check(figure, label(better, setting), label(other, setting), **kind) for setting in settings for other in worse
    )


def _gain(curve: str, over: str, setting: str) -> tuple[str, str]:
    return label(curve, setting), label(over, setting)


def _gamma(scheduler: str, age_base: float) -> str:
    return f"{scheduler}, $\\gamma$={age_base:g}"


_LOSS: dict[str, Any] = {"metric": "mean_train_loss", "lower_is_better": True}

CLAIMS: tuple[Claim, ...] = (
    Claim("R, i.i.d.", "With i.i.d. data a smaller R is better.", tuple(
        Check("R", label(f"R={a}", IID), label(f"R={b}", IID)) for a, b in ((2, 4), (4, 8), (8, 12), (12, 20))
    )),
    Claim("R, non-i.i.d.", "With non-i.i.d. data an R in between is best.", tuple(
        Check("R", label(f"R={middle}", NON_IID), label(f"R={end}", NON_IID)) for middle in (4, 8) for end in (2, 20)
    )),
    Claim("period", "T~ = T_max/4 is the best period.", _all(
        "period", "$T_{\\max}/4$", ["$T_{\\max}/8$", "$T_{\\max}/2$", "$T_{\\max}$"], BOTH
    )),
    Claim("period against FedAvg", "Periodic aggregation at T_max/4 beats FedAvg.", _all(
        "period", "$T_{\\max}/4$", ["FedAvg"], BOTH
    )),
    Claim("frameworks", "The periodic design beats FedAvg and FedAsync (0.4 and 0.8) in both settings.", _all(
        "frameworks", "periodic, random", ["FedAvg", "FedAsync 0.4", "FedAsync 0.8"], BOTH
    )),
    Claim("FedAsync fluctuates", "FedAsync's accuracy fluctuates more than the periodic design's.", tuple(
        Check("frameworks", label(f"FedAsync {mixing}", setting), label("periodic, random", setting), "roughness")
        for setting in BOTH for mixing in (0.4, 0.8)
    )),
    Claim("FedAsync, data", "FedAsync fluctuates most with non-i.i.d. data.", tuple(
        Check("frameworks", label(f"FedAsync {mixing}", NON_IID), label(f"FedAsync {mixing}", IID), "roughness")
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
    Claim("schedulers, data", "Against pure channel awareness (BC, BCBN2) it gains more with non-i.i.d. data.", tuple(
        Check("schedulers", _gain("proposed", other, NON_IID), _gain("proposed", other, IID)) for other in ("BC", "BCBN2")
    )),
    Claim("weights", "gamma != 1, fresh or old, beats gamma = 1 under both schedulers, in both settings.", tuple(
        Check("weights", label(_gamma(scheduler, gamma), setting), label(_gamma(scheduler, 1.0), setting))
        for setting in BOTH for scheduler in ("proposed", "random") for gamma in (FRESH, OLD)
    )),
    Claim("weights, fresh", "Favouring fresh updates is outstanding with i.i.d. data.", tuple(
        Check("weights", label(_gamma(scheduler, FRESH), IID), label(_gamma(scheduler, other), IID))
        for scheduler in ("proposed", "random") for other in (1.0, OLD)
    )),
    Claim("weights, random", "With non-i.i.d. data the gain of age-aware weights is clearer under random scheduling.", tuple(
        Check("weights", _gain(_gamma("random", gamma), _gamma("random", 1.0), NON_IID),
              _gain(_gamma("proposed", gamma), _gamma("proposed", 1.0), NON_IID))
        for gamma in (FRESH, OLD)
    )),
    Claim("smoothness", "A smaller period makes the non-i.i.d. curves less smooth.", tuple(
        Check("period", label(a, NON_IID), label(b, NON_IID), "roughness")
        for a, b in (("$T_{\\max}/8$", "$T_{\\max}/4$"), ("$T_{\\max}/4$", "$T_{\\max}/2$"), ("$T_{\\max}/2$", "$T_{\\max}$"))
    )),
)  # fmt: skip

Results = Mapping[str, Mapping[str, Mapping[int, RunResult]]]  # figure -> label -> seed -> result


def needed(claim: Claim) -> set[str]:
    """Return the figures whose runs a claim needs."""
    return {check.figure for check in claim.checks}


def decide(claim: Claim, results: Results) -> Verdict:
    """Make the claim's comparisons over the seeds that both sides have."""
    return Verdict(claim, tuple(Finding(check, _compare(check, results)) for check in claim.checks))


def _compare(check: Check, results: Results) -> Comparison | None:
    curves = results.get(check.figure, {})
    better, worse = (_by_seed(side, curves, METRICS[check.metric]) for side in (check.better, check.worse))
    seeds = sorted(set(better) & set(worse))
    if not seeds:
        return None
    a, b = [better[seed] for seed in seeds], [worse[seed] for seed in seeds]
    return compare(b, a) if check.lower_is_better else compare(a, b)


def _by_seed(
    side: Side, curves: Mapping[str, Mapping[int, RunResult]], metric: Callable[[RunResult], float]
) -> dict[int, float]:
    if isinstance(side, str):
        return {seed: metric(result) for seed, result in curves.get(side, {}).items()}
    one, other = (_by_seed(each, curves, metric) for each in side)
    return {seed: one[seed] - other[seed] for seed in set(one) & set(other)}


def side_label(side: Side) -> str:
    """Name a side of a comparison."""
    return side if isinstance(side, str) else f"gain of {side[0]} over {side[1].partition(' | ')[0]}"


def caption_check() -> None:
    """Raise if a claim names a figure or a curve that does not exist; a test calls it."""
    for claim in CLAIMS:
        for check in claim.checks:
            for side in (check.better, check.worse):
                for curve in (side,) if isinstance(side, str) else side:
                    if curve not in FIGURES[check.figure].variants():
                        raise ValueError(f"{claim.name}: {check.figure} has no curve {curve!r}")
