"""Time and distortion of the codecs, and of what was tried and dropped.

    python benchmarks/codec.py time [updates.npy]            encode and decode in the extension and in Python, on one core; an
                                                             aggregation of 30 updates on one thread and on all cores
    python benchmarks/codec.py record updates.npy            keep 24 updates of a run (N=40, n=50,000, R=8, non-i.i.d.)
    python benchmarks/codec.py distortion updates.npy        both codecs and the dropped ones, into docs/results/codec

Without a file, `time` uses heavy-tailed noise of the paper's size.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.codec.base import Codec, Packet, index_bits
from fedtide.codec.dead_zone import DeadZone
from fedtide.codec.sparse_quantized import SparseQuantized

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from twins.extension import in_python

KEPT = Path(__file__).resolve().parent.parent / "docs" / "results" / "codec" / "distortion.json"
BUDGETS = {"R=20": 6_700, "R=12": 11_700, "R=8": 19_000, "R=4": 40_800, "r=d": 87_392}  # typical at n = 50,000, N = 40
OURS: dict[str, SparseQuantized | DeadZone] = {"sparse_quantized": SparseQuantized(), "dead_zone": DeadZone()}


def clock(codec: Codec, updates: np.ndarray, budget: float) -> tuple[float, float]:
    """Return encode and decode in ms of processor time: the median over the updates of the best of five."""
    times = []
    for number, update in enumerate(updates):
        best = [np.inf, np.inf]
        for _ in range(5):
            begin = time.process_time()
            packet = codec.encode(update, budget, np.random.default_rng(number))
            middle = time.process_time()
            codec.decode(packet)
            best = [min(best[0], middle - begin), min(best[1], time.process_time() - middle)]
        times.append(best)
    encode, decode = 1e3 * np.median(times, axis=0)
    return float(encode), float(decode)


def print_times(updates: np.ndarray) -> None:
    print("| codec | budget, bits | encode, ms | decode, ms | in Python: encode | decode | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, codec in OURS.items():
        for label, budget in BUDGETS.items():
            encode, decode = clock(codec, updates, budget)
            with in_python():
                slow, slower = clock(codec, updates, budget)
            ratio = (slow + slower) / (encode + decode)
            print(
                f"| {name} | {budget} ({label}) | {encode:.2f} | {decode:.2f} | {slow:.2f} | {slower:.2f} | {ratio:.1f} |"
            )


def print_throughput(updates: np.ndarray, count: int = 30, budget: float = 19_000) -> None:
    """Print how many updates a second go through encode and decode, in one call with so many."""
    print("\n| codec | threads | updates/s |")
    print("|---|---|---|")
    rows = [updates[at % len(updates)] for at in range(count)]
    for name, codec in OURS.items():
        for threads in sorted({1, os.cpu_count() or 1}):
            best = np.inf
            for _ in range(7):
                rngs = [np.random.default_rng(at) for at in range(count)]
                begin = time.perf_counter()
                codec.decode_many(codec.encode_many(rows, [budget] * count, rngs, threads), threads)
                best = min(best, time.perf_counter() - begin)
            print(f"| {name} | {threads} | {count / best:,.0f} |")


def record(path: str) -> None:
    """Run the paper's codec and keep the eight updates of one aggregation early, halfway and late."""
    from fedtide import config
    from fedtide.engine.simulate import simulate
    from fedtide.engine.system import build

    kept: list[np.ndarray] = []
    count = 0

    class Recording(SparseQuantized):
        def encode(self, update: np.ndarray, budget_bits: float, rng: np.random.Generator) -> Packet:
            nonlocal count
            if count in (*range(80, 88), *range(560, 568), *range(1040, 1048)):
                kept.append(update.copy())
            count += 1
            return super().encode(update, budget_bits, rng)

    experiment = config.experiment({"seed": 5, "radio": {"num_symbols": 50_000}})
    simulate(experiment, system=build(experiment)._replace(codec=Recording()))
    np.save(path, np.stack(kept))


def entropy(symbols: np.ndarray) -> float:
    """Return the ideal length of a code for these symbols that knows their frequencies, in bits."""
    _, counts = np.unique(symbols, return_counts=True)
    return float(-(counts * np.log2(counts / counts.sum())).sum())


def finest(
    update: np.ndarray, budget: float, attempt: Callable[[np.ndarray, float], tuple[float, np.ndarray]]
) -> np.ndarray:
    """Return what is received with the finest step for which attempt(update, step) -> (bits, received) fits."""
    low, high = -24.0, 8.0
    for _ in range(24):
        middle = (low + high) / 2
        bits, _ = attempt(update, 2**middle * float(np.abs(update).max()))
        low, high = (middle, high) if bits > budget else (low, middle)
    bits, received = attempt(update, 2**high * float(np.abs(update).max()))
    return received if bits <= budget else np.zeros_like(update)


