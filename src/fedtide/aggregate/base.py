"""The aggregator contract: how the updates of a cohort become the next model, a lot at a time.

    state = aggregator.init(model, num_devices)
    acc = aggregator.start(state, model, cohort)
    for lot in lots:
        acc = aggregator.add(acc, rows, starts, updates)
    model, state = aggregator.finish(state, acc, model)

Averages keep a sum, in float64 and one device after the other, so that the bits do not depend on threads, lots or a BLAS.
Robust ones keep all rows: they are written as a plain function of them, which `as_aggregator` makes an aggregator of, as it does
with a user's own. The answer has the type of `model`, which is float64 for an aggregator inside another.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, Protocol

import numpy as np

from fedtide.config import METHODS
from fedtide.errors import FedtideError
from fedtide.parts import checks, registry
from fedtide.parts.arguments import arg
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Floats, Ints, Memory, Vector, Vectors, read_only, readonly_copy


class Cohort(NamedTuple):
    """The devices whose updates arrive, one row each."""

    device: Ints  # [r]
    age: Ints  # a_k in ticks [r]
    num_samples: Ints  # |S_k| [r]
    weights: Floats  # w_k by the weighting, sum 1 [r]
    num_devices: int  # N, of the whole fleet
    rates: Floats  # learning rate that each trained with, relative to the first one [r]
    rate: float = 1.0  # of a training from the current model, relative to the first one
    steps: Ints | None = None  # tau_k, local steps that each made [r]; None: not known
    edge: Ints | None = None  # edge server that each arrives at [r]; None: there is one server
    server_update: Vector | None = (
        None  # of a training on held-out samples from the current model [d]; None: not asked for
    )


class Aggregator(Protocol):
    """Makes the next global model. One that uses updates in sum_k w_k u_k alone says takes_sum = True (`radio.access`)."""

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return what it remembers before the first aggregation; most remember nothing, {}."""
        ...

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Any:
        """Return the accumulator of one aggregation, empty."""
        ...

    def add(self, acc: Any, rows: slice, starts: Vectors, updates: Vectors) -> Any:
        """Add some rows of the cohort: the models that these devices began from, and their updates [l d]."""
        ...

    def finish(self, state: Memory, acc: Any, model: Vector) -> tuple[Vector, Memory]:
        """Return theta(t+1) [d], and what it remembers then."""
        ...


class Rows(NamedTuple):
    """All starts and updates of a cohort."""

    cohort: Cohort
    starts: Vector  # [r d]
    updates: Vector  # [r d]


@dataclass(frozen=True)
class Lifted:
    """A plain function of all updates as an aggregator: it keeps the rows until all of them are there.

    The function is (model, starts [r d], updates [r d], weights [r], age [r]) -> model [d]; with memory it has init(model) and is
    (memory, model, starts, updates, weights, age, device [r]) -> (model, memory).
    """

    part: Any

    @property
    def __wrapped__(self) -> Any:
        """What errors name."""
        return self.part

    @property
    def takes_sum(self) -> bool:
        """Whether it uses updates in sum_k w_k u_k alone."""
        return bool(getattr(self.part, "takes_sum", False))

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return what the function remembers at first."""
        made: Memory = self.part.init(model) if checks.part_remembers(self.part) else {}
        return made

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Rows:
        """Make room for all rows."""
        shape = (len(cohort.device), len(model))
        return Rows(cohort, np.empty(shape, np.float32), np.empty(shape, np.float32))

    def add(self, acc: Rows, rows: slice, starts: Vectors, updates: Vectors) -> Rows:
        """Keep these rows."""
        acc.starts[rows] = starts
        acc.updates[rows] = updates
        return acc

    def finish(self, state: Memory, acc: Rows, model: Vector) -> tuple[Vector, Memory]:
        """Call the function, with arrays that it cannot change and a copy of its memory that it may write to."""
        cohort, copy = acc.cohort, readonly_copy
        rows = read_only(acc.starts), read_only(acc.updates)
        given = (copy(model), *rows, copy(cohort.weights), copy(cohort.age))
        if not checks.part_remembers(self.part):
            return self.part(*given), state
        memory = {name: value.copy() for name, value in state.items()}
        answer: tuple[Vector, Memory] = self.part(memory, *given, copy(cohort.device))
        return answer


def needs_server_update(aggregator: Any) -> bool:
    """Whether an aggregator, or one inside it, compares updates with one that the server trains itself."""
    inside = aggregator
    while inside is not None:
        part = checks.unguarded_part(inside)
        if "server_update" in getattr(part, "needs", ()):
            return True
        inside = getattr(part, "_inner", None)
    return False


def as_aggregator(part: Any) -> Any:
    """Return an aggregator as it is, and a plain function as an aggregator."""
    made = part.policy if isinstance(part, checks.Guarded) else part
    return Lifted(part) if callable(made) else part


@dataclass
class Sums:
    """sum_k s_k u_k from some beginning and, where it is asked for, sum_k w_k theta_k."""

    cohort: Cohort
    scales: Floats  # s_k, of the updates [r]
    updates: Floats  # the sum so far [d]
    starts: Floats | None = None  # the sum of w_k theta_k so far [d]; None: not asked for

    @property
    def models(self) -> Floats:
        """The sum of the devices' models, sum_k w_k [theta_k + u_k] [d]."""
        assert self.starts is not None
        return self.starts + self.updates


