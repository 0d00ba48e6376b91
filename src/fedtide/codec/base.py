"""The codec contract, the bytes of a packet, and what codecs share. Whatever arrives is treated as hostile.

    encode(update [d], budget_bits, rng) -> Packet        decode(packet) -> [d]

A packet is a header of 28 bytes, then the payload.

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

The payload is what the paper counts (eq:bitQuota) and what has to fit the grant. The header and the padding are overhead,
reported as Packet.overhead_bits.
"""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, TrainingError
from fedtide.extension import native
from fedtide.types import Ints, Rng, Vector

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


class Packet(NamedTuple):
    """One encoded update. `data` is what travels; a reader trusts nothing but the d it expects."""

    num_parameters: int  # d, as sender and server know it
    num_kept: int  # r_k, how many elements it carries
    bits: int  # payload bits: what it costs on the air, at most the budget
    data: bytes  # header, checksum, payload

    @property
    def overhead_bits(self) -> int:
        """Return the bits that the budget does not count: header, checksum, padding."""
        return 8 * len(self.data) - self.bits


class Sent(NamedTuple):
    """What stays of a packet when it has been read."""

    num_kept: int
    bits: int
    overhead_bits: int


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


def packet(codec: int, num_parameters: int, num_kept: int, payload: bytes, bits: int, settings: int = 0) -> Packet:
    """Return the packet around a payload of so many bits.

    >>> sent = packet(codec=200, num_parameters=4, num_kept=2, payload=b"\\xa0", bits=3)
    >>> sent.bits, sent.overhead_bits
    (3, 229)
    >>> unseal(sent.data, codec=200, num_parameters=4)
    (Header(codec=200, num_parameters=4, num_kept=2, payload_bits=3, settings=0), b'\\xa0')
    """
    num_kept, bits = index(num_kept), index(bits)  # NumPy's whole numbers are not JSON's
    if num_parameters >= 1 << 32 or bits >= 1 << 32:
        raise FedtideError(
            f"an update of {num_parameters} parameters in {bits} bits does not fit a packet: both counts must be below 2^32"
        )
    fields = _FIELDS.pack(_MAGIC, _VERSION, codec, num_parameters, num_kept, bits, settings)
    checksum = _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(fields)))
    return Packet(num_parameters, num_kept, bits, fields + checksum + payload)


def _read_header(data: bytes) -> Header:
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
    checksum = zlib.crc32(data[HEADER_BYTES:], zlib.crc32(data[: _FIELDS.size]))
    if _CHECKSUM.unpack_from(data, _FIELDS.size)[0] != checksum:
        raise PacketError("a packet's checksum is wrong: it was damaged on the way")
    return header


def received_packet(data: bytes, num_parameters: int) -> Packet:
    """Return the packet that arrived as bytes at a server whose model has num_parameters; raise PacketError if damaged."""
    header = _read_header(data)
    return Packet(num_parameters, header.num_kept, header.payload_bits, data)


def unseal(data: bytes, codec: int, num_parameters: int) -> tuple[Header, bytes]:
    """Return header and payload of a packet for this codec and this d; raise PacketError if it is anything else."""
    header = _read_header(data)
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


def unseal_whole(packet: Packet, codec: int, settings: int, bits: Callable[[int], int]) -> tuple[int, bytes]:
    """Return r and the payload of a packet whose length r decides; raise PacketError if its settings or length are others."""
    d = packet.num_parameters
    header, payload = unseal(packet.data, codec, d)
    if header.settings != settings or header.payload_bits != bits(header.num_kept):
        raise PacketError(
            f"a packet of {header.payload_bits} bits and settings {header.settings:#x} does not hold {header.num_kept} of {d} "
            f"elements as a reader of settings {settings:#x} expects them"
        )
    return header.num_kept, payload


