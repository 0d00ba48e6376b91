"""What a plan says before anything is trained."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from rich.table import Table

from fedtide.policy.label_variance import label_variance
from fedtide.simulate import planned
from fedtide.system import System, parameter_count


def plan_rows(system: System) -> list[dict[str, Any]]:
    """Return one mapping per tick: ready, picked, ages, bits, kept elements, symbols, label variance."""
    d = parameter_count(system)
    rows = []
    for tick, rows_seen, grant in planned(system):
        row: dict[str, Any] = {"index": tick.index, "time": tick.time, "ready": tick.ready.tolist()}
        row["ready_age"] = rows_seen.age.tolist()
        if grant is not None:
            picked = grant.picked
            row |= {
                "picked": rows_seen.device[picked].tolist(),
                "age": rows_seen.age[picked].tolist(),
                "capacity": rows_seen.capacity[picked].tolist(),
                "symbols": grant.symbols.tolist(),
                "budget_bits": grant.bits.tolist(),
                "num_kept": [system.codec.num_kept(d, bits) for bits in grant.bits.tolist()],
                "label_variance": label_variance(rows_seen.label_counts[picked]),
                "proved_minimal": grant.proved_minimal,
            }
        rows.append(row)
    return rows


def plan_summary(system: System, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the plan in a few numbers."""
    d = parameter_count(system)
    granted = [row for row in rows if "picked" in row]
    kept = [each / d for row in granted for each in row["num_kept"]]
    bits = [row["budget_bits"][0] for row in granted if row["picked"]]
    ready = [len(row["ready"]) for row in rows]
    proved = [row["proved_minimal"] for row in granted if row["proved_minimal"] is not None]
    return {
        "num_parameters": d,
        "aggregations": len(rows),
        "empty_aggregations": ready.count(0),
        "ready": {"mean": float(np.mean(ready)), "min": min(ready), "max": max(ready)},
        "symbols_per_aggregation": system.num_symbols,
        "symbols": system.num_symbols * sum(1 for row in granted if row["picked"]) if granted else None,
        "uploads": sum(len(row["picked"]) for row in granted) if granted else None,
        "bits_per_upload": {"mean": float(np.mean(bits)), "min": min(bits), "max": max(bits)} if bits else None,
        "kept_share": {"mean": float(np.mean(kept)), "min": min(kept), "full": float(np.mean(np.array(kept) == 1))}
        if kept
        else None,
        "ages_of_ready": dict(sorted(Counter(age for row in rows for age in row["ready_age"]).items())),
        "ages_of_picked": dict(sorted(Counter(age for row in granted for age in row["age"]).items())),
        "proved_minimal_share": float(np.mean(proved)) if proved else None,
        "largest_capacity_gap": None
        if not bits
        else float(max(max(row["capacity"]) / max(min(row["capacity"]), 1e-12) for row in granted if row["picked"])),
    }


def plan_tables(system: System, rows: list[dict[str, Any]], summary: dict[str, Any], limit: int) -> list[Table]:
    """Lay the plan out: the numbers, then the first ticks."""
    facts = Table(title="Plan (nothing trained)", title_justify="left", show_header=False, box=None, padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    ready, kept, bits = summary["ready"], summary["kept_share"], summary["bits_per_upload"]
    facts.add_row("model parameters d", f"{summary['num_parameters']:,}")
    facts.add_row("aggregations", f"{summary['aggregations']:,} ({summary['empty_aggregations']} with nobody ready)")
    facts.add_row("ready devices", f"{ready['mean']:.1f} on average, {ready['min']} to {ready['max']}")
    facts.add_row("ages of ready devices", ", ".join(f"{age}: {n:,}" for age, n in summary["ages_of_ready"].items()))
    facts.add_row("symbols per aggregation", f"{summary['symbols_per_aggregation']:,.0f}")
    if kept is None:
        facts.add_row("schedule", "not known before training: this scheduler asks for update norms")
    else:
        facts.add_row("uploads", f"{summary['uploads']:,}")
        facts.add_row("airtime", f"{summary['symbols']:,.0f} symbols in all")
        facts.add_row(
            "ages of scheduled devices", ", ".join(f"{a}: {n:,}" for a, n in summary["ages_of_picked"].items())
        )
        facts.add_row("bits per upload", f"{bits['mean']:,.0f} on average, {bits['min']:,.0f} to {bits['max']:,.0f}")
        facts.add_row(
            "kept share r/d", f"{kept['mean']:.3f} on average, least {kept['min']:.4f}, whole in {kept['full']:.0%}"
        )
        if summary["proved_minimal_share"] is not None:
            facts.add_row("label variance proved minimal", f"{summary['proved_minimal_share']:.0%} of aggregations")
    ticks = Table(title=f"First {min(limit, len(rows))} aggregations", title_justify="left", box=None, padding=(0, 1))
    for name in ("t", "time", "ready"):
        ticks.add_column(name, justify="right")
    ticks.add_column("picked (age)")
    for name in ("kbit each", "r/d", "label variance"):
        ticks.add_column(name, justify="right")
    for row in rows[:limit]:
        cells = [str(row["index"]), f"{row['time']:.3g}", str(len(row["ready"]))]
        if row.get("picked"):
            who = " ".join(f"{k}({a})" for k, a in zip(row["picked"], row["age"], strict=True))
            share = row["num_kept"][0] / summary["num_parameters"]
            cells += [who, f"{row['budget_bits'][0] / 1000:,.1f}", f"{share:.3f}", f"{row['label_variance']:,.0f}"]
        ticks.add_row(*cells)
    return [facts, ticks]
