"""What an experiment will do, before anything is trained: one row per aggregation, a summary, tables, a figure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from rich.console import RenderableType

from fedtide.codec.base import checked_codec_kept
from fedtide.config import Experiment
from fedtide.config.workload import LARGE_FLEET_DEVICES
from fedtide.engine.system import System, build, load_dataset, parameter_count
from fedtide.engine.ticks import planned, planned_tick_bits
from fedtide.parts import checks
from fedtide.plot.figure import inline_figure, shown_figure
from fedtide.plot.run import draw_plan
from fedtide.radio.allocation import symbols_sent
from fedtide.radio.over_the_air import is_not_over_the_air
from fedtide.report import notebook
from fedtide.report.summary import ages_in_words, summary_mean
from fedtide.report.terminal import TableColumn, terminal_list, terminal_pairs
from fedtide.schedule.label_variance import label_variance
from fedtide.types import Ints, documented

_PICKS_LISTED = 30  # per aggregation; the others are counted
_TITLE = "Plan (nothing trained)"


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
        return notebook.notebook_frame(notebook.notebook_columns(map(_numbers, self.rows)))

    def plot(self) -> tuple[Any, Any]:
        """Draw how many devices are ready and picked over simulated time, and below it the bits granted to each upload.

        Return the two Matplotlib Axes.
        """
        with shown_figure(5.2, 3.8) as figure:
            return draw_plan(figure, self.experiment, self.rows)

    def __repr__(self) -> str:
        uploads = "unknown" if self.summary["uploads"] is None else f"{self.summary['uploads']:,}"
        ready = f"{self.summary['ready']['mean']:.1f} ready devices on average"
        return f"<Plan of {self.summary['aggregations']:,} aggregations, {ready}, {uploads} uploads>"

    def _repr_html_(self) -> str:
        with inline_figure(4.6, 3.2) as figure:
            draw_plan(figure, self.experiment, self.rows)
            return notebook.notebook_card(_TITLE, notebook.notebook_facts(_plan_facts(self).items()), figure)


def plan(
    experiment: Experiment | Mapping[str, Any] | Path | str, *, say: Callable[[str], None] = lambda _: None
) -> Plan:
    """Return what an experiment will do; nothing is trained.

    experiment: what fedtide.experiment made, or what it makes one of: a file, a mapping. say: told what is fetched.
    """
    from fedtide.engine.preflight import preflight_experiment  # needs run folders, which `fedtide plan` does without

    return plan_experiment(preflight_experiment(experiment), say)


def plan_experiment(experiment: Experiment, say: Callable[[str], None]) -> Plan:
    """Return the plan of an experiment. say: told what is fetched."""
    system = build(experiment, dataset=load_dataset(experiment, say, images=False))
    rows = _plan_rows(system)
    return Plan(experiment, rows, _plan_summary(system, rows))


def _plan_rows(system: System) -> list[dict[str, Any]]:
    """Return one mapping per tick: ready, picked, lost, ages, bits, kept elements, symbols, label variance.

    A large fleet's ready devices are counted by age, not listed. lost is None if it depends on the training.
    """
    named = system.fleet.num_devices <= LARGE_FLEET_DEVICES
    d, codec = parameter_count(system), checks.part_label("codec", system.codec)
    rows = []
    for tick, candidates, grant, lost in planned(system):
        row: dict[str, Any] = {"index": tick.index, "time": tick.time, "num_ready": len(tick.ready)}
        row["ready_ages"] = _age_counts(candidates.age)
        if named:
            row |= {"ready": tick.ready.tolist(), "ready_age": candidates.age.tolist()}
        if grant is not None and lost is not None:
            picked, budgets = grant.picked, grant.bits.tolist()
            sent = planned_tick_bits(system, d, budgets)
            # each budget once: under equal bits they are all the same
            kept = {bits: checked_codec_kept(system.codec, d, bits, codec) for bits in dict.fromkeys(budgets)}
            row |= {
                "picked": candidates.device[picked].tolist(),
                "age": candidates.age[picked].tolist(),
                "capacity": candidates.capacity[picked].tolist(),
                "symbols": grant.symbols.tolist(),
                "budget_bits": budgets,
                "sent_bits": sent,
                "lost": None if sent is None and lost.any() else candidates.device[picked[lost]].tolist(),
                "lost_at_most": int(lost.sum()),
                "num_kept": [kept[bits] for bits in budgets],
                "label_variance": label_variance(candidates.label_counts[picked]),
                "proved_minimal": grant.proved_minimal,
            }
        rows.append(row)
    return rows


def _age_counts(age: Ints) -> dict[int, int]:
    """Return how often each age occurs."""
    if len(age) <= 100:  # a dozen times faster than NumPy for one device
        return dict(sorted(Counter(age.tolist()).items()))
    ages, times = np.unique(age, return_counts=True)
    return dict(zip(ages.tolist(), times.tolist(), strict=True))


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a frame; None is what only a training tells."""
    known, lost = "picked" in row, row.get("lost")
    return {
        "index": row["index"],
        "time": row["time"],
        "num_ready": row["num_ready"],
        "num_picked": len(row["picked"]) if known else None,
        "num_lost": None if lost is None else len(lost),
        **{f"mean_{name}": summary_mean(row.get(name, ())) for name in ("age", "capacity", "num_kept")},
        **{name: float(sum(row[name])) if known else None for name in ("symbols", "budget_bits")},
        "label_variance": row.get("label_variance"),
        "proved_minimal": row.get("proved_minimal"),
    }


