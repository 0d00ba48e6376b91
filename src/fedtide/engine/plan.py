"""An experiment's plan as a value: who is ready, who is picked and what an upload may cost; nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.config import Experiment
from fedtide.engine.preflight import as_experiment
from fedtide.engine.system import build, load_dataset
from fedtide.plot.figure import inline_figure, shown_figure
from fedtide.plot.run import draw_plan
from fedtide.report import notebook
from fedtide.report.frames import columns_of, frame
from fedtide.report.plan import plan_rows, plan_summary
from fedtide.report.summary import ages_in_words
from fedtide.types import documented


@documented
class Plan(NamedTuple):
    """What an experiment will do, as far as it can be known before anything is trained."""

    experiment: Experiment  # every key that it was planned with
    # One mapping per aggregation: index, time, num_ready and ready_ages (how many of each age), and ready [m], ready_age [m] if
    # the fleet has at most 10,000 devices; then, unless the scheduler waits for what only a training tells, per picked device
    # [r]: picked, age (ticks), capacity (bit/symbol), symbols, budget_bits, sent_bits, num_kept; lost (who of them, None
    # if only the packets tell) and lost_at_most; label_variance and proved_minimal
    rows: list[dict[str, Any]]
    summary: dict[str, Any]  # the plan in a dozen numbers

    def frame(self) -> Any:
        """Return one row per aggregation: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        index, time; num_ready, num_picked, num_lost; of the uploads the mean age (ticks), capacity (bit/symbol) and
        num_kept, the sums of symbols and budget_bits; label_variance, proved_minimal. What only a training tells is NaN.
        """
        return frame(columns_of(map(_numbers, self.rows)))

    def plot(self) -> tuple[Any, Any]:
        """Draw how many devices are ready and picked over simulated time, and below it the bits granted to each upload.

        Return the two Matplotlib Axes.
        """
        with shown_figure(5.2, 3.8) as figure:
            return draw_plan(figure, self.experiment, self.rows)

    def __repr__(self) -> str:
        return f"<Plan of {', '.join(f'{value} {name}' for name, value in self._facts()[:4])}>"

    def _facts(self) -> list[tuple[str, str]]:
        summary = self.summary
        ready, budget, kept = summary["ready"], summary["budget_bits_per_upload"], summary["kept_share"]
        return [
            ("aggregations", f"{summary['aggregations']:,}"),
            ("ready devices on average", f"{ready['mean']:.1f}"),
            ("uploads", "-" if summary["uploads"] is None else f"{summary['uploads']:,}"),
            ("packets lost at most", "-" if summary["uploads"] is None else f"{summary['lost_at_most']:,}"),
            ("bits granted to an upload on average", "-" if budget is None else f"{budget['mean']:,.0f}"),
            ("kept share r/d on average", "-" if kept is None else f"{kept['mean']:.3f}"),
            ("ages of ready devices, in ticks", ages_in_words(summary["ages_of_ready"])),
            ("symbols per aggregation", f"{summary['symbols_per_aggregation']:,.0f}"),
            ("model parameters d", f"{summary['num_parameters']:,}"),
        ]

    def _repr_html_(self) -> str:
        with inline_figure(4.6, 3.2) as figure:
            draw_plan(figure, self.experiment, self.rows)
            return notebook.card("Plan (nothing trained)", notebook.facts(self._facts()), figure)


def plan(
    experiment: Experiment | Mapping[str, Any] | Path | str, *, say: Callable[[str], None] = lambda _: None
) -> Plan:
    """Return what an experiment will do; nothing is trained.

    experiment: what fedtide.experiment made, or what it makes one of: a file, a mapping. say: told what is fetched.
    """
    experiment = as_experiment(experiment)
    system = build(experiment, dataset=load_dataset(experiment, say, images=False))
    rows = plan_rows(system)
    return Plan(experiment, rows, plan_summary(system, rows))


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    picked = row.get("picked")
    known = picked is not None

    def mean(name: str) -> float | None:
        return float(np.mean(row[name])) if picked else None

    return {
        "index": row["index"],
        "time": row["time"],
        "num_ready": row["num_ready"],
        "num_picked": len(picked) if picked is not None else None,
        "num_lost": len(lost) if (lost := row.get("lost")) is not None else None,
        "mean_age": mean("age"),
        "mean_capacity": mean("capacity"),
        "mean_num_kept": mean("num_kept"),
        "symbols": float(sum(row["symbols"])) if known else None,
        "budget_bits": float(sum(row["budget_bits"])) if known else None,
        "label_variance": row.get("label_variance"),
        "proved_minimal": row.get("proved_minimal"),
    }
