"""Top-k sparsification (Aji and Heafield 2017; Stich, Cordonnier and Jaggi 2018): the largest elements and nothing else.

    C(u)_i = u_i  if |u_i| is among the k largest magnitudes (of equal ones the first), else 0
    |u - C(u)|^2 <= (1 - k/d) |u|^2

k is what the budget carries: the largest with ceil(log2 C(d, k)) + k value_bits (+ 8 at 16 bits) <= budget. A smaller
budget keeps fewer; one that carries not even one element sends nothing. Biased: use it inside `error_feedback`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from fedtide.codec.base import Packet, PacketError, index_bits, join, packet, rank, split, unrank, unseal
from fedtide.codec.sparse_quantized import NORM_BITS, max_kept
from fedtide.parts.arguments import arg
from fedtide.types import Ints, Rng, Vector

_OCTAVE_BITS, _OCTAVE_OFFSET = 8, 127  # of the largest magnitude, which 16-bit values are relative to
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class TopK:
    """Send the k largest elements, as many as the budget carries.

    The payload is the number of the index set, the octave of the largest value (at 16 bits), and k floats.
    16-bit values are IEEE halves of u_i / 2^octave, so their range is that of the update. A half has 11 significant bits, so
    rounding changes a value by at most 2^-11 of itself, unless it is more than 2^13 times smaller than the largest. 32-bit
    values are exact.
    """

    value_bits: Annotated[Literal[16, 32], arg("bits of a kept value: 16 or 32")] = 16

    code = 3

    def _widths(self, num_parameters: int, num_kept: int) -> list[int]:
        """Return the bits of index set, octave and values; nothing at all is sent for k = 0."""
        if num_kept == 0:
            return [0, 0, 0]
        octave = _OCTAVE_BITS if self.value_bits == 16 else 0
        return [index_bits(num_parameters, num_kept), octave, num_kept * self.value_bits]

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return k."""
        octave = _OCTAVE_BITS if self.value_bits == 16 else 0
        k = max(max_kept(num_parameters, budget_bits + NORM_BITS - octave, self.value_bits), 0)
        while k > 0 and sum(self._widths(num_parameters, k)) > budget_bits:
            k -= 1  # log2 C(d, k) is rounded up to whole bits
        return k

    def planned_bits(self, num_parameters: int, budget_bits: float) -> int:
        """Return what a packet will cost, whatever the update."""
        return sum(self._widths(num_parameters, self.num_kept(num_parameters, budget_bits)))

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Keep the k largest; nothing is drawn."""
        d = len(update)
        k = self.num_kept(d, budget_bits)
        if k == 0:
            return packet(self.code, d, 0, b"", 0, self.value_bits)
        kept = _largest(np.abs(update), k)
        octave = max(int(np.frexp(np.abs(update[kept]).max())[1]), -_OCTAVE_OFFSET)
        values: npt.NDArray[np.floating] = update[kept].astype(">f4")
        if self.value_bits == 16:
            values = np.ldexp(update[kept].astype(np.float64), -octave).astype(">f2")
        fields = [
            rank(kept, d) if k < d else 0,
            octave + _OCTAVE_OFFSET if self.value_bits == 16 else 0,
            int.from_bytes(values.tobytes(), "big"),
        ]
        return packet(self.code, d, k, *join(fields, self._widths(d, k)), self.value_bits)

    def decode(self, packet: Packet) -> Vector:
        """Put the values back in their places; the rest is zero."""
        d = packet.num_parameters
        header, payload = unseal(packet.data, self.code, d)
        k, widths = header.num_kept, self._widths(d, header.num_kept)
        if header.settings != self.value_bits or header.payload_bits != sum(widths):
            raise PacketError(
                f"a packet of {header.payload_bits} bits and settings {header.settings} does not hold {k} of {d} elements in "
                f"{self.value_bits} bits each"
            )
        update = np.zeros(d, np.float32)
        if k == 0:
            return update
        number, octave, whole = split(payload, widths)
        kept = np.arange(d) if k == d else unrank(number, k, d)
        values = np.frombuffer(whole.to_bytes(k * self.value_bits // 8, "big"), f">f{self.value_bits // 8}")
        if not np.isfinite(values).all():
            raise PacketError("a packet holds numbers that are not finite")
        if self.value_bits == 16:
            values = np.clip(np.ldexp(values.astype(np.float64), octave - _OCTAVE_OFFSET), -_LARGEST, _LARGEST)
        update[kept] = values
        return update


def _largest(size: Vector, count: int) -> Ints:
    """Return the positions of the largest [count], ascending; of equal ones the first."""
    least = np.partition(size, len(size) - count)[len(size) - count]
    chosen = size > least
    chosen[np.flatnonzero(size == least)[: count - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)
