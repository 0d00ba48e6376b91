"""Addressed randomness as columns: the draws of many devices at once, each depending on its own address alone.

`rng.stream` makes a generator per address, which is too slow for one draw of each of a million devices. Here a counter-based
generator (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is evaluated at the address
(seed, purpose, device, *index, draw): asking for one device of a million costs one draw, and gives the same number as asking
for all of them. The purpose is any word of yours: other words, other numbers.

    gain = exponential(seed, "my fading", device, tick)         # [m], one per device and tick
    time = 1 + exponential(seed, "my durations", device, job)   # [m], device and job both [m]
    angle = 2 * np.pi * uniform(seed, "my fading", device[:, None], tick, np.arange(8))  # [m 8]
    state = markov(seed, "my links", device, tick, [[0.9, 0.1], [0.3, 0.7]])  # [m], goes on from tick to tick
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError
from fedtide.extension import native
from fedtide.types import Floats, Ints

Words: TypeAlias = npt.NDArray[np.uint64]
_LARGEST_NUMBER = 2**63 - 1  # of a device, an index or a draw


def uniform(seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0) -> Floats:
    """Draw a uniform random number in [0, 1) for each device. The same address always gives the same number.

    seed: the seed of the run, a whole number >= 0. purpose: any text; a different text gives different numbers. device: device
    numbers [m], whole numbers >= 0. index: further whole numbers >= 0, such as the tick, or arrays of them that broadcast. draw:
    the number of the draw, if one address needs several.

    Returns: One number per device [m].


    >>> uniform(7, "my fading", np.arange(3), 12).round(3)
    array([0.548, 0.132, 0.725])
    >>> uniform(7, "my fading", np.array([2]), 12).round(3)  # one device of many: the same number
    array([0.725])
    """
    return _units(seed, purpose, device, index, draw, both=False)[0]


def uniform_pair(seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0) -> tuple[Floats, Floats]:
    """Return two independent numbers in [0, 1) for each device [m] at the cost of one; the first is that of `uniform`."""
    return _units(seed, purpose, device, index, draw)


def normal(seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0) -> Floats:
    """Draw a standard normal random number for each device [m]. The arguments are those of `uniform`."""
    one, other = _units(seed, purpose, device, index, draw)
    return np.asarray(np.sqrt(-2 * np.log1p(-one)) * np.cos(2 * np.pi * other))  # Box and Muller


def exponential(seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0) -> Floats:
    """Draw an exponential random number with mean 1 for each device [m]. The arguments are those of `uniform`."""
    return -np.log1p(-_units(seed, purpose, device, index, draw, both=False)[0])


def complex_normal(
    seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0
) -> npt.NDArray[np.complex128]:
    """Draw a complex normal number h ~ CN(0, 1), with E|h|^2 = 1, for each device [m]. The arguments are those of `uniform`."""
    one, other = _units(seed, purpose, device, index, draw)
    radius, angle = np.sqrt(-np.log1p(-one)), 2 * np.pi * other
    return np.asarray(radius * np.cos(angle) + 1j * (radius * np.sin(angle)))


# Markov chains without a memory: the state at any time, whoever was asked before and however long ago.
#
# Times that are multiples of 2^L, in which the chain forgets where it was, have independent states. Between two known states
# that are 2^(j+1) steps apart, the middle one is x with probability P^(2^j)[left, x] P^(2^j)[x, right] / P^(2^(j+1))[left, right],
# drawn at the address of its time. So a state costs L draws, and is the same by whatever times it is asked for.


def markov(
    seed: int, purpose: str, device: Ints, time: int | Ints, transitions: npt.ArrayLike | tuple[tuple[float, ...], ...]
) -> Ints:
    """Draw the state of a stationary Markov chain for each device at a given time.

    All draws are addressed, so states do not depend on earlier calls. The cost grows with the logarithm of the mixing time of
    the chain, not with the time.

    seed, purpose, device: as in `uniform`. time: whole numbers >= 0, such as the tick. transitions: probabilities of going from
    each state to each other state in one step [s s]; rows sum to 1.

    Returns: The states 0, 1, ... [m].


    >>> markov(7, "my links", np.arange(5), 1_000_000, [[0.9, 0.1], [0.3, 0.7]])
    array([1, 0, 1, 0, 1])
    """
    matrix = np.asarray(transitions, np.float64)
    chain = _chain(matrix.tobytes(), matrix.shape)
    device, time = np.broadcast_arrays(np.asarray(device, np.int64), np.asarray(time, np.int64))
    length = 1 << len(chain.middle)
    left = time - time % length
    low, high = (_state(chain.first, uniform(seed, purpose, device, at)) for at in (left, left + length))
    for middle in reversed(chain.middle):
        length //= 2
        state = _state(middle[low, high], uniform(seed, purpose, device, left + length))
        after = time >= left + length
        left, low, high = left + length * after, np.where(after, state, low), np.where(after, high, state)
    return low


class _Chain(NamedTuple):
    first: Floats  # cumulative stationary probabilities [s]
    middle: list[Floats]  # of the state in the middle of 2^(j+1) steps between two known ones, cumulative [s s s], by j


_MOST_DOUBLINGS = 40  # steps in which a chain forgets, as a power of 2
_FORGOTTEN = 1e-12


@functools.lru_cache(maxsize=64)
def _chain(content: bytes, shape: tuple[int, ...]) -> _Chain:
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise FedtideError(f"transitions of shape {shape}: give a square table, from each state to each other one")
    power = np.frombuffer(content).reshape(shape)
    if not (np.isfinite(power).all() and (power >= 0).all() and np.allclose(power.sum(axis=1), 1, rtol=0, atol=1e-9)):
        raise FedtideError(f"transitions {power.tolist()}: give probabilities, of which every row sums to 1")
    middle: list[Floats] = []
    while np.ptp(power, axis=0).max() > _FORGOTTEN:
        if len(middle) == _MOST_DOUBLINGS:
            raise FedtideError(
                f"transitions {np.frombuffer(content).reshape(shape).tolist()}: the chain does not forget where it began; let "
                "every state be reached from every other one, and not in turn"
            )
        middle.append(_cumulative(power[:, None, :] * power.T[None, :, :]))  # [left right middle]
        power = power @ power
        power = power / power.sum(axis=1, keepdims=True)
    return _Chain(_cumulative(power[0]), middle)


def _cumulative(weights: Floats) -> Floats:
    """Return the cumulative probabilities of weights along the last axis; where all are 0, of the first entry."""
    total = np.cumsum(weights, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(total[..., -1:] > 0, total / total[..., -1:], 1.0))


def _state(cumulative: Floats, drawn: Floats) -> Ints:
    """Return the entry that each number in [0, 1) falls on [m]."""
    return np.asarray((drawn[..., None] >= cumulative[..., :-1]).sum(axis=-1))


def _units(
    seed: int, purpose: str, device: Any, index: tuple[Any, ...], draw: int, both: bool = True
) -> tuple[Floats, Floats]:
    """Return two independent numbers in [0, 1) of 53 bits for each device; both: else the second may be the first.

    The key is that of (seed, purpose), led on by every index in turn; the last word of the counter tells the two uses apart.
    """
    key = column_address(seed, purpose)
    numbers = [_numbers("index", each) for each in index]
    for place, number in enumerate(numbers):
        shape, (keys, number) = _flat(key, number)
        key = native.lead(keys, number, place).reshape(shape)
    shape, (keys, devices, draws) = _flat(key, _numbers("device", device), _numbers("draw", draw))
    one, other = native.units(keys, devices, draws, both)
    return one.reshape(shape), (one if other is None else other).reshape(shape)


def _flat(*columns: Words) -> tuple[tuple[int, ...], list[Words]]:
    """Return the shape that arrays broadcast to, and each as a vector: one number for all, or one for each of them."""
    shape = np.broadcast_shapes(*(each.shape for each in columns))
    flat = [each if each.size == 1 or each.shape == shape else np.broadcast_to(each, shape) for each in columns]
    if math.prod(shape) == 0:  # a column of one number would stand for one address, and there is none
        return shape, [np.zeros(0, np.uint64) for _ in flat]
    return shape, [np.ascontiguousarray(each).reshape(-1) for each in flat]


@functools.lru_cache(maxsize=1024)
def _key(seed: int, purpose: str) -> int:
    if seed < 0:
        raise FedtideError(f"seed={seed} is negative; name draws by a whole number >= 0")
    digest = hashlib.sha256(f"{seed}:{purpose}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little")


def column_address(seed: int, purpose: str) -> Words:
    """Return the 64 bits under which everything of this seed and purpose is drawn [1]."""
    return np.array([_key(operator.index(seed), purpose)], np.uint64)


def _numbers(name: str, given: Any) -> Words:
    """Return whole numbers as words of 64 bits, of one dimension at least."""
    values = np.atleast_1d(given)
    kind = values.dtype.kind
    if values.size and (kind not in "iu" or (values.min() < 0 if kind == "i" else values.max() > _LARGEST_NUMBER)):
        some = ", ".join(map(str, values.ravel()[:5].tolist()))
        raise FedtideError(f"{name}={some}: draws are numbered; give whole numbers from 0 to 2^63 - 1")
    return values.astype(np.int64, copy=False).view(np.uint64)
