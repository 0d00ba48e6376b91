"""Codecs of other papers: top-k, QSGD, signSGD, and error feedback around any codec. docs/codec.md compares them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedtide.codec.base import (
    Codec,
    CodedElements,
    NativeCodec,
    Packet,
    PacketError,
    checked_packet,
    index_bits,
    join_bits,
    packet,
    payload_floats,
    rank_positions,
    split_bits,
    unrank_positions,
    unseal,
    unseal_whole,
)
from fedtide.codec.sparse_quantized import NORM_BITS, max_kept
from fedtide.errors import FedtideError, TrainingError
from fedtide.extension import native
from fedtide.parts import checks, registry
from fedtide.parts.arguments import arg
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Ints, Memory, Rng, Vector

_OCTAVE_BITS, _OCTAVE_OFFSET = 8, 127  # of the largest magnitude, which 16-bit values are relative to
_LARGEST = np.finfo(np.float32).max
_POSITIVE_BITS = 31  # of a float32 that is not negative: its sign bit is not sent


@dataclass(frozen=True)
class TopK:
    """Send the k largest elements and nothing else, as many as the budget carries (Aji and Heafield 2017; Stich et al. 2018).

    C(u)_i = u_i if |u_i| is among the k largest magnitudes (of equal ones the first), else 0; |u - C(u)|^2 <= (1 - k/d) |u|^2.
    Biased: use it inside `error_feedback`. The payload is the number of the index set, the octave of the largest value (at 16
    bits), and k floats: exact at 32 bits; at 16 IEEE halves of u_i / 2^octave, so that rounding changes a value by at most 2^-11 of
    itself, unless it is more than 2^13 times smaller than the largest.
    """

    value_bits: Annotated[Literal[16, 32], arg("bits of a kept value: 16 or 32")] = 16

    code = 3

    def _widths(self, num_parameters: int, num_kept: int) -> list[int]:
        """Return the bits of index set, octave and values; nothing at all is sent for k = 0."""
        if num_kept == 0:
            return [0, 0, 0]
        octave = _OCTAVE_BITS if self.value_bits == 16 else 0
        return [index_bits(num_parameters, num_kept), octave, num_kept * self.value_bits]

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return k."""
        octave = _OCTAVE_BITS if self.value_bits == 16 else 0
        k = max(max_kept(num_parameters, budget_bits + NORM_BITS - octave, self.value_bits), 0)
        while k > 0 and sum(self._widths(num_parameters, k)) > budget_bits:
            k -= 1  # log2 C(d, k) is rounded up to whole bits
        return k

    def planned_bits(self, num_parameters: int, budget_bits: float) -> int:
        """Return what a packet will cost, whatever the update."""
        return sum(self._widths(num_parameters, self.num_kept(num_parameters, budget_bits)))

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Keep the k largest; nothing is drawn."""
        d = len(update)
        k = self.num_kept(d, budget_bits)
        if k == 0:
            return packet(self.code, d, 0, b"", 0, self.value_bits)
        kept = _largest(np.abs(update), k)
        octave = max(int(np.frexp(np.abs(update[kept]).max())[1]), -_OCTAVE_OFFSET)
        values: npt.NDArray[np.floating] = update[kept].astype(">f4")
        if self.value_bits == 16:
            values = np.ldexp(update[kept].astype(np.float64), -octave).astype(">f2")
        fields = [
            rank_positions(kept, d) if k < d else 0,
            octave + _OCTAVE_OFFSET if self.value_bits == 16 else 0,
            int.from_bytes(values.tobytes(), "big"),
        ]
        return packet(self.code, d, k, *join_bits(fields, self._widths(d, k)), self.value_bits)

    def decode(self, packet: Packet) -> Vector:
        """Put the values back in their places; the rest is zero."""
        d = packet.num_parameters
        k, payload = unseal_whole(packet, self.code, self.value_bits, lambda k: sum(self._widths(d, k)))
        update = np.zeros(d, np.float32)
        if k == 0:
            return update
        number, octave, whole = split_bits(payload, self._widths(d, k))
        kept = np.arange(d) if k == d else unrank_positions(number, k, d)
        values = payload_floats(whole.to_bytes(k * self.value_bits // 8, "big"), f">f{self.value_bits // 8}")
        if self.value_bits == 16:
            values = np.clip(
                np.ldexp(values.astype(np.float64), octave - _OCTAVE_OFFSET), -float(_LARGEST), float(_LARGEST)
            )
        update[kept] = values
        return update


def _largest(size: Vector, count: int) -> Ints:
    """Return the positions of the largest [count], ascending; of equal ones the first."""
    least = np.partition(size, len(size) - count)[len(size) - count]
    chosen = size > least
    chosen[np.flatnonzero(size == least)[: count - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


_MOST_LEVELS = 1 << 20  # s at most: beyond, float32 is as short


@dataclass(frozen=True)
class Qsgd(NativeCodec):
    """Round every element at random to s levels of the norm, unbiased (Alistarh et al. 2017).

    Q_s(u)_i = |u|_2 sgn(u_i) xi_i,   xi_i = l/s or (l+1)/s with l = floor(s |u_i| / |u|_2),
                                      the larger with probability s |u_i| / |u|_2 - l, so that E[Q_s(u)] = u

    s is the largest whose code fits: its mean length and four standard deviations, chosen before the draw, since a choice after
    it would prefer draws with few elements, a bias. Below one level, s < 1, xi_i = 1/s is drawn with probability
    s |u_i| / |u|_2. The payload is |u|_2 / s, the number n of non-zero levels, which they are, n sign bits, and n levels in
    Elias's gamma code: l >= 1 as floor(log2 l) zeros and then l in binary.

    >>> update = np.linspace(-1, 1, 1000, dtype=np.float32)
    >>> packet = Qsgd().encode(update, 2000.0, np.random.default_rng(0))
    >>> packet.num_kept, packet.bits <= 2000
    (1000, True)
    """

    num_levels: Annotated[
        int | None, arg("largest number of levels s; default: as many as the budget carries", ge=1, le=_MOST_LEVELS)
    ] = None

    code = 4
    _most_level = 2 * _MOST_LEVELS

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
        step_bits, n = split_bits(payload, head)
        step = float(np.uint32(step_bits).view(np.float32))
        level_bits = bits - sum(head) - index_bits(d, n) - n if n <= d else -1
        if level_bits < n or not math.isfinite(step):
            raise PacketError(f"a packet claims {n} of {d} elements in {bits} bits, and a step of {step}")
        return CodedElements(payload, n, bits)

    def _decode_payloads(self, data: Any, kept: Any, bits: Any, d: int, threads: int) -> tuple[Vector, list[int]]:
        return native.qsgd_decode(data, bits, kept, d, threads)


def _head(num_parameters: int) -> list[int]:
    """Return the bits of the step and of the number of non-zero levels."""
    return [_POSITIVE_BITS, num_parameters.bit_length()]


@dataclass(frozen=True)
class Sign:
    """Send one bit per element, its sign (signSGD, Bernstein et al. 2018); a small budget carries a run of elements.

    The server reads (|u|_1 / d) sign(u) if `scaled`, the compressor of EF-signSGD (Karimireddy et al. 2019); a vote
    (policy.aggregator=majority_vote) looks at the signs alone. A budget for fewer than d signs carries r consecutive elements from
    a place that is drawn (after the last comes the first), so that every element has its turn alike; the others read as zero. The
    sign of an element that is exactly zero is drawn: always the same one would be a drift. The payload is the mean magnitude of
    the run (if scaled), where it begins (if r < d), and r bits: 1 for negative.
    """

    scaled: Annotated[bool, arg("also send the mean magnitude; false: the server uses -1 and 1")] = True

    code = 5

    def _before(self, num_parameters: int, num_kept: int) -> list[int]:
        """Return the bits of the mean magnitude and of where the run begins."""
        place = (num_parameters - 1).bit_length() if num_kept < num_parameters else 0
        return [_POSITIVE_BITS if self.scaled else 0, place]

    def _widths(self, num_parameters: int, num_kept: int) -> list[int]:
        """Return the bits of magnitude, place and signs; nothing at all is sent for r = 0."""
        return [*self._before(num_parameters, num_kept), num_kept] if num_kept else [0, 0, 0]

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return r."""
        if budget_bits >= num_parameters + sum(self._before(num_parameters, num_parameters)):
            return num_parameters
        return max(int(budget_bits) - sum(self._before(num_parameters, 0)), 0)

    def planned_bits(self, num_parameters: int, budget_bits: float) -> int:
        """Return what a packet will cost, unless the update is zero."""
        return sum(self._widths(num_parameters, self.num_kept(num_parameters, budget_bits)))

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
        return packet(self.code, d, r, *join_bits(fields, self._widths(d, r)), self.scaled)

    def decode(self, packet: Packet) -> Vector:
        """Return the signs in their places, times the scale; the rest is zero."""
        d = packet.num_parameters
        r, payload = unseal_whole(packet, self.code, self.scaled, lambda r: sum(self._widths(d, r)))
        update = np.zeros(d, np.float32)
        if r == 0:
            return update
        scale, begin, signs = split_bits(payload, self._widths(d, r))
        if scale > int(_LARGEST.view(np.uint32)) or begin >= d:
            raise PacketError(f"a packet's signs begin at {begin} of {d}, or their scale is not a finite number")
        size = np.uint32(scale).view(np.float32) if self.scaled else np.float32(1)
        raw = (signs << -r % 8).to_bytes((r + 7) // 8, "big")
        negative = np.unpackbits(np.frombuffer(raw, np.uint8), count=r).astype(bool)
        update[_run(begin, r, d)] = np.where(negative, -size, size)
        return update


def _run(begin: int, num_kept: int, num_parameters: int) -> np.ndarray:
    """Return num_kept consecutive positions; after the last comes the first."""
    return (begin + np.arange(num_kept)) % num_parameters


def is_secret(codec: object) -> bool:
    """Say whether nodes draw this codec's noise from a secret of their own, which the server does not know."""
    return bool(getattr(codec, "is_secret", False))


@dataclass(frozen=True)
class CodecAround:
    """A codec around one without memory, C, whose packets it sends; a subclass has `encode`, and `init` if it remembers."""

    wrapper: ClassVar[str]  # its own name

    inner: Annotated[str, arg("the inner codec C", part="codec")] = "top_k"
    inner_args: Annotated[dict[str, Any] | None, arg("arguments of the inner codec, unless given with its name")] = None
    num_levels: Annotated[
        int, arg("number of quantisation levels nu, if C has them", key="codec.num_levels", ge=1, le=32_767)
    ] = 4
    element_bits: Annotated[int | None, arg("bits per kept element, if C has it", key="codec.element_bits", le=64)] = (
        None
    )

    def __post_init__(self) -> None:
        self.codec  # noqa: B018  # raises at once if it cannot be made

    @functools.cached_property
    def codec(self) -> Codec:
        """C; it gets the experiment's keys that it asks for."""
        found = registry.find_part("codec", self.inner, builtin_parts("codec"))
        if checks.part_remembers(found) or is_secret(found):
            why = "has a memory of its own" if checks.part_remembers(found) else "adds noise that must reach the server"
            raise FedtideError(f"codec={self.wrapper!r}: inner={self.inner!r} {why}; name a codec without")
        keys = {"codec.num_levels": self.num_levels, "codec.element_bits": self.element_bits}
        args, fill = registry.inner_arguments(self.inner, self.inner_args)
        made: Codec = registry.part("codec", self.inner, args, lambda key: keys[key] if key in keys else fill(key))
        return made

    @property
    def inner_part(self) -> Codec:
        """C, for those who look whether it is a user's own."""
        return self.codec

    def encoded(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Return C(update); raise if a user's own C returns something else."""
        found: Any = self.codec.encode(update, budget_bits, rng)
        if isinstance(found, Packet):
            return checked_packet(found, len(update), checks.part_label("codec", self.codec))
        label = checks.part_label("codec", self.codec)
        raise TrainingError(f"{label} encoded to a {type(found).__name__}: return fedtide.codec.base.packet(...)")

    @property
    def planned_bits(self) -> Any:
        """The method of C, if it has it."""
        inner: Any = self.codec
        return inner.planned_bits

    def decode(self, packet: Packet) -> Vector:
        """Return what C reads."""
        found = self.codec.decode(packet)
        if checks.is_ours(self.codec):
            return found
        return checks.checked_vector(found, packet.num_parameters, checks.part_label("codec", self.codec))

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return what C keeps."""
        return self.codec.num_kept(num_parameters, budget_bits)


@dataclass(frozen=True)
class ErrorFeedback(CodecAround):
    """Add what earlier packets left out, e, to the next update (Seide et al. 2014; Karimireddy et al. 2019).

    p = u + e; C(p) is sent; e' = p - C(p). So sum_t C(p_t) + e_T = sum_t u_t: what arrived and what is left add up to what was
    trained. It needs a C that takes something away, |p - C(p)| < |p|, else e grows without bound. A packet that is lost changes
    nothing of e: its update is lost, too. Memory: e [d] of each device.
    """

    wrapper: ClassVar[str] = "error_feedback"

    def init(self, num_parameters: int) -> Memory:
        """Return e = 0."""
        return {"error": np.zeros(num_parameters, np.float32)}

    def encode(self, memory: Memory, update: Vector, budget_bits: float, rng: Rng) -> tuple[Packet, Memory]:
        """Send C(u + e)."""
        wanted = update + memory["error"]
        packet = self.encoded(wanted, budget_bits, rng)
        return packet, {"error": wanted - self.decode(packet)}