def join_bits(numbers: Sequence[int], widths: Sequence[int]) -> tuple[bytes, int]:
    """Write numbers of given widths one after the other, most significant bit first; return the bytes and the bit count.

    >>> join_bits([5, 1], [3, 2])
    (b'\\xa8', 5)
    """
    whole = 0
    for number, width in zip(numbers, widths, strict=True):
        whole = whole << width | number
    bits = sum(widths)
    size = (bits + 7) // 8
    return (whole << 8 * size - bits).to_bytes(size, "big"), bits


def split_bits(payload: bytes, widths: Sequence[int]) -> list[int]:
    """Read numbers of given widths; the inverse of join. The widths must not exceed the payload.

    >>> split_bits(b"\\xa8", [3, 2])
    [5, 1]
    """
    whole = int.from_bytes(payload, "big") >> 8 * len(payload) - sum(widths)
    numbers = []
    for width in reversed(widths):
        numbers.append(whole & ((1 << width) - 1))
        whole >>= width
    return numbers[::-1]


def payload_floats(payload: bytes, dtype: str) -> Vector:
    """Return a payload of numbers as float32; raise PacketError unless all are finite."""
    update = np.frombuffer(payload, dtype).astype(np.float32)
    if not np.isfinite(update).all():
        raise PacketError("a packet holds numbers that are not finite")
    return update


# Enumerative coding of index sets: every r-subset of 0..d-1 gets a number below C(d, r), so no code is shorter.
# native/codec_subsets.h says how.


@lru_cache(maxsize=1 << 12)
def index_bits(num_positions: int, num_kept: int) -> int:
    """Return the bits of one index set: ceil(log2 C(d, r)).

    >>> index_bits(52, 5)  # 2,598,960 hands of cards
    22
    """
    return native.index_bits(num_positions, num_kept)


def rank_positions(kept: Ints, num_positions: int) -> int:
    """Return the number of the ascending positions kept [r] out of num_positions = d: below C(d, r), or hardly above.

    >>> rank_positions(np.array([0, 2, 5]), 6)
    11
    """
    chosen = np.zeros(num_positions, np.uint8)
    chosen[kept] = 1
    return int.from_bytes(native.rank(chosen), "little")


