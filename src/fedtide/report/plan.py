"""What an experiment will do, before anything is trained: one row per aggregation, a summary, a figure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.aggregate.hierarchical import Hierarchical
from fedtide.codec.base import Sent, checked_codec_kept
from fedtide.config import Experiment
from fedtide.config.workload import LARGE_FLEET_DEVICES
from fedtide.engine.making import load_dataset
from fedtide.engine.step import Bools, Info, edges_in_step
from fedtide.engine.system import System, build, parameter_count
from fedtide.engine.ticks import Planned, planned
from fedtide.engine.uplink import planned_tick_bits
from fedtide.parts import checks
from fedtide.plot.figure import inline_figure, shown_figure
from fedtide.plot.run import draw_plan
from fedtide.radio.allocation import symbols_sent
from fedtide.radio.over_the_air import is_not_over_the_air
from fedtide.report import notebook
from fedtide.report.plan_text import PLAN_TITLE, plan_facts, plan_median
from fedtide.report.summary import summary_mean
from fedtide.runs.record import Ledger, record_costs
from fedtide.schedule.label_variance import label_variance
from fedtide.types import Grant, Ints, documented

_UNHEARD_NAMED = 10  # devices; the others are counted
_NOBODY = Grant(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


@documented
class Plan(NamedTuple):
    """What an experiment will do, predicted without training: who uploads, what arrives, and what it costs."""

    experiment: Experiment  # every key that it was planned with
    # One mapping per aggregation. Always: index, time, num_ready, ready_ages (number of devices by age), and for fleets of at most
    # 10,000 devices ready [m] and ready_age [m]. Per picked device [r], unless the scheduler needs a trained model: picked, age
    # (ticks), capacity (bit/symbol), symbols, budget_bits, sent_bits, num_kept, lost (None if it depends on the packets), silent
    # (too weak for over-the-air sums); with several cells or edge servers also cell, interference (I/N) and edge. Per
    # aggregation: lost_at_most, joules (None: not counted), label_variance and proved_minimal
    rows: list[dict[str, Any]]
    summary: dict[str, Any]  # the main numbers of the plan

    def frame(self) -> Any:
        """Return one row per aggregation: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        Columns: index, time, num_ready, num_picked, num_lost; means over the uploads of age (ticks), capacity (bit/symbol) and
        num_kept; sums of symbols and budget_bits; joules, label_variance, proved_minimal; with several cells mean_interference
        (I/N). Values that need training or are not counted are NaN.
        """
        return notebook.notebook_frame(notebook.notebook_columns(map(_numbers, self.rows)))

    def plot(self) -> tuple[Any, Any]:
        """Plot the number of ready and picked devices over simulated time, and below it the bits granted to each upload.

        Returns: The two Matplotlib Axes.
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
            return notebook.notebook_card(PLAN_TITLE, notebook.notebook_facts(plan_facts(self).items()), figure)


def plan(
    experiment: Experiment | Mapping[str, Any] | Path | str, *, say: Callable[[str], None] = lambda _: None
) -> Plan:
    """Predict what an experiment will do, without training.

    experiment: an Experiment, or a file or mapping to build one from. say: a function that is called with a line of text about
    each download.

    Returns: The plan: `summary` has the main numbers, `frame()` one row per aggregation.

    Raises: FedtideError if the experiment is invalid, its data is not available, or one of your own parts fails.

    >>> import fedtide
    >>> plan = fedtide.plan({"data.name": "synthetic", "timeline.horizon": 1})
    >>> len(plan.rows), plan.rows[0]["num_ready"] <= 40
    (4, True)
    """
    from fedtide.engine.preflight import preflight_experiment  # needs run folders, which `fedtide plan` does without

    return plan_experiment(preflight_experiment(experiment), say)


def plan_experiment(experiment: Experiment, say: Callable[[str], None], threads: int | None = None) -> Plan:
    """Return the plan of an experiment. say: told what is fetched. threads: as in `plan_system`."""
    return plan_system(build(experiment, dataset=load_dataset(experiment, say, images=False)), threads)


def plan_system(system: System, threads: int | None = None) -> Plan:
    """Return the plan of the experiment that a system was built of.

    threads: measure for a moment how fast so many train here, and say how long the run will take; None: leave it out.
    """
    rows, ledger, joules = _plan_rows(system)
    summary = _plan_summary(system, rows, ledger, joules)
    if threads is not None:
        from fedtide.report.pace import run_pace  # needs the kernel

        pace = run_pace(system, summary, threads)
        summary["run_time"] = pace and pace._asdict()
    return Plan(system.experiment, rows, summary)


