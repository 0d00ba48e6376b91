"""Uplinks exported from Sionna, SNRs or impulse responses by device and time in an .npz file (docs/howto/sionna.md).

fedtide run radio.channel=examples/from_sionna.py:Exported radio.channel.path=uma.npz
"""

from pathlib import Path
from typing import Annotated
from zipfile import BadZipFile

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
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                power = (np.abs(held["cir"]) ** 2).sum(-1) if "snr" not in held else held["snr"]
                self.snr = power * 10 ** (held["link_db"] / 10) if "snr" not in held else power
                self.time, self.unit_seconds = held["time"], unit_seconds
        except (OSError, KeyError, ValueError, BadZipFile) as error:
            raise FedtideError(f"{path} cannot be used ({error}); export time and snr, or cir and link_db") from error
        if self.time.ndim != 1 or not self.time.size or self.time[0] != 0 or not np.all(np.diff(self.time) > 0):
            raise FedtideError(f"{path}: its times do not rise from 0; sort them, and subtract the first")
        shape, wanted = list(self.snr.shape), [num_devices, self.time.size]
        if len(shape) != 2 or shape[0] < wanted[0] or shape[1] != wanted[1]:
            raise FedtideError(f"{path} has SNRs of shape {shape}; export {wanted}, or lower fleet.num_devices")
        if not np.all((self.snr >= 0) & (self.snr < np.inf)):
            raise FedtideError(f"{path} has SNRs that are negative or not finite; export them as numbers, not in dB")

    def __call__(self, seed, tick, time, device):
        """Return SNR_k [m]; at its end the file begins again."""
        period = self.time[-1] + (self.time[-1] - self.time[-2] if len(self.time) > 1 else 1.0)
        return self.snr[device, np.searchsorted(self.time, time * self.unit_seconds % period, side="right") - 1]
