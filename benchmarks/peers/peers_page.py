"""What was measured as a table of docs/performance.md, between two markers: nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE, STORED = ROOT / "docs" / "performance.md", ROOT / "docs" / "results" / "performance" / "peers.json"
BEGIN, END = "<!-- peers: written by benchmarks/peers/run.py -->", "<!-- /peers -->"
REFERENCE = "fedtide-whole"  # what ratios are to


class Peer(NamedTuple):
    """A framework, or a way to use one, as the page calls it."""

    name: str
    clock: str
    way: str


PEERS = {
    "fedtide-whole": Peer(
        "fedtide", "asynchronous", "a whole run: fading, proposed schedule, codec, records, checkpoints"
    ),
    "fedtide-training": Peer("fedtide, training alone", "none", "its trainer in a bare loop"),
    "pytorch-processes": Peer("PyTorch, a process per core", "none", "a bare loop"),
    "pytorch-threads": Peer("PyTorch, one process", "none", "a bare loop"),
    "flower": Peer("Flower, simulation", "synchronous", "a Ray actor per core"),
    "pfl": Peer("pfl-research", "synchronous", "a worker per core"),
    "flgo": Peer("FLGo", "asynchronous", "FedBuff on its virtual clock"),
    "appfl": Peer("APPFL", "asynchronous", "FedBuff on its virtual clock, one client at a time"),
}
COLUMNS = (
    "",
    "version",
    "clock",
    "as",
    "samples/s",
    "s per round",
    "times fedtide's",
    "processor s",
    "times",
    "accuracy",
)


def per_round(row: dict[str, Any], key: str, job: dict[str, Any]) -> float:
    """Return seconds per round of as many samples as the job says: on a virtual clock rounds differ a little."""
    return float(row[key]) / row["samples"] * job["samples_per_round"]


def table(stored: dict[str, Any]) -> str:
    """Return the lines between the markers."""
    rows, job = {row["peer"]: row for row in stored["rows"]}, stored["job"]
    base = rows.get(REFERENCE, {})
    lines = [_said(stored), "", "| " + " | ".join(COLUMNS) + " |", "|---|---|---|---|" + "---:|" * (len(COLUMNS) - 4)]
    for key, peer in PEERS.items():
        row = rows.get(key)
        if row is None:
            continue
        head = f"| {peer.name} | {row['version']} | {peer.clock} | {peer.way} |"
        if "failed" in row:
            lines.append(head + f" not measured: {row['failed']} |" + " |" * (len(COLUMNS) - 5))
            continue
        seconds, processor = (per_round(row, each, job) for each in ("seconds", "processor_seconds"))
        times = [
            f"{mine / per_round(base, each, job):.1f}" if "samples" in base else ""
            for mine, each in ((seconds, "seconds"), (processor, "processor_seconds"))
        ]
        rate = row["samples"] / row["seconds"]
        cells = [f"{rate:,.0f}", f"{seconds:.2f}", times[0], f"{processor:.2f}", times[1], f"{row['accuracy']:.2f}"]
        lines.append(head + " " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _said(stored: dict[str, Any]) -> str:
    """Say under which circumstances it was measured."""
    job, machine = stored["job"], stored["machine"]
    quiet = (
        "**Measured on a busy machine**: seconds and samples/s are those of a small share of it, and only processor time, "
        f"waits left out, can be compared. PyTorch had {stored['threads']} thread where one process does all the training."
        if stored["busy"]
        else "Measured on a quiet machine."
    )
    return (
        f"{quiet} {job['cores']} cores, instruction path {machine['isa']}, Python {machine['python']}, {job['rounds']} rounds "
        f"of {job['samples_per_round']:,} samples after a warm-up round, the best of {stored['passes']}."
    )


def rewritten(page: str, stored: dict[str, Any]) -> str:
    """Return the page with this table in the place of what is between the markers."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table(stored)}\n{END}{rest.split(END)[1]}"


def main() -> None:
    PAGE.write_text(rewritten(PAGE.read_text(), json.loads(STORED.read_text())))


if __name__ == "__main__":
    main()
