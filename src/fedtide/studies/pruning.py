"""Which settings plans rule out before anything is trained: lost uploads, unheard devices, airtime, energy, dominance."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from fedtide.codec.base import checked_codec_kept
from fedtide.config import Experiment
from fedtide.engine.making import load_dataset, make_codec
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.parts import checks
from fedtide.report.plan import Plan, plan_system
from fedtide.studies.design_space import DesignSpace, Setting, replaced_options
from fedtide.types import Dataset

# Learning rates, servers and weights leave a plan as it is. A codec changes only what is kept of an update.
_PLANNED: Final = ("limit", "period", "schedule", "local_epochs", "local_steps")
_PLANNED_TICKS: Final = 30  # aggregations of the base that a plan looks at
# When a setting is ruled out, measured against the base's own plan.
_MORE_LOST: Final = 0.1  # share of the uploads
_MORE_UNHEARD: Final = 0.25  # share of the devices
_MORE_AIRTIME: Final = 1.05  # times
_MORE_JOULES: Final = 1.25  # times
_LEAST_KEPT: Final = 0.25  # of the share of an update that the same codec keeps


class Pruned(NamedTuple):
    """How many settings there are, and why most were not run."""

    considered: int
    left: int
    num_plans: int
    reasons: dict[str, int]  # how many settings left for it


class _Planned(NamedTuple):
    """What a plan says about a setting. Rates are per unit of time; None: the plan does not say."""

    plan: Plan
    lost: float | None  # share of the uploads
    unheard: float | None  # share of the devices, over the whole horizon
    symbols: float | None  # offered
    joules: float | None
    merits: tuple[float, ...] | None  # more of each is better


def prune_by_plans(
    space: DesignSpace,
    say: Callable[[str], None] = lambda _: None,
    on_plan: Callable[[int, int], None] = lambda *_: None,
) -> tuple[Pruned, Callable[[Setting], bool]]:
    """Plan what differs in a plan; return why settings are ruled out, and a function that says whether a setting is left.

    say: told what is fetched. on_plan: told how many plans are done, and how many there are.
    """
    planned = [at for at, choice in enumerate(space.choices) if choice.name in _PLANNED]
    coded = [at for at, choice in enumerate(space.choices) if choice.name == "codec"]
    plans = _plans(space, planned, say, on_plan)
    verdicts: dict[Setting, str] = {}
    for (codec,) in itertools.product(*(space.choices[at].options for at in coded)) if coded else [("",)]:
        rows = {replaced_options(setting, coded, [codec] * len(coded)): found for setting, found in plans.items()}
        verdicts |= _verdicts(space, rows)
    verdicts[space.base_setting] = ""
    each = math.prod(len(choice.options) for choice in space.choices) // len(verdicts)
    reasons = Counter(reason for reason in verdicts.values() if reason)
    left = each * (len(verdicts) - reasons.total())
    told = {reason: each * count for reason, count in reasons.most_common()}
    places = [*planned, *coded]

    def is_left(setting: Setting) -> bool:
        return not verdicts[replaced_options(space.base_setting, places, [setting[at] for at in places])]

    return Pruned(each * len(verdicts), left, len(plans), told), is_left


def _plans(
    space: DesignSpace, places: Sequence[int], say: Callable[[str], None], on_plan: Callable[[int, int], None]
) -> dict[Setting, _Planned | None]:
    """Plan every combination of the options at these places; None: that cannot be."""
    base, dataset = space.base_setting, load_dataset(space.base, say, images=False)
    horizon = min(space.base.timeline.horizon, _PLANNED_TICKS * space.base.timeline.period)
    groups = [list(space.choices[at].options) for at in places]
    found: dict[Setting, _Planned | None] = {}
    for number, options in enumerate(itertools.product(*groups)):
        on_plan(number, math.prod(map(len, groups)))
        setting = replaced_options(base, places, options)
        try:
            experiment = space.experiment(setting, {"timeline.horizon": horizon})
            found[setting] = _planned(experiment, dataset, horizon == space.base.timeline.horizon)
        except FedtideError:
            if setting == base:
                raise
            found[setting] = None
    return found


def _planned(experiment: Experiment, dataset: Dataset, is_whole: bool) -> _Planned:
    """Plan an experiment. is_whole: over its whole horizon, so that who is not heard never is."""
    plan = plan_system(build(experiment, dataset=dataset))
    summary, horizon = plan.summary, experiment.timeline.horizon
    lost, joules = summary["outage_at_most"], summary["joules"] and summary["joules"] / horizon
    unheard = summary["never_heard"] / summary["num_devices"] if is_whole and summary["uploads"] is not None else None
    symbols = summary["symbols_offered"] / plan.rows[-1]["time"] if summary["times_known"] else None
    if summary["uploads"] is None:
        return _Planned(plan, lost, unheard, symbols, joules, None)
    labels = [row["label_variance"] / len(row["picked"]) ** 2 for row in plan.rows if row.get("picked")]
    budget, ticks = summary["budget_bits_per_upload"], summary["aggregations"]
    merits = (
        ticks / horizon,
        summary["uploads"] / horizon,
        budget["median"] if budget else 0.0,
        -(summary["mean_age"] or 0.0) * horizon / max(ticks, 1),  # in units of time
        -float(np.mean(labels)) if labels else 0.0,
        -(lost or 0.0),
        -(unheard or 0.0),
        -(joules or 0.0),
    )
    return _Planned(plan, lost, unheard, symbols, joules, merits)


def _verdicts(space: DesignSpace, rows: Mapping[Setting, _Planned | None]) -> dict[Setting, str]:
    """Return why each of some settings with one codec is ruled out; nothing if it is left."""
    base = next(iter(rows.values()))
    assert base is not None, "the base comes first, and can be planned"
    coded = space.experiment(next(iter(rows)))
    kept = {setting: _kept_share(found.plan, coded) if found else None for setting, found in rows.items()}
    least = _LEAST_KEPT * (next(iter(kept.values())) or 0.0)
    verdicts, left = {}, dict[Setting, _Planned]()
    for setting, found in rows.items():
        share = kept[setting]
        little = share is not None and share < least
        verdicts[setting] = _fault(found, base) or ("keep too little of an update" if little else "")
        if found is not None and not verdicts[setting]:
            left[setting] = found
    dominated = _dominated(space, left)
    return {
        setting: "are no better than others in anything that a plan shows" if setting in dominated else verdict
        for setting, verdict in verdicts.items()
    }


def _fault(found: _Planned | None, base: _Planned) -> str:
    """Say why a setting is hopeless beside the base; nothing if it is not."""
    if found is None:
        return "cannot be planned"
    limits = (
        ("lose more uploads", found.lost, base.lost, 1.0, _MORE_LOST),
        ("never hear many devices", found.unheard, base.unheard, 1.0, _MORE_UNHEARD),
        ("take more airtime than the base", found.symbols, base.symbols, _MORE_AIRTIME, 0.0),
        ("take more energy than the base", found.joules, base.joules, _MORE_JOULES, 0.0),
    )
    for reason, own, bases, times, plus in limits:
        if own is not None and bases is not None and own > times * bases + plus:
            return reason
    return ""


def _kept_share(plan: Plan, coded: Experiment) -> float | None:
    """Return the mean share of an update that the codec of an experiment keeps with the bits of a plan."""
    budgets = [bits for row in plan.rows for bits in row.get("budget_bits", ())]
    if not budgets:
        return None
    codec, d = make_codec(coded), plan.summary["num_parameters"]
    label = checks.part_label("codec", codec)
    kept = {bits: checked_codec_kept(codec, d, bits, label) for bits in dict.fromkeys(budgets)}
    return float(np.mean([kept[bits] / d for bits in budgets]))


def _dominated(space: DesignSpace, rows: Mapping[Setting, _Planned]) -> set[Setting]:
    """Return the settings to which another one with the same schedule and local work is superior in something, inferior in nothing.

    Which schedule is better, and what more local work is worth, only a training tells.
    """
    same = [at for at, choice in enumerate(space.choices) if choice.name in ("schedule", "local_epochs", "local_steps")]
    groups: dict[Setting, dict[Setting, tuple[float, ...]]] = {}
    for setting, planned in rows.items():
        if planned.merits is not None:
            groups.setdefault(tuple(setting[at] for at in same), {})[setting] = planned.merits
    found = set()
    for group in groups.values():
        merits = np.array([*group.values()])
        for setting, own in zip(group, merits, strict=True):
            if ((merits >= own).all(axis=1) & (merits > own).any(axis=1)).any():
                found.add(setting)
    return found
