"""The page of published numbers: theirs beside ours, with the interval in which one more run of ours would lie."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.studies import CONFIDENCE, RunResult, Store, half_width, pair_paths_summary
from fedtide_lab.external.queues import queues_values
from fedtide_lab.external.studies import (
    DISPUTED,
    PUBLISHED_CELLS,
    PUBLISHED_TABLES,
    Published,
    PublishedCell,
    cell_study,
)
from fedtide_lab.paper.figures import stored_runs
from fedtide_lab.prose import fill_prose, packaged_prose, prose_findings, prose_table, write_prose_page

EXTERNAL = "external"
_MOST_SEEDS = 20  # seeds that are looked for
_NO_RUNS = "no runs yet"
_SAME = ("same device", "same time", "same staleness")  # of what clocks.json counts


_NO_SIDE = "Our runs do not say yet."
_SIDES = {  # whether ours agree with Flower's, and with NIID-Bench's
    (True, True): "Our runs agree with both.",
    (True, False): "Our runs agree with Flower's number and not with NIID-Bench's.",
    (False, True): "Our runs agree with NIID-Bench's number and not with Flower's.",
    (False, False): "Our runs agree with neither.",
}


class Beside(NamedTuple):
    """One published number, and what runs here reach. Accuracies in %; an interval of fewer than two runs is not finite."""

    cell: PublishedCell
    published: Published
    accuracies: tuple[float, ...]  # of our runs, by seed

    @property
    def mean(self) -> float:
        """The mean of our runs."""
        return float(np.mean(self.accuracies)) if self.accuracies else math.nan

    @property
    def margin(self) -> float:
        """Half the width of the interval of our mean."""
        return float(half_width(np.array(self.accuracies), CONFIDENCE))

    @property
    def reach(self) -> float:
        """Half the width of the interval in which the mean of as many runs as theirs would lie: Student's prediction interval."""
        runs = len(self.accuracies)
        return self.margin * math.sqrt(1 + runs / self.published.runs)

    @property
    def verdict(self) -> str:
        """Whether theirs lies in that interval: yes, above or below; empty if there is none."""
        if not math.isfinite(self.reach):
            return ""
        away = self.published.accuracy - self.mean
        return "yes" if abs(away) <= self.reach else "above" if away > 0 else "below"


def external_runs(store: Store) -> dict[str, list[RunResult]]:
    """Return the stored runs of every cell, by seed."""
    found = {
        cell.name: stored_runs(cell_study(cell, range(_MOST_SEEDS)), store).get(cell.name, {})
        for cell in PUBLISHED_CELLS
    }
    return {name: [runs[seed] for seed in sorted(runs)] for name, runs in found.items()}


def external_numbers(runs: Mapping[str, Sequence[RunResult]]) -> list[Beside]:
    """Return every published number beside ours."""
    return [
        Beside(cell, each, tuple(_accuracy(run, each) for run in runs[cell.name]))
        for cell in PUBLISHED_CELLS
        for each in cell.published
    ]


def _accuracy(run: RunResult, published: Published) -> float:
    accuracy, time = 100 * run.column("test_accuracy"), run.column("time")
    if published.best:
        return float(accuracy[time <= published.round + 0.5].max())
    return float(accuracy[np.argmin(np.abs(time - published.round))])


def external_rows(numbers: Sequence[Beside]) -> list[dict[str, Any]]:
    """Return everything as plain data, for `--json`."""
    return [
        {
            "cell": each.cell.name,
            **each.published._asdict(),
            "ours": list(each.accuracies),
            "mean": each.mean,
            "half_width": each.margin,
            "prediction_half_width": each.reach,
            "within": each.verdict,
        }
        for each in numbers
    ]


