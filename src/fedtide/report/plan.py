"""What a plan says before anything is trained."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from rich.console import RenderableType

from fedtide.codec.base import checked_kept
from fedtide.config.effort import LARGE_FLEET_DEVICES
from fedtide.engine.system import System, parameter_count
from fedtide.engine.ticks import planned, planned_bits
from fedtide.parts import user_code
from fedtide.radio.allocation import symbols_sent
from fedtide.radio.over_the_air import separate
from fedtide.report.ages import ages_in_words
from fedtide.report.terminal import TableColumn, listed, pairs
from fedtide.schedule.label_variance import label_variance
from fedtide.types import Ints

_PICKS_LISTED = 30  # more of one aggregation are counted


def plan_rows(system: System) -> list[dict[str, Any]]:
    """Return one mapping per tick: ready, picked, lost, ages, bits, kept elements, symbols, label variance.

    Of a large fleet's ready devices only how many there are, of each age. lost is None where only a training tells.
    """
    named = system.fleet.num_devices <= LARGE_FLEET_DEVICES
    d, codec = parameter_count(system), user_code.part_label("codec", system.codec)
    rows = []
    for tick, rows_seen, grant, lost in planned(system):
        row: dict[str, Any] = {"index": tick.index, "time": tick.time, "num_ready": len(tick.ready)}
        row["ready_ages"] = _ages(rows_seen.age)
        if named:
            row |= {"ready": tick.ready.tolist(), "ready_age": rows_seen.age.tolist()}
        if grant is not None and lost is not None:
            picked = grant.picked
            sent = planned_bits(system, d, grant.bits.tolist())
            row |= {
                "picked": rows_seen.device[picked].tolist(),
                "age": rows_seen.age[picked].tolist(),
                "capacity": rows_seen.capacity[picked].tolist(),
                "symbols": grant.symbols.tolist(),
                "budget_bits": grant.bits.tolist(),
                "sent_bits": sent,
                "lost": None if sent is None and lost.any() else rows_seen.device[picked[lost]].tolist(),
                "lost_at_most": int(lost.sum()),
                "num_kept": _each(grant.bits.tolist(), lambda bits: checked_kept(system.codec, d, bits, codec)),
                "label_variance": label_variance(rows_seen.label_counts[picked]),
                "proved_minimal": grant.proved_minimal,
            }
        rows.append(row)
    return rows


def _ages(age: Ints) -> dict[int, int]:
    """Return how often each age occurs."""
    if len(age) <= 100:  # a dozen times faster than NumPy for one device
        return dict(sorted(Counter(age.tolist()).items()))
    ages, times = np.unique(age, return_counts=True)
    return dict(zip(ages.tolist(), times.tolist(), strict=True))


def _sum(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _each(budgets: list[float], ask: Callable[[float], int]) -> list[int]:
    """Ask for every budget, each once: under equal bits they are all the same."""
    answers = {bits: ask(bits) for bits in dict.fromkeys(budgets)}
    return [answers[bits] for bits in budgets]


def plan_summary(system: System, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the plan in a few numbers."""
    d = parameter_count(system)
    granted = [row for row in rows if "picked" in row]
    kept = [each / d for row in granted for each in row["num_kept"]]
    bits = [each for row in granted for each in row["budget_bits"]]
    symbols = [each for row in granted for each in row["symbols"]]
    sent = [each for row in granted for each in row["sent_bits"] or []]
    ready = [row["num_ready"] for row in rows]
    at_most = sum(row["lost_at_most"] for row in granted)
    ages = _sum(row["ready_ages"] for row in rows)
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
        "ages_of_ready": ages,
        "largest_age": max(ages, default=None),
        "ages_of_picked": dict(sorted(Counter(age for row in granted for age in row["age"]).items())),
        "proved_minimal_share": float(np.mean(proved)) if proved else None,
        "largest_capacity_gap": None
        if not bits
        else float(max(max(row["capacity"]) / max(min(row["capacity"]), 1e-12) for row in granted if row["picked"])),
    }


def _symbols_sent(system: System, granted: list[dict[str, Any]]) -> float:
    """Return the symbols that the packets take at what the server believes of their links; all of them if uncoded."""
    if not separate(system.access):
        return math.fsum(each for row in granted for each in row["symbols"])
    return math.fsum(symbols_sent(*(row[name] for name in ("sent_bits", "capacity", "symbols"))) for row in granted)


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"mean": float(np.mean(values)), "median": float(np.median(values)), "min": min(values), "max": max(values)}


