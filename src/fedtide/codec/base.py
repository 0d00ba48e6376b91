"""The codec contract: encode(update [d], budget_bits, rng) -> Packet; decode(packet) -> [d]."""

from __future__ import annotations

from operator import index
from typing import NamedTuple, Protocol

from fedtide.codec.wire import Header, read_header, seal
from fedtide.types import Rng, Vector


class Packet(NamedTuple):
    """One encoded update. `data` is what travels; a reader trusts nothing but the d it expects."""

    num_parameters: int  # d, as sender and server know it
    num_kept: int  # r_k, how many elements it carries
    bits: int  # payload bits: what it costs on the air, at most the budget
    data: bytes  # header, checksum, payload: see wire.py

    @property
    def overhead_bits(self) -> int:
        """Return the bits that the budget does not count: header, checksum, padding."""
        return 8 * len(self.data) - self.bits


def packet(codec: int, num_parameters: int, num_kept: int, payload: bytes, bits: int, settings: int = 0) -> Packet:
    """Return the sealed packet around a payload."""
    num_kept, bits = index(num_kept), index(bits)  # NumPy's whole numbers are not JSON's
    data = seal(Header(codec, num_parameters, num_kept, bits, settings), payload)
    return Packet(num_parameters, num_kept, bits, data)


def received(data: bytes, num_parameters: int) -> Packet:
    """Return the packet that arrived as bytes at a server whose model has num_parameters; raise PacketError if damaged."""
    header = read_header(data)
    return Packet(num_parameters, header.num_kept, header.payload_bits, data)


def most_bits(codec: Codec, num_parameters: int, budget_bits: float) -> float:
    """Return what a packet may cost: the budget, or 32 bits per element for a codec like `ideal` that ignores it."""
    whole = codec.num_kept(num_parameters, budget_bits) >= num_parameters
    return max(budget_bits, 32.0 * num_parameters if whole else 0.0)


class Codec(Protocol):
    """Turns updates into packets and back.

    A codec whose packets have a length that does not depend on the update may say so to plans with a method
    planned_bits(num_parameters, budget_bits) -> int.
    """

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Encode update [d] into at most budget_bits."""
        ...

    def decode(self, packet: Packet) -> Vector:
        """Return the update [d] that the server reads from packet.data; raise PacketError on anything malformed."""
        ...

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return r_k, how many elements a budget carries, without encoding (for plans)."""
        ...
