"""QSGD (Alistarh, Grubic, Li, Tomioka and Vojnovic 2017): every element rounded at random to levels of the norm, unbiased.

    Q_s(u)_i = |u|_2 sgn(u_i) xi_i,   xi_i = l/s or (l+1)/s with l = floor(s |u_i| / |u|_2),
                                      the larger with probability s |u_i| / |u|_2 - l, so that E[Q_s(u)] = u

s is the largest whose code fits: the mean length of the code and four of its standard deviations. It is chosen before the
draw, since a choice after it would prefer draws with few elements, a bias. A draw that is longer all the same (seldom:
see docs/codec.md) is drawn anew with half the s. Below one level, s < 1, xi_i = 1/s is drawn with probability s |u_i| /
|u|_2: still unbiased, and ever noisier. A budget that carries not one element sends nothing.

Code: the paper sends the norm, and for every non-zero level its distance from the one before, its sign and the level,
both numbers in Elias's code. Here the places are sent as the number of their set among the C(d, n), which no code of the
distances undercuts. The levels are in Elias's gamma code (Elias 1975): l >= 1 as floor(log2 l) zeros and then l in binary.
In place of norm and s, |u|_2 / s is sent, in 31 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedtide.codec.base import (
    CodedElements,
    NativeCodec,
    Packet,
    PacketError,
    index_bits,
    packet,
    split,
    unseal,
)
from fedtide.extension import native
from fedtide.parts.arguments import arg
from fedtide.types import Vector

_STEP_BITS = 31  # a float32 that is not negative: its sign bit is not sent
_MOST_LEVELS = 1 << 20  # s at most: beyond, float32 is as short


@dataclass(frozen=True)
class Qsgd(NativeCodec):
    """Round every element at random to s levels of the norm, unbiased, with the largest s that the budget carries.

    The payload is |u|_2 / s, the number n of non-zero levels, which they are, n sign bits, and n levels.

    >>> update = np.linspace(-1, 1, 1000, dtype=np.float32)
    >>> packet = Qsgd().encode(update, 2000.0, np.random.default_rng(0))
    >>> packet.num_kept, packet.bits <= 2000
    (1000, True)
    """

    num_levels: Annotated[int | None, arg("s at most; not given: what the budget carries", ge=1, le=_MOST_LEVELS)] = (
        None
    )

    code = 4

    @property
    def _most_level(self) -> int:
        return 2 * _MOST_LEVELS

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return d if the budget carries one element at least, a sign and a level of a bit: then each has its chance."""
        one = sum(_head(num_parameters)) + index_bits(num_parameters, 1) + 2
        return num_parameters if budget_bits >= one else 0

    def _has_code(self, num_parameters: int, budget_bits: float) -> bool:
        return self.num_kept(num_parameters, budget_bits) > 0

    def _encode_payloads(
        self, updates: list[Vector], budgets: list[float], draws: list[Any], threads: int
    ) -> Sequence[tuple[bytes, int]]:
        return native.qsgd_encode(updates, budgets, self.num_levels or _MOST_LEVELS, draws, threads)

    def _sealed(self, update: Vector, budget_bits: float, payload: tuple[bytes, int]) -> Packet:
        return packet(self.code, len(update), self.num_kept(len(update), budget_bits), *payload)

    def _read(self, packet: Packet) -> Vector | CodedElements:
        d = packet.num_parameters
        header, payload = unseal(packet.data, self.code, d)
        head, bits = _head(d), header.payload_bits
        if header.num_kept == bits == 0 == header.settings:
            return np.zeros(d, np.float32)
        if header.num_kept != d or header.settings or bits < sum(head):
            raise PacketError(f"a packet of {bits} bits and {header.num_kept} elements is not one of this codec's")
        step_bits, n = split(payload, head)
        step = float(np.uint32(step_bits).view(np.float32))
        level_bits = bits - sum(head) - index_bits(d, n) - n if n <= d else -1
        if level_bits < n or not math.isfinite(step):
            raise PacketError(f"a packet claims {n} of {d} elements in {bits} bits, and a step of {step}")
        return CodedElements(payload, n, bits)

    def _decode_payloads(
        self, payloads: Sequence[CodedElements], num_parameters: int, threads: int
    ) -> tuple[Vector, list[int]]:
        data, nonzero, bits = (list(column) for column in zip(*payloads, strict=True))
        return native.qsgd_decode(data, bits, nonzero, num_parameters, threads)


def _head(num_parameters: int) -> list[int]:
    """Return the bits of the step and of the number of non-zero levels."""
    return [_STEP_BITS, num_parameters.bit_length()]