def _bits_in_words(bits: Mapping[str, float]) -> str:
    if bits["min"] == bits["max"]:
        return f"{bits['max']:,.0f} bits, always"
    return f"median {bits['median']:,.0f} bits, {bits['min']:,.0f} to {bits['max']:,.0f}"


def _sent_in_words(summary: Mapping[str, Any]) -> str:
    """Say what uploads cost beside what the radio grants them."""
    budget, sent = summary["budget_bits_per_upload"], summary["sent_bits_per_upload"]
    if sent is None:
        return "depends on the updates: this codec tells it as it encodes"
    return _bits_in_words(sent) + ("; this codec does not keep to the budget" if sent["max"] > budget["max"] else "")


def _lost_in_words(summary: Mapping[str, Any]) -> str:
    share = f"{summary['lost_at_most']:,} of {summary['uploads']:,} packets"
    if summary["lost"] is None:
        return f"at most {share}: counted as if packets filled their grants, as this codec tells their size when it encodes"
    return f"{share}: their links carry fewer bits than they have"


def _symbols_in_words(summary: Mapping[str, Any]) -> str:
    """Say what is granted in all and, if it is known, what the packets take of it."""
    granted, sent = summary["symbols"], summary["symbols_sent"]
    return f"{granted:,.0f} in all" + ("" if sent is None else f"; packets take {sent:,.0f} of them")


def _airtime_in_words(granted: float, horizon: float) -> str:
    """Say how long all granted symbols take, one after the other."""
    more = "; more than one band carries in that time" if granted > horizon else ""
    return f"{granted:,.4g} in a horizon of {horizon:g}: symbols granted / radio.symbol_rate{more}"


def plan_tables(
    system: System, rows: list[dict[str, Any]], summary: dict[str, Any], limit: int, room: int = 80
) -> list[RenderableType]:
    """Lay the plan out: the numbers, then the first ticks."""
    return [
        pairs(_facts(system, summary), room, "Plan (nothing trained)"),
        listed(_TICKS, _tick_rows(rows[:limit], summary), room, f"First {min(limit, len(rows))} aggregations", 1),
    ]


def _facts(system: System, summary: Mapping[str, Any]) -> dict[str, str]:
    ready, kept = summary["ready"], summary["kept_share"]
    facts = {}
    facts["model parameters d"] = f"{summary['num_parameters']:,}"
    facts["aggregations"] = f"{summary['aggregations']:,} ({summary['empty_aggregations']} with nobody ready)"
    facts["ready devices"] = f"{ready['mean']:.1f} on average, {ready['min']} to {ready['max']}"
    facts["ages of ready devices"] = ages_in_words(summary["ages_of_ready"])
    facts["symbols per aggregation"] = f"{summary['symbols_per_aggregation']:,.0f}"
    if kept is None:
        names = {"update_sq_norm": "update norms", "loss": "losses"}
        asks = " and ".join(names[each] for each in system.policy.needs)
        why = f"not known before training: this scheduler asks for {asks}" if asks else "nobody is ever ready"
        facts["schedule"] = why
    else:
        facts["uploads"] = f"{summary['uploads']:,}"
        if summary["lost_at_most"]:
            facts["lost"] = _lost_in_words(summary)
        facts["symbols granted"] = _symbols_in_words(summary)
        if rate := system.experiment.radio.symbol_rate:
            facts["airtime granted"] = _airtime_in_words(summary["symbols"] / rate, system.experiment.timeline.horizon)
        facts["ages of scheduled devices"] = ages_in_words(summary["ages_of_picked"])
        facts["budget of an upload"] = _bits_in_words(summary["budget_bits_per_upload"])
        facts["sent in an upload"] = _sent_in_words(summary)
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
            cells += [_range(row["num_kept"], summary["num_parameters"], "{:.3f}")]
            cells += [f"{row['label_variance']:,.0f}"]
        yield cells + [""] * (len(_TICKS) - len(cells))


def _range(values: Sequence[float], unit: float, pattern: str) -> str:
    """Write the median of a tick's uploads and, if they differ, the range."""
    low, middle, high = (pattern.format(each / unit) for each in (min(values), np.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"