def unrank_positions(number: int, num_kept: int, num_positions: int) -> Ints:
    """Return the ascending positions [r] with this number, the inverse of rank; raise PacketError if no set has it.

    >>> unrank_positions(11, 3, 6)
    array([0, 2, 5])
    """
    chosen = native.unrank(number.to_bytes((number.bit_length() + 7) // 8, "little"), num_kept, num_positions)
    if chosen is None:
        raise _refusal(_NO_SUCH_SET, num_positions, num_kept, 0)
    return np.flatnonzero(chosen)


# What is wrong with a payload, as native/codec.h numbers it.
_REFUSALS = (
    "",
    "a packet's norm is not a finite number",
    "a packet's index set is not one of the C({d}, {r})",
    "a packet has levels beyond {most}",
    "a packet's code has the wrong length",
    "a packet has a magnitude of more than 20 bits",
    "a packet's code goes on after the last element",
    "a packet's code does not hold {r} numbers of up to {bits} bits",
)
_NO_SUCH_SET = 2


def _refusal(reason: int, num_parameters: int, num_kept: int, most_level: int) -> PacketError:
    words = _REFUSALS[reason]
    return PacketError(words.format(d=num_parameters, r=num_kept, most=most_level, bits=most_level.bit_length()))


class CodedElements(NamedTuple):
    """What the extension decodes."""

    data: bytes
    num_kept: int
    bits: int


class NativeCodec(ABC):
    """A codec whose payloads the extension writes and reads, many at once and on several threads."""

    _most_level: int = 0  # the largest magnitude of a level, for codecs that send levels

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Encode update [d] into at most budget_bits."""
        return self.encode_many([update], [budget_bits], [rng])[0]

    def encode_many(
        self, updates: Sequence[Vector], budgets: Sequence[float], rngs: Sequence[Rng], threads: int = 1
    ) -> list[Packet]:
        """Encode each update [d] into its budget, with draws from its own generator."""
        coded = [at for at, update in enumerate(updates) if self._has_code(len(update), budgets[at])]
        payloads: list[tuple[bytes, int]] = [(b"", 0)] * len(updates)
        if coded:
            rows, draws = _native_inputs([updates[at] for at in coded], [rngs[at] for at in coded])
            made = self._encode_payloads(rows, [float(budgets[at]) for at in coded], draws, threads)
            for at, payload in zip(coded, made, strict=True):
                payloads[at] = payload
        return [self._sealed(*row) for row in zip(updates, budgets, payloads, strict=True)]

    @abstractmethod
    def _has_code(self, num_parameters: int, budget_bits: float) -> bool:
        """Say whether the extension makes the payload of a budget."""

    @abstractmethod
    def _encode_payloads(
        self, updates: list[Vector], budgets: list[float], draws: list[Any], threads: int
    ) -> Sequence[tuple[bytes, int]]:
        """Return the payload of each update [d] and its bits."""

    @abstractmethod
    def _sealed(self, update: Vector, budget_bits: float, payload: tuple[bytes, int]) -> Packet:
        """Return the packet around a payload; (b"", 0): the extension made none."""

    def decode(self, packet: Packet) -> Vector:
        """Return the update [d]; raise PacketError on anything malformed."""
        return self.decode_many([packet])[0]

    def decode_many(self, packets: Sequence[Packet], threads: int = 1) -> list[Vector]:
        """Decode each packet of one model; raise PacketError for the first that is malformed."""
        read = [self._read(packet) for packet in packets]
        coded = [found for found in read if isinstance(found, CodedElements)]
        if not coded:
            return read  # type: ignore[return-value]
        d = packets[0].num_parameters
        data, kept, bits = (list(column) for column in zip(*coded, strict=True))
        rows, refused = self._decode_payloads(data, kept, bits, d, threads)
        for found, reason in zip(coded, refused, strict=True):
            if reason:
                raise _refusal(reason, d, found.num_kept, self._most_level)
        decoded = iter(rows)
        return [next(decoded) if isinstance(found, CodedElements) else found for found in read]

    @abstractmethod
    def _read(self, packet: Packet) -> Vector | CodedElements:
        """Return the update of a packet, or what the extension has to decode; raise unless its lengths are right."""

    @abstractmethod
    def _decode_payloads(self, data: Any, kept: Any, bits: Any, d: int, threads: int) -> tuple[Vector, list[int]]:
        """Return the updates [r d] and what is wrong with each payload, 0 if nothing is."""


def _native_inputs(updates: Sequence[Vector], rngs: Sequence[Rng]) -> tuple[list[Vector], list[Any]]:
    """Return updates [d] and generators as the extension takes them: what is drawn there is drawn from these generators."""
    return [np.ascontiguousarray(update, np.float32) for update in updates], [rng.bit_generator.capsule for rng in rngs]


# Checks of what a user's codec answers: it goes into the record of the run, which must be readable again.


def checked_packet(found: Packet, num_parameters: int, codec: str) -> Packet:
    """Return what a codec encoded d elements to in whole numbers of our own; raise if they cannot be."""
    if not isinstance(found.data, bytes):
        raise TrainingError(f"{codec} encoded to a packet whose data is a {type(found.data).__name__}: give bytes")
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


def checked_codec_kept(codec: Codec, num_parameters: int, budget_bits: float, label: str) -> int:
    """Return how many elements a budget carries, as a codec says; raise if it does not say a whole number."""
    kept = codec.num_kept(num_parameters, budget_bits)
    return _whole(kept, max(num_parameters, 2**63), f"num_kept({num_parameters}, {budget_bits:g})", label)


def max_packet_bits(codec: Codec, num_parameters: int, budget_bits: float, label: str = "the codec") -> float:
    """Return what a packet may cost: the budget, or 32 bits per element for a codec like `ideal` that ignores it."""
    whole = checked_codec_kept(codec, num_parameters, budget_bits, label) >= num_parameters
    return max(budget_bits, 32.0 * num_parameters if whole else 0.0)
