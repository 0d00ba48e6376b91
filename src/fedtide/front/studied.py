"""A study's results as a value: as frames, a table, a picture or a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

from fedtide.documented import documented
from fedtide.errors import FedtideError
from fedtide.front import curves
from fedtide.paper.rows import effect
from fedtide.report import notebook
from fedtide.report.frames import columns_of, frame
from fedtide.report.panels import inline_figure, shown_figure
from fedtide.studies.against import references
from fedtide.studies.export import long_rows
from fedtide.studies.result import RunResult, Store
from fedtide.studies.spec import Study
from fedtide.studies.statistics import METRICS
from fedtide.studies.table import rows
from fedtide.studies.work import Failure

METRIC = "mean_accuracy"
_LINES, _WIDE = 4, 36  # of variants, and characters of a variant's label, in a repr


@documented
class StudyResult(NamedTuple):
    """The finished runs of a study or a comparison. Differences are paired: taken seed by seed, with a 95 % interval."""

    study: Study  # its name, and every run with label, experiment and seed
    results: dict[str, dict[int, RunResult]]  # by variant and seed: curves by column, totals, what made the run
    failures: tuple[Failure, ...] = ()  # runs that could not be finished, each with its reason

    def frame(self) -> Any:
        """Return one row per run and evaluation: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        study, variant, run, the keys that differ (seed among them), path, version and date of what made it, then index, time,
        test_accuracy, test_loss, train_loss (NaN where not measured), and what was spent up to then: symbols, bits, ...,
        uploads and how many of them were lost.
        """
        return frame(columns_of(long_rows(self.study, self._store())))

    def table(self, metric: str = METRIC, against: str | None = None) -> Any:
        """Return one row per variant, as `frame` does: its mean, and its paired difference from another one.

        metric: the number per run that is compared; `fedtide study show --help` lists them. against: with which variant (or
        part of labels, as `scheduler=random`, all else being equal); None: the first one. Columns: variant, seeds, done,
        mean (of time_to_A and the like: median, and how many seeds reached it); difference with its interval low to high,
        num_seeds, seeds_needed (to resolve it), verdict, against, diverged_note (how many runs did not stay finite).
        """
        return frame(columns_of(self._rows(metric, against)))

    def values(self, metric: str = METRIC) -> dict[str, dict[int, float]]:
        """Return the number per run that is compared, by variant and seed."""
        if metric not in METRICS:
            raise FedtideError(f"metric={metric!r} is not known; use one of {', '.join(METRICS)}")
        measure = METRICS[metric]
        return {label: {seed: measure(run) for seed, run in runs.items()} for label, runs in self.results.items()}

    def plot(
        self,
        column: str = "test_accuracy",
        over: str = "time",
        against: str | None = None,
        style: str = "screen",
    ) -> Any:
        """Draw every variant's mean curve and, with three seeds or more, paired differences with their interval below.

        over: time, index, bits, symbols, samples_trained. Differences are of averages up to then, whose last point is what the
        table tells. style: screen; or ieee, ieee-wide, nature, nature-wide, as wide as a journal's column or page. Return the
        Matplotlib Axes: one, or two.
        """
        curves.check(self.results, column, over)
        compared = self._references(against)
        with shown_figure(5.2, 4.4, style) as figure:
            return curves.draw(figure, self.results, compared, column, over)

    def __repr__(self) -> str:
        text = self._text()
        shown, more = text[:_LINES], len(text) - _LINES
        wide = max(len(line[0]) for line in shown)
        lines = [f"  {line[0]:<{wide}}  {line[1]}  {line[2]}".rstrip() for line in shown]
        return "\n".join([f"<{self._title()}", *lines, *([f"  and {more} more"] if more > 0 else [])]) + ">"

    def _title(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        name = _cut(self.study.name)
        return f"{name}: {METRIC}, {sum(map(len, self.results.values()))} of {len(self.study.runs)} runs{failed}"

    def _text(self) -> list[tuple[str, str, str]]:
        """Return variant, mean and difference of every row, short."""
        found = []
        for row in self._rows(METRIC):
            mean = "  -   " if row["mean"] is None else f"{row['mean']:.4f}"
            known = row.get("difference") is not None and row["low"] is not None
            half = row["high"] - row["difference"] if known else 0.0
            short = f"{row['difference']:+.4f} ±{half:.4f} {row['verdict']}" if known else ""
            more = f" (about {row['seeds_needed']} seeds would resolve it)" if known and row["seeds_needed"] else ""
            short += more
            found.append((_cut(row["variant"]), mean, ", ".join(filter(None, [short, row["diverged_note"]]))))
        return found

    def _repr_html_(self) -> str:
        body = [
            (
                row["variant"],
                f"{row['done']}/{row['seeds']}",
                "-" if row["mean"] is None else f"{row['mean']:.4f}",
                effect(row) if "difference" in row else "-" if row["against"] else "(reference)",
                row["verdict"] or row["diverged_note"],
            )
            for row in self._rows(METRIC)
        ]
        table = notebook.table(("variant", "seeds", "mean", "paired difference (95 % interval)", "verdict"), body)
        if not any(self.results.values()):
            return notebook.card(self._title(), table)
        with inline_figure(4.6, 3.8) as figure:
            curves.draw(figure, self.results, self._references(None), "test_accuracy", "time")
            return notebook.card(self._title(), table, figure)

    def _store(self) -> Store:
        """Return the results as a store has them, for what reads stores."""
        return cast(Store, _Memory(self))

    def _rows(self, metric: str, against: str | None = None) -> list[dict[str, Any]]:
        try:
            return rows(self.study, self._store(), metric, against)
        except FedtideError as error:
            raise FedtideError(str(error).removeprefix("--")) from None  # there it is an option, here an argument

    def _references(self, against: str | None) -> Any:
        try:
            return references(self.study, against)
        except FedtideError as error:
            raise FedtideError(str(error).removeprefix("--")) from None


class _Memory:
    """Results in memory, read as a Store is."""

    folder = Path("memory")

    def __init__(self, studied: StudyResult) -> None:
        found = ((run, studied.results[run.label].get(run.experiment.seed)) for run in studied.study.runs)
        self._kept = {run.name: result for run, result in found if result is not None}

    def all_files(self) -> dict[str, list[Path]]:
        """Return the names of the runs; there are no files."""
        return {name: [] for name in self._kept}

    def load(self, name: str, kept: Any = None) -> RunResult:
        """Return a run."""
        return self._kept[name]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 3]}..."
