"""A twin of the 5G drive tests (`measured.py`): their statistics as a function of seed, time and device.

For each device a normal process of time is pushed through the quantiles of what was measured: z_k(t) = sqrt(w_0) b_k + sum_i
sqrt(w_i) g_i(t), where b_k is a device's luck and E[g_i(t) g_i(t + s)] = exp(-s/tau_i), of a quick part and a slow one. SNR_k(t)
is the quantile of z_k(t). There is no link while another such process, with the correlation a + (1 - a) exp(-(s/tau)^2/2), is
below a threshold. Both are sums of sinusoids, whose frequencies have the spectrum of that correlation: functions of time, which
need no state. tools/fit_drives.py has the fit, drive_twin.json its numbers.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict
from scipy.special import ndtri

from fedtide import columns
from fedtide.parts.arguments import arg
from fedtide.radio.channel import MOST_WAVES_KEPT, UnitSeconds
from fedtide.radio.measured import OffsetDb, State
from fedtide.radio.propagation import propagation_cosine, propagation_per_device, propagation_sum
from fedtide.types import Floats, Ints


class _Motion(BaseModel):
    """What was fitted to the drive tests of one state; `measured` is what it was fitted to."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    files: int
    quantile_z: list[float]  # standard normal quantiles, ascending ...
    quantile_db: list[float]  # ... and the SNR at each
    weights: list[float]  # w_0 of a device's luck, w_1 of the quick part, w_2 of the slow one
    tau: list[float]  # of the quick part and the slow one, in s
    down_share: float  # of the time without a link
    down_luck: float  # a
    down_tau: float  # in s


MOTIONS: Final = ("static", "driving")
_WAVES: Final = 12  # of each part


@functools.cache
def drive_statistics() -> tuple[_Motion, ...]:
    """Return what was fitted to the drive tests of those who stand and of those who drive."""
    found = json.loads((resources.files("fedtide.radio") / "drive_twin.json").read_text("utf-8"))
    return tuple(_Motion.model_validate(found[state]) for state in MOTIONS)


def _twin_waves(seed: int, device: Ints, state: State) -> tuple[npt.NDArray[Any], ...]:
    """Return what makes the process of each device: see `DriveTwin`.

    Its state, 0 or 1 [m]; cycles per second and phases of its waves, quick, slow, and of being without a link [3W m]; its luck
    in SNR and in links [m], standard normal.
    """
    fitted = drive_statistics()
    share = fitted[0].files / sum(each.files for each in fitted)
    moves = (columns.uniform(seed, "drive state", device) >= {"static": 1.0, "driving": 0.0}.get(state, share)) * 1
    part = (
        np.arange(_WAVES)[:, None]
        + columns.uniform(seed, "drive waves", device, np.arange(3 * _WAVES).reshape(3, -1, 1))
    ) / _WAVES
    quick, slow = (np.array([each.tau[i] for each in fitted])[moves] for i in (0, 1))
    cauchy, normal = np.tan(np.pi / 2 * part[:2]), ndtri((1 + part[2]) / 2)
    down = np.array([each.down_tau for each in fitted])[moves]
    speed = np.concatenate([cauchy[0] / quick, cauchy[1] / slow, normal / down]) / (2 * np.pi)
    phase = columns.uniform(seed, "drive phases", device, np.arange(3 * _WAVES)[:, None])
    luck = [columns.normal(seed, "drive luck", device, draw=i) for i in (0, 1)]
    return moves, speed, phase, luck[0], luck[1]


@dataclass(frozen=True)
class DriveTwin:
    """SNR_k(t) = Q(sqrt(w_0) b_k + sqrt(w_1) g_1(t) + sqrt(w_2) g_2(t)): the statistics of measured 5G drives, without a file.

    Q: the measured quantiles; b_k: a device's luck; E[g_i(t) g_i(t+s)] = exp(-s/tau_i); 0 while there is no link, for the
    measured share of the time. Fitted to the drive tests of Raca et al. (MMSys 2020) by tools/fit_drives.py.
    """

    by_time: ClassVar[bool] = True  # not by aggregation

    num_devices: Annotated[int, arg("N, number of devices", ge=1, le=10**8, key="fleet.num_devices")]
    unit_seconds: UnitSeconds = 1.0
    state: Annotated[State, arg("devices that stand still, that drive, or both as in the data set")] = "any"
    outages: Annotated[bool, arg("include times without a link, where phones fell back to 2G or 3G")] = True
    offset_db: OffsetDb = 0.0

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Floats:
        """Return SNR_k at this time [m]; the tick's number does not matter."""
        kept = self.num_devices if 8 * _WAVES * self.num_devices <= MOST_WAVES_KEPT else None
        moves, speed, phase, luck, down_luck = propagation_per_device(_twin_waves, seed, device, kept, self.state)
        waves = propagation_cosine(speed * (time * self.unit_seconds) + phase)
        quick, slow, down = (propagation_sum(each) * math.sqrt(2 / _WAVES) for each in waves.reshape(3, _WAVES, -1))
        snr = np.zeros(len(device))
        for motion, fitted in enumerate(drive_statistics()):
            here = moves == motion
            w = np.sqrt(fitted.weights)
            z = w[0] * luck[here] + w[1] * quick[here] + w[2] * slow[here]
            decibels = np.interp(z, fitted.quantile_z, fitted.quantile_db) + self.offset_db
            a = fitted.down_luck
            down_z = math.sqrt(a) * down_luck[here] + math.sqrt(1 - a) * down[here]
            lost = self.outages & (down_z < ndtri(fitted.down_share))
            snr[here] = np.where(lost, 0.0, 10 ** (decibels / 10))
        return snr
