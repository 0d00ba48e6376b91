"""How long the codecs take, and how much distortion they leave per bit: `python benchmarks/codec.py [updates.npy]`.

updates.npy holds recorded updates [k d]; without it, heavy-tailed noise of the paper's size takes their place.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from fedtide.codec.base import Codec
from fedtide.codec.dead_zone import DeadZone
from fedtide.codec.sparse_quantized import SparseQuantized

BUDGETS = {"R=20": 6_700, "R=12": 11_700, "R=8": 19_000, "R=4": 40_800, "r=d": 87_392}  # typical at n = 50,000, N = 40
LIMITS = {"sparse_quantized": 5.0, "dead_zone": 10.0}  # ms for encode + decode


def measure(codec: Codec, updates: np.ndarray, budget: float) -> tuple[float, float, float, float]:
    """Return encode and decode in ms (medians over the updates of the best of three), bits used, and distortion."""
    times, bits, distortion = [], [], []
    for number, update in enumerate(updates):
        best = [np.inf, np.inf]
        for _ in range(3):
            begin = time.perf_counter()
            packet = codec.encode(update, budget, np.random.default_rng(number))
            middle = time.perf_counter()
            decoded = codec.decode(packet)
            best = [min(best[0], middle - begin), min(best[1], time.perf_counter() - middle)]
        times.append(best)
        bits.append(packet.bits)
        distortion.append(np.square(decoded - update).sum() / np.square(update).sum())
    encode, decode = 1e3 * np.median(times, axis=0)
    return float(encode), float(decode), float(np.mean(bits)), float(np.mean(distortion))


def main() -> None:
    rng = np.random.default_rng(0)
    if len(sys.argv) > 1:
        updates = np.load(sys.argv[1])[:: max(1, len(np.load(sys.argv[1])) // 24)]
    else:
        updates = (rng.laplace(size=(12, 21_840)) * np.exp(rng.normal(size=(12, 1365))).repeat(16, axis=1)).astype(
            np.float32
        )
    print("| codec | budget | bits sent | encode ms | decode ms | distortion | Gaussian line |")
    print("|---|---|---|---|---|---|---|")
    for name, codec in {"sparse_quantized": SparseQuantized(), "dead_zone": DeadZone()}.items():
        for label, budget in BUDGETS.items():
            encode, decode, bits, distortion = measure(codec, updates, budget)
            line = 2 ** (-2 * budget / updates.shape[1])
            late = "" if encode + decode <= LIMITS[name] else f" (over {LIMITS[name]} ms)"
            print(
                f"| {name} | {budget} ({label}) | {bits:.0f} | {encode:.2f} | {decode:.2f}{late} | "
                f"{distortion:.4f} | {line:.4f} |"
            )


if __name__ == "__main__":
    main()
