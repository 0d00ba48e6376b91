"""What the paper says about its simulations, sentence by sentence: each with its place, our reading and its comparisons.

Quotations are literal, with mathematics as plain text (T~, T_max, gamma) and without citations. A quotation may be a part of
a sentence. What the paper does not say is no claim here: it stands in OBSERVATIONS, which get no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedtide_lab.paper.claims import Check, Claim, Observation
from fedtide_lab.paper.figures import FIGURES, FRESH, OLD, OLDER, curve_label

_IID, _NON_IID, _SLOW = "i.i.d.", "non-i.i.d.", "slow labels"
_BOTH = (_IID, _NON_IID)
_SCHEDULES = ("proposed", "random")
_OTHERS = ("random", "BC", "BCBN2", "age-based")
_MIXINGS = (0.4, 0.8)


def _all(figure: str, better: str, worse: Sequence[str], settings: Sequence[str], **kind: Any) -> tuple[Check, ...]:
    return tuple(
        Check(figure, curve_label(better, setting), curve_label(other, setting), **kind)
        for setting in settings
        for other in worse
    )


def _gain(curve: str, over: str, setting: str) -> tuple[str, str]:
    return curve_label(curve, setting), curve_label(over, setting)


def _gamma(scheduler: str, age_base: float) -> str:
    return f"{scheduler}, $\\gamma$={age_base:g}"


def _between(limit: int) -> tuple[Check, ...]:
    return _all("R", f"R={limit}", ["R=2", "R=20"], (_NON_IID,))


def _weighted(
    age_base: float, setting: str, schedules: Sequence[str] = _SCHEDULES, figure: str = "weights"
) -> tuple[Check, ...]:
    """Compare this gamma with gamma = 1, under each of the schedules."""
    return tuple(
        Check(figure, curve_label(_gamma(each, age_base), setting), curve_label(_gamma(each, 1.0), setting))
        for each in schedules
    )


def _more_under(schedule: str, other: str, age_base: float, setting: str) -> Check:
    """Compare the gain of this gamma over gamma = 1 under one schedule with that under the other."""
    gain, lesser = (_gain(_gamma(each, age_base), _gamma(each, 1.0), setting) for each in (schedule, other))
    return Check("weights", gain, lesser)


def _fast_and_smooth(better: str, worse: str, setting: str) -> tuple[Check, ...]:
    sides = curve_label(better, setting), curve_label(worse, setting)
    return Check("weights", *sides), Check("weights", *sides, "variation", lower_is_better=True)


_LOSS: dict[str, Any] = {"metric": "mean_train_loss", "lower_is_better": True}
_OUTPERFORMS = (
    "For both i.i.d. and non-i.i.d. scenarios, our proposed asynchronous FL design outperforms FedAsync and FedAvg, which "
    "shows its effectiveness in eliminating the straggler effect and achieving better convergence performance."
)
_FLUCTUATES = (
    "although FedAsync can help reduce the straggler effect, the test accuracy result shows strong fluctuation, especially "
    "with non-i.i.d. training data."
)
_AGE_AWARE = "the age-aware design outperforms the baseline with gamma=1 in both i.i.d. and non-i.i.d. scenarios."
_ESPECIALLY = (
    "Our proposed scheduling and aggregation design was shown to outperform existing methods, especially with heterogeneous "
    "training data among different devices."
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "R, i.i.d.",
        "With i.i.d. data a smaller R is better.",
        tuple(
            Check("R", curve_label(f"R={a}", _IID), curve_label(f"R={b}", _IID))
            for a, b in ((2, 4), (4, 8), (8, 12), (12, 20))
        ),
        quote="in the i.i.d. scenario, a smaller R is preferable since it gives received model updates with better precision",
        section="section V",
        reading="of the R we run, each beats the next larger one.",
    ),
    Claim(
        "R, non-i.i.d.",
        "With non-i.i.d. data R is a trade-off.",
        _between(4),
        (_between(8), _between(12)),
        quote="in the non-i.i.d. scenario, there exists a trade-off between compression loss and model bias, which makes "
        "the choice of R important.",
        section="section V",
        reading="one of R = 4, 8, 12 beats both the smallest and the largest R that we run, 2 and 20.",
    ),
    Claim(
        "period",
        "T_max/4 is the best period.",
        _all("period", "$T_{\\max}/4$", ["$T_{\\max}/8$", "$T_{\\max}/2$", "$T_{\\max}$"], _BOTH),
        quote="T~=T_max/4 gives the best performance. However, this conclusion cannot be generalized since the result "
        "depends on many other system parameters.",
        section="section V-A",
        reading="it beats each of the other periods that we run, in both settings.",
    ),
    Claim(
        "smoothness",
        "With non-i.i.d. data a smaller period makes the curves less smooth.",
        tuple(
            Check("period", curve_label(a, _NON_IID), curve_label(b, _NON_IID), "variation")
            for a, b in (
                ("$T_{\\max}/8$", "$T_{\\max}/4$"),
                ("$T_{\\max}/4$", "$T_{\\max}/2$"),
                ("$T_{\\max}/2$", "$T_{\\max}$"),
            )
        ),
        quote="with smaller T~, which implies a larger a_lim, the curves for the test accuracy result are less smooth than "
        "the ones with larger T~.",
        section="section V-B, of the non-i.i.d. panel",
        reading="each period's accuracy goes up and down more than that of the next longer one.",
    ),
    Claim(
        "FedAvg",
        "The periodic design beats FedAvg.",
        _all("frameworks", "periodic, random", ["FedAvg"], _BOTH),
        quote=_OUTPERFORMS,
        section="section V-A",
        reading="the half of the sentence about FedAvg, with random scheduling and gamma = 1.",
    ),
    Claim(
        "frameworks",
        "The periodic design beats both FedAvg and FedAsync.",
        _all("frameworks", "periodic, random", ["FedAvg", "FedAsync 0.4", "FedAsync 0.8"], _BOTH),
        quote=_OUTPERFORMS,
        section="section V-A",
        reading="with random scheduling and gamma = 1, which the section says of its figure before, and against both of the "
        "paper's FedAsync, with alpha = 0.4 and 0.8.",
    ),
    Claim(
        "frameworks, proposed",
        "With the proposed schedule it beats both, too.",
        _all("frameworks", "periodic, proposed", ["FedAvg", "FedAsync 0.4", "FedAsync 0.8"], _BOTH),
        quote=_OUTPERFORMS,
        section="section V-A",
        reading="the same with the proposed schedule: the sentence does not say which schedule it means.",
    ),
    Claim(
        "FedAsync, stragglers",
        "FedAsync reduces the straggler effect.",
        _all("frameworks", "FedAsync 0.4", ["FedAvg"], _BOTH),
        (_all("frameworks", "FedAsync 0.8", ["FedAvg"], _BOTH),),
        quote=_FLUCTUATES,
        section="section V-A",
        reading="in both settings FedAsync beats FedAvg, which waits for the slowest in every round; one alpha of 0.4 and 0.8 "
        'is enough (it "can help"). Accuracy is averaged from time 0, so that being quick counts.',
    ),
    Claim(
        "FedAsync fluctuates",
        "FedAsync's accuracy fluctuates strongly.",
        tuple(
            Check(
                "frameworks",
                curve_label(f"FedAsync {mixing}", setting),
                curve_label("periodic, random", setting),
                "variation",
            )
            for setting in _BOTH
            for mixing in _MIXINGS
        ),
        quote=_FLUCTUATES,
        section="section V-A",
        reading="more than the periodic design's with random scheduling, in both settings and with both alpha.",
    ),
    Claim(
        "FedAsync, data",
        "FedAsync fluctuates more with non-i.i.d. than with i.i.d. data.",
        tuple(
            Check(
                "frameworks",
                curve_label(f"FedAsync {mixing}", _NON_IID),
                curve_label(f"FedAsync {mixing}", _IID),
                "variation",
            )
            for mixing in _MIXINGS
        ),
        quote=_FLUCTUATES,
        section="section V-A",
        reading="with both alpha.",
    ),
    Claim(
        "loss, data",
        "The training loss is lower with i.i.d. than with non-i.i.d. data.",
        tuple(
            Check("training_loss", curve_label(name, _IID), curve_label(name, _NON_IID), **_LOSS)
            for name in ("random", "proposed")
        ),
        quote="With the random and proposed scheduling methods, the training loss is lower in the i.i.d. scenario than in the "
        "non-i.i.d. scenario",
        section="section V-B",
    ),
    Claim(
        "loss, scheduling",
        "The proposed schedule has a lower training loss than random.",
        _all("training_loss", "proposed", ["random"], _BOTH, **_LOSS),
        quote="For both the i.i.d. and non-i.i.d. scenarios, our proposed scheduling design outperforms random scheduling",
        section="section V-B, of the training loss",
    ),
    Claim(
        "loss, asynchrony",
        "Per iteration, synchronous updates have a lower training loss.",
        (Check("training_loss", curve_label("random, synchronous", _IID), curve_label("random", _IID), **_LOSS),),
        quote="As compared to the asynchronous case (blue curve), the synchronous case has lower training loss, which shows "
        "that intra-iteration asynchrony is harmful for the convergence performance.",
        section="section V-B",
        reading="with random scheduling and i.i.d. data, at equally many symbols per iteration.",
    ),
    Claim(
        "schedulers",
        "The proposed schedule beats random, BC, BCBN2 and age-based.",
        _all("schedulers", "proposed", _OTHERS, _BOTH),
        quote="the proposed scheduling policy outperforms the baseline random scheduling and the reference methods in both "
        "i.i.d. and non-i.i.d. scenarios.",
        section="section V-C",
        reading="it beats each of the four in each of the two settings.",
    ),
    Claim(
        "schedulers, non-i.i.d.",
        "With non-i.i.d. data the proposed schedule beats pure channel awareness (BC and BCBN2).",
        _all("schedulers", "proposed", ["BC", "BCBN2"], (_NON_IID,)),
        quote="in non-i.i.d. scenario, we observe that the data-awareness in the proposed method further achieves a higher "
        "test accuracy than the pure channel-aware methods BC and BCBN2",
        section="section V-C",
    ),
    Claim(
        "schedulers, data",
        "The gain of the proposed schedule is larger with non-i.i.d. than with i.i.d. data.",
        tuple(
            Check("schedulers", _gain("proposed", other, _NON_IID), _gain("proposed", other, _IID)) for other in _OTHERS
        ),
        quote=_ESPECIALLY,
        section="section VI",
        reading="the half of the sentence about scheduling: what the proposed schedule gains over random, BC, BCBN2 and "
        "age-based is in each case more with non-i.i.d. than with i.i.d. data.",
    ),
    *(
        Claim(
            f"weights, {setting}",
            f"With {setting} data age-aware weights beat gamma = 1.",
            _weighted(FRESH, setting),
            (_weighted(OLD, setting),),
            quote=_AGE_AWARE,
            section="section V-D",
            reading="one gamma other than 1 (the paper does not say which), favouring fresh or old updates, beats gamma = 1 in "
            f"this setting under both schedules of the figure; with {other} data it may be another gamma.",
        )
        for setting, other in ((_IID, _NON_IID), (_NON_IID, _IID))
    ),
    Claim(
        "weights, fresh, i.i.d.",
        "With i.i.d. data favouring fresh updates gains most.",
        tuple(
            Check("weights", curve_label(_gamma(scheduler, FRESH), _IID), curve_label(_gamma(scheduler, other), _IID))
            for scheduler in _SCHEDULES
            for other in (1.0, OLD)
        ),
        quote="For i.i.d. case, the favoring-fresh weighting strategy has an outstanding performance gain.",
        section="section V-D",
        reading=f"gamma = {FRESH:g} beats both gamma = 1 and gamma = {OLD:g}, under both schedules.",
    ),
    Claim(
        "weights, random",
        "With non-i.i.d. data the gain of age-aware weights is clearer under random scheduling.",
        (*_weighted(FRESH, _NON_IID, ["random"]), _more_under("random", "proposed", FRESH, _NON_IID)),
        ((*_weighted(OLD, _NON_IID, ["random"]), _more_under("random", "proposed", OLD, _NON_IID)),),
        quote="For non-i.i.d. case, performance gain of the proposed aggregation design is more obvious when random scheduling "
        "is adopted.",
        section="section V-D",
        reading="one gamma other than 1, favouring fresh or old updates, beats gamma = 1 under random scheduling, and by more "
        "than under the proposed schedule.",
    ),
    Claim(
        "design, data",
        "The gain of schedule and weights together is larger with non-i.i.d. than with i.i.d. data.",
        (
            Check(
                "weights",
                _gain(_gamma("proposed", FRESH), _gamma("random", 1.0), _NON_IID),
                _gain(_gamma("proposed", FRESH), _gamma("random", 1.0), _IID),
            ),
        ),
        quote=_ESPECIALLY,
        section="section VI",
        reading="scheduling and aggregation together: what the proposed schedule with fresh updates favoured gains over "
        "random scheduling with gamma = 1 is more with non-i.i.d. data.",
    ),
    Claim(
        "fast and smooth",
        "The proposed schedule with fresh updates favoured is fast and smooth.",
        tuple(
            check
            for setting in _BOTH
            for check in _fast_and_smooth(_gamma("proposed", FRESH), _gamma("random", 1.0), setting)
        ),
        quote="the channel-aware data-importance-based scheduling design with favoring-fresh aggregation policy would lead to "
        "fast and smooth convergence performance.",
        section="section III-B",
        reading="its accuracy, averaged from time 0, is higher and goes up and down less than with random scheduling and "
        "gamma = 1, in both settings.",
    ),
    Claim(
        "fresh, fast and smooth",
        "Favouring fresh updates makes convergence faster and smoother.",
        tuple(
            check
            for setting in _BOTH
            for check in _fast_and_smooth(_gamma("random", FRESH), _gamma("random", 1.0), setting)
        ),
        quote="favoring fresher local updates would help the model to converge fast and smoothly with time, at the risk of "
        "converging to an imbalanced model biased towards devices with superior computing power.",
        section="section III-B",
        reading="faster and smoother than gamma = 1, in both settings; under random scheduling, since the paper brings in its "
        "own schedule only in the next sentence.",
    ),
    Claim(
        "old, slow labels",
        "Where slow devices hold unique data, favouring old updates pays.",
        _weighted(OLD, _SLOW, ["random"], "slow_labels"),
        (_weighted(OLDER, _SLOW, ["random"], "slow_labels"),),
        quote="This design performs well when data distribution is highly non-i.i.d. and some devices with inferior computing "
        "capability possess unique training data.",
        section="section III-B, of gamma > 1",
        reading=f"under random scheduling one of gamma = {OLD:g} and {OLDER:g} beats gamma = 1 where labels are tied to the "
        "slowest quarter of the devices. The paper has no figure of this case: the experiment is ours.",
    ),
)

OBSERVATIONS: tuple[Observation, ...] = (
    Observation(
        "old",
        f"Favouring old updates (gamma = {OLD:g}), less gamma = 1",
        tuple(check for setting in _BOTH for check in _weighted(OLD, setting)),
        "The paper does not claim that this gains in general. Section I says of others' designs that make up for slow devices: "
        '"with i.i.d. data, it might slow down the convergence since model updates obtained from older global models might '
        'contain little useful information to the current version."',
    ),
    Observation(
        "fresh by schedule",
        f"What favouring fresh updates (gamma = {FRESH:g}) gains under the proposed schedule, less what it gains under random",
        tuple(_more_under("proposed", "random", FRESH, setting) for setting in _BOTH),
        'Section III-B has it that under the proposed schedule the advantage of favouring fresh updates "becomes more '
        'convincing". We read that as said of the risk of a biased model, not of a larger gain.',
    ),
    Observation(
        "slow labels, fresh",
        f"Favouring fresh updates (gamma = {FRESH:g}), less gamma = 1, where slow devices hold unique data",
        _weighted(FRESH, _SLOW, ["random", "proposed"], "slow_labels"),
        'Section III-B names the risk: "converging to an imbalanced model biased towards devices with superior computing '
        'power."',
    ),
    Observation(
        "slow labels, old, proposed",
        "Favouring old updates, less gamma = 1, where slow devices hold unique data, under the proposed schedule",
        tuple(check for gamma in (OLD, OLDER) for check in _weighted(gamma, _SLOW, ["proposed"], "slow_labels")),
        "The claim about this case is decided under random scheduling.",
    ),
    Observation(
        "slow labels, schedule",
        "The proposed schedule, less random, where slow devices hold unique data",
        _all("slow_labels", _gamma("proposed", 1.0), [_gamma("random", 1.0)], (_SLOW,)),
        "It balances the labels of those who upload, so it looks for the slow by itself.",
    ),
)


def caption_check() -> None:
    """Raise if a claim or an observation names a figure or a curve that does not exist; a test calls it."""
    named = [(claim.name, check) for claim in CLAIMS for group in claim.groups for check in group]
    named += [(each.name, check) for each in OBSERVATIONS for check in each.checks]
    for name, check in named:
        for side in (check.better, check.worse):
            for curve in (side,) if isinstance(side, str) else side:
                if curve not in FIGURES[check.figure].variants():
                    raise ValueError(f"{name}: {check.figure} has no curve {curve!r}")
