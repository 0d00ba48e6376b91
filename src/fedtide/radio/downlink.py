"""How long a device takes to receive a model.

A downlink is a callable (seed, device [m], time [m], bits) -> time [m] >= 0: how long each of these devices takes to receive
so many bits from that time on, infinity if it never has them. It depends on its arguments alone. If its attribute `instant`
is True, nobody ever waits for a model, and it is not asked; if `shared` is True, one transmission serves all who receive a
model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import numpy as np

from fedtide import columns
from fedtide.parts.arguments import arg
from fedtide.radio.cell import EQUAL, LinkCoverage
from fedtide.types import Floats, Ints

Downlink: TypeAlias = Callable[[int, Ints, Floats, float], Floats]
_LATEST = 2.0**62  # the last coherence block that has a number


@dataclass(frozen=True)
class Instant:
    """The paper's: a model arrives at once."""

    instant: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, time: Floats, bits: float) -> Floats:
        """Return 0 [m]."""
        return np.zeros(len(device))


def downlink_is_instant(downlink: Downlink) -> bool:
    """Say whether nobody ever waits for a model."""
    return bool(getattr(downlink, "instant", False))


def downlink_is_shared(downlink: Downlink) -> bool:
    """Say whether one transmission serves all who receive a model."""
    return bool(getattr(downlink, "shared", False))


@dataclass(frozen=True)
class Broadcast:
    """One transmission at a fixed rate for all devices: bits/rate."""

    rate: Annotated[float, arg("rate of the transmission", unit="bit per unit of time", gt=0)] = 1e7
    shared: ClassVar[bool] = True

    def __call__(self, seed: int, device: Ints, time: Floats, bits: float) -> Floats:
        """Return bits/rate [m]."""
        return np.full(len(device), bits / self.rate)


@dataclass(frozen=True)
class Unicast:
    """One transmission per device: bits / (W log2(1 + g SNR_k |h_k|^2)), SNR_k the average SNR of its uplink.

    With a coherence time |h_k|^2 ~ Exp(1) is drawn anew for each stretch of it (Rayleigh block fading), and a transmission goes
    on as it began; without one |h_k|^2 = 1. Where the coverage has a delay (satellites), that comes on top.
    """

    bandwidth: Annotated[float, arg("W, bandwidth of each transmission", unit="symbols per unit of time", gt=0)] = 1e6
    gain_db: Annotated[float, arg("g: SNR gain from the server's power and noise", unit="dB", ge=-300, le=300)] = 0.0
    coherence: Annotated[float | None, arg("time for which a fading gain is constant; default: no fading", gt=0)] = None
    coverage: LinkCoverage = EQUAL

    def __call__(self, seed: int, device: Ints, time: Floats, bits: float) -> Floats:
        """Return how long each transmission takes; infinity over a dead link [m]."""
        snr = self.coverage(seed, device, time) * 10 ** (self.gain_db / 10)
        if callable(power := getattr(self.coverage, "power", None)):  # that devices control is not the server's
            snr = snr / power(seed, device, time)
        if self.coherence is not None:
            block = np.minimum(np.floor(time / self.coherence), _LATEST).astype(np.int64)
            snr = snr * columns.exponential(seed, "downlink", device, block)
        rate = self.bandwidth * np.log1p(snr) / np.log(2)
        with np.errstate(divide="ignore", over="ignore"):
            took = np.asarray(bits / rate)
        delay = getattr(self.coverage, "delay", None)
        return took if delay is None else np.asarray(took + delay(seed, device, time))


DOWNLINKS: Final[dict[str, Any]] = {"instant": Instant, "broadcast": Broadcast, "unicast": Unicast}