class Average:
    """An aggregator that remembers nothing and needs sums alone."""

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Remember nothing."""
        return {}

    def add(self, acc: Sums, rows: slice, starts: Vectors, updates: Vectors) -> Sums:
        """Add the updates, and the starts if they are asked for, one device after the other."""
        if acc.starts is not None:
            for weight, start in zip(acc.cohort.weights[rows], starts, strict=True):
                acc.starts += weight * start
        for scale, update in zip(acc.scales[rows], updates, strict=True):
            acc.updates += scale * update
        return acc


def weighted_sum(weights: Floats, vectors: Vector | Floats, start: Vector | None = None) -> Floats:
    """Return sum_k w_k v_k [d] in float64, one row of `vectors` [r d] after the other, from `start` [d] or 0."""
    total = np.zeros(vectors.shape[1]) if start is None else start.astype(np.float64)
    for weight, vector in zip(weights, vectors, strict=True):
        total += weight * vector
    return total


_PREFIX: Final = "inner_"


Inner = Annotated[str, arg("the inner aggregator, which makes the step", part="aggregator")]
InnerArgs = Annotated[dict[str, Any] | None, arg("arguments of the inner aggregator, unless given with its name")]


class Around:
    """An aggregator with another one inside; it keeps what the inner one remembers as `inner_...` of its own memory."""

    inner: Inner
    inner_args: InnerArgs

    def __post_init__(self) -> None:
        """Raise at once if the inner aggregator cannot be made."""
        self._inner  # noqa: B018

    @functools.cached_property
    def _inner(self) -> Any:
        """The aggregator inside; none of the same kind, whose step would be measured by its own measure."""
        given = f"policy.aggregator.inner={str(self.inner)!r}"
        if self.inner in METHODS:
            raise FedtideError(
                f"{given} is one part of method={self.inner} and cannot be inside another aggregator: name another inside, or "
                f"say method={self.inner}"
            )
        args, fill = registry.inner_arguments(self.inner, self.inner_args)
        is_own = self.inner not in builtin_parts("aggregator")
        made = inside = (registry.part if is_own else registry.resolve)("aggregator", self.inner, args, fill)
        while inside is not None:
            if type(checks.unguarded_part(inside)) is type(self):
                raise FedtideError(f"{given} puts {type(self).__name__} inside itself: name another inside")
            if getattr(inside, "outermost", False):
                raise FedtideError(f"{given} has aggregators inside and cannot be inside one: put this one inside it")
            inside = getattr(checks.unguarded_part(inside), "_inner", None)
        return as_aggregator(made)

    @property
    def inner_part(self) -> Any:
        """The aggregator inside, for those who look whether it is a user's own."""
        return self._inner

    def init_inner(self, model: Vector, num_devices: int) -> Memory:
        """Return what the inner one begins with, as the outer one keeps it."""
        return {_PREFIX + name: value for name, value in self._inner.init(model, num_devices).items()}

    def start_inner(self, state: Memory, model: Vector, cohort: Cohort) -> Any:
        """Start the inner aggregator."""
        return self._inner.start(self._of_inner(state), model, cohort)

    def finish_inner(self, state: Memory, acc: Any, model: Vector) -> tuple[Vector, Memory]:
        """Return the model that the inner one would make [d], and what the outer one keeps of its memory."""
        wanted, after = self._inner.finish(self._of_inner(state), acc, model)
        if not checks.is_ours(self._inner):
            label = checks.part_label("aggregator", self._inner)
            checks.checked_vector(wanted, len(model), label)
            wanted, after = np.asarray(wanted, model.dtype), checks.checked_memory(after, self._of_inner(state), label)
        return wanted, {_PREFIX + name: value for name, value in after.items()}

    def _of_inner(self, state: Memory) -> Memory:
        return {name.removeprefix(_PREFIX): value for name, value in state.items() if name.startswith(_PREFIX)}
