"""How much work an experiment means, from its numbers alone: what would take years is refused before anything begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fedtide.config.keys import Experiment

MOST_TICKS: Final = 10_000_000  # aggregations of a run
MOST_DEVICES: Final = 10_000_000
MOST_IMAGES: Final = 100_000_000  # of the synthetic set
MOST_PER_JOB: Final = 1_000_000_000  # samples that one device visits with one model
MOST_SAMPLES: Final = 1e13  # that a run trains on
LONG: Final = 1e10  # samples; more are told of
PER_SECOND: Final = 1e5  # samples that a core trains on, of the paper's model: for estimates only
_DAY: Final = 86_400.0
_IMAGE_BYTES: Final = 28 * 28 * 4


def least_ticks(e: Experiment) -> float:
    """Return how many aggregations a timeline of ours has at least, from its numbers; 0 for a user's own."""
    horizon, slowest = e.timeline.horizon, e.fleet.max_duration
    arrivals = e.fleet.num_devices * (horizon / slowest)  # if all were as slow as the slowest
    counts = {
        "periodic": horizon / e.timeline.period,
        "synchronous": horizon / slowest,
        "per_arrival": arrivals,
        "buffered": arrivals / e.timeline.buffer_size,
    }
    return counts.get(e.timeline.name, 0.0)


def samples_per_job(e: Experiment) -> float:
    """Return how many samples a device visits with one model, on average."""
    held = min(e.data.num_train or 60_000, 60_000) if e.data.name == "mnist" else e.data.num_train or 2_000
    per_device = max(held / e.fleet.num_devices, 1.0)
    if e.learning.local_steps is not None:
        return e.learning.local_steps * min(float(e.learning.batch_size), per_device)
    return (e.learning.local_epochs or 0) * per_device


def samples(e: Experiment) -> float:
    """Return how many samples a run trains on, about, if every aggregation has as many uploads as it may."""
    return max(least_ticks(e), 1.0) * e.policy.limit * samples_per_job(e)


def too_many_ticks(count: float, name: str, remedy: str) -> str:
    """Say that a timeline has more aggregations than anybody waits for."""
    return f"{name}: about {count:.3g} aggregations, of which a run has at most {MOST_TICKS:,}; {remedy}"


def beyond_reach(e: Experiment) -> str | None:
    """Say which numbers mean years of work or more than any memory, and what to change; None if none do."""
    timeline, fleet = e.timeline, e.fleet
    if fleet.num_devices > MOST_DEVICES:
        return (
            f"fleet.num_devices={fleet.num_devices} is more than {MOST_DEVICES:,}: what is known of each of them would "
            f"take {fleet.num_devices * 200 / 1e9:,.3g} GB; use fewer"
        )
    images = (e.data.num_train or 0) + (e.data.num_test or 0)
    if e.data.name == "synthetic" and images > MOST_IMAGES:
        return (
            f"data.num_train={e.data.num_train}, data.num_test={e.data.num_test}: the images would take "
            f"{images * _IMAGE_BYTES / 1e9:,.3g} GB; the synthetic set has at most {MOST_IMAGES:,}"
        )
    if (ticks := least_ticks(e)) > MOST_TICKS:
        pace = {
            "periodic": f"timeline.period={timeline.period:g}",
            "synchronous": f"fleet.max_duration={fleet.max_duration:g}",
        }.get(timeline.name, f"fleet.max_duration={fleet.max_duration:g} of {fleet.num_devices:,} devices")
        remedy = f"raise {pace.partition('=')[0]} or lower timeline.horizon"
        return too_many_ticks(ticks, f"timeline.horizon={timeline.horizon:g} with {pace}", remedy)
    key = "local_epochs" if e.learning.local_steps is None else "local_steps"
    local, job, whole = f"learning.{key}={getattr(e.learning, key)}", samples_per_job(e), samples(e)
    if job > MOST_PER_JOB:
        return (
            f"{local}: a device would visit {job:.3g} samples with every model, whose list alone takes "
            f"{job * 8 / 1e9:,.3g} GB; lower it"
        )
    if whole > MOST_SAMPLES:
        return (
            f"{local}, policy.limit={e.policy.limit}, timeline.horizon={timeline.horizon:g}: about {whole:.3g} samples to "
            f"train on, {whole / PER_SECOND / _DAY / 365:,.3g} years at {PER_SECOND:,.0f} a second; lower one of them"
        )
    return None


def long_work(e: Experiment) -> str | None:
    """Say how long a run will take if that is more than a day, about; None if it is not."""
    if (whole := samples(e)) < LONG:
        return None
    days = whole / PER_SECOND / _DAY
    return f"a long run: up to {whole:.2g} samples to train on, some {days:,.1f} days at {PER_SECOND:,.0f} a second"
