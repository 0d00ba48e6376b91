"""What private updates cost: the table of docs/deploy.md, from the finished runs in results/private.

fedtide study run examples/private.yaml --store results/private      # trains what is missing, some minutes
python benchmarks/private_updates.py                                 # writes the table into docs/deploy.md
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from fedtide.codec.private import epsilon_of_uploads
from fedtide.studies import Store, final_accuracy, paired_difference
from fedtide.studies.spec import read_study

ROOT = Path(__file__).resolve().parents[1]
STUDY, STORE, PAGE = ROOT / "examples" / "private.yaml", ROOT / "results" / "private", ROOT / "docs" / "deploy.md"
PLACE = re.compile(r"(<!-- private -->\n).*?(?=<!-- end of private -->)", re.S)


def table(store: Path = STORE) -> str:
    """Return a row for each noise and number of uploads; differences are taken from the least noise."""
    kept, found = Store(store), {}
    for run in read_study(STUDY).runs:
        each, result = run.experiment, kept.load(run.name)
        noise = float(each.part("codec").args["noise"])
        most = int(np.bincount(result.uploads.picked).max())
        found[each.policy.limit, noise, each.seed] = final_accuracy(result), epsilon_of_uploads(most, noise)
    limits, noises, seeds = (sorted(set(column)) for column in zip(*found, strict=True))
    lines = ["| noise | R | epsilon | accuracy at the end | cost |", "|---:|---:|---:|---:|---:|"]
    for limit in limits:
        without, *_ = rows = [[found[limit, noise, seed] for seed in seeds] for noise in noises]
        for noise, row in zip(noises, rows, strict=True):
            (ends, epsilon), first = zip(*row, strict=True), [end for end, _ in without]
            cost = paired_difference(first, ends)
            told = f"{cost.mean:.3f} ({cost.low:.3f} to {cost.high:.3f})" if row is not without else ""
            size = f"{max(epsilon):,.0f}" if row is not without else "none"
            lines.append(f"| {noise:g} | {limit} | {size} | {np.mean(ends):.3f} | {told} |")
    return "\n".join(lines).replace("| 1e-06 |", "| 0 |") + "\n"


if __name__ == "__main__":
    PAGE.write_text(
        PLACE.sub(lambda place: f"{place[1]}\n{table()}\n", PAGE.read_text(encoding="utf-8")), encoding="utf-8"
    )
