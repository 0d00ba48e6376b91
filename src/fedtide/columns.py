"""Addressed randomness as columns: the draws of many devices at once, each depending on its own address alone.

`rng.stream` makes a generator per address, which is too slow for one draw of each of a million devices. Here a counter-based
generator (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is evaluated at the address
(seed, purpose, device, *index, draw): asking for one device of a million costs one draw, and gives the same number as asking
for all of them. The purpose is any word of yours: other words, other numbers.

    gain = exponential(seed, "my fading", device, tick)         # [m], one per device and tick
    time = 1 + exponential(seed, "my durations", device, job)   # [m], device and job both [m]
    angle = 2 * np.pi * uniform(seed, "my fading", device[:, None], tick, np.arange(8))  # [m 8]
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
import operator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints

PhiloxWords: TypeAlias = npt.NDArray[np.uint64]  # 32 bits each, held in 64 so that products do not overflow
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ROUNDS = 10
_MOST = 2**63 - 1


def uniform(seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0) -> Floats:
    """Return a number in [0, 1) for each device [m].

    seed: a whole number >= 0, of any size. purpose: what it is for, in any words. device, index: whole numbers >= 0, or
    arrays of them that broadcast. draw: numbers the draws of one address, if it needs several.
    """
    return _units(seed, purpose, device, index, draw, both=False)[0]


def uniform_pair(seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0) -> tuple[Floats, Floats]:
    """Return two independent numbers in [0, 1) for each device [m], the first that of uniform, for the price of one."""
    return _units(seed, purpose, device, index, draw)


def normal(seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0) -> Floats:
    """Return a standard normal number for each device [m]; the arguments are those of uniform."""
    one, other = _units(seed, purpose, device, index, draw)
    return np.asarray(np.sqrt(-2 * np.log1p(-one)) * np.cos(2 * np.pi * other))  # Box and Muller


def exponential(seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0) -> Floats:
    """Return a number with density e^-x, so of mean 1, for each device [m]; the arguments are those of uniform."""
    return -np.log1p(-_units(seed, purpose, device, index, draw, both=False)[0])


def complex_normal(
    seed: int, purpose: str, device: Ints, *index: int | Ints, draw: int = 0
) -> npt.NDArray[np.complex128]:
    """Return h ~ CN(0, 1) for each device [m], so E|h|^2 = 1; the arguments are those of uniform."""
    one, other = _units(seed, purpose, device, index, draw)
    radius, angle = np.sqrt(-np.log1p(-one)), 2 * np.pi * other
    return np.asarray(radius * np.cos(angle) + 1j * (radius * np.sin(angle)))


def _units(
    seed: int, purpose: str, device: Any, index: tuple[Any, ...], draw: int, both: bool = True
) -> tuple[Floats, Floats]:
    """Return two independent numbers in [0, 1) of 53 bits for each device; both: else the second may be the first.

    The key is that of (seed, purpose), led on by every index in turn; the last word of the counter tells the two uses apart.
    """
    key = address(seed, purpose)
    numbers = [_numbers("index", each) for each in index]
    native = extension()
    if native is None:
        return _by_numpy(key, numbers, _numbers("device", device), _numbers("draw", draw))
    for place, each in enumerate(numbers):
        shape, columns = _flat(key, each)
        key = native.lead(*columns, place).reshape(shape)
    shape, columns = _flat(key, _numbers("device", device), _numbers("draw", draw))
    one, other = native.units(*columns, both)
    return one.reshape(shape), (one if other is None else other).reshape(shape)


@functools.cache
def extension() -> Any:
    """Return the extension, imported when something is drawn; None if there is none: the same numbers, more slowly."""
    try:
        return importlib.import_module("fedtide._native")
    except ImportError:
        return None


def _by_numpy(
    key: PhiloxWords, index: list[PhiloxWords], device: PhiloxWords, draw: PhiloxWords
) -> tuple[Floats, Floats]:
    """Return the same without the extension."""
    halves = key & _LOW, key >> _HALF
    for place, each in enumerate(index):
        counter = each & _LOW, each >> _HALF, np.array([place], np.uint64), np.ones(1, np.uint64)
        halves = philox(halves, counter)[:2]
    words = philox(halves, (device & _LOW, device >> _HALF, draw & _LOW, draw >> _HALF << np.uint64(1)))
    return _unit(words[0], words[1]), _unit(words[2], words[3])


def _flat(*columns: PhiloxWords) -> tuple[tuple[int, ...], list[PhiloxWords]]:
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


def address(seed: int, purpose: str) -> PhiloxWords:
    """Return the 64 bits under which everything of this seed and purpose is drawn [1]."""
    return np.array([_key(operator.index(seed), purpose)], np.uint64)


def _numbers(name: str, given: Any) -> PhiloxWords:
    """Return whole numbers as words of 64 bits, of one dimension at least."""
    values = np.atleast_1d(given)
    kind = values.dtype.kind
    if values.size and (kind not in "iu" or (values.min() < 0 if kind == "i" else values.max() > _MOST)):
        some = ", ".join(map(str, values.ravel()[:5].tolist()))
        raise FedtideError(f"{name}={some}: draws are numbered; give whole numbers from 0 to 2^63 - 1")
    return values.astype(np.int64, copy=False).view(np.uint64)


def _unit(low: PhiloxWords, high: PhiloxWords) -> Floats:
    return np.asarray(((high << _HALF | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def philox(
    key: tuple[PhiloxWords, PhiloxWords], counter: tuple[PhiloxWords, PhiloxWords, PhiloxWords, PhiloxWords]
) -> tuple[PhiloxWords, PhiloxWords, PhiloxWords, PhiloxWords]:
    """Return the four words of 32 bits at each counter under each key; arrays that broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        a, b = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = b >> _HALF ^ c1 ^ k0, b & _LOW, a >> _HALF ^ c3 ^ k1, a & _LOW
        k0, k1 = k0 + _WEYL[0] & _LOW, k1 + _WEYL[1] & _LOW
    return c0, c1, c2, c3
