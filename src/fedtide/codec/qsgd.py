"""Elias's gamma code (Elias 1975): a whole number l >= 1 as floor(log2 l) zeros and then l in binary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.codec import native
from fedtide.codec.base import Packet, PacketError, join, packet, split, unseal
from fedtide.codec.subsets import index_bits, rank, unrank
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Rng, Vector


def gamma_bits(numbers: Ints) -> Ints:
    """Return the length of each number's code [n]: 2 floor(log2 l) + 1."""
    return np.asarray(2 * np.frexp(numbers)[1] - 1, np.int64)


def gamma_encode(numbers: Ints) -> tuple[int, int]:
    """Return the codes of numbers [n] one after the other, as one number, and how many bits it has."""
    widths = gamma_bits(numbers)
    ends, total = np.cumsum(widths), int(widths.sum())
    bits = np.zeros(total, np.uint8)
    for place in range(int(numbers.max()).bit_length() if len(numbers) else 0):  # the zeros before l are there already
        is_set = numbers >> place & 1 == 1
        bits[ends[is_set] - 1 - place] = 1
    return int.from_bytes(np.packbits(bits).tobytes(), "big") >> -total % 8, total


def gamma_decode(number: int, num_bits: int, count: int, most: int) -> Ints:
    """Return the `count` numbers of a code of num_bits; raise PacketError if it holds others, or one beyond `most`."""
    text = f"{number:0{num_bits}b}" if num_bits else ""
    longest, at, found = most.bit_length(), 0, []
    for _ in range(count):
        first = text.find("1", at, at + longest)
        end = 2 * first - at + 1
        if first < 0 or end > num_bits:
            raise PacketError(f"a packet's code does not hold {count} numbers of up to {longest} bits")
        found.append(int(text[first:end], 2))
        at = end
    if at != num_bits:
        raise PacketError("a packet's code goes on after the last element")
    if found and max(found) > most:
        raise PacketError(f"a packet has a level beyond {most}")
    return np.array(found, np.int64)


# QSGD (Alistarh, Grubic, Li, Tomioka and Vojnovic 2017): every element rounded at random to levels of the norm, unbiased.
#
#     Q_s(u)_i = |u|_2 sgn(u_i) xi_i,   xi_i = l/s or (l+1)/s with l = floor(s |u_i| / |u|_2),
#                                       the larger with probability s |u_i| / |u|_2 - l, so that E[Q_s(u)] = u
#
# s is the largest whose code fits: the mean length of the code and four of its standard deviations. It is chosen before the
# draw, since a choice after it would prefer draws with few elements, a bias. A draw that is longer all the same (seldom:
# see docs/codec.md) is drawn anew with half the s. Below one level, s < 1, xi_i = 1/s is drawn with probability s |u_i| /
# |u|_2: still unbiased, and ever noisier. A budget that carries not one element sends nothing.
#
# Code: the paper sends the norm, and for every non-zero level its distance from the one before, its sign and the level,
# both numbers in Elias's code. Here the places are sent as the number of their set among the C(d, n), which no code of the
# distances undercuts; the levels are in Elias's gamma code. In place of norm and s, |u|_2 / s is sent, in 31 bits.


_STEP_BITS = 31  # a float32 that is not negative: its sign bit is not sent
_LARGEST = float(np.finfo(np.float32).max)
_MOST = 1 << 20  # s at most: beyond, float32 is as short
_OCTAVES, _PER_OCTAVE = 40, 16  # s is searched for below the most in sixteenths of an octave
_DEVIATIONS = 4
_SET, _LEVELS, _GOES_ON, _CODE = 2, 3, 6, 7  # what is wrong with a payload, as native/codec.h numbers it


