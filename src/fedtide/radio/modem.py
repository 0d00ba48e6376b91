"""Modems: the bits that a symbol carries at an SNR. Channel, CSI and modem together make an uplink.

A modem is a callable (snr [m]) -> capacity [m] in bit/symbol: what links carry that are received at these SNRs, numbers and
not in dB. It depends on its argument alone, link by link. Two methods are optional:

    achieved(snr [m], estimated_snr [m]) -> capacity [m]    what links carry whose rate was chosen for an estimate of their SNR;
                                                            without it, what they carry at their SNR
    error(snr [m]) -> probability [m]                       of losing packets that links could carry; with error_by_size = True
                                                            it is error(snr, estimated_snr, bits)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import numpy as np

from fedtide.parts.arguments import arg
from fedtide.radio.nr import NewRadio
from fedtide.types import Floats, Ints, Link, Signal, per_link

if TYPE_CHECKING:
    from fedtide.radio.channel import Channel
    from fedtide.radio.csi import Csi

_FAINT_SNR = 1e-6
_LARGEST_CAPACITY = 1000.0  # bit/symbol; its SNR is still a number
_BLOCK_BITS = 40  # no run has 2^40 ticks
_SLACK = 1 + 1e-9  # what rounding may take off a time


Modem: TypeAlias = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Shannon:
    """The paper's: C = log2(1 + SNR) in bit/symbol (eq:cpct)."""

    def __call__(self, snr: Floats) -> Floats:
        """Return C_k [m]."""
        return shannon_capacity(snr)


@dataclass(frozen=True)
class Waterfall:
    """C = log2(1 + SNR), and a packet is lost with probability 1 - exp(-m/SNR) whatever its size.

    Xi et al., "A general upper bound to evaluate packet error rate over quasi-static fading channels", IEEE TWC 2011, as
    Chen et al. use it, "A joint learning and communications framework for federated learning", IEEE TWC 2021.
    """

    threshold: Annotated[float, arg("m, the waterfall threshold (linear); the paper's is 0.023 dB", ge=0)] = 10**0.0023

    def __call__(self, snr: Floats) -> Floats:
        """Return C_k [m]."""
        return shannon_capacity(snr)

    def error(self, snr: Floats) -> Floats:
        """Return how likely a packet is lost [m]."""
        with np.errstate(divide="ignore"):
            return np.asarray(-np.expm1(-self.threshold / snr))


@dataclass(frozen=True)
class Gap:
    """C = min(cap, log2(1 + SNR/Gamma)), 0 below an SNR: a code Gamma from Shannon's limit, its densest constellation, outage.

    Forney and Ungerboeck, "Modulation and coding for linear Gaussian channels", IEEE Trans. Inf. Theory 1998.
    """

    gap_db: Annotated[float, arg("Gamma, gap to Shannon's limit", unit="dB", ge=0, le=300)] = 3.0
    cap: Annotated[float, arg("largest rate of a symbol", unit="bit/symbol", gt=0)] = 5.5547
    min_snr_db: Annotated[
        float | None, arg("SNR below which nothing is carried; default: no limit", unit="dB", ge=-300, le=300)
    ] = None

    def __call__(self, snr: Floats) -> Floats:
        """Return C_k [m]."""
        found = np.minimum(self.cap, shannon_capacity(snr / 10 ** (self.gap_db / 10)))
        return found if self.min_snr_db is None else np.where(snr < 10 ** (self.min_snr_db / 10), 0.0, found)


MODEMS: Final[dict[str, Any]] = {"shannon": Shannon, "waterfall": Waterfall, "gap": Gap, "nr": NewRadio}


def shannon_capacity(snr: Floats) -> Floats:
    """Return log2(1 + SNR) in bit/symbol [m]."""
    # log1p only where 1 + SNR loses digits of the SNR: elsewhere log2 has always been used, and runs keep their bits
    return np.asarray(np.where(snr < _FAINT_SNR, np.log1p(snr) / math.log(2), np.log2(1 + snr)))


def achieved_capacity(modem: Modem, snr: Floats, estimated_snr: Floats) -> Floats:
    """Return what links carry whose rate was chosen for an estimate of their SNR, in bit/symbol [m] or [m b]."""
    achieved = getattr(modem, "achieved", None)
    if not callable(achieved):
        return per_link(modem, snr)
    return np.asarray(achieved(np.ravel(snr), np.ravel(estimated_snr))).reshape(np.shape(snr))


def shannon_snr(capacity: Floats) -> Floats:
    """Return the SNR 2^C - 1 at which links have this capacity, a number [m]."""
    return np.asarray(np.expm1(np.minimum(capacity, _LARGEST_CAPACITY) * math.log(2)))


@dataclass(frozen=True)
class Uplink:
    """Channel, CSI and modem: what the uplinks carry, and what the server believes that they carry."""

    channel: Channel
    csi: Csi
    modem: Modem
    num_blocks: int = 1  # b, resource blocks that fade apart
    # (seed, device [m], time [m]) -> I/N that the server plans with [m]; None: cells do not hear each other
    expects: Callable[[int, Ints, Floats], Floats] | None = None
    coherence_time: float | None = None  # how long fading lasts; None: every tick draws anew

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return the links of these devices at this tick [m]; of several blocks, their mean."""
        if self.coherence_time is not None:  # draws are numbered by time, which servers at different paces share
            tick = math.floor(time / self.coherence_time * _SLACK)
        if self.num_blocks == 1:
            return self._link(seed, tick, time, device)
        # Block b fades as another tick would: its draws have another address, the places of the devices the same.
        each = [self._link(seed, tick + (block << _BLOCK_BITS), time, device) for block in range(self.num_blocks)]
        signals = [link.signal or Signal(*map(shannon_snr, link[:2])) for link in each]
        capacity, estimated = (np.mean(column, axis=0) for column in list(zip(*each, strict=True))[:2])
        return Link(capacity, estimated, Signal(*(np.stack(column, axis=1) for column in zip(*signals, strict=True))))

    def _link(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        found, modem = self.channel(seed, tick, time, device), self.modem
        known = bool(getattr(self.csi, "exact", False))  # the server knows what the channel says it knows
        expects = self.expects
        rates = isinstance(found, Link)
        if isinstance(found, Link):
            if known and expects is None:
                return found
            found, modem = shannon_snr(found.capacity), shannon_capacity  # rates have passed a modem already
        if known and expects is None:
            capacity = modem(found)
            return Link(capacity, capacity, Signal(found, found))
        signal = Signal(found, found) if known else self.csi(seed, tick, time, device, found)
        if expects is not None:
            met = 1 + expects(seed, device, np.full(len(device), time))
            signal = Signal(signal.snr, signal.estimated_snr / met)
        made = Link(achieved_capacity(modem, *signal), modem(signal.estimated_snr), signal)
        # of rates, another modem would make something else of these SNRs
        return made._replace(signal=None) if rates and not isinstance(self.modem, Shannon | Waterfall) else made