def write_external_page(page: Path, runs: Mapping[str, Sequence[RunResult]], store: Path) -> None:
    """Write the page. store: the folder of the results, with queues.csv, clocks.json and findings.md if there are any."""
    numbers = external_numbers(runs)
    values: dict[str, Any] = {
        f"table {table.name}": _table([each for each in numbers if each.cell in table.cells])
        for table in PUBLISHED_TABLES
    }
    counts = {cell.name: len(runs[cell.name]) for cell in PUBLISHED_CELLS}
    short = [
        f"{cell.title} ({counts[cell.name]} of {cell.seeds})"
        for cell in PUBLISHED_CELLS
        if counts[cell.name] < cell.seeds
    ]
    values |= external_values(numbers) | queues_values(store) | clocks_values(store)
    values |= {
        "missing": f"**Runs are missing**, seeds so far: {'; '.join(short)}." if short else "",
        "paths": pair_paths_summary(run for each in runs.values() for run in each) if any(counts.values()) else "",
    }
    values |= prose_findings(store, values, ("in short",))
    template = "external/page.md"
    write_prose_page(page, fill_prose(packaged_prose(template), values, template), EXTERNAL)


def external_values(numbers: Sequence[Beside]) -> dict[str, Any]:
    """Return what findings may name: `CELL ROUND mean`, `... theirs` and `... within`, and how many numbers are within."""
    told: dict[str, Any] = {}
    for each in numbers:
        name = f"{each.cell.name} {each.published.round}"
        told |= {f"{name} mean": each.mean, f"{name} theirs": each.published.accuracy, f"{name} within": each.verdict}
    verdicts = [each.verdict for each in numbers]
    flower, bench = ({each.cell.name: each.verdict for each in numbers}.get(name, "") for name in DISPUTED)
    return told | {
        "side": _SIDES[flower == "yes", bench == "yes"] if flower and bench else _NO_SIDE,
        "numbers": len(numbers),
        "within": verdicts.count("yes"),
        "compared": len(verdicts) - verdicts.count(""),
    }


def clocks_values(store: Path) -> dict[str, Any]:
    """Return what the page names of other frameworks' clocks, from what benchmarks/peers/clocks.py stored."""
    file = store / "clocks.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"durations": [], "clocks": {}}
    rows = [
        [
            f"{each['title']} {each['version']}",
            *(
                [f"not compared: {each['failed']}", "", "", ""]
                if "failed" in each
                else [str(each[name]) for name in ("arrivals", *_SAME)]
            ),
        ]
        for each in found["clocks"].values()
    ]
    table = prose_table(["clock", "arrivals", *_SAME], rows)
    return {
        "clocks": table if rows else "(Not compared yet.)",
        "clock durations": ", ".join(map(str, found["durations"])),
        "clocks that agree": sum(
            "failed" not in each and all(each[name] == each["arrivals"] for name in _SAME)
            for each in found["clocks"].values()
        ),
    }


def _table(numbers: Sequence[Beside]) -> str:
    heads = ["experiment", "rounds", "theirs, %", "ours, %: mean (95 % interval)", "range for theirs", "within?"]
    rows = [
        [
            each.cell.title,
            str(each.published.round),
            _theirs(each.published),
            _ours(each),
            f"{each.mean - each.reach:.2f} to {each.mean + each.reach:.2f}" if each.verdict else "",
            _VERDICTS[each.verdict],
            f"`fedtide external {each.cell.name}`",
            each.cell.differs,
        ]
        for each in numbers
    ]
    return prose_table([*heads, "command", "what differs"], rows)


_VERDICTS = {"": "", "yes": "yes", "above": "**no**: theirs is higher", "below": "**no**: theirs is lower"}


def _theirs(published: Published) -> str:
    return f"{published.accuracy:.2f}" + (f" ± {published.spread:.2f}" if published.spread is not None else "")


def _ours(each: Beside) -> str:
    runs = len(each.accuracies)
    if not runs:
        return _NO_RUNS
    seeds = (
        f"{runs} seed{'s' * (runs != 1)}" if runs >= each.cell.seeds else f"{runs} of {each.cell.seeds} seeds so far"
    )
    if runs < 2:
        return f"{each.mean:.2f} ({seeds})"
    return f"{each.mean:.2f} ({each.mean - each.margin:.2f} to {each.mean + each.margin:.2f}; {seeds})"
