"""What moderated intervals are worth: coverage and length, on drawn numbers and on the stored league. Nothing is trained.

    python benchmarks/moderation.py             the two tables of docs/studies.md, three minutes
    python benchmarks/moderation.py --league    the second one

Drawn: 40 variants on n seeds, each compared with one reference, 300 tables. The variants' variances are all equal, scaled
inverse chi-square with 8 degrees of freedom, or of two kinds (a tenth of the variants has 25 times the variance of the others).
The reference varies as much as an average variant, not at all (then differences are independent), or three times as much.

League: every world of results/league, all entries that never diverged against random scheduling on seeds 0 to 9. Intervals come
from some of the seeds, all subsets of 3 or 5. They should cover the mean of the other seeds 95 times in 100 once they are
widened to allow for its own error, by sqrt(1 + n / (10 - n)).
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedtide.studies import Store, mean_accuracy
from fedtide.studies.moderation import SHARED, variance_prior
from fedtide.studies.statistics import paired_difference
from fedtide_lab.league.methods import REFERENCE
from fedtide_lab.league.ranking import ranking_benchmark
from fedtide_lab.league.tune import LEAGUE_WORLDS

Floats = npt.NDArray[np.float64]
STORE = Path(__file__).resolve().parents[1] / "results" / "league"
VARIANTS, TABLES, SEEDS = 40, 300, 10


def half_widths(differences: Floats) -> tuple[Floats, Floats, float]:
    """Return the moderated and the ordinary half-width of each difference [k n], and d0."""
    freedom = [differences.shape[1] - 1] * len(differences)
    prior = variance_prior(differences.var(axis=1, ddof=1).tolist(), freedom, SHARED)
    zero = np.zeros(differences.shape[1])
    found = [[paired_difference(row, zero, prior=each) for row in differences] for each in (prior, None)]
    moderated, plain = ([each.high - each.mean for each in rows] for rows in found)
    return np.array(moderated), np.array(plain), prior.freedom


def deviations(kind: str, rng: np.random.Generator) -> Floats:
    """Return the standard deviations of the variants [k]."""
    if kind == "equal":
        return np.ones(VARIANTS)
    if kind == "inverse chi-square":
        return np.asarray(np.sqrt(8 / rng.chisquare(8, VARIANTS)))
    return np.where(np.arange(VARIANTS) < VARIANTS / 10, 5.0, 1.0)


def drawn() -> None:
    """Print coverage and length on drawn numbers."""
    print("| variances | reference varies | n | coverage | of the wide tenth | ordinary | length ratio |")
    print("| --- | --- |" + " ---: |" * 5)
    for kind, shared, n in itertools.product(("equal", "inverse chi-square", "two kinds"), (1.0, 0.0, 3.0), (3, 5, 10)):
        rng, rows = np.random.default_rng(0), []
        for _ in range(TABLES):
            spread = deviations(kind, rng)
            values = spread[:, None] * rng.normal(size=(VARIANTS, n)) - shared * rng.normal(size=n)
            moderated, plain, _ = half_widths(values)
            error, wide = np.abs(values.mean(axis=1)), spread > 4
            covered = error <= moderated
            rows.append([covered.mean(), covered[wide].mean() if wide.any() else np.nan, (error <= plain).mean(),
                         moderated.mean() / plain.mean()])  # fmt: skip
        found = [f"{each:.3f}" if each == each else "" for each in np.mean(rows, axis=0)]
        print("| " + " | ".join([kind, f"{shared:g}", str(n), *found]) + " |")


def league_differences() -> dict[str, Floats]:
    """Return the differences of every world's entries from random scheduling [k 10], without those that diverged."""
    found = {}
    for table, runs in ranking_benchmark(LEAGUE_WORLDS, Store(STORE)):
        values = {
            name: [mean_accuracy(each[seed]) for seed in range(SEEDS)]
            for name, each in runs.items()
            if set(range(SEEDS)) <= each.keys() and all(run.diverged is None for run in each.values())
        }
        base = values.pop(REFERENCE)
        rows = np.array([np.subtract(each, base) for each in values.values()])
        found[table.world.name] = rows[np.any(rows != 0, axis=1)]  # without those that are random scheduling there
    return found


def subsampled(differences: Floats, n: int) -> Floats:
    """Return coverage, ordinary coverage, both of the fifth of the entries that varies most, ratio of lengths, d0; n seeds."""
    variance, rows = differences.var(axis=1), []
    wide = variance >= np.quantile(variance, 0.8)
    for chosen in itertools.combinations(range(SEEDS), n):
        mine, others = differences[:, chosen], np.delete(differences, chosen, axis=1)
        moderated, plain, freedom = half_widths(mine)
        error = np.abs(mine.mean(axis=1) - others.mean(axis=1)) / np.sqrt(1 + n / (SEEDS - n))
        hits = [error <= moderated, error <= plain]
        rows.append([*(each.mean() for each in hits), *(each[wide].mean() for each in hits),
                     moderated.mean() / plain.mean(), freedom])  # fmt: skip
    return np.array([*np.mean(rows, axis=0)[:-1], np.median(rows, axis=0)[-1]])


if __name__ == "__main__":
    if "--league" not in sys.argv:
        drawn()
    print("\n| world | entries | n | coverage | ordinary | wide fifth | ordinary | length ratio | d0 |")
    print("| --- |" + " ---: |" * 8)
    for name, differences in league_differences().items():
        for n in (3, 5):
            *found, freedom = subsampled(differences, n)
            cells = [name, str(len(differences)), str(n), *(f"{each:.3f}" for each in found), f"{freedom:.1f}"]
            print("| " + " | ".join(cells) + " |", flush=True)
        moderated, plain, freedom = half_widths(differences)
        cells = [
            name,
            str(len(differences)),
            "10",
            *[""] * 4,
            f"{moderated.mean() / plain.mean():.3f}",
            f"{freedom:.1f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
