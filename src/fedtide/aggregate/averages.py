"""Averages: how much each update counts, and sums that take updates one device after the other."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Protocol

import numpy as np

from fedtide.errors import FedtideError
from fedtide.parts import registry, user_code
from fedtide.parts.arguments import arg
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Floats, Ints, Memory, Vector

# How much each arrived update counts. A weighting is a callable (num_samples [r], age [r]) -> weights [r], sum 1.


class Weighting(Protocol):
    """Weighs what arrived."""

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Return weights [r] that are not negative and sum to 1."""
        ...


@dataclass(frozen=True)
class AgeAware:
    """w_k proportional to |S_k| gamma^{a_k} (eq:wk_t_age): age_base (gamma) > 1 favours old, < 1 fresh, 1 neither."""

    age_base: Annotated[float, arg("gamma: below 1 favours fresh updates", key="policy.age_base", gt=0)] = 1.0

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Powers are taken relative to the heaviest age, so that no age can overflow them."""
        heaviest = age.max() if self.age_base > 1 else age.min()
        weight = num_samples * self.age_base ** (age - heaviest).astype(np.float64)
        return np.asarray(weight / math.fsum(weight))


@dataclass(frozen=True)
class UniformWeights:
    """Every arrived update counts the same."""

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Return 1/r each."""
        return np.full(len(age), 1 / len(age))


WEIGHTINGS: Final[dict[str, Callable[..., Weighting]]] = {"age_aware": AgeAware, "uniform": UniformWeights}


# Aggregators that take what arrives one device after the other, so that memory does not grow with their number.
#
# Such an aggregator says streams = True and has begin(model [d], weights [r], age [r]) -> Sums, with memory begin(memory,
# model, weights, age, device [r]); then every start and update is added, in order, and `end` gives what a call gives, to
# the bit.


@dataclass
class Sums:
    """sum_k s_k u_k from some beginning and, if asked for, sum_k w_k theta_k, as `weighted_sum` adds them up."""

    scales: Floats  # s_k, of the updates [r]
    updates: Floats  # the sum so far [d]
    finish: Callable[[Floats, Floats], Any]  # (sum of starts, sum of updates) -> what the aggregator answers
    weights: Floats | None = None  # w_k, of the starts [r]; None: they are not asked for
    starts: Floats = dataclasses.field(default_factory=lambda: np.zeros(0))  # their sum so far [d]
    count: int = 0

    def add(self, start: Vector, update: Vector) -> None:
        """Add what the next device began from [d], and its update [d]."""
        if self.weights is not None:
            self.starts += self.weights[self.count] * start
        self.updates += self.scales[self.count] * update
        self.count += 1

    def end(self) -> Any:
        """Return what the aggregator answers."""
        return self.finish(self.starts, self.updates)

    def then(self, go_on: Callable[[Any], Any]) -> Sums:
        """Return these sums for an aggregator that goes on from what this one answers."""
        finish = self.finish
        return dataclasses.replace(self, finish=lambda starts, updates: go_on(finish(starts, updates)))


def of_updates(scales: Floats, model: Vector) -> Sums:
    """Return theta + sum_k s_k u_k in the type of theta, still to be summed."""
    return Sums(scales, model.astype(np.float64), lambda _, updates: updates.astype(model.dtype))


def of_models(weights: Floats, num_parameters: int, finish: Callable[[Floats], Any]) -> Sums:
    """Return what `finish` makes of sum_k w_k theta_k + sum_k w_k u_k, still to be summed."""
    zero = np.zeros(num_parameters)
    return Sums(weights, zero, lambda starts, updates: finish(starts + updates), weights, zero.copy())


def fed(sums: Sums, starts: Iterable[Vector], updates: Iterable[Vector]) -> Any:
    """Return the answer for all starts and updates [r d] at once."""
    for start, update in zip(starts, updates, strict=True):
        sums.add(start, update)
    return sums.end()


def streams(aggregator: Any) -> bool:
    """Say whether an aggregator can be fed one update after the other. A user's own, also around one of ours, gets them all."""
    return user_code.is_ours(aggregator) and bool(getattr(aggregator, "streams", False))


# How arrived updates become the next model.
#
# An aggregator is a callable (model [d], starts [r d], updates [r d], weights [r], age [r]) -> model [d]; `starts` are the
# models that the devices began from. One with takes_sum = True uses updates in sum_k w_k u_k alone, and so can do without
# single ones: of updates that were sent at once (`radio.access`) every row is that sum, as the server heard it. One with
# streams = True takes them one after the other (`streaming.py`). Sums run in float64, one device after the other, so that
# the bits do not depend on threads or on a BLAS; the answer has the type of `model`, which is float64 for an aggregator inside
# another (`inner.py`).