@dataclass(frozen=True)
class Qsgd:
    """Round every element at random to s levels of the norm, unbiased, with the largest s that the budget carries.

    The payload is |u|_2 / s, the number n of non-zero levels, which they are, n sign bits, and n levels.
    """

    num_levels: Annotated[int | None, arg("s at most; not given: what the budget carries", ge=1, le=_MOST)] = None

    code = 4

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return d if the budget carries one element at least: then every element has its chance."""
        return num_parameters if budget_bits >= _bits(num_parameters, 1, 2) else 0

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Round at random to as many levels as the budget carries."""
        return self.encode_many([update], [budget_bits], [rng])[0]

    def encode_many(
        self, updates: Sequence[Vector], budgets: Sequence[float], rngs: Sequence[Rng], threads: int = 1
    ) -> list[Packet]:
        """Encode each update [d] into its budget, with draws from its own generator."""
        sent = [at for at, update in enumerate(updates) if self.num_kept(len(update), budgets[at])]
        rows, draws = [updates[at] for at in sent], [rngs[at] for at in sent]
        given = [float(budgets[at]) for at in sent]
        if native.extension is None:
            made = [self._encoded(*each) for each in zip(rows, given, draws, strict=True)]
        else:
            most = self.num_levels or _MOST
            called = (native.contiguous(rows), given, most, native.capsules(draws), threads)
            made = native.extension.qsgd_encode(*called) if sent else []
        payloads = dict(zip(sent, made, strict=True))
        return [
            packet(self.code, len(update), len(update) if at in payloads else 0, *payloads.get(at, (b"", 0)))
            for at, update in enumerate(updates)
        ]

    def _encoded(self, update: Vector, budget_bits: float, rng: Rng) -> tuple[bytes, int]:
        d = len(update)
        size = np.abs(update, dtype=np.float64)
        norm = min(float(np.sqrt(np.square(size).sum())), _LARGEST)
        s = _levels(size / norm, budget_bits, self.num_levels or _MOST) if norm else 1.0
        while True:
            step = np.float32(min(norm / s, _LARGEST))
            level = np.zeros(d, np.int64)
            if step > 0:
                level = np.minimum(np.floor(size / float(step) + rng.random(d)), 2 * _MOST).astype(np.int64)
            kept = np.flatnonzero(level)
            levels, level_bits = gamma_encode(level[kept])
            if _bits(d, len(kept), len(kept) + level_bits) <= budget_bits:
                break
            s /= 2
            if float(step) == _LARGEST:  # there is no larger one: the update is beyond what can be sent
                size = np.zeros(d)
        n = len(kept)
        signs = int.from_bytes(np.packbits(update[kept] < 0).tobytes(), "big") >> -n % 8
        number = rank(kept, d) if 0 < n < d else 0
        fields = [int(step.view(np.uint32)), n, number, signs, levels]
        return join(list(zip(fields, [*_head(d), index_bits(d, n), n, level_bits], strict=True)))

    def decode(self, packet: Packet) -> Vector:
        """Return step times level."""
        return self.decode_many([packet])[0]

    def decode_many(self, packets: Sequence[Packet], threads: int = 1) -> list[Vector]:
        """Decode each packet; raise PacketError for the first that is malformed."""
        read = [self._read(packet) for packet in packets]
        updates = [np.zeros(packet.num_parameters, np.float32) for packet in packets]
        some = [(at, *each) for at, each in enumerate(read) if each is not None]
        sizes = {packets[at].num_parameters for at, *_ in some}
        if native.extension is None or len(sizes) > 1:
            for at, payload, bits, n in some:
                updates[at] = _decoded(payload, bits, n, packets[at].num_parameters)
        elif some:
            d = sizes.pop()
            _, payloads, lengths, counts = (list(column) for column in zip(*some, strict=True))
            rows, refused = native.extension.qsgd_decode(payloads, lengths, counts, d, threads)
            for (at, _, _, n), row, reason in zip(some, rows, refused, strict=True):
                if reason:
                    raise _refused(reason, n, d)
                updates[at] = row
        return updates

    def _read(self, packet: Packet) -> tuple[bytes, int, int] | None:
        """Return payload, bits and number of non-zero levels of a packet whose lengths are right; None: nothing was sent."""
        d = packet.num_parameters
        header, payload = unseal(packet.data, self.code, d)
        head = _head(d)
        if header.num_kept == header.payload_bits == 0 == header.settings:
            return None
        if header.num_kept != d or header.settings or header.payload_bits < sum(head):
            raise PacketError(
                f"a packet of {header.payload_bits} bits and {header.num_kept} elements is not one of this codec's"
            )
        step_bits, n = split(payload, head)
        step = float(np.uint32(step_bits).view(np.float32))
        level_bits = header.payload_bits - sum(head) - index_bits(d, n) - n if n <= d else -1
        if level_bits < n or not math.isfinite(step):
            raise PacketError(
                f"a packet claims {n} of {d} elements in {header.payload_bits} bits, and a step of {step}"
            )
        return payload, header.payload_bits, n


