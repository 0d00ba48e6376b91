"""Many runs from Python: a study or a comparison, and its results as a value."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.parts.checks import checked_callback
from fedtide.plot.figure import inline_figure, shown_figure
from fedtide.report import notebook
from fedtide.report.notebook import notebook_columns, notebook_frame
from fedtide.studies import spec
from fedtide.studies.metrics import metric_named
from fedtide.studies.plot import check_drawable, draw_study_results
from fedtide.studies.results import RunResult
from fedtide.studies.run import Outcome, run_study, study_backend
from fedtide.studies.spec import Given, Study
from fedtide.studies.store import kept_results
from fedtide.studies.table import by_label, long_table_rows, table_references, table_row_cells, table_rows
from fedtide.types import documented

_METRIC = "mean_accuracy"
_LINES, _WIDE = 4, 36  # of variants, and characters of a variant's label, in a repr


@documented
class StudyResult(NamedTuple):
    """The finished runs of a study or a comparison, with differences paired by seed and 95 % intervals."""

    study: Study  # the name of the study, and the label, experiment and seed of every run
    results: dict[str, dict[int, RunResult]]  # by variant and seed: curves by column, totals, provenance
    failures: tuple[Outcome, ...] = ()  # failed runs, each with its reason

    def frame(self) -> Any:
        """Return one row per run and evaluation: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        Columns: study, variant, run, the keys that differ (including seed); path (CPU instruction set), version and date of the
        run; index, time, test_accuracy, test_loss, train_loss (NaN if not measured); totals so far of symbols, bits, ...,
        uploads, and of lost, silent and retransmitted uploads; and metrics/NAME.
        """
        return notebook_frame(notebook_columns(long_table_rows(self.study, self.results)))

    def table(
        self,
        metric: str = _METRIC,
        against: str | None = None,
        margin: float | None = None,
        moderate: bool = False,
    ) -> Any:
        """Return one row per variant with its mean and its paired difference from a reference, as a frame.

        Columns: variant, seeds, done, mean (for time_to_A and similar: median, reached and reached_of); difference with its
        95 % interval low to high, num_seeds, seeds_needed (to resolve the difference), within (the margin that the difference is
        shown not to exceed), verdict, against (the reference), diverged_note (number of diverged runs), and the shares of
        uploads that arrived, were lost, stayed silent or were retransmitted.

        metric: the number per run that is compared; `fedtide study show --help` lists them. against: the reference: a label, or
        part of one such as `scheduler=random`, all else being equal; None: the first variant. margin: the smallest difference
        that matters, for the verdict "no difference above"; None: 0.01 for accuracies, no margin for other metrics; 0 disables it.
        moderate: estimate the variance of each difference with the help of all others (at least 5), for shorter intervals from few
        seeds; a column `moderated` tells which rows, those without outliers.

        Raises: FedtideError if the metric or the reference is unknown.
        """
        return notebook_frame(notebook_columns(table_rows(self.study, self.results, metric, against, margin, moderate)))

    def values(self, metric: str = _METRIC) -> dict[str, dict[int, float]]:
        """Return a metric of every run.

        metric: as in `table`.

        Returns: The values by variant and seed.
        """
        measure = metric_named(metric)
        return {label: {seed: measure(run) for seed, run in runs.items()} for label, runs in self.results.items()}

    def plot(
        self,
        column: str = "test_accuracy",
        over: str = "time",
        against: str | None = None,
        style: str = "screen",
    ) -> Any:
        """Plot the mean curve of every variant and, with three seeds or more, the paired differences below.

        Differences are of cumulative means, so their last point is the difference in the table.

        column: test_accuracy, test_loss, train_loss or metrics/NAME. over: the horizontal axis: time, index, bits, symbols or
        samples_trained. against: the reference, as in `table`. style: screen, or ieee, ieee-wide, nature or nature-wide for the
        width of a journal's column or page.

        Returns: The Matplotlib Axes, one or two.
        """
        check_drawable(self.results, column, over)
        compared = table_references(self.study, against)
        with shown_figure(5.2, 4.4, style) as figure:
            return draw_study_results(figure, self.results, compared, column, over)

    def __repr__(self) -> str:
        rows = [table_row_cells(row) for row in table_rows(self.study, self.results, _METRIC)]
        wide = max((len(_cut(row[0])) for row in rows[:_LINES]), default=0)
        lines = [f"  {_cut(row[0]):<{wide}}  {row[2]}  {row[3]} {row[4]}" for row in rows[:_LINES]]
        more = [f"  and {len(rows) - _LINES} more"] if len(rows) > _LINES else []
        return "\n".join([f"<{self._title()}", *map(str.rstrip, lines), *more]) + ">"

    def _title(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        done = sum(map(len, self.results.values()))
        return f"{_cut(self.study.name)}: {_METRIC}, {done} of {len(self.study.runs)} runs{failed}"

    def _repr_html_(self) -> str:
        body = [table_row_cells(row) for row in table_rows(self.study, self.results, _METRIC)]
        table = notebook.notebook_table(
            ("variant", "seeds", "mean", "paired difference (95 % interval)", "verdict"), body
        )
        if not any(self.results.values()):
            return notebook.notebook_card(self._title(), table)
        with inline_figure(4.6, 3.8) as figure:
            draw_study_results(figure, self.results, table_references(self.study), "test_accuracy", "time")
            return notebook.notebook_card(self._title(), table, figure)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 3]}..."


_SEEDS = 5
OnDone = Callable[[Outcome], None]


def study(
    base: Given = {},  # noqa: B006  # read only
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int | Iterable[int] | None = None,
    name: str = "study",
    store: Path | str | None = None,
    workers: int = 1,
    on_done: OnDone | None = None,
) -> StudyResult:
    """Run the missing runs of a study and return all its results, paired by seed.

    base: the experiment that all runs share (an Experiment, a mapping or a file), or the path of a study file, which then sets
        axes, variants, seeds and name.
    axes: a mapping of dotted keys to lists of values; every combination is run.
    variants: a mapping of names to the keys that differ; crossed with the axes.
    seeds: the number of seeds from 0, or a list of seeds.
    name: the name of the study.
    store: folder of the results; finished runs in it are not repeated. None stores nothing.
    workers: number of processes; 1 runs everything in this process.
    on_done: a function that is called with every finished run.

    Returns: The finished runs. Failed runs are listed in `failures` and do not stop the others.

    Raises: FedtideError if a key, value or variant is invalid.

    >>> import fedtide
    >>> small = {"data.name": "synthetic", "learning.model": "softmax", "timeline.horizon": 0.5}
    >>> small |= {"data.num_train": 400, "data.num_test": 100}
    >>> found = fedtide.study(small, axes={"policy.limit": [2, 4]}, seeds=2)
    >>> list(found.results)
    ['limit=2', 'limit=4']
    """
    made = spec.given_study(base, axes, variants, seeds, name, _SEEDS)
    return _done(made, store, workers, on_done)


def compare(
    experiments: Mapping[str, Given],
    *,
    seeds: int | Iterable[int] = _SEEDS,
    base: Given | None = None,
    name: str = "comparison",
    store: Path | str | None = None,
    workers: int = 1,
    on_done: OnDone | None = None,
) -> StudyResult:
    """Run named experiments on the same seeds and compare them with the first one.

    Runs of one seed share data, fading, durations and batches, so differences are taken seed by seed.

    experiments: a mapping of names to experiments, files, or the keys that differ from `base`.
    seeds: the number of seeds from 0, or a list of seeds.
    base: the experiment that all share; None: the default experiment.
    name: the name of the comparison.
    store: folder of the results; finished runs in it are not repeated. None stores nothing.
    workers: number of processes; 1 runs everything in this process.
    on_done: a function that is called with every finished run.

    Returns: The finished runs. Printed, it shows the mean of every experiment and its paired difference from the first one.

    Raises: FedtideError if a key or value is invalid.

    >>> import fedtide
    >>> small = {"data.name": "synthetic", "learning.model": "softmax", "timeline.horizon": 0.5}
    >>> small |= {"data.num_train": 400, "data.num_test": 100}
    >>> found = fedtide.compare({"random": {"policy.scheduler": "random"}, "proposed": {}}, base=small, seeds=2)
    >>> list(found.table()["variant"])
    ['random', 'proposed']
    """
    if not isinstance(experiments, Mapping) or not experiments:
        raise FedtideError(
            f"{shown(experiments)} names no experiments: give a mapping such as {{'random': e, 'proposed': f}}"
        )
    variants = {label: spec.given_base(each) for label, each in experiments.items()}
    for label, each in variants.items():
        if isinstance(experiments[label], Mapping) and "seed" in each:
            raise FedtideError(f"{shown(label)} gives a seed, which comparisons share; say seeds=[1, 2] or seeds=5")
    made = spec.side_by_side_study(
        name, variants, spec.listed_seeds(seeds), None if base is None else spec.given_base(base)
    )
    return _done(made, store, workers, on_done)


def _done(made: Study, store: Any, workers: Any, on_done: OnDone | None) -> StudyResult:
    """Run what is missing, and read everything that is there into memory."""
    how = study_backend(workers)
    with kept_results(store) as kept:
        failures = run_study(made, kept, **how, on_done=checked_callback("on_done", on_done) or (lambda _: None))
        results = by_label(made, kept)
        if store is None:  # what is read when it is asked for would be gone then
            results = {
                label: {seed: dataclasses.replace(run, sent=run.uploads_if_stored()) for seed, run in runs.items()}
                for label, runs in results.items()
            }
    _tell(made, failures, store)
    return StudyResult(made, results, tuple(failures))


def _tell(made: Study, failures: Sequence[Outcome], store: Any) -> None:
    """Raise if every run failed; warn if some did."""
    if not failures:
        return
    first = failures[0]
    text = f"{first.run.label}, seed {first.run.experiment.seed}: {first.reason}"
    if len(failures) == len({run.name for run in made.runs}):
        error = FedtideError(text if len(failures) == 1 else f"all {len(failures)} runs failed, the first one, {text}")
        error.exit_code = first.exit_code
        raise error
    again = "call again to try only these" if store is not None else "name a store to keep the others"
    warnings.warn(f"{len(failures)} of {len(made.runs)} runs failed ({again}), the first one, {text}", stacklevel=4)