def _plan_summary(system: System, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the summary metrics of a plan."""
    d = parameter_count(system)
    granted = [row for row in rows if "picked" in row]
    kept = [count / d for row in granted for count in row["num_kept"]]
    bits = [budget for row in granted for budget in row["budget_bits"]]
    symbols = [count for row in granted for count in row["symbols"]]
    sent = [count for row in granted for count in row["sent_bits"] or []]
    ready = [row["num_ready"] for row in rows]
    gaps = [max(row["capacity"]) / max(min(row["capacity"]), 1e-12) for row in granted if row["picked"]]
    at_most = sum(row["lost_at_most"] for row in granted)
    ages: Counter[int] = Counter()
    for row in rows:
        ages.update(row["ready_ages"])
    proved = [row["proved_minimal"] for row in granted if row["proved_minimal"] is not None]
    return {
        "num_parameters": d,
        "aggregations": len(rows),
        "empty_aggregations": ready.count(0),
        "ready": {"mean": float(np.mean(ready)), "min": min(ready), "max": max(ready)},
        "symbols_per_aggregation": system.num_symbols,
        "symbols": math.fsum(symbols) if granted else None,
        "symbols_sent": _symbols_sent(system, granted) if len(sent) == len(symbols) and granted else None,
        "uploads": sum(len(row["picked"]) for row in granted) if granted else None,
        "lost": None if not granted or any(row["lost"] is None for row in granted) else at_most,
        "lost_at_most": at_most if granted else None,
        "budget_bits_per_upload": _spread(bits),
        "sent_bits_per_upload": _spread(sent),
        "kept_share": {"mean": float(np.mean(kept)), "min": min(kept), "full": float(np.mean(np.array(kept) == 1))}
        if kept
        else None,
        "ages_of_ready": dict(sorted(ages.items())),
        "largest_age": max(ages, default=None),
        "ages_of_picked": dict(sorted(Counter(age for row in granted for age in row["age"]).items())),
        "proved_minimal_share": summary_mean(proved),
        "largest_capacity_gap": float(max(gaps)) if gaps else None,
    }


def _symbols_sent(system: System, granted: list[dict[str, Any]]) -> float:
    """Return the symbols that the packets take at the estimated capacities; all that are granted if they are uncoded."""
    if not is_not_over_the_air(system.access):
        return math.fsum(count for row in granted for count in row["symbols"])
    return math.fsum(symbols_sent(*(row[name] for name in ("sent_bits", "capacity", "symbols"))) for row in granted)


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"mean": float(np.mean(values)), "median": float(np.median(values)), "min": min(values), "max": max(values)}


def _bits_in_words(bits: Mapping[str, float]) -> str:
    if bits["min"] == bits["max"]:
        return f"{bits['max']:,.0f} bits, always"
    return f"median {bits['median']:,.0f} bits, {bits['min']:,.0f} to {bits['max']:,.0f}"


def plan_tables(plan: Plan, limit: int, room: int = 80) -> list[RenderableType]:
    """Lay the plan out for a terminal: its summary, then the first `limit` ticks."""
    rows, d = plan.rows[:limit], plan.summary["num_parameters"]
    return [
        terminal_pairs(_plan_facts(plan), room, _TITLE),
        terminal_list(_TICKS, (_cells(row, d) for row in rows), room, f"First {len(rows)} aggregations", 1),
    ]


def _plan_facts(plan: Plan) -> dict[str, str]:
    """Return the summary of a plan in words, by name."""
    summary = plan.summary
    ready = summary["ready"]
    facts = {
        "model parameters d": f"{summary['num_parameters']:,}",
        "aggregations": f"{summary['aggregations']:,} ({summary['empty_aggregations']} with nobody ready)",
        "ready devices": f"{ready['mean']:.1f} on average, {ready['min']} to {ready['max']}",
        "ages of ready devices": ages_in_words(summary["ages_of_ready"]),
        "symbols per aggregation": f"{summary['symbols_per_aggregation']:,.0f}",
    }
    if summary["kept_share"] is not None:
        return facts | _upload_facts(plan.experiment, summary)
    asks = "not known before training: this scheduler asks for losses or update norms"
    return facts | {"schedule": asks if ready["max"] else "nobody is ever ready"}


def _upload_facts(experiment: Experiment, summary: Mapping[str, Any]) -> dict[str, str]:
    budget, sent, kept = (summary[name] for name in ("budget_bits_per_upload", "sent_bits_per_upload", "kept_share"))
    facts = {"uploads": f"{summary['uploads']:,}"}
    if summary["lost_at_most"]:
        lost = f"{summary['lost_at_most']:,} of {summary['uploads']:,} packets"
        facts["lost"] = (
            f"{lost}: their links carry fewer bits than they have"
            if summary["lost"] is not None
            else f"at most {lost}: counted as if packets filled their grants, as this codec tells their size when it encodes"
        )
    used = summary["symbols_sent"]
    facts["symbols granted"] = f"{summary['symbols']:,.0f} in all" + (
        "" if used is None else f"; packets take {used:,.0f} of them"
    )
    if rate := experiment.radio.symbol_rate:
        airtime, horizon = summary["symbols"] / rate, experiment.timeline.horizon
        more = "; more than one band carries in that time" if airtime > horizon else ""
        facts["airtime granted"] = (
            f"{airtime:,.4g} in a horizon of {horizon:g}: symbols granted / radio.symbol_rate{more}"
        )
    facts["ages of scheduled devices"] = ages_in_words(summary["ages_of_picked"])
    facts["budget of an upload"] = _bits_in_words(budget)
    if sent is None:
        facts["sent in an upload"] = "depends on the updates: this codec tells it as it encodes"
    else:
        more = "; this codec does not keep to the budget" if sent["max"] > budget["max"] else ""
        facts["sent in an upload"] = _bits_in_words(sent) + more
    facts["kept share r/d"] = f"{kept['mean']:.3f} on average, least {kept['min']:.4f}, whole in {kept['full']:.0%}"
    if summary["proved_minimal_share"] is not None:
        facts["label variance proved minimal"] = f"{summary['proved_minimal_share']:.0%} of aggregations"
    return facts


_TICKS: Final = (
    TableColumn("t", right=True),
    TableColumn("time", right=True),
    TableColumn("ready", right=True),
    TableColumn("picked (age)", wraps=True),
    TableColumn("kbit granted", right=True, wraps=True),
    TableColumn("sent", right=True, wraps=True),
    TableColumn("r/d", right=True, wraps=True),
    TableColumn("label variance", right=True),
)


def _cells(row: Mapping[str, Any], num_parameters: int) -> list[str]:
    """Return the cells of an aggregation."""
    cells = [str(row["index"]), f"{row['time']:.3g}", str(row["num_ready"])]
    if not row.get("picked"):
        return cells + [""] * (len(_TICKS) - len(cells))
    picked = [f"{k}({a})" for k, a in zip(row["picked"], row["age"], strict=True)]
    more = len(picked) - _PICKS_LISTED
    return [
        *cells,
        " ".join(picked if more <= 0 else [*picked[:_PICKS_LISTED], f"and {more:,} more"]),
        _range(row["budget_bits"], 1000, "{:,.1f}"),
        "-" if row["sent_bits"] is None else _range(row["sent_bits"], 1000, "{:,.1f}"),
        _range(row["num_kept"], num_parameters, "{:.3f}"),
        f"{row['label_variance']:,.0f}",
    ]


def _range(values: Sequence[float], unit: float, pattern: str) -> str:
    """Return the median of a tick's uploads and, if they differ, the range."""
    low, middle, high = (pattern.format(value / unit) for value in (min(values), np.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"
