"""The twin of native/codec_qsgd.cpp: random rounding to levels of the norm, and Elias's gamma code."""

from __future__ import annotations

import math

import numpy as np

from fedtide.codec.base import join_bits, split_bits
from fedtide.types import Floats, Ints, Rng, Vector
from twins.refused import CODE, GOES_ON, LEVELS, SET, Refused
from twins.subsets import index_bits, rank, unrank

_STEP_BITS = 31  # a float32 that is not negative: its sign bit is not sent
_LARGEST = float(np.finfo(np.float32).max)
_MOST = 1 << 20  # s at most: beyond, float32 is as short
_OCTAVES, _PER_OCTAVE = 40, 16  # s is searched for below the most in sixteenths of an octave
_DEVIATIONS = 4


def gamma_bits(numbers: Ints) -> Ints:
    """Return the length of each number's code [n]: 2 floor(log2 l) + 1."""
    return np.asarray(2 * np.frexp(numbers)[1] - 1, np.int64)


def gamma_encode(numbers: Ints) -> tuple[int, int]:
    """Return the codes of numbers [n] one after the other, as one number, and how many bits it has."""
    widths = gamma_bits(numbers)
    ends, total = np.cumsum(widths), int(widths.sum())
    bits = np.zeros(total, np.uint8)
    for place in range(int(numbers.max()).bit_length() if len(numbers) else 0):  # the zeros before l are there already
        is_set = numbers >> place & 1 == 1
        bits[ends[is_set] - 1 - place] = 1
    return int.from_bytes(np.packbits(bits).tobytes(), "big") >> -total % 8, total


def gamma_decode(number: int, num_bits: int, count: int, most: int) -> Ints:
    """Return the `count` numbers of a code of num_bits; raise Refused if it holds others, or one beyond `most`."""
    text = f"{number:0{num_bits}b}" if num_bits else ""
    longest, at, found = most.bit_length(), 0, []
    for _ in range(count):
        first = text.find("1", at, at + longest)
        end = 2 * first - at + 1
        if first < 0 or end > num_bits:
            raise Refused(CODE)
        found.append(int(text[first:end], 2))
        at = end
    if at != num_bits:
        raise Refused(GOES_ON)
    if found and max(found) > most:
        raise Refused(LEVELS)
    return np.array(found, np.int64)


def encode(update: Vector, budget_bits: float, num_levels: int, rng: Rng) -> tuple[bytes, int]:
    """Return the payload of update [d] and its bits."""
    d = len(update)
    size = np.abs(update, dtype=np.float64)
    norm = min(float(np.sqrt(np.square(size).sum())), _LARGEST)
    s = _levels(size / norm, budget_bits, num_levels) if norm else 1.0
    while True:
        step = np.float32(min(norm / s, _LARGEST))
        level = np.zeros(d, np.int64)
        if step > 0:
            level = np.minimum(np.floor(size / float(step) + rng.random(d)), 2 * _MOST).astype(np.int64)
        kept = np.flatnonzero(level)
        levels, level_bits = gamma_encode(level[kept])
        if _bits(d, len(kept), len(kept) + level_bits) <= budget_bits:
            break
        s /= 2
        if float(step) == _LARGEST:  # there is no larger one: the update is beyond what can be sent
            size = np.zeros(d)
    n = len(kept)
    signs = int.from_bytes(np.packbits(update[kept] < 0).tobytes(), "big") >> -n % 8
    number = rank(kept, d) if 0 < n < d else 0
    fields = [int(step.view(np.uint32)), n, number, signs, levels]
    return join_bits(fields, [*_head(d), index_bits(d, n), n, level_bits])


def decode(payload: bytes, payload_bits: int, num_nonzero: int, num_parameters: int) -> Vector:
    """Return the update [d] of a payload of so many bits and non-zero levels; raise Refused on anything malformed."""
    n, d, update = num_nonzero, num_parameters, np.zeros(num_parameters, np.float32)
    widths = [*_head(d), index_bits(d, n), n]
    step_bits, _, number, signs, levels = split_bits(payload, [*widths, payload_bits - sum(widths)])
    step = float(np.uint32(step_bits).view(np.float32))
    level = gamma_decode(levels, payload_bits - sum(widths), n, 2 * _MOST)
    kept = unrank(number, n, d) if 0 < n < d else np.arange(n)
    if kept is None:
        raise Refused(SET)
    negative = np.unpackbits(np.frombuffer((signs << -n % 8).to_bytes((n + 7) // 8, "big"), np.uint8), count=n)
    update[kept] = np.where(negative, -1, 1) * np.minimum(level * step, _LARGEST)
    return update


def _head(num_parameters: int) -> list[int]:
    """Return the bits of the step and of the number of non-zero levels."""
    return [_STEP_BITS, num_parameters.bit_length()]


def _bits(num_parameters: int, num_nonzero: int, rest: float) -> float:
    """Return the length of a payload; rest: of signs and levels."""
    return sum(_head(num_parameters)) + index_bits(num_parameters, num_nonzero) + rest


def _levels(share: Floats, budget_bits: float, most: int) -> float:
    """Return the largest s up to most whose code fits almost surely. share: |u_i| / |u|_2 [d]."""
    if _bits_at_most(share, most) <= budget_bits:
        return most
    fits, misses = -_OCTAVES * _PER_OCTAVE, 0
    while misses - fits > 1:
        middle = (fits + misses) // 2
        if _bits_at_most(share, most * 2.0 ** (middle / _PER_OCTAVE)) <= budget_bits:
            fits = middle
        else:
            misses = middle
    return float(most * 2.0 ** (fits / _PER_OCTAVE))


def _bits_at_most(share: Floats, s: float) -> float:
    """Return the mean length of the code with s levels and some standard deviations: it is hardly ever longer."""
    d, scaled = len(share), s * share
    lower = np.floor(scaled)
    up = scaled - lower  # the probability of the level above
    small = lower == 0
    doubt = up * (1 - up)
    nonzero = d - np.count_nonzero(small) + float(up[small].sum())
    spread = _DEVIATIONS * math.sqrt(float(doubt[small].sum()))
    large = lower[~small].astype(np.int64)
    longer = gamma_bits(large + 1) - gamma_bits(large)  # 2 where the level above is a power of two, else 0
    levels = float((gamma_bits(large) + longer * up[~small]).sum())
    levels += _DEVIATIONS * math.sqrt(float((longer**2 * doubt[~small]).sum()))
    least, most = max(math.floor(nonzero - spread), 0), min(math.ceil(nonzero + spread), d)
    # the small ones cost a sign and a level of one bit, the large ones a sign besides their levels
    return _bits(d, min(max(d // 2, least), most), most + levels + (most - len(large)))