def dithered(update: np.ndarray, budget: float, rng: np.random.Generator) -> np.ndarray:
    """Subtractive dither from a shared seed, ideal entropy code, scaled for least error."""

    def attempt(u: np.ndarray, step: float) -> tuple[float, np.ndarray]:
        dither = np.random.default_rng(seed).random(len(u)) - 0.5
        level = np.rint(u / step + dither)
        received = (level - dither) * step
        return entropy(level) + 52, received * (received @ u) / max(received @ received, 1e-300)

    seed = int(rng.integers(2**32))
    return finest(update, budget, attempt)


def without_context(update: np.ndarray, budget: float, rng: np.random.Generator) -> np.ndarray:
    """Our quantiser with one frequency table for all elements, known for free."""

    def attempt(u: np.ndarray, step: float) -> tuple[float, np.ndarray]:
        level = np.sign(u) * np.floor(np.abs(u) / step + 0.4)
        received = np.zeros_like(u)
        for chosen in (np.abs(level) == 1, np.abs(level) == 2, np.abs(level) >= 3):
            if chosen.any():
                inside = (np.abs(u[chosen]) / step - np.abs(level[chosen])).mean()
                received[chosen] = np.sign(u[chosen]) * (np.abs(level[chosen]) + inside) * step
        return entropy(level) + 43, received

    return finest(update, budget, attempt)


def masked(share: float) -> Callable[[np.ndarray, float, np.random.Generator], np.ndarray]:
    """A random share of the elements, known from a shared seed (no index bits), with our codec; the rest is zero."""

    def send(update: np.ndarray, budget: float, rng: np.random.Generator) -> np.ndarray:
        kept = np.sort(rng.permutation(len(update))[: round(share * len(update))])
        received = np.zeros_like(update)
        codec = DeadZone()
        received[kept] = codec.decode(codec.encode(update[kept].astype(np.float32), budget, rng))
        return received

    return send


def top_k(update: np.ndarray, budget: float, rng: np.random.Generator) -> np.ndarray:
    """The k largest elements with their index set in log2 C(d, k) bits, 1 sign and 3 bits on a log scale each."""
    d, low, high = len(update), 0, len(update)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if index_bits(d, middle) + 64 + 4 * middle <= budget else (low, middle - 1)
    kept = np.argsort(np.abs(update))[d - low :]
    received = np.zeros_like(update)
    size = np.log(np.abs(update[kept]))
    if low:
        width = max((size.max() - size.min()) / 8, 1e-9)
        cell = np.minimum(np.floor((size - size.min()) / width), 7)
        received[kept] = np.sign(update[kept]) * np.exp(size.min() + (cell + 0.5) * width)
    return received


def through(codec: Codec) -> Callable[[np.ndarray, float, np.random.Generator], np.ndarray]:
    return lambda update, budget, rng: codec.decode(codec.encode(update.astype(np.float32), budget, rng))


TRIED: dict[str, Callable[[np.ndarray, float, np.random.Generator], np.ndarray]] = {
    "sparse_quantized": through(SparseQuantized()),
    "dead_zone": through(DeadZone()),
    "without context": without_context,
    "top-k": top_k,
    "random mask, half": masked(0.5),
    "random mask, quarter": masked(0.25),
    "subtractive dither": dithered,
}


def distortion(updates: np.ndarray) -> None:
    """Write E||u_hat - u||^2 / ||u||^2 by bits per element, for one update and for the mean of eight."""
    d = updates.shape[1]
    rates = [0.1, 0.2, 0.307, 0.536, 0.87, 1.3, 1.868, 3.0, 4.0]
    found: dict[str, Any] = {
        "num_updates": len(updates),
        "num_parameters": d,
        "rates": rates,
        "one": {},
        "mean_of_eight": {},
    }
    groups = [updates[at : at + 8].astype(np.float64) for at in range(0, len(updates) - 7, 8)]
    for name, send in TRIED.items():
        one, eight = [], []
        for rate in rates:
            alone, together = [], []
            for number, group in enumerate(groups):
                sent = np.stack([send(u, rate * d, np.random.default_rng([number, k])) for k, u in enumerate(group)])
                alone += list(np.square(sent - group).sum(axis=1) / np.square(group).sum(axis=1))
                together.append(
                    np.square(sent.mean(axis=0) - group.mean(axis=0)).sum() / np.square(group.mean(axis=0)).sum()
                )
            one.append(round(float(np.mean(alone)), 5))
            eight.append(round(float(np.mean(together)), 5))
        found["one"][name], found["mean_of_eight"][name] = one, eight
        print(name, one, eight, flush=True)
    found["gaussian"] = [round(math.pow(2, -2 * rate), 5) for rate in rates]
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    what, *file = sys.argv[1:] or ["time"]
    if what == "record":
        record(file[0])
    elif what == "distortion":
        distortion(np.load(file[0]))
    else:
        rng = np.random.default_rng(0)
        noise = rng.laplace(size=(12, 21_840)) * np.exp(rng.normal(size=(12, 1365))).repeat(16, axis=1)
        updates = np.load(file[0])[::5] if file else noise.astype(np.float32)
        print_times(updates)
        print_throughput(updates)


if __name__ == "__main__":
    main()
