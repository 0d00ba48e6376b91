from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtide.aggregate.averages import AgeAware, AverageModels, UniformWeights
from fedtide.engine.exchange import Announced, Delivered, ReadyDevices
from fedtide.engine.step import Policy, Rules, ServerState, initial_state, plan_step, step
from fedtide.errors import FedtideError
from fedtide.radio.allocation import EqualBits
from fedtide.schedule.schedulers import BestChannel
from fedtide.types import Grant, Selection, Tick
from helpers import make_candidates

MODEL = np.arange(4, dtype=np.float32)


BEST, AGED, AVERAGE = BestChannel(), AgeAware(), AverageModels()


def policy(scheduler: Any = BEST, limit: int = 2, weighting: Any = AGED, aggregator: Any = AVERAGE) -> Policy:
    return Policy(scheduler, limit, weighting, aggregator)


class Told:
    """Devices that are ready and send what they are told to, all of them or some."""

    def __init__(
        self, device: list[int], start: list[int], updates: Any, arriving: list[int], samples: Any = 10
    ) -> None:
        self.device, self.start, self.updates = np.array(device, np.int64), np.array(start, np.int64), updates
        self.arriving, self.samples = np.array(arriving, np.int64), samples

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        rows = make_candidates(np.ones(len(self.device)), age=tick.index - self.start)
        samples = np.full(len(self.device), self.samples)
        return ReadyDevices(rows._replace(device=self.device, tick=tick.index, num_samples=samples))

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        return Announced(self.arriving, [self.updates] if len(self.arriving) else [])

    def send(self, state: ServerState, tick: Tick, lot: Any) -> Delivered:
        return Delivered(lot, {})


def aggregate(
    state: ServerState,
    device: list[int],
    arriving: list[int],
    updates: Any,
    start: list[int] | None = None,
    own: Policy | None = None,
    samples: Any = 10,
) -> tuple[ServerState, Any]:
    """Aggregate once; arriving: positions among the ready devices. Return the next state and the weights."""
    start = [state.version] * len(device) if start is None else start
    tick = Tick(state.version, 1.0, np.array(device, np.int64), np.array(start, np.int64))
    rules = Rules(own or policy(limit=8), EqualBits(), 100.0, 0)
    after, info = step(rules, state, tick, Told(device, start, updates, arriving, samples))
    return after, info.weights


# ---- plan


def test_plan_with_nobody_ready_asks_no_scheduler() -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    grant = plan_step(policy(never), make_candidates([]), 100.0, np.random.default_rng(0))
    assert len(grant.picked) == len(grant.symbols) == len(grant.bits) == 0


def test_plan_returns_positions_in_order_and_passes_on_the_proof() -> None:
    answers = policy(lambda *_: Selection(np.array([3, 1]), True))
    grant = plan_step(answers, make_candidates([1, 2, 3, 4]), 90.0, np.random.default_rng(0))
    assert grant.picked.tolist() == [1, 3]
    assert grant.proved_minimal is True
    np.testing.assert_allclose(grant.symbols, [60, 30])
    np.testing.assert_allclose(grant.bits, [120, 120])


def test_a_scheduler_is_asked_for_no_more_than_are_ready() -> None:
    asked = []
    plan_step(policy(lambda c, limit, rng: asked.append(limit) or [0, 1, 2], 8), make_candidates([1, 1, 1]), 9.0, None)
    assert asked == [3]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([0, 0], "duplicates"),
        ([0, 1, 3], "there are 3, and at most min(limit, ready) = 2"),
        ([0, 1, 2], "there are 3"),
        ([0, 4], "0..3; a scheduler returns positions within the candidates, not device numbers"),
        ([-1, 0], "0..3"),
        ([0.0, 1.0], "whole numbers"),
        ([[0, 1]], "one-dimensional"),
        ([True, False, True, False], "whole numbers"),
        (None, "one-dimensional"),
        ("ab", "one-dimensional"),
    ],
)
def test_a_scheduler_that_breaks_its_contract(answer: Any, reason: str) -> None:
    with pytest.raises(FedtideError) as caught:
        plan_step(policy(lambda *_: answer), make_candidates([1, 2, 3, 4]), 90.0, np.random.default_rng(0))
    assert reason in str(caught.value)
    assert "the scheduler returned" in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- step


def test_the_new_model_goes_to_every_ready_device_scheduled_or_not() -> None:
    state, weights = aggregate(initial_state(MODEL, 4), [0, 2], [1], np.ones((1, 4), np.float32))
    assert state.version == 2
    assert state.held.tolist() == [2, 1, 2, 1]
    assert state.uploads.tolist() == [0, 0, 1, 0]
    assert weights.tolist() == [1.0]
    np.testing.assert_array_equal(state.models[2], MODEL + 1)
    assert set(state.models) == {1, 2}


def test_models_that_nobody_holds_are_forgotten() -> None:
    state = initial_state(MODEL, 2)
    for version in range(1, 6):
        state, _ = aggregate(state, [0, 1], [0], np.ones((1, 4), np.float32))
        assert set(state.models) == {version + 1}


def test_nothing_arrived() -> None:
    after, weights = aggregate(initial_state(MODEL, 3), [1], [], np.empty((0, 4), np.float32))
    assert len(weights) == 0
    assert after.version == 2
    np.testing.assert_array_equal(after.models[2], MODEL)
    assert after.held.tolist() == [1, 2, 1]


def test_a_step_leaves_the_old_state_alone() -> None:
    state = initial_state(MODEL.copy(), 3)
    aggregate(state, [0, 1], [0, 1], np.ones((2, 4), np.float32))
    assert (state.version, state.held.tolist(), state.uploads.tolist()) == (1, [1, 1, 1], [0, 0, 0])
    np.testing.assert_array_equal(state.models[1], MODEL)


def test_ages_weigh_by_start_version() -> None:
    state, _ = aggregate(initial_state(MODEL, 2), [0], [0], np.ones((1, 4), np.float32))
    own, updates = policy(limit=8, weighting=AgeAware(0.5)), np.zeros((2, 4), np.float32)
    _, weights = aggregate(state, [0, 1], [0, 1], updates, [2, 1], own, samples=[10, 30])
    np.testing.assert_allclose(weights, [10 / 25, 15 / 25])


@pytest.mark.parametrize("answer", [[0.5], [0.7, 0.7], [-0.5, 1.5], [np.nan, 1.0], [[0.5, 0.5]], [0.0, 0.0]])
def test_a_weighting_that_breaks_its_contract(answer: Any) -> None:
    own = policy(limit=8, weighting=lambda *_: answer)
    with pytest.raises(FedtideError, match="2 weights >= 0 with sum 1") as caught:
        aggregate(initial_state(MODEL, 3), [0, 2], [0, 1], np.zeros((2, 4), np.float32), own=own)
    assert "\n" not in str(caught.value)


def test_the_scheduler_is_asked_what_it_needs() -> None:
    class Curious:
        needs = ("update_sq_norm",)

    assert "update_sq_norm" in policy(Curious()).needs
    assert not policy(weighting=UniformWeights()).needs
