"""The twin of native/codec_sparse.cpp: random sparsification, and the nu-level random quantiser with one norm for all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedtide.codec.base import join_bits, split_bits
from fedtide.types import Rng, Vector
from twins.refused import LEVELS, NORM, SET, Refused
from twins.subsets import index_bits, rank, unrank

_LARGEST_NORM = 0x7F7FFFFF  # the bits of the largest finite float32
_NORM_BITS = 31  # a norm is not negative: its sign bit is not sent


def quantize(vector: Vector, num_levels: int, rng: Rng) -> tuple[np.float32, npt.NDArray[np.int16]]:
    """Return the norm and a signed level in -nu..nu for every element, E[norm * level / nu] = vector.

    The norm is sent as float32; it is rounded up, so that no element exceeds it. A zero vector gives norm 0 and levels 0.
    """
    largest = np.finfo(np.float32).max
    exact = min(float(np.sqrt(np.square(vector, dtype=np.float64).sum())), float(largest))
    norm = np.float32(exact)
    if float(norm) < exact:  # in float64: NumPy would round `exact` to float32 before it compares
        norm = np.nextafter(norm, largest)
    if norm == 0:
        return norm, np.zeros(len(vector), np.int16)
    scaled = np.abs(vector, dtype=np.float64) * (num_levels / float(norm))
    lower = np.floor(scaled)
    level = np.minimum(lower + (rng.random(len(vector)) < scaled - lower), num_levels)
    return norm, np.copysign(level, vector).astype(np.int16)


def dequantize(norm: np.float32, level: npt.NDArray[np.int16], num_levels: int) -> Vector:
    """Return norm * level / nu in float32."""
    return (float(norm) / num_levels * level).astype(np.float32)


def pack_signed(values: npt.NDArray[np.int16], width: int) -> int:
    """Return the values [r] as one number of r * width bits: two's complement each, saturated to what width holds."""
    stored = min(width, 16)
    limit = 1 << (stored - 1)
    low = np.clip(values, -limit, limit - 1).astype(">i2").view(np.uint8).reshape(-1, 2)
    bits = np.unpackbits(low, axis=1)[:, 16 - stored :]
    if width > stored:
        bits = np.concatenate([np.repeat(bits[:, :1], width - stored, axis=1), bits], axis=1)
    return int.from_bytes(np.packbits(bits).tobytes(), "big") >> -bits.size % 8


def unpack_signed(number: int, count: int, width: int) -> npt.NDArray[np.int64]:
    """Return count two's complement values of width bits each; the inverse of pack_signed. Values beyond 16 bits are cut."""
    total, stored = count * width, min(width, 17)
    raw = (number << -total % 8).to_bytes((total + 7) // 8, "big")
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=total).reshape(count, width)
    sign, low = bits[:, 0].astype(np.int64), bits[:, width - stored :].astype(np.int64)
    if width > stored and (bits[:, : width - stored] != bits[:, :1]).any():
        return np.full(count, 1 << 16)  # not a value that pack_signed wrote
    values = low @ (1 << np.arange(stored - 1, -1, -1))
    return np.asarray(values - (sign << stored), np.int64)


def _widths(num_parameters: int, num_kept: int, element_bits: int) -> list[int]:
    return [index_bits(num_parameters, num_kept), _NORM_BITS, num_kept * element_bits]


def encode(update: Vector, num_kept: int, num_levels: int, element_bits: int, rng: Rng) -> bytes:
    """Return the payload of r of the elements of update [d]."""
    d, r = len(update), num_kept
    kept = np.arange(d) if r == d else np.sort(rng.permutation(d)[:r])
    norm, level = quantize(update[kept], num_levels, rng)
    numbers = [rank(kept, d) if r < d else 0, int(norm.view(np.uint32)), pack_signed(level, element_bits)]
    return join_bits(numbers, _widths(d, r, element_bits))[0]


def decode(payload: bytes, num_kept: int, num_parameters: int, num_levels: int, element_bits: int) -> Vector:
    """Return the update [d] of a payload; raise Refused on anything malformed."""
    d, r = num_parameters, num_kept
    number, norm, levels = split_bits(payload, _widths(d, r, element_bits))
    if norm > _LARGEST_NORM:
        raise Refused(NORM)
    kept = np.arange(d) if r == d else unrank(number, r, d)
    level = unpack_signed(levels, r, element_bits)
    if kept is None:
        raise Refused(SET)
    if np.abs(level).max() > num_levels:
        raise Refused(LEVELS)
    update = np.zeros(d, np.float32)
    update[kept] = dequantize(np.uint32(norm).view(np.float32), level.astype(np.int16), num_levels)
    return update
