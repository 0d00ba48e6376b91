"""Packets that are lost although the link would have carried them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide import columns
from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints, Link
from fedtide.world.channel import of_snr
from fedtide.world.estimation import snr_of


@dataclass(frozen=True)
class PacketError:
    """Updates lost with q = 1 - exp(-m (sigma^2 + I)/(P h)) = 1 - exp(-m/SINR): an update is one packet, lost or not.

    Chen et al., "A joint learning and communications framework for federated learning over wireless networks", IEEE Trans.
    Wireless Commun. 2021. Their waterfall threshold m is 0.023 dB, 1.005 as a number (their released code has 1.08).
    The rate is that of the SINR too. The server knows the SINR and grants accordingly, but not who will be lost.
    """

    waterfall_db: Annotated[float, arg("m, waterfall threshold of the code", unit="dB", ge=-100, le=100)] = 0.023
    interference: Annotated[
        float, arg("I/sigma^2, power of interference over that of noise; a number", ge=0, le=1e12)
    ] = 0.0

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats) -> Link:
        """Return log2(1 + SINR), or 0 for those that are lost; the server believes the former [m]."""
        sinr = snr_of(capacity) / (1 + self.interference)
        believed = of_snr(sinr)
        lost = columns.uniform(seed, "packet error", device, tick) < loss_chance(sinr, self.waterfall_db)
        return Link(np.where(lost, 0.0, believed), believed)


def loss_chance(sinr: Floats, waterfall_db: float) -> Floats:
    """Return q = 1 - exp(-m/SINR) [m]; 1 without any signal."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(-np.expm1(-(10 ** (waterfall_db / 10)) / sinr))
