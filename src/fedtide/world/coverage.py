"""How strong a device is received on average, before it fades: from distance, shadowing, power and noise.

A coverage is a callable (seed, device [m], time [m]) -> the average SNR of each device's link at that time [m], a number and
not in dB. It depends on its arguments alone, whoever else is asked. Channels that fade multiply it by a gain of mean 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints


class Coverage(Protocol):
    """How strong a device is received on average."""

    def __call__(self, seed: int, device: Ints, time: Floats, /) -> Floats:
        """Return the average SNR of each device's link at this time, a number [m]."""
        ...


@dataclass(frozen=True)
class Equal:
    """The paper's: SNR beta_k, where beta_k is 1 unless it is given."""

    snr_db: Annotated[float, arg("average received SNR", unit="dB", key="radio.snr_db")] = 13.0
    large_scale: Annotated[float | list[float], arg("beta_k: one, or one per device", key="radio.large_scale")] = 1.0

    def __call__(self, seed: int, device: Ints, time: Floats) -> Floats:
        """Return SNR beta_k [m]."""
        snr = np.asarray(10 ** (self.snr_db / 10) * np.asarray(self.large_scale, np.float64))
        return snr[device] if snr.ndim else np.full(len(device), snr)


COVERAGES = {
    "equal": Equal,
    "log_distance": "fedtide.world.cell:LogDistance",
    "uma": "fedtide.world.cell:Uma",
    "umi": "fedtide.world.cell:Umi",
}
