"""Devices that lie against servers that do not trust them: the table of docs/deploy.md.

    python benchmarks/liars.py            does the runs that results/liars/runs.csv lacks, about ten minutes on two quiet cores
    python benchmarks/liars.py --page     writes the tables into docs/deploy.md
    python benchmarks/liars.py --picks    prints how often liars are picked if three may upload; nothing is trained

Ten devices, MNIST by label shards, 30 periods, at most eight uploads in each. Accuracy is the mean over the last fifth of the
run. A run whose training diverges counts 0.1, as guessing does.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedtide
from fedtide.aggregate.base import as_aggregator
from fedtide.deploy.protocol import capped_counts
from fedtide.deploy.settings import Deployment
from fedtide.engine.devices import Simulated
from fedtide.engine.loop import Loop
from fedtide.engine.step import initial_state, step_candidates
from fedtide.engine.system import System, build, make_trainer
from fedtide.engine.ticks import grant_at_tick
from fedtide.errors import DivergedError
from fedtide.runs.record import record_costs

ROOT = Path(__file__).resolve().parents[1]
STORE, PAGE = ROOT / "results" / "liars" / "runs.csv", ROOT / "docs" / "deploy.md"
NUM_DEVICES, SEEDS, TIMES, GUESSING = 10, (0, 1, 2), 1000, 0.1
BASE: dict[str, Any] = {
    "data": {"num_train": 3000, "num_test": 1000, "num_shards": 100},
    "fleet": {"num_devices": NUM_DEVICES, "max_duration": 20},
    "timeline": {"period": 10, "horizon": 300},
    "policy": {"limit": 8},
    "radio": {"num_symbols": 100_000},
    "learning": {"local_epochs": 1, "learning_rate": 0.15, "evaluate_every": 20},
}
CODECS = {"sparse": "sparse_quantized", "dense": "ideal"}
WEIGHTED, UNCAPPED = ("mean", "clipped"), "false counts, no cap"  # whose weights grow with sample counts
RECOMMENDED = "reputation"
AGGREGATORS: dict[str, Any] = {
    "mean": "average_models",
    "clipped": "clipped_mean",
    "median": "median",
    "trimmed mean": {"name": "trimmed_mean", "trim": 0.25},
    "multi-Krum": {"name": "krum", "attackers": 2, "kept": 5},
    RECOMMENDED: "reputation",
}
LIES: dict[str, tuple[str, float]] = {  # what liars send, and how many times as long as an honest update
    "sign flip": ("sign_flip", 5),
    "noise": ("noise", 5),
    "scaling": ("scale", 5),
    "colluding": ("collude", 5),
    "false counts": ("sign_flip", 1),
    UNCAPPED: ("sign_flip", 1),
    "false histograms": ("sign_flip", 1),
}
KRUM = {"Krum": {"name": "krum", "attackers": 2}}


class Cell(NamedTuple):
    """One run."""

    codec: str
    aggregator: str
    partition: str
    lie: str
    liars: int
    seed: int


def cells() -> Iterator[Cell]:
    """Yield all runs."""
    for seed in SEEDS:
        for codec in CODECS:
            for aggregator in AGGREGATORS:
                yield Cell(codec, aggregator, "shards", "none", 0, seed)
                for lie in LIES:
                    for liars in (1, 2):
                        if lie != UNCAPPED or (aggregator in WEIGHTED and liars == 2):
                            yield Cell(codec, aggregator, "shards", lie, liars, seed)
            yield Cell(codec, "Krum", "shards", "none", 0, seed)
            for krum in ("Krum", "multi-Krum"):
                yield Cell(codec, krum, "iid", "none", 0, seed)


def accuracy(cell: Cell) -> float:
    """Return the accuracy that one run comes to."""
    attack, strength = LIES.get(cell.lie, ("sign_flip", 1))
    trainer = {"name": "attacked", "share": cell.liars / NUM_DEVICES, "attack": attack, "strength": strength}
    keys = {
        "codec.name": CODECS[cell.codec],
        "policy.aggregator": {**KRUM, **AGGREGATORS}[cell.aggregator],
        "data.partition": cell.partition,
        "learning.trainer": trainer,
    }
    experiment = fedtide.experiment(BASE, keys, seed=cell.seed)
    system = build(experiment)
    policy = system.policy._replace(aggregator=as_aggregator(system.policy.aggregator))
    made: Any = make_trainer(system, 1)
    system = believed(system._replace(policy=policy), cell.lie, sorted(made.attackers))
    first = initial_state(made.initial_model(cell.seed), NUM_DEVICES)
    # `simulate` would refuse devices that say something else than what they hold
    loop = Loop(system, made, Simulated(system, made), record_costs(system, len(first.models[1])), first)
    try:
        loop.run(iter(system.ticks))
    except DivergedError:
        return GUESSING
    return float(np.mean([each.test_accuracy for each in loop.rounds if each.test_accuracy and each.time > 240]))


def believed(system: System, lie: str, liars: list[int]) -> System:
    """Return the system as its server sees it: with the sample counts that devices claim, as far as it believes them."""
    counts = np.array(system.fleet.label_counts[:])
    ratio = None if lie == UNCAPPED else Deployment().max_samples_ratio
    if lie.startswith("false counts"):
        counts[liars] *= TIMES
    if lie == "false histograms":
        for device in liars:
            total, labels = counts[device].sum(), counts.shape[1]
            counts[device] = total // labels + (np.arange(labels) < total % labels)
    counts = np.array(capped_counts(counts.tolist(), counts.sum(axis=1).tolist(), ratio))
    return system._replace(fleet=system.fleet._replace(label_counts=counts, num_samples=counts.sum(axis=1)))


def stored() -> dict[Cell, float]:
    """Return the accuracy of every run that was done."""
    if not STORE.exists():
        return {}
    with STORE.open(newline="") as file:
        rows = [*csv.reader(file)][1:]
    return {Cell(*row[:4], int(row[4]), int(row[5])): float(row[6]) for row in rows}


def mean(runs: dict[Cell, float], **wanted: Any) -> float:
    """Return the mean accuracy over the seeds of one cell."""
    found = [value for cell, value in runs.items() if cell.seed in SEEDS and wanted.items() <= cell._asdict().items()]
    assert len(found) == len(SEEDS), wanted
    return float(np.mean(found))


def tables(runs: dict[Cell, float]) -> str:
    """Return the page's tables; liars and servers, then Krum without liars."""
    text = []
    for codec in CODECS:
        head = ["lie", "liars", *AGGREGATORS]
        text += ["", f"With the {codec} codec (`codec.name={CODECS[codec]}`):", ""]
        text += [_row(head), _row(["---"] * 2 + ["---:"] * len(AGGREGATORS))]
        for lie, liars in [("none", 0), *((lie, liars) for lie in LIES for liars in (1, 2))]:
            found = {
                cell.aggregator: mean(
                    runs, codec=codec, aggregator=cell.aggregator, lie=lie, liars=liars, partition="shards"
                )
                for cell in runs
                if (cell.codec, cell.lie, cell.liars) == (codec, lie, liars)
            }
            if found:
                shown = (f"{found[name]:.3f}" if name in found else "" for name in AGGREGATORS)
                text.append(_row([lie, str(liars), *shown]))
    text += ["", "Krum without a liar:", "", _row(["server", "data", *CODECS]), _row(["---", "---", "---:", "---:"])]
    for krum in ("Krum", "multi-Krum"):
        for partition in ("shards", "iid"):
            both = [mean(runs, codec=codec, aggregator=krum, partition=partition, lie="none") for codec in CODECS]
            text.append(_row([krum, partition, *(f"{value:.3f}" for value in both)]))
    return "\n".join([*text, ""])


