"""Over-the-air aggregation: devices send their updates at once, uncoded, and the air adds them up.

Zhu, Wang, Huang, Broadband analog aggregation for low-latency federated edge learning (IEEE Trans. Wireless Commun. 2020), for
truncated channel inversion; Amiri, Gündüz, Federated learning over wireless fading channels (2020), for symbols that carry two
parameters; Yang, Jiang, Shi, Ding, Federated learning via over-the-air computation (2020), for the amplitude that all reach.

    x_k = a w_k u_k / h_k                   what device k sends, if |h_k|^2 is at least the threshold; else it stays silent
    y = sum_k h_k x_k + z                   what the server receives, z ~ CN(0, sigma^2) in every symbol
    y / a = sum_k w_k u_k + noise           what it goes on with

A symbol carries two parameters (its real and its imaginary part), d/2 symbols the update, whoever sends. The power of device k,
a^2 w_k^2 2 ||u_k||^2 / (d |h_k|^2) on average over these symbols, is P at most; at P it is received with the SNR
gamma_k = P |h_k|^2 / sigma^2, with which it would have the capacity log2(1 + gamma_k). So the amplitude that all can reach is

    a^2 = min_k P |h_k|^2 d / (2 w_k^2 ||u_k||^2)

and the noise of a parameter, half of sigma^2 / a^2, has the variance

    v = max_k w_k^2 ||u_k||^2 / (d gamma_k)

Who knows what: every device knows its own h_k as it is (pilots of the server, and a channel that is the same both ways). Those
above the threshold report ||u_k||^2 / (d gamma_k), one number each, which the ledger counts as 32 control bits; so the server
knows who sends, without knowing the channels, weighs these alone (sum_k w_k = 1 over them), and tells them a and their w_k. All
are in step, and a channel stays as it is while they send. `radio.csi` is what schedulers see, and has no part in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Floats, Rng, Vector
from fedtide.world.access import weighted


@dataclass(frozen=True)
class OverTheAir:
    """All send at once, analog, with truncated channel inversion: the server hears sum_k w_k u_k plus noise.

    Takes d/2 symbols whoever sends, no bits, and needs codec.name=ideal. The noise of a parameter has the variance
    max_k w_k^2 ||u_k||^2 / (d SNR_k), of the device that reaches its full power first.
    """

    min_snr: Annotated[
        float, arg("threshold: below this SNR at full power a device stays silent; a number, not in dB", ge=0)
    ] = 1.0

    def __call__(self, updates: Vector, weights: Floats, snr: Floats, rng: Rng) -> Floats:
        """Return sum_k w_k u_k + sqrt(v) n, n ~ N(0, 1) [d]."""
        noise = math.sqrt(noise_variance(updates, weights, snr))
        return np.asarray(weighted(updates, weights) + noise * rng.standard_normal(updates.shape[1]))


def noise_variance(updates: Vector, weights: Floats, snr: Floats) -> float:
    """Return v = max_k w_k^2 ||u_k||^2 / (d gamma_k), of each parameter; gamma_k > 0. Nothing sent: no noise."""
    power = np.array([np.square(each, dtype=np.float64).mean() for each in updates])  # ||u_k||^2 / d [r]
    return float((weights**2 * power / snr).max(initial=0.0))
