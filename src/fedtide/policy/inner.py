"""A combiner inside another: one of ours, by name, with memory or without.

What the inner one remembers is kept among the outer one's, under its name with `inner_` before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from fedtide.core import parts
from fedtide.core.kinds import table
from fedtide.errors import FedtideError
from fedtide.policy.streaming import Sums
from fedtide.types import Floats, Ints, Memory, Vector

PREFIX: Final = "inner_"


def made(name: str, args: Mapping[str, Any] | None, num_devices: int, outer: Any) -> Any:
    """Return the combiner of ours that `name` stands for. num_devices: N, for one that asks for fleet.num_devices.

    outer: the combiner around it, which may not be inside itself: its step would be measured by its own measure.

    A user's own would run without what a run does for it (it is not part of the run's identity, nor looked at for state).
    """
    if name not in table("combiner"):
        raise FedtideError(
            f"combiner_args.inner={name!r} is none of fedtide's own combiners ({', '.join(table('combiner'))}): name one of "
            "these, or write the outer step into your own"
        )

    def fill(key: str) -> Any:
        if key != "fleet.num_devices":
            raise FedtideError(
                f"combiner_args.inner={name!r} goes with {key} and cannot be inside another combiner: name another inside, or "
                f"policy.combiner={name} itself"
            )
        return num_devices

    found = inside = parts.resolve("combiner", name, args or {}, fill)
    while inside is not None:
        if type(inside) is type(outer):
            raise FedtideError(
                f"combiner_args.inner={name!r} puts {type(outer).__name__} inside itself: name another inside"
            )
        inside = getattr(inside, "_inner", None)
    return found


class Around:
    """A combiner with another one inside: a frozen dataclass with the fields inner, inner_args and num_devices."""

    inner: str
    inner_args: dict[str, Any] | None
    num_devices: int

    def __post_init__(self) -> None:
        """Bring the inner arguments into order; raise at once if the inner combiner cannot be made."""
        object.__setattr__(self, "inner_args", ordered(self.inner_args))
        self._inner  # noqa: B018

    @functools.cached_property
    def _inner(self) -> Any:
        return made(self.inner, self.inner_args, self.num_devices, self)

    @property
    def takes_sum(self) -> bool:
        """Whether the inner combiner uses updates in their weighted sum alone."""
        return bool(getattr(self._inner, "takes_sum", False))

    @property
    def streams(self) -> bool:
        """Whether the inner combiner takes updates one after the other."""
        return bool(getattr(self._inner, "streams", False))

    @property
    def needs_rates(self) -> bool:
        """Whether the inner combiner is told learning rates."""
        return needs_rates(self._inner)


def ordered(args: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return arguments by name, none as None: a run is known by how its combiner is written, whoever wrote which first."""
    return (
        {name: ordered(args[name]) if isinstance(args[name], dict) else args[name] for name in sorted(args)}
        if args
        else None
    )


def exact(model: Vector) -> Any:
    """Return the model [d] in float64: a combiner inside answers in the type of its model, so its step is not rounded.

    A step that is small beside the model would lose most of its digits in float32, and a server that divides by the size of
    steps would magnify the error.
    """
    return model.astype(np.float64)


def first(inner: Any, model: Vector) -> Memory:
    """Return what the inner one begins with, as the outer one keeps it."""
    return _prefixed(inner.init(model)) if parts.remembers(inner) else {}


def needs_rates(combiner: Any) -> bool:
    """Say whether a combiner of ours is told learning rates, too: of each update [r] and of now, relative to the first."""
    return parts.is_ours(combiner) and bool(getattr(combiner, "needs_rates", False))


def asked(
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
    if not parts.remembers(inner):
        return inner(model, starts, updates, weights, age), {}
    rates = rates if needs_rates(inner) else ()
    model, own = inner(_own(memory), model, starts, updates, weights, age, device, *rates)
    return model, _prefixed(own)


def begun(
    inner: Any,
    memory: Memory,
    model: Vector,
    weights: Floats,
    age: Ints,
    device: Ints,
    go_on: Callable[[Vector, Memory], Any],
) -> Sums:
    """Let the inner one begin; go_on: what the outer one makes of its model, and of its memory then."""
    if not parts.remembers(inner):
        sums: Sums = inner.begin(model, weights, age)
        return sums.then(lambda wanted: go_on(wanted, {}))
    sums = inner.begin(_own(memory), model, weights, age, device)
    return sums.then(lambda answer: go_on(answer[0], _prefixed(answer[1])))


def _own(memory: Memory) -> Memory:
    return {name.removeprefix(PREFIX): value for name, value in memory.items() if name.startswith(PREFIX)}


def _prefixed(memory: Memory) -> Memory:
    return {PREFIX + name: value for name, value in memory.items()}
