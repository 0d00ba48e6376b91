"""The paper's codec: random sparsification to what the budget carries, then the nu-level random quantiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.codec.base import Packet
from fedtide.codec.budget import bit_count, level_bits, max_kept
from fedtide.codec.quantize import dequantize, quantize
from fedtide.types import Ints, Rng, Vector


class Payload(NamedTuple):
    """What is sent: which elements [r], their common norm, their signed levels [r]."""

    kept: Ints
    norm: np.float32
    level: npt.NDArray[np.int16]


@dataclass(frozen=True)
class SparseQuantized:
    """Keep r random elements, not rescaled by d/r: E[u_hat] = (r/d) u, as the theorem relies on.

    `num_levels` is nu; `element_bits` defaults to the paper's ceil(log2(nu + 1)) + 1.
    """

    num_levels: int = 4
    element_bits: int | None = None

    @property
    def _element_bits(self) -> int:
        return level_bits(self.num_levels) if self.element_bits is None else self.element_bits

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return the largest r that eq:bitQuota allows."""
        return max(max_kept(num_parameters, budget_bits, self._element_bits), 0)

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Sparsify and quantise."""
        d = len(update)
        r = max_kept(d, budget_bits, self._element_bits)
        if r < 0:
            return Packet(d, 0, 0.0, None)
        kept = np.arange(d) if r == d else np.sort(rng.permutation(d)[:r])
        norm, level = quantize(update[kept], self.num_levels, rng)
        return Packet(d, r, float(bit_count(d, r, self._element_bits)), Payload(kept, norm, level))

    def decode(self, packet: Packet) -> Vector:
        """Put the kept elements back in their places; the rest is zero."""
        update = np.zeros(packet.num_parameters, np.float32)
        if packet.payload is not None:
            payload: Payload = packet.payload
            update[payload.kept] = dequantize(payload.norm, payload.level, self.num_levels)
        return update


@dataclass(frozen=True)
class Ideal:
    """No compression: the server receives the update exactly, whatever the budget. A yardstick, not a radio."""

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return d."""
        return num_parameters

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Send 32 bits per element."""
        return Packet(len(update), len(update), 32.0 * len(update), update.copy())

    def decode(self, packet: Packet) -> Vector:
        """Return the update."""
        update: Vector = packet.payload
        return update


CODECS = {"sparse_quantized": SparseQuantized, "ideal": Ideal}
