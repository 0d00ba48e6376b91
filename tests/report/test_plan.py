"""What a plan prints is true of all picked devices, as they are allocated."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fedtide
from fedtide.engine.system import build, parameter_count
from fedtide.report.plan import plan_system
from fedtide.report.plan_text import plan_tables
from fedtide.report.summary import stale_warning
from helpers import FakeTrainer, small, small_dataset

RATE = {"radio": {"symbol_rate": 100.0}}
BLOCKS = {"radio": {"allocation": "resource_blocks", "num_symbols": 1000}}


def planned(*changes: Any) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    system = build(small(*changes), dataset=small_dataset())
    plan = plan_system(system)
    console = Console(width=140, file=io.StringIO())
    for table in plan_tables(plan, 12, 140):
        console.print(table)
    return plan.rows, plan.summary, console.file.getvalue()  # type: ignore[attr-defined]


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


COUNTED = {"radio": {"symbol_rate": 5000.0, "joules_per_symbol": 0.001}, "fleet": {"joules_per_sample": 0.25}}
NOISY = {"radio": {"csi": {"name": "noisy", "error": 0.3}}}
AIR = {"codec": {"name": "ideal"}, "radio": {"access": {"name": "over_the_air", "min_snr": 8.0}}}


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [BLOCKS],
        [NOISY],
        [AIR],
        [{"fleet": {"energy": {"name": "cmos", "power_watts": 0.2}}}],
        [{"radio": {"downlink": "broadcast"}}],
        [{"timeline": {"name": "per_arrival"}, "policy": {"limit": 1}}],
    ],
    ids=["default", "blocks", "noisy", "over the air", "cmos", "broadcast", "per arrival"],
)
def test_a_plan_spends_what_the_run_then_spends(changes: list[dict[str, Any]]) -> None:
    """Every column of the ledger, who is lost and who is heard, without a training."""
    system = build(small(COUNTED, *changes), dataset=small_dataset())
    plan, trainer = plan_system(system), FakeTrainer(parameter_count(system))
    rounds = fedtide.simulate(system.experiment, system=system, trainer=trainer).rounds
    spent, done = plan.summary["ledger"], rounds[-1].ledger._asdict()
    for name in {*done} - {"control_bits", "co2_grams"}:
        assert spent[name] == pytest.approx(done[name], rel=1e-12), name
    assert plan.summary["joules"] == done["joules"] > 0
    joules = np.diff([0.0, *(record.ledger.joules for record in rounds)])
    assert [row["joules"] for row in plan.rows] == pytest.approx(joules)
    assert [row["lost"] for row in plan.rows] == [[*record.lost] for record in rounds]
    heard = {k for record in rounds for k, weight in zip(record.picked, record.weight, strict=True) if weight > 0}
    unheard = sorted({*range(system.fleet.num_devices)} - heard)
    assert plan.summary["never_heard"] == len(unheard)
    assert plan.summary["never_heard_first"] == unheard[:10]


def test_energy_is_split_into_training_and_sending() -> None:
    _, summary, text = planned(COUNTED)
    training = 0.25 * summary["ledger"]["samples_trained"]
    assert summary["joules_of_training"] == pytest.approx(training)
    assert summary["joules"] - training == pytest.approx(0.001 * summary["ledger"]["symbols_sent"])
    assert f"J: {training:.4g} training, {summary['joules'] - training:.4g} sending" in text
    unknown = planned(COUNTED, {"codec": {"name": "dead_zone"}})
    assert "training, at most" in unknown[2]
    free = planned()
    assert free[1]["joules"] is None
    assert "energy" not in free[2]
    assert free[0][0]["joules"] is None


def test_outage_is_a_share_of_the_uploads() -> None:
    rows, summary, text = planned(NOISY)
    lost, uploads = (sum(len(row[name]) for row in rows) for name in ("lost", "picked"))
    assert 0 < lost < uploads
    assert summary["outage_at_most"] == lost / uploads
    assert f"{lost} of {uploads} packets ({lost / uploads:.1%})" in text


def test_who_is_never_heard_is_counted_and_named() -> None:
    """Of a large fleet the first ten are named."""
    rows, summary, text = planned({"policy": {"limit": 1, "scheduler": "best_channel"}})
    picked = {k for row in rows for k in row["picked"]}
    never = [k for k in range(6) if k not in picked]
    assert 0 < len(never) == summary["never_picked"] == summary["never_heard"]
    assert f"{len(never)} of 6: {', '.join(map(str, never))}, never picked" in " ".join(text.split())
    many = {"fleet": {"num_devices": 10_001}, "data": {"partition": "virtual_iid"}}
    _, summary, text = planned(many, {"timeline": {"horizon": 1.0}})
    assert len(summary["never_heard_first"]) == 10
    assert f"and {summary['never_heard'] - 10:,} more, never picked" in text


def test_lost_and_silent_devices_are_not_heard() -> None:
    weak = {"radio": {"csi": {"name": "noisy", "error": 50.0}, "num_symbols": 300}}
    rows, summary, text = planned(weak)
    heard = {k for row in rows for k in row["picked"] if k not in row["lost"]}
    assert summary["never_heard"] == 6 - len(heard) > summary["never_picked"]
    assert f"{summary['never_picked']} of them are never picked" in text
    rows, summary, text = planned(AIR, {"radio": {"access": {"name": "over_the_air", "min_snr": 1e6}}})
    assert summary["silent"] == summary["uploads"] == sum(len(row["silent"]) for row in rows) > 0
    assert summary["never_heard"] == 6
    assert "too weak to be heard" in text


def test_symbols_that_are_not_filled() -> None:
    _, summary, text = planned(BLOCKS)
    ticks = summary["aggregations"]
    assert summary["symbols_offered"] == summary["symbols_per_aggregation"] * ticks
    spare = summary["symbols_offered"] - summary["symbols"]
    unused = summary["symbols"] - summary["symbols_sent"]
    share = (spare + unused) / summary["symbols_offered"]
    assert spare > 0
    assert f"{share:.1%}: {unused:,.0f} symbols granted and not needed, {spare:,.0f} not granted" in text
    assert "not granted; packets tell" in planned({"codec": {"name": "dead_zone"}})[2]