def _plan_rows(system: System) -> tuple[list[dict[str, Any]], Ledger, float | None]:
    """Return one mapping per tick: ready, picked, lost, ages, bits, kept elements, symbols, energy, label variance.

    Then what the run will have spent, and how much of its energy on training (None: energy is not counted). Packets
    of unknown size count as if they filled their grants. A large fleet's ready devices are counted by age, not listed. lost is
    None if it depends on the training.
    """
    named = system.fleet.num_devices <= LARGE_FLEET_DEVICES
    d, codec = parameter_count(system), checks.part_label("codec", system.codec)
    costs, ledger, training = record_costs(system, d), Ledger(), []
    rows = []
    for plan in planned(system):
        tick, candidates, grant, lost = plan.tick, plan.candidates, plan.grant, plan.lost
        row: dict[str, Any] = {"index": tick.index, "time": plan.time, "num_ready": len(tick.ready)}
        row["ready_ages"] = _age_counts(candidates.age)
        if named:
            row |= {"ready": tick.ready.tolist(), "ready_age": candidates.age.tolist()}
        if grant is not None and lost is not None:
            picked, budgets = grant.picked, grant.bits.tolist()
            sent = planned_tick_bits(system, d, budgets)
            # each budget once: under equal bits they are all the same
            kept = {bits: checked_codec_kept(system.codec, d, bits, codec) for bits in dict.fromkeys(budgets)}
            silent = np.zeros_like(lost) if plan.silent is None else plan.silent
            info, payloads, sending = _sent(plan, grant, lost, silent, budgets if sent is None else sent)
            after = costs.after(ledger, info, payloads, sending)
            row |= {
                "picked": candidates.device[picked].tolist(),
                "age": candidates.age[picked].tolist(),
                "capacity": (candidates.capacity[picked] if grant.rate is None else grant.rate).tolist(),
                "symbols": grant.symbols.tolist(),
                "budget_bits": budgets,
                "sent_bits": sent,
                "lost": None if sent is None and lost.any() else candidates.device[picked[lost]].tolist(),
                "lost_at_most": int(lost.sum()),
                "silent": candidates.device[picked[silent]].tolist(),
                "num_kept": [kept[bits] for bits in budgets],
                "joules": after.joules - ledger.joules if costs.energy else None,
                "label_variance": label_variance(candidates.label_counts[picked]),
                "proved_minimal": grant.proved_minimal,
            }
            if system.edges is not None:
                row["edge"] = edges_in_step(system.edges, tick, candidates, grant)[picked].tolist()
            if grant.cell is not None and grant.interference is not None:
                row |= {"cell": grant.cell.tolist(), "interference": grant.interference.tolist()}
            if costs.energy:
                nobody = info._replace(grant=_NOBODY, sent={}, arrived=_NOBODY.picked)
                training.append(costs.after(Ledger(), nobody, 0.0, []).joules)
            ledger = after
        rows.append(row)
    return rows, ledger, math.fsum(training) if costs.energy else None


def _sent(
    plan: Planned, grant: Grant, lost: Bools, silent: Bools, bits: Sequence[float]
) -> tuple[Info, float, list[int]]:
    """Return a tick as `Costs.after` is told of it: those picked that are not silent send packets of so many bits [r]."""
    sending, arrived = grant.picked[~silent], grant.picked[~(lost | silent)]
    sizes = [int(size) for size, says_nothing in zip(bits, silent.tolist(), strict=True) if not says_nothing]
    devices = plan.candidates.device[sending].tolist()
    sent = {device: Sent(0, size, 0) for device, size in zip(devices, sizes, strict=True)}
    again = grant.picked[:0] if plan.resent is None else grant.picked[plan.resent]
    weights = np.zeros(len(arrived))
    info = Info(plan.tick, plan.candidates, grant, sent, arrived, weights, 0.0, again, waiting=plan.waiting)
    return info, float(sum(sizes)), sending.tolist()


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
        **{name: row.get(name) for name in ("joules", "label_variance", "proved_minimal")},
        **({"mean_interference": summary_mean(row["interference"])} if "interference" in row else {}),
    }


