"""How much work an experiment means, from its numbers alone: what would take years is refused before anything begins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from fedtide.parts import registry
from fedtide.parts.arguments import part_parameters
from fedtide.parts.kinds import builtin_parts

if TYPE_CHECKING:
    from fedtide.config.keys import Experiment

MOST_TICKS: Final = 10_000_000  # aggregations of a run
MOST_DEVICES: Final = 10_000_000
LARGE_FLEET_DEVICES: Final = 10_000  # of more, nobody lists who is ready at every tick: not in memory, not on record
MOST_IMAGES: Final = 100_000_000  # to train on, and to test on
MOST_PER_JOB: Final = 1_000_000_000  # samples that one device visits with one model
MOST_SAMPLES: Final = 1e13  # that a run trains on
LONG: Final = 1e10  # samples; more are told of
PER_SECOND: Final = 1e5  # samples that a core trains on, of the paper's model: for estimates only
_DAY: Final = 86_400.0
_OFFICIAL_SIZES: Final = {  # samples to train on and to test on
    "mnist": (60_000, 10_000),
    "fashion_mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
}


def _timeline(e: Experiment) -> Any:
    """Return the timeline of ours that an experiment names; None for a user's own, or one that its arguments do not make."""
    timeline = e.part("timeline")
    if timeline.name not in builtin_parts("timeline"):
        return None
    from fedtide.config.keys import key_value

    return registry.resolve("timeline", timeline.name, timeline.args, lambda key: key_value(e, key))


def least_ticks(e: Experiment, slowest: float | None = None) -> float:
    """Return how many aggregations a timeline of ours has at least, from its numbers; 0 for a user's own.

    slowest: how long a training takes at most; not given: fleet.max_duration, if nothing else decides.
    """
    made = _timeline(e)
    slowest = slowest or (e.fleet.max_duration if _is_usual(e) else math.inf)
    if made is None or not hasattr(made, "least_ticks") or timeline_reacts(e):  # nobody knows
        return 0.0
    return float(made.least_ticks(e.fleet.num_devices, slowest, e.timeline.horizon))


def timeline_reacts(e: Experiment) -> bool:
    """Say whether what devices do, or how long uploads take, follows decisions, so that no times are known beforehand."""
    fleet = e.fleet
    plain = (
        fleet.unpicked == "restart"
        and not fleet.interrupt
        and fleet.absent == "compute"
        and fleet.concurrency is None
        and fleet.battery_joules is None
        and e.timeline.uploads == "fixed"
        and e.radio.retransmission.name == "drop"
    )
    return not plain


def _is_usual(e: Experiment) -> bool:
    """Say whether no device ever takes longer than fleet.max_duration from one model to the next."""
    return [e.part(kind).name for kind in ("duration", "availability", "downlink")] == ["uniform", "always", "instant"]


def expected_dataset_size(e: Experiment, key: str) -> int | None:
    """Return `num_train` or `num_test` of an experiment, as far as its data set says; None if it does not."""
    held, trained = e.data.validation, _size_without_validation(e, "num_train")
    if not held:
        return _size_without_validation(e, key)
    return None if trained is None else round(trained * (held if key == "num_test" else 1 - held))


def _size_without_validation(e: Experiment, key: str) -> int | None:
    wanted: int | None = getattr(e.data, key)
    ours, name = builtin_parts("data"), e.part("data").name
    if name in _OFFICIAL_SIZES:
        most = _OFFICIAL_SIZES[name][key == "num_test"]
        return min(wanted or most, most)
    if wanted is None and name in ours:
        defaults = {found.about.key: found.default for found in part_parameters(registry.find_part("data", name, ours))}
        default = defaults.get(f"data.{key}")
        return default if isinstance(default, int) else None
    return wanted


def samples_per_job(e: Experiment) -> float:
    """Return how many samples a device visits with one model, on average; of a data set of unknown size, one batch."""
    per_device = max(
        (expected_dataset_size(e, "num_train") or e.learning.batch_size * e.fleet.num_devices) / e.fleet.num_devices,
        1.0,
    )
    if e.learning.local_steps is not None:
        return e.learning.local_steps * min(float(e.learning.batch_size), per_device)
    return (e.learning.local_epochs or 0) * per_device


def _samples_trained(e: Experiment) -> float:
    """Return how many samples a run trains on, about, if every aggregation has as many uploads as it may."""
    return max(least_ticks(e), 1.0) * e.policy.limit * samples_per_job(e)


def ticks_workload_problem(count: float, name: str, remedy: str) -> str:
    """Say that a timeline has more aggregations than anybody waits for."""
    return f"{name}: about {count:.3g} aggregations, of which a run has at most {MOST_TICKS:,}; {remedy}"


def workload_problem(e: Experiment) -> str | None:
    """Say which numbers leave no aggregation, or mean years of work or more than any memory, and what to change."""
    timeline = _timeline(e)
    problem: str | None = None
    if timeline and hasattr(timeline, "problem"):
        problem = timeline.problem(e.fleet.num_devices, e.timeline.horizon)
    if problem:
        return problem
    horizon = f"timeline.horizon={e.timeline.horizon:g}"
    if (ticks := least_ticks(e)) > MOST_TICKS:
        pace = f"timeline.period={e.timeline.period:g}, fleet.max_duration={e.fleet.max_duration:g}"
        remedy = "lower timeline.horizon, or raise timeline.period or fleet.max_duration"
        return ticks_workload_problem(ticks, f"{horizon}, {pace}, {e.fleet.num_devices:,} devices", remedy)
    key = "local_epochs" if e.learning.local_steps is None else "local_steps"
    local, job = f"learning.{key}={getattr(e.learning, key)}", samples_per_job(e)
    whole = max(ticks, 1.0) * e.policy.limit * job
    if job > MOST_PER_JOB:
        return (
            f"{local}: a device would visit {job:.3g} samples with every model, whose list alone takes "
            f"{job * 8 / 1e9:,.3g} GB; lower it"
        )
    if whole > MOST_SAMPLES:
        return (
            f"{local}, policy.limit={e.policy.limit}, {horizon}: about {whole:.3g} samples to "
            f"train on, {whole / PER_SECOND / _DAY / 365:,.3g} years at {PER_SECOND:,.0f} a second; lower one of them"
        )
    return None


def long_workload(e: Experiment) -> str | None:
    """Say how long a run will take if that is more than a day, about; None if it is not."""
    if (whole := _samples_trained(e)) < LONG:
        return None
    days = whole / PER_SECOND / _DAY
    return f"a long run: up to {whole:.2g} samples to train on, some {days:,.1f} days at {PER_SECOND:,.0f} a second"
