"""What the server does with one aggregation, in two pure steps: plan the uplink, then absorb what arrived.

The simulator and a real federation differ only in what happens between the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedtide.core import parts as plugins
from fedtide.errors import TrainingError
from fedtide.policy.combining import Combiner
from fedtide.policy.scheduling import Scheduler
from fedtide.policy.weighting import Weighting
from fedtide.types import Candidates, Floats, Grant, Ints, Rng, Selection, Vector, lent, read_only
from fedtide.world.allocation import equal_bits


class Policy(NamedTuple):
    """Who uploads and how what arrives is weighed and combined."""

    scheduler: Scheduler
    limit: int  # R
    weighting: Weighting
    combiner: Combiner

    @property
    def needs_update_norm(self) -> bool:
        """Does the scheduler look at the updates themselves?"""
        return bool(getattr(self.scheduler, "needs_update_norm", False))


class Arrived(NamedTuple):
    """The devices whose updates reached the server, one row each."""

    device: Ints  # [r]
    start: Ints  # version each began from [r]
    num_samples: Ints  # [r]


class ServerState(NamedTuple):
    """All that the server carries from one aggregation to the next, the devices still at work included."""

    version: int  # t: the number of the newest model, and of the aggregation to come
    models: Mapping[int, Vector]  # by version, those that someone still trains from
    held: Ints  # which version each device trains from [N]
    uploads: Ints  # how often each device was aggregated [N]


def begin(model: Vector, num_devices: int) -> ServerState:
    """At time 0 every device receives theta(1)."""
    return ServerState(1, {1: model}, np.ones(num_devices, np.int64), np.zeros(num_devices, np.int64))


def plan(policy: Policy, candidates: Candidates, num_symbols: float, rng: Rng) -> Grant:
    """Choose who uploads and share the symbols; raise if the scheduler breaks its contract."""
    ready = len(candidates.device)
    count = min(policy.limit, ready)  # |Pi| = min(R, |K|)
    if count == 0:
        return Grant(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    columns: dict[str, Any] = {
        key: lent(each) for key, each in candidates._asdict().items() if isinstance(each, np.ndarray)
    }
    answer: Any = policy.scheduler(candidates._replace(**columns), count, rng)
    selection = answer if isinstance(answer, Selection) else Selection(answer)
    picked = _checked(selection.picked, count, ready, plugins.label("scheduler", policy.scheduler))
    symbols, bits = equal_bits(candidates.capacity[picked], num_symbols)
    proved = selection.proved_minimal
    return Grant(picked, symbols, bits, None if proved is None else bool(proved))


def _checked(answer: Any, count: int, ready: int, scheduler: str) -> Ints:
    """Return the positions ascending, or say how the scheduler went wrong."""
    picked = _as_array(answer)
    problem = None
    if picked.ndim != 1 or (len(picked) and not np.issubdtype(picked.dtype, np.integer)):
        problem = "they must be a one-dimensional array of whole numbers"
    elif len(picked) != count:
        problem = f"there are {len(picked)}, and min(limit, ready) = {count} are asked for"
    elif len(set(picked.tolist())) != count:
        problem = "some are duplicates"
    elif picked.min() < 0 or picked.max() >= ready:
        problem = (
            f"they must lie in 0..{ready - 1}; a scheduler returns positions within the candidates, not device numbers"
        )
    if problem:
        raise TrainingError(f"{scheduler} returned positions {_shown(answer)}: {problem}")
    return np.sort(picked).astype(np.int64)


def _as_array(answer: Any) -> Any:
    """Return what a policy answered as an array; one of no dimension, which is no answer, if it holds no plain numbers.

    That is a list of lists of unequal length, an array with entries masked, a tensor that does not become an array.
    """
    try:
        masks = sys.modules.get("numpy.ma")  # not imported for this: without it there are no masks
        return np.array(None) if masks is not None and masks.is_masked(answer) else np.asarray(answer)
    except Exception:  # NumPy's own and whatever the object's conversion raises
        return np.array(None)


def _shown(answer: Any) -> str:
    return " ".join(str(answer).split())[:200]


def absorb(
    state: ServerState, policy: Policy, ready: Ints, arrived: Arrived, updates: Vector
) -> tuple[ServerState, Floats]:
    """Aggregate the updates [r d] that arrived, and hand the new model to every ready device.

    Returns the next state and the weights [r]. If nothing arrived the model stays, and the aggregation still counts.
    """
    weights: Floats = np.zeros(0)
    model = state.models[state.version]
    if len(arrived.device):
        check_finite(arrived.device, updates, state.version)
        age = state.version - arrived.start
        weights = weigh(policy, arrived.num_samples, age)
        starts = np.stack([state.models[int(version)] for version in arrived.start])
        combined = policy.combiner(lent(model), read_only(starts), read_only(updates), lent(weights), lent(age))
        model = checked_vector(combined, len(model), plugins.label("combiner", policy.combiner))
    held, uploads = state.held.copy(), state.uploads.copy()
    held[ready] = state.version + 1
    uploads[arrived.device] += 1
    models = {**state.models, state.version + 1: model}
    needed = {*held.tolist(), state.version + 1}
    kept = {version: each for version, each in models.items() if version in needed}
    return ServerState(state.version + 1, kept, held, uploads), weights


def weigh(policy: Policy, num_samples: Ints, age: Ints) -> Floats:
    """Return the weights [r] of updates that arrived; raise if the weighting breaks its contract."""
    weighting = plugins.label("weighting", policy.weighting)
    return _checked_weights(policy.weighting(lent(num_samples), lent(age)), len(age), weighting)


def check_finite(
    device: Ints, updates: Vector, version: int, culprit: Callable[[], str] = lambda: "lower learning.learning_rate"
) -> None:
    """Raise if an update holds NaN or infinity. culprit: says what most likely made it so, and what to do."""
    broken = device[~np.isfinite(updates).all(axis=1)]
    if len(broken):
        some = ", ".join(map(str, broken[:8])) + (f" and {len(broken) - 8} more" if len(broken) > 8 else "")
        raise TrainingError(
            f"the update of device {some} at aggregation {version} is not finite: training diverged; {culprit()} "
            "(everything up to the previous aggregation is saved)"
        )


def _checked_weights(answer: Any, count: int, weighting: str) -> Floats:
    given = _as_array(answer)
    weights = given.astype(np.float64) if given.dtype.kind in "fiub" else np.array(np.nan)
    exact = given.dtype.itemsize >= 8  # else they add up to 1 as well as single precision can
    if weights.shape != (count,) or not np.all(weights >= 0) or not abs(weights.sum() - 1) < (1e-9 if exact else 1e-5):
        total = f" (the sum is {weights.sum():.12g})" if weights.shape == (count,) else ""
        raise TrainingError(
            f"{weighting} returned {_shown(answer)}{total}: it must give {count} weights >= 0 with sum 1"
        )
    return weights if exact else weights / weights.sum()


def checked_vector(answer: Any, num_parameters: int, policy: str) -> Vector:
    """Return what a combiner or a codec made as a float32 [d] of our own, or say how it went wrong.

    It is a copy: whoever made it may write to it again, or may have returned what it was given.
    """
    vector = _as_array(answer)
    if vector.shape != (num_parameters,) or vector.dtype.kind not in "fiu":
        what = f"an array of shape {vector.shape}" if vector.ndim else f"{_shown(answer)}"
        raise TrainingError(f"{policy} returned {what}: it must give the {num_parameters} numbers of the model")
    with np.errstate(over="ignore"):
        made = np.array(vector, np.float32)
    if not np.isfinite(made).all():
        at = int(np.flatnonzero(~np.isfinite(made))[0])
        raise TrainingError(
            f"{policy} returned {vector[at]} at position {at}: it must give finite numbers (what it was given was finite)"
        )
    return made
