"""signSGD (Bernstein, Wang, Azizzadenesheli and Anandkumar 2018): one bit per element.

    device k:  s_k = sign(u_k)                     in {-1, +1}^d
    server:    x <- x + rate sign(sum_k w_k s_k)   the majority vote, policy.aggregator=majority_vote

With `scaled` the mean magnitude travels along (31 bits) and the server reads (|u|_1 / d) sign(u), the compressor of
EF-signSGD (Karimireddy, Rebjock, Stich and Jaggi 2019), which other aggregators and `error_feedback` can work with; a vote
looks at the signs alone.

A budget for fewer than d signs carries a run of r consecutive elements from a place that is drawn (ceil(log2 d) bits; after
the last element comes the first), so that every element has its turn alike; the others read as zero and do not vote.
The sign of an element that is exactly zero is drawn: always the same one would be a drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.codec.base import Packet, PacketError, join, packet, split, unseal
from fedtide.parts.arguments import arg
from fedtide.types import Rng, Vector

_SCALE_BITS = 31  # a float32 that is not negative: its sign bit is not sent
_LARGEST = 0x7F7FFFFF  # the bits of the largest finite float32


@dataclass(frozen=True)
class Sign:
    """Send one bit per element, its sign; a small budget carries a run of elements.

    The payload is the mean magnitude of the run (if scaled), where it begins (if r < d), and r bits: 1 for negative.
    """

    scaled: Annotated[bool, arg("send the mean magnitude along; False: the server reads -1 and 1")] = True

    code = 5

    def _before(self, num_parameters: int, num_kept: int) -> list[int]:
        """Return the bits of the mean magnitude and of where the run begins."""
        return [
            _SCALE_BITS if self.scaled else 0,
            (num_parameters - 1).bit_length() if num_kept < num_parameters else 0,
        ]

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return r."""
        if budget_bits >= num_parameters + sum(self._before(num_parameters, num_parameters)):
            return num_parameters
        return max(int(budget_bits) - sum(self._before(num_parameters, 0)), 0)

    def planned_bits(self, num_parameters: int, budget_bits: float) -> int:
        """Return what a packet will cost, unless the update is zero."""
        r = self.num_kept(num_parameters, budget_bits)
        return r + sum(self._before(num_parameters, r)) if r else 0

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Send the signs of a run; an update of zeros without scale has nothing to vote for, and nothing is sent."""
        d = len(update)
        r = self.num_kept(d, budget_bits)
        if r == 0 or not (self.scaled or update.any()):
            return packet(self.code, d, 0, b"", 0, self.scaled)
        begin = int(rng.integers(d)) if r < d else 0
        run = update[_run(begin, r, d)]
        negative = np.where(run == 0, rng.random(r) < 0.5, run < 0)
        scale = np.float32(np.abs(run).mean(dtype=np.float64))
        signs = int.from_bytes(np.packbits(negative).tobytes(), "big") >> -r % 8
        fields = [int(scale.view(np.uint32)) if self.scaled else 0, begin, signs]
        return packet(self.code, d, r, *join(fields, [*self._before(d, r), r]), self.scaled)

    def decode(self, packet: Packet) -> Vector:
        """Return the signs in their places, times the scale; the rest is zero."""
        d = packet.num_parameters
        header, payload = unseal(packet.data, self.code, d)
        r = header.num_kept
        widths = [*self._before(d, r), r] if r else [0, 0, 0]
        if header.settings != self.scaled or header.payload_bits != sum(widths):
            raise PacketError(
                f"a packet of {header.payload_bits} bits and settings {header.settings} does not hold the signs of {r} of {d} "
                f"elements with scaled={self.scaled}"
            )
        update = np.zeros(d, np.float32)
        if r == 0:
            return update
        scale, begin, signs = split(payload, widths)
        if scale > _LARGEST or begin >= d:
            raise PacketError(f"a packet's signs begin at {begin} of {d}, or their scale is not a finite number")
        size = np.uint32(scale).view(np.float32) if self.scaled else np.float32(1)
        raw = (signs << -r % 8).to_bytes((r + 7) // 8, "big")
        negative = np.unpackbits(np.frombuffer(raw, np.uint8), count=r).astype(bool)
        update[_run(begin, r, d)] = np.where(negative, -size, size)
        return update


def _run(begin: int, num_kept: int, num_parameters: int) -> np.ndarray:
    """Return num_kept consecutive positions; after the last comes the first."""
    return (begin + np.arange(num_kept)) % num_parameters
