"""The examples of joint decisions keep what their texts say, and what a decision may not do is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.engine.step import Policy, plan_step
from fedtide.errors import TrainingError
from fedtide.parts import registry
from fedtide.radio.modem import shannon_capacity, shannon_snr
from fedtide.types import Candidates, Decision, UplinkView
from helpers import EXAMPLES

SMALL = {
    "data": {"name": "synthetic", "num_train": 400, "num_test": 50},
    "fleet": {"num_devices": 12},
    "timeline": {"horizon": 15.0},
    "learning": {"model": "softmax", "local_epochs": 1},
    "policy": {"limit": 4},
}


def candidates(capacity: list[float], symbols: float = 1e5, **more: Any) -> Candidates:
    """Ready devices over these links."""
    count, links = len(capacity), np.array(capacity)
    view = UplinkView(shannon_snr(links)[:, None], shannon_capacity, symbols, 1e6, 2.0)
    ones = np.ones(count, np.int64)
    return Candidates(
        count, np.arange(count), ones, np.ones((count, 2), np.int64), ones, ones, links, uplink=view, tick=3, **more
    )


def test_by_deadline_serves_as_many_as_any_choice_and_as_soon() -> None:
    rng = np.random.default_rng(1)
    part = registry.resolve(
        "scheduler", f"{EXAMPLES}/latency_deadline.py:ByDeadline", {"payload_bits": 3e4, "deadline": 0.03}
    )
    for _ in range(40):
        rows = candidates(rng.uniform(0.5, 6, 7).tolist())
        found = part(rows, 5, None)
        needed = 3e4 / rows.capacity
        fits = [
            (len(some), needed[list(some)].sum())
            for size in range(6)
            for some in itertools.combinations(range(7), size)
            if needed[list(some)].sum() <= 0.03 * 1e6
        ]
        most = max(size for size, _ in fits)
        assert len(found.picked) == most
        assert found.symbols.sum() == pytest.approx(min(total for size, total in fits if size == most))
        times = found.symbols / (found.share * 1e6)  # all finish together, in time
        assert np.allclose(times, found.symbols.sum() / 1e6)
        assert np.all(times <= 0.03)


def test_by_deadline_on_the_clock() -> None:
    keys = {
        "policy": {"scheduler": f"{EXAMPLES}/latency_deadline.py:ByDeadline"},
        "timeline": {"uploads": "wait"},
        "radio": {"symbol_rate": 1e6},
    }
    rounds = fedtide.simulate(fedtide.experiment(SMALL, **keys)).rounds
    late = [each.time - 0.25 * round(each.time / 0.25 - 0.2) for each in rounds if each.picked]
    assert len(late) > 20
    assert 0 < max(late) <= 0.1 + 1e-9
    for each in rounds:
        taken = sum(bits / capacity for bits, capacity in zip(each.sent_bits, each.capacity, strict=True))
        assert taken <= 0.1 * 1e6


def test_drift_power_keeps_to_its_budget_and_value_buys_rate() -> None:
    def run(value: float) -> tuple[float, float]:
        scheduler = {"name": f"{EXAMPLES}/drift_power.py:DriftPower", "budget": 0.005, "value": value}
        radio = {"joules_per_symbol": 1e-6, "max_power": 4.0}
        rounds = fedtide.simulate(fedtide.experiment(SMALL, policy={"scheduler": scheduler}, radio=radio)).rounds
        return rounds[-1].ledger.joules / (12 * len(rounds)), sum(sum(each.budget_bits) for each in rounds)

    joules, bits = run(1e-4)
    more_joules, more_bits = run(1e-2)
    assert joules <= 0.005
    assert joules < more_joules  # the queues are allowed to grow further before they weigh as much
    assert bits < more_bits


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Decision(np.array([0, 1]), np.array([9e4, 2e4])), r"110000 symbols in all: there are 100000"),
        (Decision(np.array([0]), np.array([-1.0])), "symbols=-1.0: it must be a finite number >= 0"),
        (Decision(np.array([0]), np.array([np.nan])), "symbols=nan"),
        (Decision(np.array([0]), np.array([1.0, 2.0])), "give 1 numbers, one per picked device"),
        (
            Decision(np.array([0]), np.array([10.0]), power=np.array([2.5])),
            "power=2.5: it must be above 0 and at most 2",
        ),
        (Decision(np.array([0]), np.array([10.0]), power=np.array([0.0])), "power=0.0"),
        (Decision(np.array([0]), np.array([10.0]), block=np.array([1])), "block=1: it must be from 0 to 0"),
        (Decision(np.array([0]), np.array([10.0]), block=np.array([0.5])), "give 1 numbers"),
        (
            Decision(np.array([0, 1]), np.ones(2), share=np.array([0.7, 0.7])),
            "1.4 share of the band in all: there are 1",
        ),
        (
            Decision(np.array([0]), np.array([10.0]), speed=np.array([2.0])),
            "speed=2.0: it must be above 0 and at most 1",
        ),
        (Decision(np.array([0]), np.array([10.0]), bits=np.array([1e4])), "10000 bits in 10 symbols, which carry 30"),
        (Decision(np.array([9]), np.array([10.0])), "they must lie in 0..2"),
        (Decision(np.array([0, 0]), np.array([1.0, 1.0])), "some are duplicates"),
        (Decision("all", np.array([1.0])), "one-dimensional array of whole numbers"),  # type: ignore[arg-type]
        (Decision(np.array([0]), "many"), "symbols='many': give 1 numbers"),  # type: ignore[arg-type]
        (Decision(np.array([0]), None), "symbols=None: give 1 numbers"),  # type: ignore[arg-type]
    ],
)
def test_a_decision_that_cannot_be_is_refused(decision: Decision, words: str) -> None:
    policy = Policy(lambda *_: decision, 3, None, None)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=words) as found:
        plan_step(policy, candidates([3.0, 3.0, 3.0]), 1e5, np.random.default_rng(0))
    assert "aggregation 3" in str(found.value)


def test_a_decision_comes_in_any_order() -> None:
    decision = Decision(np.array([2, 0]), np.array([10.0, 20.0]), power=np.array([2.0, 0.5]))
    policy = Policy(lambda *_: decision, 3, None, None)  # type: ignore[arg-type,return-value]
    grant = plan_step(policy, candidates([3.0, 3.0, 3.0]), 1e5, np.random.default_rng(0))
    assert grant.picked.tolist() == [0, 2]
    assert grant.symbols.tolist() == [20.0, 10.0]
    assert grant.power is not None
    assert grant.power.tolist() == [0.5, 2.0]
    assert np.allclose(grant.bits, [20 * np.log2(1 + 7 * 0.5), 10 * np.log2(1 + 7 * 2)])
