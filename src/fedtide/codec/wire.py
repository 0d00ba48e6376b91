"""The bytes of a packet: a header of 28 bytes, then the payload. Whatever arrives is treated as hostile.

    offset  size  field (little endian)
         0     2  magic "FT"
         2     1  version of the format, 1
         3     1  codec
         4     4  num_parameters, d
         8     4  num_kept, r
        12     4  payload bits
        16     8  settings of the codec (levels and element bits, or the dither's key)
        24     4  CRC-32 of all other bytes
        28        payload, most significant bit first, zero bits up to a whole byte

The payload is what the paper counts (eq:bitQuota) and what has to fit the grant; the header and the padding are overhead,
reported as Packet.overhead_bits.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.errors import FedtideError

MAGIC, VERSION = b"FT", 1
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
    fields = _FIELDS.pack(MAGIC, VERSION, *header)
    return fields + _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(fields))) + payload


def read_header(data: bytes) -> Header:
    """Return the header of a packet; raise PacketError unless it is ours, of this version and whole."""
    if len(data) < HEADER_BYTES:
        raise PacketError(f"a packet of {len(data)} bytes is shorter than its header of {HEADER_BYTES}")
    magic, version, *fields = _FIELDS.unpack_from(data)
    if magic != MAGIC:
        raise PacketError(f"a packet begins with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise PacketError(f"a packet is of version {version}; this is a reader of version {VERSION}")
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
