"""Runs and plans over other modems than Shannon's: what is granted, carried and lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.engine.step import step_links
from fedtide.engine.system import build, parameter_count
from fedtide.engine.ticks import planned
from fedtide.engine.uplink import granted_link, packet_errors, uplink_view
from fedtide.radio.modem import Gap, achieved_capacity
from fedtide.radio.nr import NewRadio
from fedtide.runs import RoundRecord
from fedtide.types import Decision, Grant, Link, Signal
from helpers import FakeTrainer, small, small_dataset

FLEET: dict[str, Any] = {"fleet": {"num_devices": 20}, "policy": {"limit": 12}, "radio": {"num_symbols": 5000}}


def over(modem: Any, **radio: Any) -> dict[str, Any]:
    return {**FLEET, "radio": {**FLEET["radio"], "modem": modem, **radio}}


def losses(modem: Any, **radio: Any) -> tuple[int, int]:
    """Return uploads and losses of a run, which its plan tells before."""
    system = build(small(over(modem, **radio)), dataset=small_dataset())
    rounds = fedtide.simulate(system.experiment, system=system, trainer=FakeTrainer(parameter_count(system))).rounds
    for record, plan in zip(rounds, planned(system), strict=True):
        assert plan.lost is not None
        assert plan.grant is not None
        assert plan.candidates.device[plan.grant.picked[plan.lost]].tolist() == record.lost
    return sum(len(each.picked) for each in rounds), sum(len(each.lost) for each in rounds)


def test_known_links_lose_nothing_and_carry_what_the_modem_says() -> None:
    for name, made in (("nr", NewRadio()), ("gap", Gap())):
        assert losses(name)[1] == 0
        system = build(small(over(name)), dataset=small_dataset())
        for tick in system.ticks[:5]:
            link = step_links(system, tick)
            assert link.signal is not None
            assert np.array_equal(link.capacity, made(link.signal.snr))


def test_estimates_choose_the_mcs_and_the_truth_decides() -> None:
    csi = {"name": "noisy", "error": 0.1}
    system = build(small(over("nr", csi=csi)), dataset=small_dataset())
    modem, seen = NewRadio(), 0
    for tick in system.ticks[:20]:
        link = step_links(system, tick)
        assert link.signal is not None
        assert np.array_equal(link.capacity, modem.achieved(*link.signal))
        assert np.array_equal(link.estimated_capacity, modem(link.signal.estimated_snr))
        # an estimate that is 2 dB and more too high fails all the time without HARQ: it does not carry log2(1 + SNR)
        high = link.signal.estimated_snr > 2 * link.signal.snr
        none = NewRadio(harq="none").achieved(*link.signal)
        assert np.all(none[high] < 0.05 * link.estimated_capacity[high] + 1e-9)
        seen += int(high.sum())
    assert seen
    uploads, lost = losses("nr", csi=csi)
    assert 0.1 < lost / uploads < 0.7
    assert losses("nr", csi={**csi, "margin_db": 6.0})[1] < lost / 3


def test_unacknowledged_blocks_lose_packets_of_known_links() -> None:
    """1 - (1 - p)^blocks of every packet, drawn."""
    modem = {"name": "nr", "harq": "none", "num_prbs": 2, "bler_target": 0.4}
    uploads, lost = losses({**modem, "acknowledged": False})
    assert 0 < lost < uploads
    assert losses(modem)[1] == 0


def test_packets_of_more_blocks_are_lost_more_often() -> None:
    modem = NewRadio(harq="none", acknowledged=False, num_prbs=4)
    count = 4000
    snr = np.full(count, 10.0)
    link, picked = Link(modem(snr), modem(snr), Signal(snr, snr)), np.arange(count)
    for blocks in (1, 5):
        size = modem.blocks(snr, snr).size
        grant = Grant(picked, np.full(count, 1e4), blocks * size)
        p = modem.blocks(snr, snr).residual[0]
        share = packet_errors(link, grant, modem, 3, 1, picked).mean()
        wanted = 1 - (1 - p) ** blocks
        assert share == pytest.approx(wanted, abs=4 * (wanted / count) ** 0.5)
        assert p > 1e-3


def test_a_scheduler_sees_rates_and_errors_at_every_power() -> None:
    system = build(small(over("nr", num_blocks=2)), dataset=small_dataset())
    modem = NewRadio(harq="none", acknowledged=False)
    view = uplink_view(step_links(system, system.ticks[2]), modem, 5000.0)
    assert view.snr.shape == (len(system.ticks[2].ready), 2)
    snr, bits = 2 * view.snr, np.full(len(view.snr), 5e4)
    assert np.array_equal(view.capacity(2.0), np.stack([modem(snr[:, 0]), modem(snr[:, 1])], axis=1))
    assert np.array_equal(view.error(2.0, bits)[:, 0], modem.error(snr[:, 0], snr[:, 0], bits))
    assert np.array_equal(view.error(2.0)[:, 1], modem.error(snr[:, 1]))
    assert np.all(view.error(2.0, bits) > view.error(2.0))
    assert not view._replace(modem=Gap()).error(2.0, bits).any()


def test_a_decision_that_sets_powers_sends_at_the_mcs_of_the_estimate() -> None:
    modem, snr, estimated = NewRadio(harq="none"), np.array([3.0, 30.0, 9.0]), np.array([4.0, 25.0, 20.0])
    link = Link(modem.achieved(snr, estimated), modem(estimated), Signal(snr, estimated))
    decision = Decision(np.array([0, 2]), np.array([10.0, 10.0]), power=np.array([0.5, 2.0]))
    found = granted_link(link, Grant(decision.picked, decision.symbols, decision.symbols, decision=decision), modem)
    power = np.array([0.5, 2.0])
    assert np.array_equal(found.capacity, modem.achieved(snr[[0, 2]] * power, estimated[[0, 2]] * power))
    assert np.array_equal(found.estimated_capacity, modem(estimated[[0, 2]] * power))


def test_a_modem_without_achieved_carries_what_it_says_of_the_truth() -> None:
    snr, estimated = np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2))
    assert np.array_equal(achieved_capacity(Gap(), snr, estimated), Gap()(snr.ravel()).reshape(2, 2))


def test_a_run_over_nr_is_resumed_to_the_same_numbers(tmp_path: Path) -> None:
    modem = {"name": "nr", "table": 2, "acknowledged": False, "harq": "chase", "rounds": 2}
    experiment = small(over(modem, csi="noisy"))
    whole = fedtide.simulate(experiment, tmp_path / "whole", dataset=small_dataset(), trainer=FakeTrainer(300))

    def stop(record: RoundRecord, total: int) -> None:
        if record.index == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(
            experiment, tmp_path / "half", dataset=small_dataset(), trainer=FakeTrainer(300), on_round=stop
        )
    rest = fedtide.simulate(experiment, tmp_path / "half", dataset=small_dataset(), trainer=FakeTrainer(300))
    assert [each.lost for each in rest.rounds] == [each.lost for each in whole.rounds]
    assert [each.capacity for each in rest.rounds] == [each.capacity for each in whole.rounds]
