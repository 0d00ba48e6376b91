"""Chen et al., IEEE TWC 2021: who sends in which resource block, and at which power."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import lambertw

from fedtide import Decision, arg


@dataclass(frozen=True)
class JointAssignment:
    """Most samples are expected to arrive: Hungarian assignment of blocks, each at the power of Theorem 2."""

    bits: Annotated[float, arg("Z, of an update", gt=0)]
    watts: Annotated[float, arg("nominal power of a device", unit="W", gt=0)]
    joules: Annotated[float, arg("what gamma_E leaves for an upload", unit="J", gt=0)]
    joint: Annotated[bool, arg("false: blocks are drawn, as in the paper's baseline")] = True

    def power(self, uplink):
        """Return min(P_max, P_gammaE) in times the nominal power [m b]: watts P Z / (B log2(1 + P snr)) = joules."""
        a = uplink.snr * self.joules * uplink.symbol_rate / (self.watts * self.bits) / np.log(2)
        a = np.maximum(a, 1.0001)  # below 1 any power spends too much; then it is so small that nothing fits
        nats = -lambertw(-np.exp(-1 / a) / a, -1).real - 1 / a  # log(1 + P snr)
        return np.minimum(np.expm1(nats) / uplink.snr, uplink.max_power)

    def __call__(self, candidates, limit, rng):
        uplink, blocks = candidates.uplink, candidates.uplink.snr.shape[1]
        power = self.power(uplink)
        with np.errstate(divide="ignore"):
            symbols = self.bits / uplink.capacity(power)
        fits = symbols <= uplink.symbols / blocks  # within the delay gamma_T
        samples = candidates.num_samples[:, None] * (1 - uplink.error(power)) * fits  # expected to arrive [m b]
        device, block = linear_sum_assignment(samples if self.joint else fits * rng.random(fits.shape), maximize=True)
        device, block = device[fits[device, block]], block[fits[device, block]]
        arriving = {"expected_share": samples[device, block].sum() / candidates.num_samples.sum()}
        bits, share = np.full(len(device), self.bits), np.full(len(device), 1 / blocks)
        return Decision(device, symbols[device, block], bits, power[device, block], block, share, metrics=arriving)
