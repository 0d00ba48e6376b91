"""What a fleet costs besides its training: time to build, time per aggregation, peak memory and bytes on disk, by devices.

    python benchmarks/scale.py [--quick] [--out FILE]

Every point is a process of its own, so that its peak memory is its own. Local trainings take no time here: the trainer returns
the same update for every job. Times are of the processor; of the times per aggregation, the median over blocks of them and
the least, as the machine may be busy with other work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.errors import TrainingError
from fedtide.learning.trainer import Score
from fedtide.types import Job, Samples, Vector

STORED = Path(__file__).resolve().parent.parent / "docs" / "results" / "performance" / "scale.json"
NUM_PARAMETERS = 7_850  # of softmax regression on 28 x 28 images
PERIODIC = [(scheduler, n) for scheduler in ("random", "proposed") for n in (1_000, 10_000, 100_000, 1_000_000)]
PER_ARRIVAL = [1_000, 10_000, 100_000]


class Quick:
    """A trainer that knows the answer."""

    def __init__(self) -> None:
        self._update = np.random.default_rng(0).normal(0, 0.01, NUM_PARAMETERS).astype(np.float32)

    def initial_model(self, seed: int) -> Vector:
        """Return zeros."""
        return np.zeros(NUM_PARAMETERS, np.float32)

    def train(self, jobs: Sequence[Job]) -> Vector:
        """Return the same update for everyone."""
        return np.tile(self._update, (len(jobs), 1))

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Return something."""
        return Score(0.5, 1.0)


class Enough(Exception):
    """So many aggregations are enough."""


def keys(timeline: str, scheduler: str, num_devices: int) -> dict[str, Any]:
    """Return the experiment of one point: about half of the devices are ready at a tick of the periodic timeline, or one."""
    periodic = timeline == "periodic"
    return {
        "framework": {"per_arrival": "fedasync"}.get(timeline, timeline),
        "data": {"name": "synthetic", "num_train": 10_000, "num_test": 10, "partition": "virtual_dirichlet"},
        "fleet": {"num_devices": num_devices, "min_duration": 0.0 if periodic else 0.5},
        "timeline": {"horizon": 5.0},
        "policy": {"scheduler": scheduler, "limit": min(1_000, max(num_devices // 10, 1)) if periodic else 1},
        "radio": {
            "channel": "rayleigh_by_device",
            "num_symbols": 300_000 if periodic else 140 * num_devices,  # 400 or so for each upload
        },
        "learning": {"model": "softmax", "evaluate_every": 1e9},
    }


def point(timeline: str, scheduler: str, num_devices: int, count: int) -> dict[str, Any]:
    """Measure one point in this process. count: aggregations."""
    experiment = config.experiment(keys(timeline, scheduler, num_devices))
    begun = time.process_time()
    system = build(experiment)
    built, marks = time.process_time() - begun, []
    block = max(count // 30, 1)

    def on_round(record: Any, total: int) -> None:
        if record.index % block == 0:
            marks.append(time.process_time())
        if record.index >= count:
            raise Enough

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with contextlib.suppress(TrainingError):  # what a callback raises comes out as one
            simulate(experiment, run, system=system, trainer=Quick(), on_round=on_round)
        rounds, checkpoint = ((run / name).stat().st_size for name in ("rounds.jsonl", "checkpoint.npz"))
    spent = np.diff(marks[len(marks) // 2 :]) / block  # first ticks pay for what is made once
    name = f"periodic, {scheduler}" if timeline == "periodic" else "per arrival"
    return {
        "what": name,
        "num_devices": num_devices,
        "limit": experiment.policy.limit,
        "build_seconds": built,
        "seconds_per_aggregation": float(np.median(spent)),
        "least_seconds": float(spent.min()),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "bytes_per_aggregation": rounds / count,
        "checkpoint_mb": checkpoint / 1e6,
    }


def measured(*words: Any) -> dict[str, Any] | None:
    """Measure one point in a process of its own; None, and a line, if it cannot be had."""
    done = subprocess.run([sys.executable, __file__, "--point", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        print(f"{words[0]} {words[1]} N = {words[2]:,}: {(done.stderr.strip() or 'killed').splitlines()[-1][:160]}")
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the table and write it down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=STORED)
    parser.add_argument("--point", nargs=4)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(point(args.point[0], args.point[1], int(args.point[2]), int(args.point[3]))))
        return
    points = [("per_arrival", "random", n, 900 if args.quick else 6_000) for n in PER_ARRIVAL]
    points += [("periodic", scheduler, n, 8 if args.quick else 16) for scheduler, n in PERIODIC]
    print("what                              N   build s  ms/aggr. (least)   peak MB  kB/round  checkpoint MB")
    rows = []
    for each in points:
        if (row := measured(*each)) is None:
            continue
        rows.append(row)
        print(
            f"{row['what']:25} {row['num_devices']:9,} {row['build_seconds']:7.2f} "
            f"{1e3 * row['seconds_per_aggregation']:9.3f} {1e3 * row['least_seconds']:9.3f} {row['peak_mb']:8.0f} "
            f"{row['bytes_per_aggregation'] / 1e3:9.1f} {row['checkpoint_mb']:9.2f}",
            flush=True,
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