class Aggregator(Protocol):
    """Makes the next global model."""

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Return theta(t+1) [d]."""
        ...


def weighted_sum(weights: Floats, vectors: Vector | Floats, start: Vector | None = None) -> Floats:
    """Return sum_k w_k v_k [d] in float64, one row of `vectors` [r d] after the other, from `start` [d] or 0."""
    total = np.zeros(vectors.shape[1]) if start is None else start.astype(np.float64)
    for weight, vector in zip(weights, vectors, strict=True):
        total += weight * vector
    return total


@dataclass(frozen=True)
class AverageModels:
    """The paper's: theta(t+1) = sum_k w_k [theta_k(t,0) + u_k]. Stale starts pull the model back."""

    takes_sum: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Average the devices' models."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take models one after the other."""
        return of_models(weights, len(model), lambda arrived: arrived.astype(model.dtype))


@dataclass(frozen=True)
class AverageDeltas:
    """theta(t+1) = theta(t) + server_rate sum_k w_k u_k: updates are added to the current model wherever they began."""

    takes_sum: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    server_rate: Annotated[float, arg("how far the server goes along the average")] = 1.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the weighted updates."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take updates one after the other."""
        return of_updates(self.server_rate * weights, model)


@dataclass(frozen=True)
class Mix:
    """FedAsync: theta(t+1) = (1-m) theta(t) + m sum_k w_k [theta_k(t,0) + u_k], m = mixing (1 + mean age)^-staleness.

    The paper's footnote mixes in u_k itself, which taken literally shrinks the model; FedAsync mixes models.
    """

    takes_sum: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    mixing: Annotated[float, arg("share of the device's model")] = 0.4
    staleness: Annotated[float, arg("power of 1 + age that the share falls with")] = 0.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Move towards the devices' models."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take models one after the other."""
        share = self.mixing * (1 + float(weights @ age)) ** -self.staleness
        return of_models(
            weights, len(model), lambda arrived: np.asarray((1 - share) * model + share * arrived, model.dtype)
        )


@dataclass(frozen=True)
class BufferedMean:
    """FedBuff: theta(t+1) = theta(t) + server_rate sum_k w_k (1 + a_k)^-staleness u_k."""

    streams: ClassVar[bool] = True
    server_rate: Annotated[float, arg("how far the server goes along the average")] = 1.0
    staleness: Annotated[float, arg("power of 1 + age that updates are scaled down with")] = 0.5

    @property
    def takes_sum(self) -> bool:
        """Whether updates count by their weights alone."""
        return self.staleness == 0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Add the updates, the stale ones scaled down."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take updates one after the other."""
        return of_updates(self.server_rate * weights * (1.0 + age) ** -self.staleness, model)


# By name; as module:class, those that build on this module.
AGGREGATORS: Final[dict[str, Callable[..., Aggregator] | str]] = {
    "average_models": AverageModels,
    "average_deltas": AverageDeltas,
    "mix": Mix,
    "buffered_mean": BufferedMean,
    "mix_hinge": "fedtide.aggregate.asynchronous:MixHinge",
    "server_momentum": "fedtide.aggregate.optimizers:ServerMomentum",
    "server_adam": "fedtide.aggregate.optimizers:ServerAdam",
    "server_yogi": "fedtide.aggregate.optimizers:ServerYogi",
    "fadas": "fedtide.aggregate.optimizers:DelayAdaptive",
    "ca2fl": "fedtide.aggregate.cached:CachedCalibration",
    "mifa": "fedtide.aggregate.cached:LastOfEveryone",
    "fedat": "fedtide.aggregate.asynchronous:Tiers",
    "asyncfeded": "fedtide.aggregate.asynchronous:DistanceMean",
    "median": "fedtide.aggregate.robust:Median",
    "trimmed_mean": "fedtide.aggregate.robust:TrimmedMean",
    "krum": "fedtide.aggregate.robust:Krum",
    "clipped_mean": "fedtide.aggregate.robust:ClippedMean",
    "majority_vote": "fedtide.aggregate.robust:MajorityVote",
    "ef21": "fedtide.aggregate.cached:Ef21Sum",
    "scaffold": "fedtide.aggregate.cached:ControlVariates",
}


# An aggregator inside another: one of ours, by name, with memory or without.
#
# What the inner one remembers is kept among the outer one's, under its name with `inner_` before it.


_PREFIX: Final = "inner_"


