"""The same federated job on fedtide, PyTorch, Flower, FLGo, APPFL and pfl-research, one after the other on the same two cores.

    python benchmarks/peers/run.py                 # on a quiet machine
    python benchmarks/peers/run.py --busy          # on a busy one: processor time counts
    python benchmarks/peers/run.py --only flower pfl --rounds 2

Makes an environment per framework (build/peers, pinned by requirements-*.txt), exports the data once, runs every script with a
time limit, writes docs/results/performance/peers.json and the table of docs/performance.md. With --only it prints the table and
writes nothing: ratios are of one run. A framework that cannot be installed or run is in the table with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import peers_page as page
from environments import CACHE, HERE, pinned, python_of
from job import CORES, FILE, MARK, RESULT, described

import fedtide
from fedtide.learning.native import native_isa

DATA = CACHE / "job.npz"


class Entry(NamedTuple):
    """How a framework is run."""

    script: str
    argument: str = ""
    environment: str = ""  # "": ours
    package: str = ""  # whose version is told


ENTRIES = {
    "fedtide-whole": Entry("fedtide_job.py", "whole"),
    "fedtide-training": Entry("fedtide_job.py", "training"),
    "pytorch-processes": Entry("torch_job.py", "processes", "pytorch", "torch"),
    "pytorch-threads": Entry("torch_job.py", "threads", "pytorch", "torch"),
    "flower": Entry("flower_job.py", "", "flower", "flwr"),
    "pfl": Entry("pfl_job.py", "", "pfl", "pfl"),
    "flgo": Entry("flgo_job.py", "", "flgo", "flgo"),
    "appfl": Entry("appfl_job.py", "", "appfl", "appfl"),
}


def marked(mark: str) -> list[int]:
    """Return the processes that carry a measurement's mark: those that this script started, and what they started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def reason(text: str) -> str:
    """Return the last line that says something, without folders."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"(/[\w.+-]+)+/", "", lines[-1] if lines else "it said nothing").replace("|", "/")[:160]


def measure(name: str, limit: float, environment: dict[str, str]) -> dict[str, Any]:
    """Run one script and return its result, or why there is none."""
    entry, mark = ENTRIES[name], uuid.uuid4().hex
    version = pinned(entry.environment, entry.package) if entry.environment else fedtide.__version__
    failed: dict[str, Any] = {"peer": name, "version": version}
    try:
        python = str(python_of(entry.environment)) if entry.environment else sys.executable
    except subprocess.CalledProcessError as error:
        return {**failed, "failed": "cannot be installed: " + reason(error.stderr)}
    log = CACHE / f"{name}.log"
    command = [python, str(HERE / entry.script), *([entry.argument] if entry.argument else [])]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**environment, MARK: mark}, cwd=CACHE
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            failed["failed"] = f"not done after {limit:g} s"
        finally:
            for each in marked(mark):  # daemons, and all of it when time is up
                os.kill(each, signal.SIGKILL)
            process.wait()
    said = log.read_text(errors="replace")
    results = [line for line in said.splitlines() if line.startswith(RESULT)]
    if results:
        measured: dict[str, Any] = json.loads(results[-1].removeprefix(RESULT))
        return {**measured, "version": version}
    return {"failed": reason(said), **failed}


def best(rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the fastest of several measurements, or the first failure."""
    return min(rows, key=lambda row: row[key] / row["samples"] if "samples" in row else float("inf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ENTRIES, default=[], help="prints the table and writes nothing")
    parser.add_argument("--rounds", type=int, default=6, help="measured, after a warm-up round")
    parser.add_argument("--passes", type=int, default=2, help="times that all are measured in turn; the best counts")
    parser.add_argument("--limit", type=float, default=1200, help="seconds per script")
    parser.add_argument(
        "--busy", action="store_true", help="the machine has other work: say so, and keep to one thread"
    )
    asked = parser.parse_args()
    os.environ["FEDTIDE_PEERS_ROUNDS"] = str(asked.rounds)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    CACHE.mkdir(parents=True, exist_ok=True)
    if not DATA.exists():
        subprocess.run([sys.executable, str(HERE / "export.py"), str(DATA)], check=True)
    threads = 1 if asked.busy else CORES
    environment = {**os.environ, FILE: str(DATA), "FEDTIDE_PEERS_THREADS": str(threads)}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ENTRIES if not asked.only or name in asked.only}
    for _ in range(asked.passes):
        for name, mine in rows.items():
            mine.append(measure(name, asked.limit, environment))
            print(json.dumps(mine[-1]), flush=True)
    stored = {
        "job": {**described(), "rounds": asked.rounds},
        "machine": {"isa": native_isa(), "python": platform.python_version()},
        "busy": asked.busy,
        "threads": threads,
        "passes": asked.passes,
        "rows": [best(mine, "processor_seconds" if asked.busy else "seconds") for mine in rows.values()],
    }
    if asked.only:
        print(page.table(stored))
        return
    page.STORED.parent.mkdir(parents=True, exist_ok=True)
    page.STORED.write_text(json.dumps(stored, indent=1) + "\n")
    page.main()
    print(page.table(stored))


if __name__ == "__main__":
    main()
