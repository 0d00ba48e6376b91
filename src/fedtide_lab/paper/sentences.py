"""What the paper says about its simulations, sentence by sentence: the words are in claims.md, their comparisons here.

What the paper does not say is no claim here: it stands in OBSERVATIONS, which get no verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import Any

from fedtide_lab.paper.claims import Check, Claim
from fedtide_lab.paper.figures import FRESH, OLD, OLDER, curve_label
from fedtide_lab.prose import fill_prose, packaged_prose, prose_sections

_ENOUGH = 0.01  # accuracy, for a "significant" improvement
CLOSE_MARGIN = 0.005  # accuracy: the margin where all curves of a panel end within 0.01 of each other

_WORDS = prose_sections(
    fill_prose(packaged_prose("paper/claims.md"), {"fresh": FRESH, "old": OLD, "enough": _ENOUGH}, "paper/claims.md")
)

_IID, _NON_IID, _SLOW, _LABELS = "i.i.d.", "non-i.i.d.", "slow labels", "by labels"
_BOTH = (_IID, _NON_IID)
_SCHEDULES = ("proposed", "random")
_OTHERS = ("random", "BC", "BCBN2", "age-based")


def _claim(name: str, checks: tuple[Check, ...], otherwise: tuple[tuple[Check, ...], ...] = ()) -> Claim:
    """Return a claim with its words: ours, the quotation, its place and how we read it."""
    text, quote, section, *reading = _WORDS[name].split("\n\n")
    read_as = "".join(reading).removeprefix("We read it as: ")
    return Claim(name, text, checks, otherwise, quote.removeprefix("> "), section.strip("()"), read_as)


def _observation(name: str, checks: tuple[Check, ...]) -> Claim:
    text, note = _WORDS[f"observed: {name}"].split("\n\n")
    return Claim(name, text, checks, reading=note)


def _pairs(figure: str, pairs: Iterable[tuple[str, str]], settings: Sequence[str], **kind: Any) -> tuple[Check, ...]:
    """Compare the curves of every pair in every setting; the first should be better."""
    every = [(setting, *pair) for setting, pair in product(settings, pairs)]
    return tuple(Check(figure, curve_label(a, setting), curve_label(b, setting), **kind) for setting, a, b in every)


def _all(figure: str, better: str, worse: Sequence[str], settings: Sequence[str], **kind: Any) -> tuple[Check, ...]:
    return _pairs(figure, [(better, other) for other in worse], settings, **kind)


def _gain(curve: str, over: str, setting: str) -> tuple[str, str]:
    return curve_label(curve, setting), curve_label(over, setting)


def _by_data(curve: str) -> tuple[str, str]:
    return curve_label(curve, _IID), curve_label(curve, _NON_IID)


def _gamma(scheduler: str, age_base: float) -> str:
    return f"{scheduler}, $\\gamma$={age_base:g}"


def _between(limit: int) -> tuple[Check, ...]:
    return _all("R", f"R={limit}", ["R=2", "R=20"], (_NON_IID,))


def _weighted(
    age_base: float, setting: str, schedules: Sequence[str] = _SCHEDULES, figure: str = "weights"
) -> tuple[Check, ...]:
    """Compare this gamma with gamma = 1, under each of the schedules."""
    return _pairs(figure, [(_gamma(each, age_base), _gamma(each, 1.0)) for each in schedules], (setting,))


def _more_under(schedule: str, other: str, age_base: float, setting: str) -> Check:
    """Compare the gain of this gamma over gamma = 1 under one schedule with that under the other."""
    gain, lesser = (_gain(_gamma(each, age_base), _gamma(each, 1.0), setting) for each in (schedule, other))
    return Check("weights", gain, lesser)


def _designed(setting: str) -> tuple[str, str]:
    return _gain(_gamma("proposed", FRESH), _gamma("random", 1.0), setting)


def _fast_and_smooth(better: str, worse: str) -> tuple[Check, ...]:
    checks = _all("weights", better, [worse], _BOTH)
    smooth = [check._replace(metric="variation", lower_is_better=True) for check in checks]
    return tuple(check for both in zip(checks, smooth, strict=True) for check in both)


def _significantly() -> tuple[tuple[Check, ...], tuple[tuple[Check, ...], ...]]:
    """Say of each setting and schedule that fresh updates favoured gain more than what matters."""
    groups = tuple(
        tuple(check._replace(least=_ENOUGH) for check in _weighted(FRESH, setting, [schedule]))
        for setting, schedule in product(_BOTH, _SCHEDULES)
    )
    return groups[0], groups[1:]


_LOSS: dict[str, Any] = {"metric": "mean_train_loss", "lower_is_better": True}
_LIMITS = ["R=2", "R=4", "R=8", "R=12", "R=20"]
_PERIODS = ["$T_{\\max}/8$", "$T_{\\max}/4$", "$T_{\\max}/2$", "$T_{\\max}$"]
_GAMMAS = [0.5, 0.7, FRESH, OLD, 1.5, OLDER]
_FEDASYNC = ["FedAsync 0.4", "FedAsync 0.8"]
_FRAMEWORKS = ["FedAvg", *_FEDASYNC]

CLAIMS: tuple[Claim, ...] = (
    _claim("R, i.i.d.", _pairs("R", pairwise(_LIMITS), (_IID,))),
    _claim("R, non-i.i.d.", _between(4), (_between(8), _between(12))),
    _claim("period", _all("period", _PERIODS[1], [_PERIODS[0], *_PERIODS[2:]], _BOTH)),
    _claim("smoothness", _pairs("period", pairwise(_PERIODS), (_NON_IID,), metric="variation")),
    _claim("FedAvg", _all("frameworks", "periodic, random", ["FedAvg"], _BOTH)),
    _claim("frameworks", _all("frameworks", "periodic, random", _FRAMEWORKS, _BOTH)),
    _claim(
        "frameworks, proposed",
        (
            *_all("frameworks", "periodic, proposed", _FEDASYNC, _BOTH),
            *_all("frameworks_more", "periodic, proposed", ["FedAvg, proposed"], _BOTH),
        ),
    ),
    _claim(
        "FedAsync, stragglers",
        _all("frameworks", "FedAsync 0.4", ["FedAvg"], _BOTH),
        (_all("frameworks", "FedAsync 0.8", ["FedAvg"], _BOTH),),
    ),
    _claim(
        "FedAsync fluctuates",
        _pairs("frameworks", [(each, "periodic, random") for each in _FEDASYNC], _BOTH, metric="variation"),
    ),
    _claim(
        "FedAsync, data",
        tuple(Check("frameworks", *_by_data(each)[::-1], "variation") for each in _FEDASYNC),
    ),
    _claim(
        "FedAsync, cost",
        tuple(
            check
            for metric in ("uploads", "bits_down")
            for check in _all("frameworks", _FEDASYNC[0], ["periodic, random"], (_IID,), metric=metric)
        ),
    ),
    _claim("loss, data", tuple(Check("training_loss", *_by_data(name), **_LOSS) for name in ("random", "proposed"))),
    _claim("loss, scheduling", _all("training_loss", "proposed", ["random"], _BOTH, **_LOSS)),
    _claim("loss, asynchrony", _all("training_loss", "random, synchronous", ["random"], (_IID,), **_LOSS)),
    _claim("asynchrony", _pairs("asynchrony", pairwise(_PERIODS[::-1]), _BOTH, **_LOSS)),
    _claim(
        "labels",
        _pairs("labels", pairwise(["i.i.d.", "10 shards", "5 shards", "2 shards", "1 shard"]), (_LABELS,), **_LOSS),
    ),
    _claim(
        "schedulers",
        (
            *_all("schedulers", "proposed", _OTHERS, (_IID,), margin=CLOSE_MARGIN),
            *_all("schedulers", "proposed", _OTHERS, (_NON_IID,)),
        ),
    ),
    _claim("schedulers, non-i.i.d.", _all("schedulers", "proposed", ["BC", "BCBN2"], (_NON_IID,))),
    _claim(
        "schedulers, data",
        tuple(
            Check("schedulers", _gain("proposed", other, _NON_IID), _gain("proposed", other, _IID)) for other in _OTHERS
        ),
    ),
    _claim(
        "schedulers, elsewhere",
        (
            *_all("frameworks_more", "FedAvg, proposed", ["FedAvg"], (_NON_IID,)),
            *_all("unequal", "proposed", ["random"], (_NON_IID,)),
        ),
    ),
    _claim(
        "r_min",
        (
            *_all("weights", _gamma("proposed", 1.0), [_gamma("random", 1.0)], _BOTH, metric="kept_share"),
            *_all("schedulers", "proposed", ["random"], _BOTH, metric="kept_share"),
        ),
    ),
    *(_claim(f"weights, {setting}", _weighted(FRESH, setting), (_weighted(OLD, setting),)) for setting in _BOTH),
    _claim(
        "weights, fresh, i.i.d.",
        tuple(
            check
            for scheduler in _SCHEDULES
            for check in _all(
                "weights", _gamma(scheduler, FRESH), [_gamma(scheduler, other) for other in (1.0, OLD)], (_IID,)
            )
        ),
    ),
    _claim(
        "weights, random",
        (*_weighted(FRESH, _NON_IID, ["random"]), _more_under("random", "proposed", FRESH, _NON_IID)),
        ((*_weighted(OLD, _NON_IID, ["random"]), _more_under("random", "proposed", OLD, _NON_IID)),),
    ),
    _claim("weights, significantly", *_significantly()),
    _claim("design, data", (Check("weights", _designed(_NON_IID), _designed(_IID)),)),
    _claim("fast and smooth", _fast_and_smooth(_gamma("proposed", FRESH), _gamma("random", 1.0))),
    _claim("fresh, fast and smooth", _fast_and_smooth(_gamma("random", FRESH), _gamma("random", 1.0))),
    _claim(
        "regularisation",
        _pairs(
            "regularisation",
            [(f"{each}, $\\lambda$=0.02", f"{each}, $\\lambda$=0") for each in _SCHEDULES],
            (_NON_IID,),
        ),
    ),
    _claim(
        "old, slow labels",
        _weighted(OLD, _SLOW, ["random"], "slow_labels"),
        (_weighted(OLDER, _SLOW, ["random"], "slow_labels"),),
    ),
)

OBSERVATIONS: tuple[Claim, ...] = (
    _observation("old", tuple(check for setting in _BOTH for check in _weighted(OLD, setting))),
    _observation("fresh by schedule", tuple(_more_under("proposed", "random", FRESH, setting) for setting in _BOTH)),
    _observation("slow labels, fresh", _weighted(FRESH, _SLOW, ["random", "proposed"], "slow_labels")),
    _observation(
        "slow labels, old, proposed",
        tuple(check for gamma in (OLD, OLDER) for check in _weighted(gamma, _SLOW, ["proposed"], "slow_labels")),
    ),
    _observation(
        "slow labels, schedule", _all("slow_labels", _gamma("proposed", 1.0), [_gamma("random", 1.0)], (_SLOW,))
    ),
    *(
        _observation(
            f"gammas, {schedule}",
            _pairs(f"gammas_{schedule}", [(f"$\\gamma$={each:g}", "$\\gamma$=1") for each in _GAMMAS], _BOTH),
        )
        for schedule in _SCHEDULES
    ),
    _observation("no minimum", _all("frameworks_no_minimum", "periodic, random", _FRAMEWORKS, _BOTH)),
    _observation("no minimum, proposed", _all("frameworks_no_minimum", "periodic, proposed", _FRAMEWORKS, _BOTH)),
    _observation("FedBuff", _all("frameworks_more", "periodic, random", ["FedBuff of 8"], _BOTH)),
    _observation("schedule under FedAvg", _all("frameworks_more", "FedAvg, proposed", ["FedAvg"], (_IID,))),
    _observation("unequal data, i.i.d.", _all("unequal", "proposed", ["random"], (_IID,))),
    _observation(
        "regularisation, i.i.d.",
        _pairs(
            "regularisation", [(f"{each}, $\\lambda$=0.02", f"{each}, $\\lambda$=0") for each in _SCHEDULES], (_IID,)
        ),
    ),
    _observation(
        "inversion", _pairs("inversion", [("proposed", "random"), ("proposed", "BC"), ("BC", "random")], _BOTH)
    ),
    _observation(
        "inversion against fading",
        tuple(
            Check(
                "inversion", _gain("proposed", "random", setting), _gain("proposed, fading", "random, fading", setting)
            )
            for setting in _BOTH
        ),
    ),
)
