"""The codec contract and the bytes of a packet. Whatever arrives is treated as hostile."""

from __future__ import annotations

import struct
import zlib
from operator import index
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, TrainingError
from fedtide.types import Rng, Vector

# The bytes of a packet: a header of 28 bytes, then the payload. Whatever arrives is treated as hostile.
#
#     offset  size  field (little endian)
#          0     2  magic "FT"
#          2     1  version of the format, 1
#          3     1  codec
#          4     4  num_parameters, d
#          8     4  num_kept, r
#         12     4  payload bits
#         16     8  settings of the codec (levels and element bits, or the dither's key)
#         24     4  CRC-32 of all other bytes
#         28        payload, most significant bit first, zero bits up to a whole byte
#
# The payload is what the paper counts (eq:bitQuota) and what has to fit the grant; the header and the padding are overhead,
# reported as Packet.overhead_bits.


_MAGIC, _VERSION = b"FT", 1
_FIELDS = struct.Struct("<2sBBIIIQ")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size


class PacketError(FedtideError):
    """A packet that is damaged, forged or meant for someone else."""


class Header(NamedTuple):
    """What a header says, besides the magic and the version."""

    codec: int
    num_parameters: int
    num_kept: int
    payload_bits: int
    settings: int


def seal(header: Header, payload: bytes) -> bytes:
    """Return header, checksum and payload as bytes."""
    if header.num_parameters >= 1 << 32 or header.payload_bits >= 1 << 32:
        raise FedtideError(
            f"an update of {header.num_parameters} parameters in {header.payload_bits} bits does not fit a packet: "
            "both counts must be below 2^32"
        )
    fields = _FIELDS.pack(_MAGIC, _VERSION, *header)
    return fields + _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(fields))) + payload


def read_header(data: bytes) -> Header:
    """Return the header of a packet; raise PacketError unless it is ours, of this version and whole."""
    if len(data) < HEADER_BYTES:
        raise PacketError(f"a packet of {len(data)} bytes is shorter than its header of {HEADER_BYTES}")
    magic, version, *fields = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise PacketError(f"a packet begins with {magic!r}, not {_MAGIC!r}")
    if version != _VERSION:
        raise PacketError(f"a packet is of version {version}; this is a reader of version {_VERSION}")
    header = Header(*fields)
    if len(data) != HEADER_BYTES + (header.payload_bits + 7) // 8:
        raise PacketError(f"a packet announces {header.payload_bits} payload bits and has {len(data)} bytes in all")
    if _CHECKSUM.unpack_from(data, _FIELDS.size)[0] != zlib.crc32(
        data[HEADER_BYTES:], zlib.crc32(data[: _FIELDS.size])
    ):
        raise PacketError("a packet's checksum is wrong: it was damaged on the way")
    return header


def unseal(data: bytes, codec: int, num_parameters: int) -> tuple[Header, bytes]:
    """Return header and payload of a packet for this codec and this d; raise PacketError if it is anything else."""
    header = read_header(data)
    if header.codec != codec:
        raise PacketError(f"a packet of codec {header.codec} reached a reader of codec {codec}")
    if header.num_parameters != num_parameters:
        raise PacketError(f"a packet for {header.num_parameters} parameters reached a model of {num_parameters}")
    if header.num_kept > num_parameters:
        raise PacketError(f"a packet claims {header.num_kept} elements of {num_parameters}")
    payload = data[HEADER_BYTES:]
    if header.payload_bits % 8 and payload[-1] & (0xFF >> header.payload_bits % 8):
        raise PacketError("a packet's padding is not zero")
    return header, payload


def join(fields: list[tuple[int, int]]) -> tuple[bytes, int]:
    """Write numbers of given widths one after the other, most significant bit first; return the bytes and the bit count."""
    whole = bits = 0
    for number, width in fields:
        whole = whole << width | number
        bits += width
    size = (bits + 7) // 8
    return (whole << 8 * size - bits).to_bytes(size, "big"), bits


def split(payload: bytes, widths: list[int]) -> list[int]:
    """Read numbers of given widths; the inverse of join. The widths must not exceed the payload."""
    whole = int.from_bytes(payload, "big") >> 8 * len(payload) - sum(widths)
    numbers = []
    for width in reversed(widths):
        numbers.append(whole & ((1 << width) - 1))
        whole >>= width
    return numbers[::-1]


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


# The codec contract: encode(update [d], budget_bits, rng) -> Packet; decode(packet) -> [d].


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