def resolve_inner(name: str, args: Mapping[str, Any] | None, num_devices: int, outer: Any) -> Any:
    """Return the aggregator of ours that `name` stands for. num_devices: N, for one that asks for fleet.num_devices.

    outer: the aggregator around it, which may not be inside itself: its step would be measured by its own measure.

    A user's own would run without what a run does for it (it is not part of the run's identity, nor looked at for state).
    """
    if name not in builtin_parts("aggregator"):
        raise FedtideError(
            f"policy.aggregator.inner={name!r} is none of fedtide's own aggregators "
            f"({', '.join(builtin_parts('aggregator'))}): name one of "
            "these, or write the outer step into your own"
        )

    def fill(key: str) -> Any:
        if key != "fleet.num_devices":
            raise FedtideError(
                f"policy.aggregator.inner={name!r} goes with {key} and cannot be inside another aggregator: name another inside, or "
                f"policy.aggregator={name} itself"
            )
        return num_devices

    found = inside = registry.resolve("aggregator", name, args or {}, fill)
    while inside is not None:
        if type(inside) is type(outer):
            raise FedtideError(
                f"policy.aggregator.inner={name!r} puts {type(outer).__name__} inside itself: name another inside"
            )
        inside = getattr(inside, "_inner", None)
    return found


class Around:
    """An aggregator with another one inside: a frozen dataclass with the fields inner, inner_args and num_devices."""

    inner: str
    inner_args: dict[str, Any] | None
    num_devices: int

    def __post_init__(self) -> None:
        """Bring the inner arguments into order; raise at once if the inner aggregator cannot be made."""
        object.__setattr__(self, "inner_args", canonical_inner(self.inner_args))
        self._inner  # noqa: B018

    @functools.cached_property
    def _inner(self) -> Any:
        return resolve_inner(self.inner, self.inner_args, self.num_devices, self)

    @property
    def takes_sum(self) -> bool:
        """Whether the inner aggregator uses updates in their weighted sum alone."""
        return bool(getattr(self._inner, "takes_sum", False))

    @property
    def streams(self) -> bool:
        """Whether the inner aggregator takes updates one after the other."""
        return bool(getattr(self._inner, "streams", False))

    @property
    def needs_rates(self) -> bool:
        """Whether the inner aggregator is told learning rates."""
        return needs_rates(self._inner)


def canonical_inner(args: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return arguments by name, none as None: a run is known by how its aggregator is written, whoever wrote which first."""
    return (
        {name: canonical_inner(args[name]) if isinstance(args[name], dict) else args[name] for name in sorted(args)}
        if args
        else None
    )


def exact(model: Vector) -> Any:
    """Return the model [d] in float64: an aggregator inside answers in the type of its model, so its step is not rounded.

    A step that is small beside the model would lose most of its digits in float32, and a server that divides by the size of
    steps would magnify the error.
    """
    return model.astype(np.float64)


def init_inner(inner: Any, model: Vector) -> Memory:
    """Return what the inner one begins with, as the outer one keeps it."""
    return _prefixed(inner.init(model)) if registry.remembers(inner) else {}


def needs_rates(aggregator: Any) -> bool:
    """Say whether an aggregator of ours is told learning rates, too: of each update [r] and of now, relative to the first."""
    return user_code.is_ours(aggregator) and bool(getattr(aggregator, "needs_rates", False))


def call_inner(
    inner: Any,
    memory: Memory,
    model: Vector,
    starts: Vector,
    updates: Vector,
    weights: Floats,
    age: Ints,
    device: Ints,
    *rates: Any,
) -> tuple[Vector, Memory]:
    """Return the model that the inner one would make, and its memory then. memory: the outer one's."""
    if not registry.remembers(inner):
        return inner(model, starts, updates, weights, age), {}
    rates = rates if needs_rates(inner) else ()
    model, own = inner(_own(memory), model, starts, updates, weights, age, device, *rates)
    return model, _prefixed(own)


def begin_inner(
    inner: Any,
    memory: Memory,
    model: Vector,
    weights: Floats,
    age: Ints,
    device: Ints,
    go_on: Callable[[Vector, Memory], Any],
) -> Sums:
    """Let the inner one begin; go_on: what the outer one makes of its model, and of its memory then."""
    if not registry.remembers(inner):
        sums: Sums = inner.begin(model, weights, age)
        return sums.then(lambda wanted: go_on(wanted, {}))
    sums = inner.begin(_own(memory), model, weights, age, device)
    return sums.then(lambda answer: go_on(answer[0], _prefixed(answer[1])))


def _own(memory: Memory) -> Memory:
    return {name.removeprefix(_PREFIX): value for name, value in memory.items() if name.startswith(_PREFIX)}


def _prefixed(memory: Memory) -> Memory:
    return {_PREFIX + name: value for name, value in memory.items()}
