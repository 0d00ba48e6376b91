"""The codec contract: encode(update [d], budget_bits, rng) -> Packet; decode(packet) -> [d]."""

from __future__ import annotations

from operator import index
from typing import Any, NamedTuple, Protocol

from fedtide.codec.wire import HEADER_BYTES, Header, read_header, seal
from fedtide.core.forms import shown
from fedtide.errors import TrainingError
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


class Sent(NamedTuple):
    """What stays of a packet when it has been read."""

    num_kept: int
    bits: int
    overhead_bits: int


def packet(codec: int, num_parameters: int, num_kept: int, payload: bytes, bits: int, settings: int = 0) -> Packet:
    """Return the sealed packet around a payload."""
    num_kept, bits = index(num_kept), index(bits)  # NumPy's whole numbers are not JSON's
    data = seal(Header(codec, num_parameters, num_kept, bits, settings), payload)
    return Packet(num_parameters, num_kept, bits, data)


def received(data: bytes, num_parameters: int) -> Packet:
    """Return the packet that arrived as bytes at a server whose model has num_parameters; raise PacketError if damaged."""
    header = read_header(data)
    return Packet(num_parameters, header.num_kept, header.payload_bits, data)


def checked_packet(found: Packet, num_parameters: int, codec: str) -> Packet:
    """Return what a codec encoded d elements to in whole numbers of our own; raise if they cannot be.

    They go into the record of the run, which must be readable again.
    """
    if not isinstance(found.data, bytes):
        raise TrainingError(
            f"{codec} encoded to a packet whose data is a {type(found.data).__name__}: it must be bytes"
        )
    kept = _whole(found.num_kept, num_parameters, "num_kept", codec)
    bits = _whole(found.bits, 8 * len(found.data), "bits", codec)
    if 8 * len(found.data) - bits > 8 * HEADER_BYTES + 7:  # what packet() adds: a header, and bits up to a whole byte
        raise TrainingError(
            f"{codec} encoded to {len(found.data)} bytes and calls them {bits} bits: count every bit of the payload"
        )
    if _whole(found.num_parameters, num_parameters, "num_parameters", codec) != num_parameters:
        raise TrainingError(f"{codec} gave num_parameters={found.num_parameters}: the update has {num_parameters}")
    return Packet(num_parameters, kept, bits, bytes(found.data))  # bytes of a class of their own may carry more


def _whole(value: Any, most: int, name: str, codec: str) -> int:
    try:
        number = -1 if isinstance(value, bool) else index(value)  # NumPy's whole numbers are not JSON's
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        raise TrainingError(f"{codec} gave {name}={shown(value, 60)}: it must be a whole number from 0 to {most}")
    return number


def most_bits(codec: Codec, num_parameters: int, budget_bits: float, label: str = "the codec") -> float:
    """Return what a packet may cost: the budget, or 32 bits per element for a codec like `ideal` that ignores it."""
    whole = checked_kept(codec, num_parameters, budget_bits, label) >= num_parameters
    return max(budget_bits, 32.0 * num_parameters if whole else 0.0)


def checked_kept(codec: Codec, num_parameters: int, budget_bits: float, label: str) -> int:
    """Return how many elements a budget carries, as a codec says; raise if it does not say a whole number."""
    kept = codec.num_kept(num_parameters, budget_bits)
    return _whole(kept, max(num_parameters, 2**63), f"num_kept({num_parameters}, {budget_bits:g})", label)


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
