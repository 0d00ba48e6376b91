"""The twin of native/codec_subsets.cpp; native/codec_subsets.h tells the mathematics."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from fedtide.types import Ints

_BLOCK = 64  # positions; C(64, 32) < 2^63
_EXACT_BITS = 192  # binomials below 2^192 are exact
_DIGITS = 96  # significant bits of the larger ones
_TABLES_UP_TO = 256  # positions of a left node whose splits are kept in tables

Bound = tuple[int, int]  # (m, e) stands for m * 2^e


@lru_cache(maxsize=1)
def _pascal() -> Ints:
    """Return C(position, i) for positions 0..63 and i 0..64 [64 65]."""
    return np.array([[math.comb(position, i) for i in range(_BLOCK + 1)] for position in range(_BLOCK)], np.int64)


class _Factorials:
    """n! = mantissa * 2^exponent, mantissas of 128 bits rounded down; grows as needed, 24 bytes for each n."""

    def __init__(self) -> None:
        self.high, self.low, self.exponent = array("Q", [1 << 63]), array("Q", [0]), array("q", [-127])

    def grow(self, most: int) -> None:
        """Make all up to most! available."""
        mantissa, exponent = self[len(self.high) - 1]
        for n in range(len(self.high), most + 1):
            mantissa *= n
            shift = mantissa.bit_length() - 128
            mantissa, exponent = mantissa >> shift, exponent + shift
            self.high.append(mantissa >> 64)
            self.low.append(mantissa & (1 << 64) - 1)
            self.exponent.append(exponent)

    def __getitem__(self, n: int) -> Bound:
        return self.high[n] << 64 | self.low[n], self.exponent[n]


_factorials = _Factorials()


@lru_cache(maxsize=1 << 14)
def _rounded_up(n: int, k: int) -> Bound:
    """Return C(n, k) (1 + delta) in about 97 bits, never too low; delta from the level of n in the tree."""
    if n >= len(_factorials.high):
        _factorials.grow(n)
    (top, e), (left, e1), (right, e2) = _factorials[n], _factorials[k], _factorials[n - k]
    quotient = (top << 256) // (left * right)
    level = (-(-n // _BLOCK) - 1).bit_length()
    quotient += quotient >> (72 - 2 * level)
    shift = quotient.bit_length() - _DIGITS
    return (quotient >> shift) + 1, e - e1 - e2 - 256 + shift


@lru_cache(maxsize=1 << 14)
def bound(n: int, k: int) -> Bound:
    """Return (m, e) with C(n, k) <= m * 2^e: equal while it is below 2^192, else larger by less than one part in 2^40."""
    m, e = _rounded_up(n, k)
    return (math.comb(n, k), 0) if m.bit_length() + e <= _EXACT_BITS else (m, e)


def index_bits(num_positions: int, num_kept: int) -> int:
    """Return the bits of one index set: ceil(log2 C(d, r))."""
    m, e = bound(num_positions, num_kept)
    return (m - 1).bit_length() + e


def _scale(n1: int, n2: int, k: int, mode: int) -> Bound:
    """Return (units, e): the number of pairs at the mode is at most units * 2^e."""
    if bound(n1 + n2, k)[1] == 0:
        return math.comb(n1, mode) * math.comb(n2, k - mode), 0
    (m1, e1), (m2, e2) = _rounded_up(n1, mode), _rounded_up(n2, k - mode)
    shift = (m1 * m2).bit_length() - _DIGITS
    return (m1 * m2 >> shift) + 1, e1 + e2 + shift


def _splits(n1: int, n2: int, k: int) -> tuple[int, Iterator[tuple[int, int]]]:
    """Return e and an iterator over (j, units), from the mode outwards: split j has room for units * 2^e numbers."""
    least, most = max(0, k - n2), min(n1, k)
    mode = min(max((k + 1) * (n1 + 1) // (n1 + n2 + 2), least), most)
    units, e = _scale(n1, n2, k, mode)
    return e, _outwards(n1, n2, k, mode, units, least, most)


def _outwards(n1: int, n2: int, k: int, mode: int, units: int, least: int, most: int) -> Iterator[tuple[int, int]]:
    yield mode, units
    up = down = mode
    above = below = units
    while up < most or down > least:
        if up < most:  # the ratio of neighbouring terms, rounded up (exact where the terms are)
            above = -(-above * ((n1 - up) * (k - up)) // ((up + 1) * (n2 - k + up + 1)))
            up += 1
            yield up, above
        if down > least:
            below = -(-below * (down * (n2 - k + down)) // ((n1 - down + 1) * (k - down + 1)))
            down -= 1
            yield down, below


@lru_cache(maxsize=4096)
def _table(n1: int, n2: int, k: int) -> tuple[int, dict[int, int], list[int], list[int]]:
    """Return e, the start of every split by j, and in order of their starts: the starts and the j."""
    e, splits = _splits(n1, n2, k)
    order, starts, start = [], [], 0
    for j, units in splits:
        order.append(j)
        starts.append(start)
        start += units
    return e, dict(zip(order, starts, strict=True)), starts, order


def _start(n1: int, n2: int, k: int, j: int) -> int:
    """Return the first number of the pairs that split k into j and k - j."""
    if n1 <= _TABLES_UP_TO:
        e, by_split, _, _ = _table(n1, n2, k)
        return by_split[j] << e
    e, splits = _splits(n1, n2, k)
    start = 0
    for split, units in splits:
        if split == j:
            break
        start += units
    return start << e


def _find(n1: int, n2: int, k: int, number: int) -> tuple[int, int]:
    """Return the split j that a pair's number belongs to, and the number less the start of the split."""
    if n1 <= _TABLES_UP_TO:
        e, _, starts, order = _table(n1, n2, k)
        at = bisect_right(starts, number >> e) - 1
        return order[at], number - (starts[at] << e)
    e, splits = _splits(n1, n2, k)
    wanted, start, j = number >> e, 0, 0
    for split, units in splits:
        j = split
        if wanted < start + units:
            break
        start += units
    return j, number - (start << e)