def _plan_summary(system: System, rows: list[dict[str, Any]], ledger: Ledger, training: float | None) -> dict[str, Any]:
    """Return the summary metrics of a plan. training: joules of it."""
    d, count = parameter_count(system), system.fleet.num_devices
    granted = [row for row in rows if "picked" in row]
    kept = [kept / d for row in granted for kept in row["num_kept"]]
    bits = [budget for row in granted for budget in row["budget_bits"]]
    symbols = [share for row in granted for share in row["symbols"]]
    sent = [size for row in granted for size in row["sent_bits"] or []]
    ready = [row["num_ready"] for row in rows]
    gaps = [max(row["capacity"]) / max(min(row["capacity"]), 1e-12) for row in granted if row["picked"]]
    uploads, at_most = len(bits), sum(row["lost_at_most"] for row in granted)
    ages: Counter[int] = Counter()
    for row in rows:
        ages.update(row["ready_ages"])
    picked_ages = Counter(age for row in granted for age in row["age"])
    proved = [row["proved_minimal"] for row in granted if row["proved_minimal"] is not None]
    picked = {device for row in granted for device in row["picked"]}
    heard = {device for row in granted for device in {*row["picked"]} - {*(row["lost"] or ()), *row["silent"]}}
    return {
        "num_devices": count,
        "num_parameters": d,
        "times_known": system.world is None or not rows or "picked" in rows[0],
        "aggregations": len(rows),
        "empty_aggregations": ready.count(0),
        "ready": {"mean": float(np.mean(ready)), "min": min(ready), "max": max(ready)},
        "symbols_per_aggregation": system.num_symbols,
        "symbols_offered": system.num_symbols * system.num_cells * len(rows),
        "symbols": math.fsum(symbols) if granted else None,
        "symbols_sent": _symbols_sent(system, granted) if len(sent) == uploads and granted else None,
        "uploads": uploads if granted else None,
        "lost": None if not granted or any(row["lost"] is None for row in granted) else at_most,
        "lost_at_most": at_most if granted else None,
        "outage_at_most": at_most / uploads if uploads else None,
        "silent": sum(len(row["silent"]) for row in granted) if granted else None,
        "never_picked": count - len(picked) if granted else None,
        "never_heard": count - len(heard) if granted else None,
        "never_heard_first": [*islice((k for k in range(count) if k not in heard), _UNHEARD_NAMED)]
        if granted
        else None,
        "budget_bits_per_upload": _spread(bits),
        "sent_bits_per_upload": _spread(sent),
        "kept_share": {"mean": float(np.mean(kept)), "min": min(kept), "full": float(np.mean(np.array(kept) == 1))}
        if kept
        else None,
        "ages_of_ready": dict(sorted(ages.items())),
        "largest_age": max(ages, default=None),
        "ages_of_picked": dict(sorted(picked_ages.items())),
        "mean_age": summary_mean([*picked_ages.elements()]),
        "proved_minimal_share": summary_mean(proved),
        "largest_capacity_gap": float(max(gaps)) if gaps else None,
        "joules": None if training is None or not granted else ledger.joules,
        "joules_of_training": training if granted else None,
        **({} if ledger.co2_grams is None else {"co2_grams": ledger.co2_grams}),
        "ledger": ledger._asdict() if granted else None,
        **({"cells": _cells(system, granted)} if system.num_cells > 1 else {}),
        **({} if system.edges is None else _edge_summary(system.edges, rows, granted)),
    }


def _edge_summary(
    edges: Hierarchical, rows: Sequence[Mapping[str, Any]], granted: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return how many updates arrive at each edge server, and how often the cloud averages them."""
    uploads = [0] * edges.count
    for row in granted:
        missing = {*(row["lost"] or ()), *row["silent"]}
        for device, edge in zip(row["picked"], row["edge"], strict=True):
            uploads[edge] += device not in missing
    averages = sum(row["index"] % edges.every == 0 for row in rows)
    return {"uploads_per_edge": uploads if granted else None, "cloud_averages": averages}


def _cells(system: System, granted: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many cells there are, which of them no device sends to, and the interference at uploads, in times the noise."""
    used = {cell for row in granted for cell in row["cell"]}
    interference = [met for row in granted for met in row["interference"]]
    unused = [cell for cell in range(system.num_cells) if cell not in used]
    return {"count": system.num_cells, "unused": unused, "interference": _spread(interference)}


def _symbols_sent(system: System, granted: list[dict[str, Any]]) -> float:
    """Return the symbols that the packets take at the estimated capacities; all that are granted if they are uncoded."""
    if not is_not_over_the_air(system.access):
        return math.fsum(count for row in granted for count in row["symbols"])
    return math.fsum(symbols_sent(*(row[name] for name in ("sent_bits", "capacity", "symbols"))) for row in granted)


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "mean": float(np.mean(values)),
        "median": plan_median(values),
        "min": min(values),
        "max": max(values),
    }
