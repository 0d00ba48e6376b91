"""A packet is lost if its own bits do not fit what its link carries, whatever was granted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.drivers.planned import planned
from fedtide.drivers.ticks import link_at
from fedtide.records import RoundRecord
from fedtide.report.plan import plan_rows, plan_summary
from fedtide.system import build, parameter_count
from helpers import FakeTrainer, small, small_dataset

NOISY: dict[str, Any] = {
    "fleet": {"num_devices": 20},
    "policy": {"limit": 12},
    "radio": {"csi": "noisy", "csi_args": {"error": 0.3}},
}


def simulated(*changes: Any) -> tuple[Any, list[RoundRecord]]:
    system = build(small(NOISY, *changes), dataset=small_dataset())
    trainer = FakeTrainer(parameter_count(system))
    return system, fedtide.simulate(system.experiment, system=system, trainer=trainer).rounds


def test_a_packet_that_fits_arrives_whatever_was_granted() -> None:
    """So many symbols that a whole update takes a fraction of what every link carries."""
    _, rounds = simulated({"radio": {"num_symbols": 1e6}})
    assert sum(len(each.picked) for each in rounds) > 100
    assert not any(each.lost for each in rounds)


@pytest.mark.parametrize("codec", ["sparse_quantized", "dead_zone", "error_feedback", "qsgd", "ideal"])
@pytest.mark.parametrize("combiner", ["average_models", "median"])
@pytest.mark.parametrize("csi", ["noisy", "packet_error"])
def test_lost_is_what_its_link_does_not_carry(codec: str, combiner: str, csi: str) -> None:
    radio = {"num_symbols": 5000, "csi": csi, "csi_args": {"error": 0.3} if csi == "noisy" else {}}
    system, rounds = simulated({"codec": {"name": codec}, "policy": {"combiner": combiner}, "radio": radio})
    fits, exceeds, wider = 0, 0, 0
    for record, tick in zip(rounds, system.ticks, strict=True):
        true = dict(zip(tick.ready.tolist(), link_at(system, tick).capacity.tolist(), strict=True))
        for at, device in enumerate(record.picked):
            carried = record.symbols[at] * true[device] * (1 + 1e-6)
            is_lost = min(record.sent_bits[at], record.budget_bits[at]) > carried
            assert (device in record.lost) == is_lost
            assert (record.weight[at] == 0) == is_lost
            fits, exceeds = fits + (not is_lost), exceeds + is_lost
            wider += record.budget_bits[at] > carried and not is_lost
    assert fits
    assert exceeds
    if csi == "noisy" and codec != "ideal":  # which counts for its grant
        assert wider  # granted more than the link carries, and arrived


def test_a_plan_knows_what_is_lost_if_it_knows_the_packets() -> None:
    system, rounds = simulated({"radio": {"num_symbols": 5000}})
    for record, each in zip(rounds, planned(system), strict=True):
        assert each.grant is not None
        assert each.lost is not None
        assert each.candidates.device[each.grant.picked[each.lost]].tolist() == record.lost
    rows = plan_rows(system)
    assert [row["lost"] for row in rows] == [record.lost for record in rounds]
    summary = plan_summary(system, rows)
    assert summary["lost"] == summary["lost_at_most"] == sum(len(record.lost) for record in rounds) > 0


def test_a_plan_that_does_not_know_the_packets_says_so() -> None:
    system, rounds = simulated({"radio": {"num_symbols": 5000}, "codec": {"name": "dead_zone"}})
    rows = plan_rows(system)
    summary = plan_summary(system, rows)
    assert summary["lost"] is None
    assert summary["lost_at_most"] >= sum(len(record.lost) for record in rounds) > 0
    assert None in [row["lost"] for row in rows]


def test_perfect_knowledge_loses_nothing() -> None:
    system = build(small({"fleet": {"num_devices": 20}}), dataset=small_dataset())
    summary = plan_summary(system, plan_rows(system))
    assert (summary["lost"], summary["lost_at_most"]) == (0, 0)
    assert not any(np.any(each.lost) for each in planned(system))
