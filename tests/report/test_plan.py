"""What a plan prints is true of all picked devices, as they are allocated."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedtide.engine.system import build
from fedtide.report.plan import Plan, _plan_rows, _plan_summary, plan_tables
from fedtide.report.summary import stale_warning
from helpers import small, small_dataset

RATE = {"radio": {"symbol_rate": 100.0}}
BLOCKS = {"radio": {"allocation": "resource_blocks", "num_symbols": 1000}}


def planned(*changes: Any) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    system = build(small(*changes), dataset=small_dataset())
    rows = _plan_rows(system)
    summary = _plan_summary(system, rows)
    console = Console(width=140, file=io.StringIO())
    for table in plan_tables(Plan(system.experiment, rows, summary), 12, 140):
        console.print(table)
    return rows, summary, console.file.getvalue()  # type: ignore[attr-defined]


def test_the_budget_is_over_all_picked_devices() -> None:
    rows, summary, text = planned(BLOCKS)
    bits = [each for row in rows for each in row["budget_bits"]]
    assert len({*bits}) > len(rows)
    found = summary["budget_bits_per_upload"]
    wanted = {"mean": np.mean(bits), "median": np.median(bits), "min": min(bits), "max": max(bits)}
    assert found == pytest.approx(wanted)
    assert f"median {np.median(bits):,.0f} bits, {min(bits):,.0f} to {max(bits):,.0f}" in text
    row = next(row for row in rows if len({*row["budget_bits"]}) > 1)
    low, high = min(row["budget_bits"]) / 1000, max(row["budget_bits"]) / 1000
    assert f"({low:,.1f} to {high:,.1f})" in text


def test_symbols_are_counted_as_allocated() -> None:
    """Five whole blocks of 168 symbols go into 1,000, and the rest is not used."""
    rows, summary, text = planned(BLOCKS)
    granted = sum(sum(row["symbols"]) for row in rows)
    assert summary["symbols"] == granted == 840 * sum(bool(row["picked"]) for row in rows)
    assert f"{granted:,.0f} in all; packets take {summary['symbols_sent']:,.0f} of them" in text
    assert 0 < summary["symbols_sent"] <= granted


def test_a_small_model_takes_a_part_of_what_is_granted() -> None:
    rows, summary, _ = planned({"radio": {"num_symbols": 1e6}})
    sent = sum(
        bits / capacity for row in rows for bits, capacity in zip(row["sent_bits"], row["capacity"], strict=True)
    )
    assert summary["symbols_sent"] == pytest.approx(sent)
    assert sent < summary["symbols"] / 100
    assert planned({"codec": {"name": "dead_zone"}})[1]["symbols_sent"] is None


def test_airtime_says_what_it_counts_and_when_it_cannot_be() -> None:
    _, summary, text = planned(RATE)
    assert f"{summary['symbols'] / 100:,.4g} in a horizon of 3: symbols granted / radio.symbol_rate; more than" in text
    assert "more than" not in planned({"radio": {"symbol_rate": 1e5}})[2]
    assert "airtime" not in planned()[2]


def test_very_old_models_are_told_of() -> None:
    away = {"fleet": {"availability": {"name": "markov", "mean_on": 0.3, "mean_off": 5.0}}}
    rows, summary, _ = planned(away, {"timeline": {"horizon": 30.0}})
    assert summary["largest_age"] == max(age for row in rows for age in row["ready_age"]) > 12
    assert "aggregations ago" in (stale_warning(summary["largest_age"], summary["aggregations"]) or "")
    assert stale_warning(14, 140) is stale_warning(10, 12) is stale_warning(None, 0) is None
    assert stale_warning(15, 140)
