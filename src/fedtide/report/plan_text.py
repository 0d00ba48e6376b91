"""A plan as people read it: its summary in words, tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.console import RenderableType

from fedtide.config import Experiment
from fedtide.report.summary import ages_in_words
from fedtide.report.terminal import TableColumn, terminal_list, terminal_pairs

if TYPE_CHECKING:
    from fedtide.report.plan import Plan

PLAN_TITLE: Final = "Plan (nothing trained)"
_EDGES_LISTED: Final = 12
_CELLS_LISTED: Final = 10
_PICKS_LISTED: Final = 30  # per aggregation; the others are counted


def plan_median(values: Sequence[float]) -> float:
    """Return the median. NumPy's imports its masked arrays first, which takes longer than most of a plan."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _number(value: float) -> str:
    """Write a number with four digits, or all those before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _bits_in_words(bits: Mapping[str, float]) -> str:
    if bits["min"] == bits["max"]:
        return f"{bits['max']:,.0f} bits, always"
    return f"median {bits['median']:,.0f} bits, {bits['min']:,.0f} to {bits['max']:,.0f}"


def plan_tables(plan: Plan, limit: int, room: int = 80) -> list[RenderableType]:
    """Lay the plan out for a terminal: its summary, then the first `limit` ticks."""
    rows, d = plan.rows[:limit], plan.summary["num_parameters"]
    return [
        terminal_pairs(plan_facts(plan), room, PLAN_TITLE),
        terminal_list(_TICKS, (_cells(row, d) for row in rows), room, f"First {len(rows)} aggregations", 1),
    ]


def plan_facts(plan: Plan) -> dict[str, str]:
    """Return the summary of a plan in words, by name."""
    summary = plan.summary
    ready = summary["ready"]
    facts = {
        "model parameters d": f"{summary['num_parameters']:,}",
        "aggregations": f"{summary['aggregations']:,} ({summary['empty_aggregations']} without a ready device)",
        "ready devices": f"{ready['mean']:.1f} on average, {ready['min']} to {ready['max']}",
        "ages of ready devices": ages_in_words(summary["ages_of_ready"]),
        "symbols per aggregation": f"{summary['symbols_per_aggregation']:,.0f}",
    }
    if "cells" in summary:
        facts |= _cell_facts(summary["cells"])
    if "run_time" in summary:
        facts["expected run time"] = _pace_in_words(summary["run_time"])
    if summary["kept_share"] is not None:
        return facts | _upload_facts(summary) | _cost_facts(plan.experiment, summary)
    if not summary["times_known"]:
        told = "the server acts by what only a training tells; the first aggregation is below"
        facts = {name: facts[name] for name in ("model parameters d", "symbols per aggregation")}
        return facts | {"aggregations": f"not known before training: {told}"}
    asks = "not known before training: this scheduler asks for what only a training tells"
    return facts | {"schedule": asks if ready["max"] else "nobody is ever ready"}


def _cell_facts(cells: Mapping[str, Any]) -> dict[str, str]:
    """Return how many cells there are, and how much they hear of each other."""
    unused, met = cells["unused"], cells["interference"]
    some = ", ".join(map(str, unused[:_CELLS_LISTED])) + (", ..." if len(unused) > _CELLS_LISTED else "")
    facts = {"cells": f"{cells['count']}, each with these symbols" + (f"; no upload to {some}" if unused else "")}
    if met is not None and met["max"] > 0:
        median, most = (10 * math.log10(max(met[name], 1e-30)) for name in ("median", "max"))
        facts["interference I/N"] = f"median {median:.1f} dB, at most {most:.1f} dB"
    return facts


def _upload_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return who uploads, what arrives, and how much of an update fits."""
    budget, sent, kept = (summary[name] for name in ("budget_bits_per_upload", "sent_bits_per_upload", "kept_share"))
    facts = {"uploads": f"{summary['uploads']:,}"}
    if summary["lost_at_most"]:
        lost = f"{summary['lost_at_most']:,} of {summary['uploads']:,} packets ({summary['outage_at_most']:.1%})"
        facts["lost"] = (
            f"{lost}: their links do not carry them"
            if summary["lost"] is not None
            else f"at most {lost}: counted as if packets filled their grants, as this codec tells their size when it encodes"
        )
    if summary["silent"]:
        facts["silent"] = (
            f"{summary['silent']:,} of {summary['uploads']:,}: in outage, too weak to be heard, or out of energy"
        )
    if (edges := summary.get("uploads_per_edge")) is not None:
        listed = ", ".join(f"{count:,}" for count in edges[:_EDGES_LISTED]) + (", ..." if edges[_EDGES_LISTED:] else "")
        facts["edge servers"] = f"{len(edges)}, with {listed} uploads; {summary['cloud_averages']:,} cloud averages"
    facts["devices never heard"] = _unheard_in_words(summary)
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


