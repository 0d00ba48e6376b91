"""The codec contract: encode(update [d], budget_bits, rng) -> Packet; decode(packet) -> [d]."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from fedtide.types import Rng, Vector


class Packet(NamedTuple):
    """One encoded update."""

    num_parameters: int  # d
    num_kept: int  # r_k, how many elements it carries
    bits: float  # what it costs on the air, at most the budget
    payload: Any  # the codec's own


class Codec(Protocol):
    """Turns updates into packets and back."""

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Encode update [d] into at most budget_bits."""
        ...

    def decode(self, packet: Packet) -> Vector:
        """Return the update [d] that the server reads from a packet."""
        ...

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return r_k, how many elements a budget carries, without encoding (for plans)."""
        ...
