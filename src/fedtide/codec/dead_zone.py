"""Our codec: dead-zone quantisation of the whole update, and entropy coding that learns from the neighbours.

Step: |u_i| / step + 0.4 is cut to a whole number, so small elements become zero; the step is the finest whose code fits.
Code: the elements are laid out in rows of up to 64 neighbours, and the rows are coded side by side, column after column.
The weighted mean of the eight elements before it tells how large an element is likely to be: it picks one of twelve
frequency tables, which start from a geometric law and are renewed from what both sides have seen. So nothing is sent to
describe the update's spread, which differs tenfold and more between the layers and within them.
Reconstruction: magnitudes 1, 2 and 3+ stand for their centres of mass (least squared error), sent in 6 bits each.
The entropy coder is range ANS: the extension's own, or the package constriction where it is not built. Tables and contexts
are whole numbers, the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedtide.codec import dead_zone_coding as coding
from fedtide.codec import native
from fedtide.codec.base import Packet, PacketError, packet, unseal
from fedtide.codec.dead_zone_coding import OCTAVES, WIDTHS
from fedtide.errors import FedtideError
from fedtide.types import Rng, Vector

_CODED, _FLOATS = 1, 2  # the header's settings: how to read the payload
_REFUSALS = {  # as native/codec.h numbers them
    4: "a packet's code has the wrong length",
    5: f"a packet has a magnitude of more than {OCTAVES} bits",
    6: "a packet's code goes on after the last element",
}


@lru_cache(maxsize=8)
def _least_bits(num_parameters: int) -> float:
    """Return the length of the code of zeros."""
    if native.extension is None:
        return coding.least_bits(num_parameters)
    return float(native.extension.dead_zone_least_bits(num_parameters))


@dataclass(frozen=True)
class DeadZone:
    """Every element is quantised with one step, the finest that the budget allows, and entropy coded."""

    code = 2

    def __post_init__(self) -> None:
        if native.extension is None and not coding.HAS_CODER:
            raise FedtideError(
                "the codec dead_zone needs the extension, which is not part of this installation, or the package constriction: "
                "pip install 'fedtide[entropy]'"
            )

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return d if the budget is enough for a code of zeros at least: then every element has its share in it."""
        d = num_parameters
        return d if budget_bits >= 32 * d or (budget_bits > sum(WIDTHS) and budget_bits >= _least_bits(d)) else 0

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Quantise as finely as the budget allows; 32 bits for each element are enough to send it exactly.

        If even the coarsest step does not fit (many elements of equal size), a random half of the elements is left out,
        and again until it does; nothing is sent if not even zeros fit.
        """
        return self.encode_many([update], [budget_bits], [rng])[0]

    def encode_many(
        self, updates: Sequence[Vector], budgets: Sequence[float], rngs: Sequence[Rng], threads: int = 1
    ) -> list[Packet]:
        """Encode each update [d] into its budget, with draws from its own generator."""
        coded = [at for at, budget in enumerate(budgets) if sum(WIDTHS) < budget < 32 * len(updates[at])]
        whole = [
            math.floor(budgets[at]) for at in coded
        ]  # whole bits are sent: the code is over by one at least, or fits
        rows, draws = [updates[at] for at in coded], [rngs[at] for at in coded]
        if native.extension is None:
            made = [coding.encode_dead_zone(*each) for each in zip(rows, whole, draws, strict=True)]
        else:
            given = native.contiguous(rows), whole, native.capsules(draws)
            made = native.extension.dead_zone_encode(*given, threads) if coded else []
        payloads = dict(zip(coded, made, strict=True))
        return [
            self._floats(update)
            if budget >= 32 * len(update)
            else self._coded(len(update), *payloads.get(at, (b"", 0)))
            for at, (update, budget) in enumerate(zip(updates, budgets, strict=True))
        ]

    def _floats(self, update: Vector) -> Packet:
        d = len(update)
        return packet(self.code, d, d, update.astype(">f4").tobytes(), 32 * d, _FLOATS)

    def _coded(self, num_parameters: int, payload: bytes, bits: int) -> Packet:
        return packet(self.code, num_parameters, num_parameters if bits else 0, payload, bits, _CODED)

    def decode(self, packet: Packet) -> Vector:
        """Return the centre of every element's cell."""
        return self.decode_many([packet])[0]

    def decode_many(self, packets: Sequence[Packet], threads: int = 1) -> list[Vector]:
        """Decode each packet; raise PacketError for the first that is malformed."""
        read = [self._read(packet) for packet in packets]
        coded = [at for at, each in enumerate(read) if isinstance(each, tuple)]
        sizes = {packets[at].num_parameters for at in coded}
        found: list[Vector] = [each if isinstance(each, np.ndarray) else np.empty(0, np.float32) for each in read]
        payloads = [each for each in read if isinstance(each, tuple)]
        if native.extension is None or len(sizes) > 1:
            for at, each in zip(coded, payloads, strict=True):
                found[at] = coding.decode_dead_zone(*each, packets[at].num_parameters)
        elif coded:
            data, bits = zip(*payloads, strict=True)
            rows, refused = native.extension.dead_zone_decode(list(data), list(bits), sizes.pop(), threads)
            for at, row, reason in zip(coded, rows, refused, strict=True):
                if reason:
                    raise PacketError(_REFUSALS[reason])
                found[at] = row
        return found

    def _read(self, packet: Packet) -> Vector | tuple[bytes, int]:
        """Return the update, or the payload of a code and its bits."""
        d = packet.num_parameters
        header, payload = unseal(packet.data, self.code, d)
        bits = header.payload_bits
        if header.settings == _CODED and bits == 0:
            return np.zeros(d, np.float32)
        if header.settings == _CODED and sum(WIDTHS) < bits < 32 * d and header.num_kept == d:
            return payload, bits
        if header.settings != _FLOATS or not bits == 32 * d == 32 * header.num_kept:
            raise PacketError(f"a packet of {bits} bits and {header.num_kept} elements is not one of this codec's")
        update = np.frombuffer(payload, ">f4").astype(np.float32)
        if not np.isfinite(update).all():
            raise PacketError("a packet holds numbers that are not finite")
        return update
