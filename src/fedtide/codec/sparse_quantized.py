"""The paper's codec: random sparsification to what the budget carries (eq:bitQuota), then the nu-level random quantiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final

import numpy as np

from fedtide.codec.base import (
    Codec,
    CodedElements,
    NativeCodec,
    Packet,
    index_bits,
    packet,
    payload_floats,
    unseal_whole,
)
from fedtide.extension import native
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Rng, Vector

NORM_BITS = 32


def _level_bits(num_levels: int) -> int:
    """Return the bits of one kept element: its level out of num_levels + 1, and its sign."""
    return math.ceil(math.log2(num_levels + 1)) + 1


def _bit_count(num_parameters: int, num_kept: int | Ints, element_bits: int) -> Floats:
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


def _whole_bit_count(num_parameters: int, element_bits: int) -> Floats:
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
    counts = _bit_count(num_parameters, np.arange(num_parameters + 1), element_bits)
    counts = _whole_bit_count(num_parameters, element_bits) if whole_bits else counts
    return np.asarray(np.minimum.accumulate(counts[::-1])[::-1])


def max_kept(num_parameters: int, budget_bits: float, element_bits: int, whole_bits: bool = False) -> int:
    """Return the largest r with f(r) <= budget_bits, or -1 if not even the norm fits (then nothing is sent).

    whole_bits: count as the authors' released code does.
    """
    least = _least_bits_from(num_parameters, element_bits, whole_bits)
    return int(np.searchsorted(least, budget_bits, side="right")) - 1


_NORM_BITS = 31  # a norm is not negative: its sign bit is not sent


@dataclass(frozen=True)
class SparseQuantized(NativeCodec):
    """Keep r random elements, not rescaled by d/r: E[u_hat] = (r/d) u, as the theorem relies on.

    `num_levels` is nu; `element_bits` defaults to the paper's ceil(log2(nu + 1)) + 1. The payload is the number of the index
    set in ceil(log2 C(d, r)) bits, the float32 norm without its sign bit, and r signed levels in element_bits of two's
    complement (fewer bits than the paper's saturate the largest levels). The sign bit that is not sent pays for the rounding
    of log2 C(d, r): the payload never exceeds f(r) of eq:bitQuota, so the largest r with f(r) <= budget always fits.

    >>> codec = SparseQuantized()
    >>> update = np.linspace(-1, 1, 1000, dtype=np.float32)
    >>> packet = codec.encode(update, 2000.0, np.random.default_rng(0))
    >>> packet.num_kept, packet.bits
    (279, 1996)
    >>> int(np.count_nonzero(codec.decode(packet)))  # most of the 279 are rounded to level 0
    50
    """

    num_levels: Annotated[int, arg("nu, number of quantisation levels", key="codec.num_levels", ge=1, le=32_767)] = 4
    element_bits: Annotated[int | None, arg("bits per kept element", key="codec.element_bits", ge=1, le=64)] = None
    whole_bits: Annotated[
        bool, arg("count log2 C(d, r) as the authors' released code does: rounded up at every element, so r is smaller")
    ] = False

    code = 1

    @property
    def _width(self) -> int:
        """Bits of one level."""
        return _level_bits(self.num_levels) if self.element_bits is None else self.element_bits

    @property
    def _settings(self) -> int:
        return self._width << 32 | self.num_levels

    @property
    def _most_level(self) -> int:  # type: ignore[override]
        return self.num_levels

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return the largest r that eq:bitQuota allows."""
        return max(max_kept(num_parameters, budget_bits, self._width, self.whole_bits), 0)

    def _bits(self, num_parameters: int, num_kept: int) -> int:
        """Return the bits of index set, norm and levels; nothing at all is sent for r = 0."""
        return index_bits(num_parameters, num_kept) + _NORM_BITS + num_kept * self._width if num_kept else 0

    def _fitting(self, num_parameters: int, budget_bits: float) -> tuple[int, int]:
        """Return the r that is sent, and its bits."""
        r = self.num_kept(num_parameters, budget_bits)
        while (bits := self._bits(num_parameters, r)) > budget_bits and r > 0:
            r -= 1  # only if f(r) was rounded below a whole number of bits
        return r, bits

    def planned_bits(self, num_parameters: int, budget_bits: float) -> int:
        """Return what a packet will cost, whatever the update."""
        return self._fitting(num_parameters, budget_bits)[1]

    def _has_code(self, num_parameters: int, budget_bits: float) -> bool:
        return self._fitting(num_parameters, budget_bits)[0] > 0

    def _encode_payloads(
        self, updates: list[Vector], budgets: list[float], draws: list[Any], threads: int
    ) -> Sequence[tuple[bytes, int]]:
        sizes = [self._fitting(len(update), budget) for update, budget in zip(updates, budgets, strict=True)]
        made = native.sparse_encode(updates, [r for r, _ in sizes], self.num_levels, self._width, draws, threads)
        return [(payload, bits) for payload, (_, bits) in zip(made, sizes, strict=True)]

    def _sealed(self, update: Vector, budget_bits: float, payload: tuple[bytes, int]) -> Packet:
        r, _ = self._fitting(len(update), budget_bits)
        return packet(self.code, len(update), r, *payload, self._settings)

    def _read(self, packet: Packet) -> Vector | CodedElements:
        d = packet.num_parameters
        r, payload = unseal_whole(packet, self.code, self._settings, lambda r: self._bits(d, r))
        return CodedElements(payload, r, self._bits(d, r)) if r else np.zeros(d, np.float32)

    def _decode_payloads(self, data: Any, kept: Any, bits: Any, d: int, threads: int) -> tuple[Vector, list[int]]:
        return native.sparse_decode(data, kept, d, self.num_levels, self._width, threads)


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
        _, payload = unseal_whole(packet, self.code, 0, lambda _: 32 * packet.num_parameters)
        return payload_floats(payload, "<f4")


CODECS: Final[
    dict[str, Callable[..., Codec] | str]
] = {  # by name; as module:class, those that are imported when they are used
    "sparse_quantized": SparseQuantized,
    "dead_zone": "fedtide.codec.dead_zone:DeadZone",
    "ideal": Ideal,
    "top_k": "fedtide.codec.baselines:TopK",
    "qsgd": "fedtide.codec.baselines:Qsgd",
    "sign": "fedtide.codec.baselines:Sign",
    "error_feedback": "fedtide.codec.baselines:ErrorFeedback",
    "ef21": "fedtide.methods:Ef21",
    "private": "fedtide.codec.private:Private",
}
