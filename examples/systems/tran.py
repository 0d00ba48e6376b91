"""Tran et al., INFOCOM 2019: CPU frequencies, powers and times on the air that minimise energy + kappa time of a round."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.special import lambertw

from fedtide import Decision, arg


@dataclass(frozen=True)
class EnergyAndTime:
    """Everyone uploads; the two convex problems of the paper are solved in closed form."""

    kappa: Annotated[float, arg("what a unit of time is worth", unit="J", gt=0)]
    bits: Annotated[float, arg("s_n, of an update", gt=0)]
    epochs: Annotated[int, arg("local rounds over the data", key="learning.local_epochs")]
    duration: Annotated[Any, arg("T_n at f_n^max, as devices report it", key="run.duration")]
    energy: Annotated[Any, arg("E_n at f_n^max and of sending, as devices report it", key="run.energy")]
    seed: Annotated[int, arg("of the fleet", key="seed")]

    def speed(self, candidates):
        """SUB1: f_n / f_n^max = T_n / T, at the T with the least sum_n E_n (T_n / T)^2 + kappa T."""
        device, samples = candidates.device, self.epochs * candidates.num_samples
        shortest = self.duration(self.seed, device, np.ones_like(device))
        joules = self.energy(self.seed, device, samples, np.zeros(len(device)))
        best = np.cbrt(2 * (joules * shortest**2).sum() / self.kappa)
        return shortest / max(best, shortest.max())

    def nats(self, candidates):
        """SUB2: ln(1 + SNR) with the least (kappa + power) / rate, at most that of P_max."""
        device, uplink = candidates.device, candidates.uplink
        watts = self.energy(self.seed, device, np.zeros_like(device), np.full(len(device), uplink.symbol_rate))
        gain = uplink.snr[:, 0] / watts  # SNR per W
        return np.minimum(
            1 + lambertw((self.kappa * gain - 1) / np.e).real, np.log1p(uplink.max_power * uplink.snr[:, 0])
        )

    def __call__(self, candidates, limit, rng):
        nats, everyone = self.nats(candidates), np.arange(len(candidates.device))
        power = np.expm1(nats) / candidates.uplink.snr[:, 0]
        symbols, bits = self.bits * np.log(2) / nats, np.full(len(everyone), self.bits)  # tau_n = symbols / B, in turn
        return Decision(everyone, symbols, bits, power, speed=self.speed(candidates))
