"""What an experiment will do, before anything is trained: one row per aggregation, a summary, tables for the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from rich.console import RenderableType

from fedtide.codec.base import checked_kept
from fedtide.config.effort import LARGE_FLEET_DEVICES
from fedtide.engine.system import System, parameter_count
from fedtide.engine.ticks import planned, planned_bits
from fedtide.parts import checks
from fedtide.radio.allocation import symbols_sent
from fedtide.radio.over_the_air import separate
from fedtide.report.summary import ages_in_words, mean
from fedtide.report.terminal import TableColumn, listed, pairs
from fedtide.schedule.label_variance import label_variance
from fedtide.types import Ints

_PICKS_LISTED = 30  # per aggregation; the others are counted


def plan_rows(system: System) -> list[dict[str, Any]]:
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
            sent = planned_bits(system, d, budgets)
            # each budget once: under equal bits they are all the same
            kept = {bits: checked_kept(system.codec, d, bits, codec) for bits in dict.fromkeys(budgets)}
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


def plan_summary(system: System, rows: list[dict[str, Any]]) -> dict[str, Any]:
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
        "proved_minimal_share": mean(proved),
        "largest_capacity_gap": float(max(gaps)) if gaps else None,
    }


def _symbols_sent(system: System, granted: list[dict[str, Any]]) -> float:
    """Return the symbols that the packets take at the estimated capacities; all that are granted if they are uncoded."""
    if not separate(system.access):
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


def plan_tables(
    system: System, rows: list[dict[str, Any]], summary: dict[str, Any], limit: int, room: int = 80
) -> list[RenderableType]:
    """Lay the plan out: its summary, then the first `limit` ticks."""
    return [
        pairs(_facts(system, summary), room, "Plan (nothing trained)"),
        listed(_TICKS, _tick_rows(rows[:limit], summary), room, f"First {min(limit, len(rows))} aggregations", 1),
    ]


def _facts(system: System, summary: Mapping[str, Any]) -> dict[str, str]:
    ready = summary["ready"]
    facts = {
        "model parameters d": f"{summary['num_parameters']:,}",
        "aggregations": f"{summary['aggregations']:,} ({summary['empty_aggregations']} with nobody ready)",
        "ready devices": f"{ready['mean']:.1f} on average, {ready['min']} to {ready['max']}",
        "ages of ready devices": ages_in_words(summary["ages_of_ready"]),
        "symbols per aggregation": f"{summary['symbols_per_aggregation']:,.0f}",
    }
    if summary["kept_share"] is not None:
        return facts | _upload_facts(system, summary)
    names = {"update_sq_norm": "update norms", "loss": "losses"}
    needs = " and ".join(names[need] for need in system.policy.needs)
    why = f"not known before training: this scheduler asks for {needs}" if needs else "nobody is ever ready"
    return facts | {"schedule": why}


def _upload_facts(system: System, summary: Mapping[str, Any]) -> dict[str, str]:
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
    if rate := system.experiment.radio.symbol_rate:
        airtime, horizon = summary["symbols"] / rate, system.experiment.timeline.horizon
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


def _tick_rows(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Iterator[list[str]]:
    for row in rows:
        cells = [str(row["index"]), f"{row['time']:.3g}", str(row["num_ready"])]
        if row.get("picked"):
            shown = [f"{k}({a})" for k, a in zip(row["picked"], row["age"], strict=True)]
            more = len(shown) - _PICKS_LISTED
            who = " ".join(shown if more <= 0 else [*shown[:_PICKS_LISTED], f"and {more:,} more"])
            sent = "-" if row["sent_bits"] is None else _range(row["sent_bits"], 1000, "{:,.1f}")
            cells += [who, _range(row["budget_bits"], 1000, "{:,.1f}"), sent]
            cells += [_range(row["num_kept"], summary["num_parameters"], "{:.3f}"), f"{row['label_variance']:,.0f}"]
        yield cells + [""] * (len(_TICKS) - len(cells))


def _range(values: Sequence[float], unit: float, pattern: str) -> str:
    """Return the median of a tick's uploads and, if they differ, the range."""
    low, middle, high = (pattern.format(value / unit) for value in (min(values), np.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"
