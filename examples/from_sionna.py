"""Uplinks exported from Sionna, SNRs or impulse responses by device and time in an .npz file (docs/howto/sionna.md).

fedtide run radio.channel=examples/from_sionna.py:Exported radio.channel.path=uma.npz
"""

from pathlib import Path
from typing import Annotated

import numpy as np

from fedtide import FedtideError, arg


class Exported:
    """SNR_k(t) = P/N x the sum of |a|^2 over the paths of an impulse response; it holds until the next one."""

    def __init__(
        self,
        path: Annotated[Path, arg("arrays time [time] in s, snr [device, time], or cir [.., .., path] and link_db")],
        num_devices: Annotated[int, arg("N", key="fleet.num_devices")] = 1,
        unit_seconds: Annotated[float, arg("how long a unit of time is", unit="s", gt=0)] = 1.0,
    ):
        try:
            with np.load(path, allow_pickle=False) as held:
                power = (np.abs(held["cir"]) ** 2).sum(-1) if "snr" not in held else held["snr"]
                self.snr = power * 10 ** (held["link_db"] / 10) if "snr" not in held else power
                self.time, self.unit_seconds = held["time"], unit_seconds
        except (OSError, KeyError, ValueError) as error:
            raise FedtideError(f"{path} cannot be used ({error}); export time and snr, or cir and link_db") from error
        wanted = (len(self.snr), len(self.time))
        if self.snr.shape != wanted or num_devices > wanted[0] or not np.isfinite(self.snr).all():
            raise FedtideError(f"{path} has SNRs {self.snr.shape}; give finite ones, [{num_devices}, {wanted[1]}]")
        if np.any(np.diff(self.time) <= 0) or self.time[0] != 0:
            raise FedtideError(f"{path}: its times go back, or do not begin at 0; sort them")

    def __call__(self, seed, tick, time, device):
        """Return SNR_k [m]; at its end the file begins again."""
        period = self.time[-1] + (self.time[-1] - self.time[-2] if len(self.time) > 1 else 1.0)
        return self.snr[device, np.searchsorted(self.time, time * self.unit_seconds % period, side="right") - 1]
