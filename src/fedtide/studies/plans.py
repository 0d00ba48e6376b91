"""The plans of a study, side by side: what each of its runs will do and spend, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedtide.config import Experiment
from fedtide.errors import FedtideError
from fedtide.parts import user_code
from fedtide.report.notebook import notebook_card, notebook_columns, notebook_frame, notebook_table
from fedtide.report.plan import Plan, plan_experiment
from fedtide.studies.spec import Given, Run, Study, given_base, given_study
from fedtide.studies.table import differing_keys
from fedtide.types import documented

_UNITS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@documented
class Plans(NamedTuple):
    """The plans of a study: one for every combination of its axes, variants and seeds."""

    study: Study  # every run with its label, experiment and seed
    plans: tuple[Plan, ...]  # one for each run, in the same order

    def frame(self) -> Any:
        """Return one row per plan: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        Columns: variant, the keys that differ, aggregations, num_ready (mean), uploads, lost_share (an upper bound if packet sizes
        are known only after encoding), mean_age (ticks), budget_bits (median), kept_share (mean r/d), symbols (granted),
        symbols_sent (used by packets), air_time and air_time_sent (units of time), joules, co2_grams, never_heard (number of
        devices). Values that need training or are not counted are NaN.
        """
        return notebook_frame(notebook_columns(self.rows()))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of `frame` as a list of dicts."""
        keys = differing_keys(run.experiment for run in self.study.runs)
        return [
            {"variant": run.label, **key, **_numbers(plan)}
            for run, key, plan in zip(self.study.runs, keys, self.plans, strict=True)
        ]

    def table(self) -> tuple[list[str], list[list[str]], str]:
        """Return a formatted table: its headings, one row of cells per plan, and a line with the values that all plans share."""
        places, rows = self.study.places, self.rows()
        several = len({run.experiment.seed for run in self.study.runs}) > 1
        texts = {
            heading: ["-" if row[name] is None else write(row[name]) for row in rows]
            for name, (heading, write) in _COLUMNS.items()
            if any(row[name] is not None for row in rows)
        }
        shared = {heading: column[0] for heading, column in texts.items() if len({*column}) == 1 < len(rows)}
        columns = [column for heading, column in texts.items() if heading not in shared]
        axes = [axis.removesuffix(".name").rpartition(".")[2] for axis, _ in next(iter(places.values()))]
        cells = [
            [text for _, text in places[run.label]]
            + [str(run.experiment.seed)] * several
            + [column[at] for column in columns]
            for at, run in enumerate(self.study.runs)
        ]
        same = ", ".join(f"{heading} {text}" for heading, text in shared.items())
        headings = [*axes, *["seed"] * several, *(heading for heading in texts if heading not in shared)]
        return headings, cells, f"the same for all: {same}" if same else ""

    def __repr__(self) -> str:
        headings, cells, same = self.table()
        lines = [headings, *cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return (
            "\n".join([f"<{len(self.plans)} plans" + f"; {same}" * bool(same), *(f"  {line}" for line in text)]) + ">"
        )

    def _repr_html_(self) -> str:
        headings, cells, same = self.table()
        title = f"{len(self.plans)} plans (nothing trained)" + f"; {same}" * bool(same)
        return notebook_card(title, notebook_table(headings, cells))


def plans(
    base: Given = {},  # noqa: B006  # read only
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int | Iterable[int] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Plans:
    """Predict what every run of a study will do, without training.

    base: the experiment that all plans share: an Experiment, a mapping or a file.
    axes: a mapping of dotted keys to lists of values; every combination is planned.
    variants: a mapping of names to the keys that differ; crossed with the axes.
    seeds: the number of seeds from 0, or a list of seeds; None: the seed of the base.
    say: a function that is called with a line of text about each download.

    Returns: One plan per combination of axes, variants and seeds; `frame()` has one row each.

    Raises: FedtideError if a key or value is invalid.

    >>> import fedtide
    >>> small = {"data.name": "synthetic", "timeline.horizon": 1}
    >>> found = fedtide.plans(small, axes={"policy.limit": [2, 4]})
    >>> [row["uploads"] for row in found.rows()]
    [8, 16]
    """
    if seeds is None and not (isinstance(base, (str, Path)) and "=" not in str(base)):
        tree = given_base(base)
        seeds = [tree.seed if isinstance(tree, Experiment) else tree.get("seed", 0)]
    return plan_study(given_study(base, axes, variants, seeds, "plans", [0]), say)


def plan_study(study: Study, say: Callable[[str], None], threads: int | None = None) -> Plans:
    """Return the plans of a study. say: told what is fetched. threads: as in `plan_system`."""
    return Plans(study, tuple(_planned(run, say, threads) for run in study.runs))


def _planned(run: Run, say: Callable[[str], None], threads: int | None) -> Plan:
    try:
        with user_code.search_user_folder(run.beside):
            return plan_experiment(run.experiment, say, threads)
    except FedtideError as error:
        told = FedtideError(f"{run.label}: {error}")
        told.exit_code = error.exit_code
        raise told from error


def _numbers(plan: Plan) -> dict[str, Any]:
    """Return the numbers by which plans are compared; None: only a training tells, or nobody counts."""
    summary, rate = plan.summary, plan.experiment.radio.symbol_rate
    granted, sent, budget, kept = (
        summary[name] for name in ("symbols", "symbols_sent", "budget_bits_per_upload", "kept_share")
    )
    pace = summary.get("run_time")
    return {
        "aggregations": summary["aggregations"],
        "num_ready": summary["ready"]["mean"],
        "uploads": summary["uploads"],
        "lost_share": summary["outage_at_most"],
        "mean_age": summary["mean_age"],
        "budget_bits": budget and budget["median"],
        "kept_share": kept and kept["mean"],
        "symbols": granted,
        "symbols_sent": sent,
        "air_time": granted / rate if rate and granted is not None else None,
        "air_time_sent": sent / rate if rate and sent is not None else None,
        "joules": summary["joules"],
        "co2_grams": summary.get("co2_grams"),
        "never_heard": summary["never_heard"],
        "seconds": pace and pace["training"] + pace["evaluation"],
    }


def _short(value: float) -> str:
    """Write a number with three digits or so, in thousands, millions or billions if it is large."""
    for size, unit in _UNITS:
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


# By name of a number: the heading of its column, and how it is written.
_COLUMNS: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "aggregations": ("ticks", "{:,}".format),
    "num_ready": ("ready", "{:.1f}".format),
    "uploads": ("uploads", "{:,}".format),
    "lost_share": ("lost", "{:.1%}".format),
    "mean_age": ("age", "{:.2f}".format),
    "budget_bits": ("bits per upload", _short),
    "kept_share": ("r/d", "{:.3f}".format),
    "symbols": ("symbols granted", _short),
    "symbols_sent": ("symbols sent", _short),
    "air_time": ("airtime granted", _short),
    "air_time_sent": ("airtime sent", _short),
    "joules": ("joules", _short),
    "co2_grams": ("g CO2", _short),
    "never_heard": ("never heard", "{:,}".format),
    "seconds": ("run time", lambda seconds: f"{_short(seconds)} s"),
}