def _decoded(payload: bytes, payload_bits: int, num_nonzero: int, num_parameters: int) -> Vector:
    n, d, update = num_nonzero, num_parameters, np.zeros(num_parameters, np.float32)
    widths = [*_head(d), index_bits(d, n), n]
    step_bits, _, number, signs, levels = split(payload, [*widths, payload_bits - sum(widths)])
    step = float(np.uint32(step_bits).view(np.float32))
    level = gamma_decode(levels, payload_bits - sum(widths), n, 2 * _MOST)
    kept = unrank(number, n, d) if 0 < n < d else np.arange(n)
    if kept is None:
        raise _refused(_SET, n, d)
    negative = np.unpackbits(np.frombuffer((signs << -n % 8).to_bytes((n + 7) // 8, "big"), np.uint8), count=n)
    update[kept] = np.where(negative, -1, 1) * np.minimum(level * step, _LARGEST)
    return update


def _refused(reason: int, num_nonzero: int, num_parameters: int) -> PacketError:
    """Return the error that says what is wrong with a payload; those of the levels are elias.py's."""
    most = 2 * _MOST
    return PacketError(
        {
            _SET: f"a packet's index set is not one of the C({num_parameters}, {num_nonzero})",
            _LEVELS: f"a packet has a level beyond {most}",
            _GOES_ON: "a packet's code goes on after the last element",
            _CODE: f"a packet's code does not hold {num_nonzero} numbers of up to {most.bit_length()} bits",
        }[reason]
    )


def _head(num_parameters: int) -> list[int]:
    """Return the bits of the step and of the number of non-zero levels."""
    return [_STEP_BITS, num_parameters.bit_length()]


def _bits(num_parameters: int, num_nonzero: int, rest: float) -> float:
    """Return the length of a payload; rest: of signs and levels."""
    return sum(_head(num_parameters)) + index_bits(num_parameters, num_nonzero) + rest


def _levels(share: Floats, budget_bits: float, most: int) -> float:
    """Return the largest s up to most whose code fits almost surely. share: |u_i| / |u|_2 [d]."""
    if _bits_at_most(share, most) <= budget_bits:
        return most
    fits, misses = -_OCTAVES * _PER_OCTAVE, 0
    while misses - fits > 1:
        middle = (fits + misses) // 2
        if _bits_at_most(share, most * 2.0 ** (middle / _PER_OCTAVE)) <= budget_bits:
            fits = middle
        else:
            misses = middle
    return float(most * 2.0 ** (fits / _PER_OCTAVE))


def _bits_at_most(share: Floats, s: float) -> float:
    """Return the mean length of the code with s levels and some standard deviations: it is hardly ever longer."""
    d, scaled = len(share), s * share
    lower = np.floor(scaled)
    up = scaled - lower  # the probability of the level above
    small = lower == 0
    doubt = up * (1 - up)
    nonzero = d - np.count_nonzero(small) + float(up[small].sum())
    spread = _DEVIATIONS * math.sqrt(float(doubt[small].sum()))
    large = lower[~small].astype(np.int64)
    longer = gamma_bits(large + 1) - gamma_bits(large)  # 2 where the level above is a power of two, else 0
    levels = float((gamma_bits(large) + longer * up[~small]).sum())
    levels += _DEVIATIONS * math.sqrt(float((longer**2 * doubt[~small]).sum()))
    least, most = max(math.floor(nonzero - spread), 0), min(math.ceil(nonzero + spread), d)
    # the small ones cost a sign and a level of one bit, the large ones a sign besides their levels
    return _bits(d, min(max(d // 2, least), most), most + levels + (most - len(large)))
