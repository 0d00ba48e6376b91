"""Local differential privacy of updates: an update is clipped and gets Gaussian noise before it is encoded."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
from scipy import optimize, special

from fedtide.codec.base import Packet
from fedtide.codec.baselines import CodecAround
from fedtide.parts.arguments import arg
from fedtide.types import Rng, Vector

DELTA: Final = 1e-5  # for which epsilon is told
_LARGEST_EPSILON: Final = 1e9


@dataclass(frozen=True)
class Private(CodecAround):
    """Send C(u min(1, clip / |u|) + z), z ~ N(0, (noise clip)^2 I): differentially private before the bits leave a device.

    Two clipped updates are at most 2 clip apart, whatever data the device holds, so an upload is a Gaussian mechanism with
    mu = 2 / noise, and n uploads are one with sqrt(n) mu. C only processes what is private already.
    """

    wrapper: ClassVar[str] = "private"
    is_secret: ClassVar[bool] = True  # on nodes: a server that knew the draws could take the noise away

    inner: Annotated[str, arg("the codec C", part="codec")] = "ideal"
    clip: Annotated[float, arg("norm to which longer updates are cut", gt=0, le=1e6)] = 1.0
    noise: Annotated[float, arg("its standard deviation in each element, in units of clip", gt=0, le=1e6)] = 1.0

    def largest_norm(self, num_parameters: int) -> float:
        """Return what the norm of a private update hardly ever exceeds."""
        return self.clip * (1 + self.noise * (math.sqrt(num_parameters) + 10))

    def encode(self, update: Vector, budget_bits: float, rng: Rng) -> Packet:
        """Send the clipped update and noise; nothing is drawn for a budget that carries nothing."""
        norm = math.sqrt(float(np.square(update, dtype=np.float64).sum()))
        clipped = update * np.float32(min(1.0, self.clip / norm) if norm else 1.0)
        noise = rng.standard_normal(len(update), np.float32) * np.float32(self.noise * self.clip)
        return self.encoded(clipped + noise, budget_bits, rng)


def secret_seed(secret: bytes, update: Vector) -> int:
    """Return the seed of an update's noise: one per update, however often the server asks for it."""
    return int.from_bytes(hashlib.sha256(secret + update.tobytes()).digest(), "big")


def epsilon_of_uploads(num_uploads: int, noise: float, delta: float = DELTA) -> float:
    """Return the smallest epsilon such that so many uploads are (epsilon, delta)-differentially private.

    Exact, not a bound: delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) with mu = 2 sqrt(n) / noise
    (Balle and Wang 2018, theorem 8; Dong et al. 2022, corollary 3.3).
    """
    mu = 2 * math.sqrt(num_uploads) / noise

    def excess(epsilon: float) -> float:
        first, second = special.log_ndtr(mu / 2 - epsilon / mu), epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
        return float(first + math.log(-math.expm1(min(second - first, -1e-300))) - math.log(delta))

    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    largest = min(mu * mu / 2 + mu * (6 + math.sqrt(-2 * math.log(delta))), _LARGEST_EPSILON)
    return float(optimize.brentq(excess, 0.0, largest, xtol=1e-9)) if excess(largest) < 0 else math.inf


def spent_epsilon(uploads: Iterable[Iterable[int]], noise: float) -> dict[int, float]:
    """Return the epsilon of every device that has sent an update. uploads: who sent, aggregation by aggregation."""
    counts: dict[int, int] = {}
    for devices in uploads:
        for device in devices:
            counts[device] = counts.get(device, 0) + 1
    by_count = {count: epsilon_of_uploads(count, noise) for count in set(counts.values())}
    return {device: by_count[count] for device, count in sorted(counts.items())}