def liars_share(lie: str, limit: int) -> float:
    """Return the share of all uploads that two of ten devices get if they claim this, over the seeds; nothing is trained."""
    shares = []
    for seed in SEEDS:
        keys = {"policy.limit": limit, "learning.trainer": {"name": "attacked", "share": 0.2}}
        system = build(fedtide.experiment(BASE, keys, seed=seed))
        made: Any = make_trainer(system, 1)
        seen, uploads = believed(system, lie, sorted(made.attackers)), np.zeros(NUM_DEVICES, np.int64)
        for tick in seen.ticks:
            rows = step_candidates(seen, tick, uploads)
            uploads[rows.device[grant_at_tick(seen, tick, rows).picked]] += 1
        shares.append(uploads[sorted(made.attackers)].sum() / uploads.sum())
    return float(np.mean(shares))


def _row(values: list[str]) -> str:
    return "| " + " | ".join(values) + " |"


def main() -> None:
    """Do what is missing, or write the page."""
    runs = stored()
    if "--picks" in sys.argv:
        for lie in ("none", "false counts", UNCAPPED, "false histograms"):
            print(f"{lie}: {liars_share(lie, 3):.3f}")
        return
    if "--page" in sys.argv:
        before, begin, rest = PAGE.read_text().partition("<!-- liars -->\n")
        after = rest.partition("<!-- end of liars -->")
        PAGE.write_text(before + begin + tables(runs) + "\n" + after[1] + after[2])
        return
    todo = [cell for cell in cells() if cell not in runs]
    STORE.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool, STORE.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not runs:
            writer.writerow([*Cell._fields, "accuracy"])
        for cell, value in zip(todo, pool.map(accuracy, todo), strict=True):
            writer.writerow([*cell, f"{value:.4f}"])
            file.flush()


if __name__ == "__main__":
    main()
