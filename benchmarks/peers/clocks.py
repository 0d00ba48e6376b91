"""The virtual clocks of FLGo and APPFL beside fedtide's, on the same durations: the order of arrivals, their times and staleness.

    python benchmarks/peers/clocks.py

Every device takes its own fixed time for a job and begins the next one as soon as it has the new model; the server uses every
arrival at once (FedAsync). Nothing is trained. Makes the environments of the benchmark (build/peers), runs *_clock.py in them
and writes results/external/clocks.json, from which docs/external.md is written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from environments import CACHE, HERE, pinned, python_of
from job import FILE, RESULT, Data, save

import fedtide
from fedtide.engine import build, planned

DURATIONS = (97, 113, 151, 211, 307, 401)  # primes: no two devices arrive at once for a long time
ARRIVALS = 200
STORED = HERE.parents[1] / "results" / "external" / "clocks.json"
CLOCKS = {"flgo": "FLGo, Simulator and FedAsync", "appfl": "APPFL, appfl.vsim and FedAsync"}
Arrival = tuple[float, int, int]  # time, device, staleness


def fedtides(durations: tuple[int, ...], arrivals: int) -> list[Arrival]:
    """Return the first arrivals of fedtide's plan."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "durations.csv"
        trace.write_text("device,duration\n" + "".join(f"{k},{each}\n" for k, each in enumerate(durations)))
        tree: dict[str, Any] = {
            "framework": "fedasync",
            "data": {"name": "synthetic", "partition": "iid"},
            "fleet": {
                "num_devices": len(durations),
                "max_duration": float(max(durations)),
                "duration": {"name": "trace", "path": str(trace)},
            },
            "timeline": {"horizon": float(arrivals * max(durations))},
        }
        found: list[Arrival] = []
        for step in planned(build(fedtide.experiment(tree))):
            tick = step.tick
            found += [
                (float(tick.time), int(device), int(tick.index - start))
                for device, start in zip(tick.ready, tick.start, strict=True)
            ]
            if len(found) >= arrivals:
                break
        return found[:arrivals]


def theirs(name: str, durations: tuple[int, ...], arrivals: int) -> dict[str, Any]:
    """Return what a framework's clock says, or why it says nothing."""
    failed: dict[str, Any] = {"version": pinned(name, name)}
    try:
        python = python_of(name)
    except subprocess.CalledProcessError as error:
        return {**failed, "failed": "cannot be installed: " + last_line(error.stderr)}
    with tempfile.TemporaryDirectory() as folder:
        data, rng = Path(folder) / "data.npz", np.random.default_rng(0)
        images, labels = rng.normal(size=(len(durations), 1, 28, 28)).astype(np.float32), np.arange(len(durations))
        save(data, Data(images, labels, images, labels, labels[:, None]))
        asked = json.dumps({"durations": durations, "arrivals": arrivals})
        done = subprocess.run(
            [str(python), str(HERE / f"{name}_clock.py"), asked],
            env={**os.environ, FILE: str(data)},
            capture_output=True,
            text=True,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not lines:
        return {**failed, "failed": last_line(done.stderr or done.stdout)}
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(RESULT))
    return {**found, "arrived": found["arrived"][:arrivals]}


def last_line(text: str) -> str:
    """Return the last line that says something."""
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"])[-1][:160]


def compared(ours: list[Arrival], found: dict[str, Any]) -> dict[str, Any]:
    """Return how many of the arrivals agree, from the first one on."""
    if "failed" in found:
        return found
    pairs = list(zip(ours, found["arrived"], strict=False))
    return {
        "version": found["version"],
        "arrivals": len(pairs),
        "same device": sum(a[1] == b[1] for a, b in pairs),
        "same staleness": sum(a[2] == b[2] for a, b in pairs),
        "same time": sum(abs(a[0] - b[0]) < 1e-6 * a[0] for a, b in pairs),
        "first difference": next(([*a, *b] for a, b in pairs if a[1:] != tuple(b[1:])), None),
    }


def main() -> None:
    ours = fedtides(DURATIONS, ARRIVALS)
    assert len({time for time, _, _ in ours}) == len(ours)  # no two at once: frameworks differ in what they do then
    CACHE.mkdir(parents=True, exist_ok=True)
    stored = {"durations": DURATIONS, "fedtide": fedtide.__version__, "clocks": {}}
    for name, title in CLOCKS.items():
        stored["clocks"][name] = {"title": title, **compared(ours, theirs(name, DURATIONS, ARRIVALS))}
        print(json.dumps(stored["clocks"][name]), flush=True)
    STORED.parent.mkdir(parents=True, exist_ok=True)
    STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
