"""The paper's codec: random sparsification to what the budget carries (eq:bitQuota), then the nu-level random quantiser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import numpy.typing as npt

from fedtide.codec import native
from fedtide.codec.base import Packet, PacketError, join, pack_signed, packet, split, unpack_signed, unseal
from fedtide.codec.subsets import index_bits, rank, unrank
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Rng, Vector

# How many elements a bit budget carries (eq:bitQuota).


NORM_BITS = 32


def level_bits(num_levels: int) -> int:
    """Return the bits of one kept element: its level out of num_levels + 1, and its sign."""
    return math.ceil(math.log2(num_levels + 1)) + 1


def bit_count(num_parameters: int, num_kept: int | Ints, element_bits: int) -> Floats:
    """Return f(r) = log2 C(d, r) + 32 + r * element_bits, the left side of eq:bitQuota, for one r or many."""
    log2_factorial, r = _log2_factorials(num_parameters), np.asarray(num_kept, np.int64)
    index_bits = log2_factorial[-1] - log2_factorial[r] - log2_factorial[num_parameters - r]
    # C(d, 1) = C(d, d - 1) = d: the only ones that can be a power of two, so that f meets a whole budget exactly.
    index_bits = np.where((r == 1) | (r == num_parameters - 1), math.log2(num_parameters), index_bits)
    return np.asarray(index_bits + NORM_BITS + r * element_bits, np.float64)


@lru_cache(maxsize=16)
def _log2_factorials(most: int) -> Floats:
    """Return log2(n!) for n = 0..most. The standard library's lgamma: importing SciPy's takes longer than a whole plan."""
    return np.fromiter((math.lgamma(n + 1) for n in range(most + 1)), np.float64, most + 1) / math.log(2)


def whole_bit_count(num_parameters: int, element_bits: int) -> Floats:
    """Return what the authors' released code counts for r = 0..d elements [d+1].

    That code builds a table, g(r) = g(r-1) + ceil(log2((d - r + 1) / r)) + element_bits from g(0) = 32: log2 C(d, r) as a sum
    of logarithms, each rounded up.
    """
    r = np.arange(1, num_parameters + 1)
    steps = np.ceil(np.log2((num_parameters - r + 1) / r)) + element_bits
    return np.cumsum(np.concatenate([[float(NORM_BITS)], steps]))


@lru_cache(maxsize=16)
def _least_bits_from(num_parameters: int, element_bits: int, whole_bits: bool) -> Floats:
    """Return min_{r' >= r} f(r') for every r [d+1]. f has a peak near r = d; this is non-decreasing, so it can be searched."""
    counts = bit_count(num_parameters, np.arange(num_parameters + 1), element_bits)
    counts = whole_bit_count(num_parameters, element_bits) if whole_bits else counts
    return np.asarray(np.minimum.accumulate(counts[::-1])[::-1])


def max_kept(num_parameters: int, budget_bits: float, element_bits: int, whole_bits: bool = False) -> int:
    """Return the largest r with f(r) <= budget_bits, or -1 if not even the norm fits (then nothing is sent).

    whole_bits: count as the authors' released code does.
    """
    least = _least_bits_from(num_parameters, element_bits, whole_bits)
    return int(np.searchsorted(least, budget_bits, side="right")) - 1


# The nu-level random quantiser (QSGD): unbiased, one norm for the whole vector.


def quantize(vector: Vector, num_levels: int, rng: Rng) -> tuple[np.float32, npt.NDArray[np.int16]]:
    """Return the norm and a signed level in -nu..nu for every element, E[norm * level / nu] = vector.

    The norm is sent as float32; it is rounded up, so that no element exceeds it. A zero vector gives norm 0 and levels 0.
    """
    largest = np.finfo(np.float32).max
    exact = min(float(np.sqrt(np.square(vector, dtype=np.float64).sum())), float(largest))
    norm = np.float32(exact)
    if float(norm) < exact:  # in float64: NumPy would round `exact` to float32 before it compares
        norm = np.nextafter(norm, largest)
    if norm == 0:
        return norm, np.zeros(len(vector), np.int16)
    scaled = np.abs(vector, dtype=np.float64) * (num_levels / float(norm))
    lower = np.floor(scaled)
    level = np.minimum(lower + (rng.random(len(vector)) < scaled - lower), num_levels)
    return norm, np.copysign(level, vector).astype(np.int16)


def dequantize(norm: np.float32, level: npt.NDArray[np.int16], num_levels: int) -> Vector:
    """Return norm * level / nu in float32."""
    return (float(norm) / num_levels * level).astype(np.float32)


# The paper's codec: random sparsification to what the budget carries, then the nu-level random quantiser.


_LARGEST_NORM = 0x7F7FFFFF  # the bits of the largest finite float32
_NORM_BITS = 31  # a norm is not negative: its sign bit is not sent
_MOST_LEVELS = 32767  # of 16-bit levels
_NORM, _SET, _LEVELS = 1, 2, 3  # what is wrong with a payload, as native/codec.h numbers it


@dataclass(frozen=True)
class SparseQuantized:
    """Keep r random elements, not rescaled by d/r: E[u_hat] = (r/d) u, as the theorem relies on.

    `num_levels` is nu; `element_bits` defaults to the paper's ceil(log2(nu + 1)) + 1. The payload is the number of the index
    set in ceil(log2 C(d, r)) bits, the float32 norm without its sign bit, and r signed levels in element_bits of two's
    complement (fewer bits than the paper's saturate the largest levels). The sign bit that is not sent pays for the rounding
    of log2 C(d, r): the payload never exceeds f(r) of eq:bitQuota, so the largest r with f(r) <= budget always fits.
    """

    num_levels: Annotated[int, arg("nu, quantisation levels", key="codec.num_levels", ge=1, le=32_767)] = 4
    element_bits: Annotated[int | None, arg("bits per kept element", key="codec.element_bits", le=64)] = None
    whole_bits: Annotated[
        bool, arg("count log2 C(d, r) as the authors' released code does: rounded up at every element, so r is smaller")
    ] = False

    code = 1

    @property
    def _element_bits(self) -> int:
        return level_bits(self.num_levels) if self.element_bits is None else self.element_bits

    @property
    def _settings(self) -> int:
        return self._element_bits << 32 | self.num_levels

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return the largest r that eq:bitQuota allows."""
        return max(max_kept(num_parameters, budget_bits, self._element_bits, self.whole_bits), 0)

    def _widths(self, num_parameters: int, num_kept: int) -> list[int]:
        """Return the bits of index set, norm and levels; nothing at all is sent for r = 0."""
        if num_kept == 0:
            return [0, 0, 0]
        return [index_bits(num_parameters, num_kept), _NORM_BITS, num_kept * self._element_bits]

    def _fitting(self, num_parameters: int, budget_bits: float) -> int:
        """Return the r that is sent."""
        r = self.num_kept(num_parameters, budget_bits)
        while r > 0 and sum(self._widths(num_parameters, r)) > budget_bits:
            r -= 1  # only if f(r) was rounded below a whole number of bits
        return r

    def planned_bits(self, num_parameters: int, budget_bits: float) -> int:
        """Return what a packet will cost, whatever the update."""
        return sum(self._widths(num_parameters, self._fitting(num_parameters, budget_bits)))

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Sparsify and quantise."""
        return self.encode_many([update], [budget_bits], [rng])[0]

    def encode_many(
        self, updates: Sequence[Vector], budgets: Sequence[float], rngs: Sequence[Rng], threads: int = 1
    ) -> list[Packet]:
        """Encode each update [d] into its budget, with draws from its own generator."""
        if not self._in_extension:
            return [self._encoded(*each) for each in zip(updates, budgets, rngs, strict=True)]
        d = len(updates[0]) if len(updates) else 0
        kept = [self._fitting(d, budget) for budget in budgets]
        sent = [at for at, r in enumerate(kept) if r > 0]
        payloads: dict[int, bytes] = {}
        if sent:
            rows, draws = native.contiguous([updates[at] for at in sent]), native.capsules([rngs[at] for at in sent])
            made = native.extension.sparse_encode(
                rows, [kept[at] for at in sent], self.num_levels, self._element_bits, draws, threads
            )
            payloads = dict(zip(sent, made, strict=True))
        return [
            packet(self.code, d, r, payloads.get(at, b""), sum(self._widths(d, r)), self._settings)
            for at, r in enumerate(kept)
        ]

    @property
    def _in_extension(self) -> bool:
        """Whether the extension is there and has room for these levels."""
        return native.extension is not None and self.num_levels <= _MOST_LEVELS and 1 <= self._element_bits <= 64

    def _encoded(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        d = len(update)
        r = self._fitting(d, budget_bits)
        widths = self._widths(d, r)
        if r == 0:
            return packet(self.code, d, 0, b"", 0, self._settings)
        kept = np.arange(d) if r == d else np.sort(rng.permutation(d)[:r])
        norm, level = quantize(update[kept], self.num_levels, rng)
        numbers = [rank(kept, d) if r < d else 0, int(norm.view(np.uint32)), pack_signed(level, self._element_bits)]
        payload, bits = join(list(zip(numbers, widths, strict=True)))
        return packet(self.code, d, r, payload, bits, self._settings)

    def decode(self, packet: Packet) -> Vector:
        """Put the kept elements back in their places; the rest is zero."""
        return self.decode_many([packet])[0]

    def decode_many(self, packets: Sequence[Packet], threads: int = 1) -> list[Vector]:
        """Decode each packet; raise PacketError for the first that is malformed."""
        read = [self._read(packet) for packet in packets]
        updates = [np.zeros(packet.num_parameters, np.float32) for packet in packets]
        some = [at for at, (r, _) in enumerate(read) if r > 0]
        if not self._in_extension or len({packets[at].num_parameters for at in some}) > 1:
            for at in some:
                updates[at] = self._decoded(packets[at].num_parameters, *read[at])
        elif some:
            d, kept = packets[some[0]].num_parameters, [read[at][0] for at in some]
            rows, refused = native.extension.sparse_decode(
                [read[at][1] for at in some], kept, d, self.num_levels, self._element_bits, threads
            )
            for at, row, reason in zip(some, rows, refused, strict=True):
                if reason:
                    raise self._refused(d, read[at][0], reason)
                updates[at] = row
        return updates

    def _read(self, packet: Packet) -> tuple[int, bytes]:
        """Return r and the payload of a packet whose lengths are right."""
        d = packet.num_parameters
        header, payload = unseal(packet.data, self.code, d)
        r = header.num_kept
        if header.settings != self._settings:
            raise PacketError(
                f"a packet of other settings ({header.settings:#x}) than the reader's {self._settings:#x}"
            )
        widths = self._widths(d, r)
        if header.payload_bits != sum(widths):
            raise PacketError(f"{r} of {d} elements take {sum(widths)} bits; a packet has {header.payload_bits}")
        return r, payload

    def _decoded(self, num_parameters: int, num_kept: int, payload: bytes) -> Vector:
        d, r = num_parameters, num_kept
        number, norm, levels = split(payload, self._widths(d, r))
        if norm > _LARGEST_NORM:
            raise self._refused(d, r, _NORM)
        kept = np.arange(d) if r == d else unrank(number, r, d)
        level = unpack_signed(levels, r, self._element_bits)
        if kept is None:
            raise self._refused(d, r, _SET)
        if np.abs(level).max() > self.num_levels:
            raise self._refused(d, r, _LEVELS)
        update = np.zeros(d, np.float32)
        norm32 = np.uint32(norm).view(np.float32)
        update[kept] = dequantize(norm32, level.astype(np.int16), self.num_levels)
        return update

    def _refused(self, num_parameters: int, num_kept: int, reason: int) -> PacketError:
        """Return the error that says what is wrong with a payload."""
        return PacketError(
            {
                _NORM: "a packet's norm is not a finite number",
                _SET: f"a packet's index set is not one of the C({num_parameters}, {num_kept})",
                _LEVELS: f"a packet has levels beyond {self.num_levels}",
            }[reason]
        )


@dataclass(frozen=True)
class Ideal:
    """No compression: the server receives the update exactly, whatever the budget. A yardstick, not a radio."""

    code = 0

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return d."""
        return num_parameters

    def planned_bits(self, num_parameters: int, budget_bits: float) -> int:
        """Return 32 bits per element."""
        return 32 * num_parameters

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Send 32 bits per element."""
        d = len(update)
        return packet(self.code, d, d, update.astype("<f4").tobytes(), 32 * d)

    def decode(self, packet: Packet) -> Vector:
        """Return the update."""
        d = packet.num_parameters
        header, payload = unseal(packet.data, self.code, d)
        update = np.frombuffer(payload, "<f4").astype(np.float32) if header.payload_bits == 32 * d else None
        if update is None or not np.isfinite(update).all():
            raise PacketError(f"a packet does not hold {d} finite numbers of 32 bits")
        return update