def _unheard_in_words(summary: Mapping[str, Any]) -> str:
    """Say how many devices no update arrives from, and name the first of them."""
    count, first = summary["never_heard"], summary["never_heard_first"]
    least = "" if summary["lost"] is not None else "at least "
    if not count:
        return f"{least}none of {summary['num_devices']:,}"
    more = f" and {count - len(first):,} more" if count > len(first) else ""
    picked = (
        f"; {summary['never_picked']:,} of them are never picked"
        if summary["never_picked"] < count
        else ", never picked"
    )
    return f"{least}{count:,} of {summary['num_devices']:,}: {', '.join(map(str, first))}{more}{picked}"


def _pace_in_words(pace: Mapping[str, Any] | None) -> str:
    """Say how long a run will take on this machine."""
    if pace is None:
        return "not known: our kernel does not train it, or the schedule waits for the training"
    training, evaluation, speed = pace["training"], pace["evaluation"], pace["samples_per_second"]
    return (
        f"about {training + evaluation:,.1f} s here, {training:,.1f} of them training: {speed:,.0f} samples a second, "
        f"measured now with {'1 thread' if pace['threads'] == 1 else str(pace['threads']) + ' threads'}"
    )


def _cost_facts(experiment: Experiment, summary: Mapping[str, Any]) -> dict[str, str]:
    """Return what the uploads take of what there is: symbols, airtime, energy."""
    offered, granted, used = (summary[name] for name in ("symbols_offered", "symbols", "symbols_sent"))
    facts = {
        "symbols granted": f"{granted:,.0f} in all" + ("" if used is None else f"; packets take {used:,.0f} of them"),
    }
    nobody = max(offered - granted, 0.0)
    if used is not None and offered:
        facts["symbols not filled"] = f"{1 - used / offered:.1%}: " + ", ".join(
            [f"{granted - used:,.0f} symbols granted and not needed", f"{nobody:,.0f} not granted"]
        )
    elif offered:
        facts["symbols not filled"] = f"{nobody / offered:.1%} not granted; packets tell their size as they are encoded"
    if rate := experiment.radio.symbol_rate:
        airtime, horizon = granted / rate, experiment.timeline.horizon
        more = "; more than one band carries in that time" if airtime > horizon else ""
        facts["airtime granted"] = (
            f"{_number(airtime)} in a horizon of {horizon:g}: symbols granted / radio.symbol_rate{more}"
        )
        if used is not None:
            facts["airtime packets take"] = _number(used / rate)
    if summary["joules"] is not None:
        training = summary["joules_of_training"]
        sending = ("at most " if used is None else "") + _number(summary["joules"] - training)
        facts["energy"] = f"{_number(summary['joules'])} J: {_number(training)} training, {sending} sending"
    if "co2_grams" in summary:
        facts["CO2"] = f"{_number(summary['co2_grams'])} g"
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
    low, middle, high = (pattern.format(value / unit) for value in (min(values), plan_median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"
