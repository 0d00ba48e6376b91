"""Our codec: dead-zone quantisation of the whole update, and entropy coding that learns from the neighbours.

Step: |u_i| / step + 0.4 is cut to a whole number, so small elements become zero; the step is the finest whose code fits.
Code: the elements are laid out in rows of up to 64 neighbours, and the rows are coded side by side, column after column.
The weighted mean of the eight elements before it tells how large an element is likely to be: it picks one of twelve
frequency tables, which start from a geometric law and are renewed from what both sides have seen. So nothing is sent to
describe the update's spread, which differs tenfold and more between the layers and within them.
Reconstruction: magnitudes 1, 2 and 3+ stand for their centres of mass (least squared error), sent in 6 bits each.
The entropy coder is range ANS (native/codec_dead_zone.cpp). Tables and contexts are whole numbers, the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedtide.codec.base import CodedElements, NativeCodec, Packet, PacketError, packet, payload_floats, unseal
from fedtide.extension import native
from fedtide.types import Vector

_CODED, _FLOATS = 1, 2  # the header's settings: how to read the payload
_HEAD_BITS = 20 + 5 + 3 * 6  # of the payload of a code: step index, low bits, three centres


@lru_cache(maxsize=8)
def _least_bits(num_parameters: int) -> float:
    """Return the length of the code of zeros."""
    return native.dead_zone_least_bits(num_parameters)


@dataclass(frozen=True)
class DeadZone(NativeCodec):
    """Quantise every element with the finest step that the budget allows, and entropy-code the result.

    32 bits for each element are enough to send it exactly. If even the coarsest step does not fit (many elements of equal
    size), a random half of the elements is left out, and again until it does; nothing is sent if not even zeros fit.

    >>> update = np.linspace(-1, 1, 1000, dtype=np.float32)
    >>> packet = DeadZone().encode(update, 2000.0, np.random.default_rng(0))
    >>> packet.bits <= 2000
    True
    >>> bool(np.abs(DeadZone().decode(packet) - update).max() < 0.4)
    True
    """

    code = 2

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return d if the budget is enough for a code of zeros at least: then every element has its share in it."""
        d = num_parameters
        return d if budget_bits >= 32 * d or (budget_bits > _HEAD_BITS and budget_bits >= _least_bits(d)) else 0

    def _has_code(self, num_parameters: int, budget_bits: float) -> bool:
        return _HEAD_BITS < budget_bits < 32 * num_parameters

    def _encode_payloads(
        self, updates: list[Vector], budgets: list[float], draws: list[Any], threads: int
    ) -> Sequence[tuple[bytes, int]]:
        return native.dead_zone_encode(updates, [math.floor(budget) for budget in budgets], draws, threads)

    def _sealed(self, update: Vector, budget_bits: float, payload: tuple[bytes, int]) -> Packet:
        d = len(update)
        if budget_bits >= 32 * d:
            return packet(self.code, d, d, update.astype(">f4").tobytes(), 32 * d, _FLOATS)
        return packet(self.code, d, d if payload[1] else 0, *payload, _CODED)

    def _read(self, packet: Packet) -> Vector | CodedElements:
        d = packet.num_parameters
        header, payload = unseal(packet.data, self.code, d)
        bits = header.payload_bits
        if header.settings == _CODED and bits == 0:
            return np.zeros(d, np.float32)
        if header.settings == _CODED and _HEAD_BITS < bits < 32 * d and header.num_kept == d:
            return CodedElements(payload, d, bits)
        if header.settings != _FLOATS or not bits == 32 * d == 32 * header.num_kept:
            raise PacketError(f"a packet of {bits} bits and {header.num_kept} elements is not one of this codec's")
        return payload_floats(payload, ">f4")

    def _decode_payloads(self, data: Any, kept: Any, bits: Any, d: int, threads: int) -> tuple[Vector, list[int]]:
        return native.dead_zone_decode(data, bits, d, threads)