@lru_cache(maxsize=8)
def _tree(num_positions: int) -> list[list[int]]:
    """Return the sizes of the nodes, level by level from the blocks to the root."""
    sizes = [_BLOCK] * (num_positions // _BLOCK) + [num_positions % _BLOCK] * (num_positions % _BLOCK > 0)
    levels = [sizes]
    while len(sizes) > 1:
        sizes = [sum(sizes[at : at + 2]) for at in range(0, len(sizes), 2)]
        levels.append(sizes)
    return levels


def rank(kept: Ints, num_positions: int) -> int:
    """Return the number, of at most index_bits(d, r) bits, of the ascending positions kept [r] out of num_positions = d."""
    levels = _tree(num_positions)
    block, place = np.divmod(kept, _BLOCK)
    count = np.bincount(block, minlength=len(levels[0]))
    first = np.cumsum(count) - count
    below = np.zeros(len(kept) + 1, np.int64)  # sums over all blocks may wrap around; their differences come out right
    np.cumsum(_pascal()[place, np.arange(1, len(kept) + 1) - first[block]], out=below[1:])
    number = below[first + count] - below[first]
    counts, numbers = count.tolist(), number.tolist()
    for sizes in levels[:-1]:
        for at in range(0, len(sizes) - 1, 2):
            (n1, n2), (k1, k2) = sizes[at : at + 2], counts[at : at + 2]
            m, e = bound(n2, k2)
            numbers[at] = _start(n1, n2, k1 + k2, k1) + (numbers[at] * m << e) + numbers[at + 1]
            counts[at] = k1 + k2
        counts, numbers = counts[::2], numbers[::2]
    return int(numbers[0])


def unrank(number: int, num_kept: int, num_positions: int) -> Ints | None:
    """Return the ascending positions [r] with this number, or None if no set has it. The inverse of rank."""
    levels = _tree(num_positions)
    counts, numbers = [num_kept], [number]
    for sizes in reversed(levels[:-1]):
        below_counts, below_numbers = [], []
        for at in range(0, len(sizes) - 1, 2):
            n1, n2 = sizes[at : at + 2]
            k = counts[at // 2]
            k1, number = _find(n1, n2, k, numbers[at // 2])
            m, e = bound(n2, k - k1)
            number1, number2 = divmod(number >> e, m)
            below_counts += [k1, k - k1]
            below_numbers += [number1, number2 << e | number & ((1 << e) - 1)]
        odd = len(sizes) % 2
        counts, numbers = below_counts + counts[-1:] * odd, below_numbers + numbers[-1:] * odd
    if any(number >= bound(n, k)[0] for number, n, k in zip(numbers, levels[0], counts, strict=True)):
        return None
    return _unrank_blocks(np.array(counts, np.int64), np.array(numbers, np.int64))


def _unrank_blocks(count: Ints, number: Ints) -> Ints:
    """Return the positions of blocks with these counts [b] and numbers [b], found from the last place down."""
    pascal, left, rest = _pascal(), count.copy(), number.copy()
    chosen = np.zeros((_BLOCK, len(count)), bool)
    for place in range(_BLOCK - 1, -1, -1):
        ways = pascal[place].take(left)
        taken = np.greater_equal(rest, ways, out=chosen[place])  # never where none is left: there rest = 0 and ways = 1
        rest -= ways * taken
        left -= taken
    return np.asarray(np.flatnonzero(chosen.T), np.int64)
