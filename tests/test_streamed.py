"""Aggregation a lot of updates at a time: the same bits as all at once, and memory that does not grow with their number."""

from __future__ import annotations

import tracemalloc
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import fedtide
from aggregation import aggregated, cohort, stepped
from fedtide.aggregate.averages import AverageModels, Mix
from fedtide.aggregate.base import as_aggregator
from fedtide.codec.base import Packet
from fedtide.engine import devices as simulated_devices
from fedtide.engine.devices import Simulated
from fedtide.engine.step import initial_state, step
from fedtide.engine.system import build
from fedtide.errors import TrainingError
from fedtide.parts import registry
from helpers import FakeTrainer, run, small, small_dataset
from promises import part

ROOMY: dict[str, Any] = {
    "fleet": {"num_devices": 20},
    "policy": {"limit": 12, "age_base": 0.5},
    "radio": {"num_symbols": 20_000},
}


def arrived(r: int, d: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([r, d])
    model, starts, updates = (rng.standard_normal(shape).astype(np.float32) for shape in ((d,), (r, d), (r, d)))
    return model, starts, updates, rng.dirichlet(np.ones(r)), rng.integers(0, 5, r)


@pytest.mark.parametrize("r", [1, 2, 9])
def test_sums_one_after_the_other_are_those_of_the_formulas(r: int) -> None:
    """In float64, one device after the other, starts and updates apart: to the bit."""
    model, starts, updates, weights, age = arrived(r, 50)
    sums = [np.zeros(50), np.zeros(50), model.astype(np.float64)]
    scale = 1.0 * weights * (1.0 + age) ** -0.5
    for w, s, start, update in zip(weights, scale, starts, updates, strict=True):
        sums = [sums[0] + w * start, sums[1] + w * update, sums[2] + s * update]
    share = 0.4 * (1 + float(weights @ age)) ** -0.5
    mixed = np.asarray((1 - share) * model + share * (sums[0] + sums[1]), np.float32)
    given = (model, starts, updates, weights, age)
    assert np.array_equal(aggregated(AverageModels(), *given), (sums[0] + sums[1]).astype(np.float32))
    assert np.array_equal(aggregated(Mix(0.4, 0.5), *given), mixed)
    assert np.array_equal(aggregated(part("aggregator", "buffered_mean"), *given), sums[2].astype(np.float32))


@pytest.mark.parametrize(
    ("name", "within"),
    [
        (name, within)
        for name in ("server_momentum", "server_adam", "server_yogi", "fadas")
        for within in ("average_deltas", "mix", "server_momentum", "fadas")
        if name != within
    ],
)
def test_optimizers_stream_around_what_streams(name: str, within: str) -> None:
    """Memories included, the inner one's, too; over several aggregations."""
    aggregator = registry.resolve("aggregator", name, {"inner": within})
    one = other = (arrived(1, 30)[0], None)
    for r in (3, 1, 5):
        _, starts, updates, weights, age = arrived(r, 30)
        one = stepped(aggregator, one[1], one[0], starts, updates, cohort(weights, age))
        other = stepped(aggregator, other[1], other[0], starts, updates, cohort(weights, age), lot=1)
        assert np.array_equal(one[0], other[0])
        assert one[1].keys() == other[1].keys()  # type: ignore[attr-defined]
        assert all(np.array_equal(one[1][key], other[1][key]) for key in one[1])  # type: ignore[attr-defined]


def lots_of(size: int) -> Any:
    return patch.multiple(simulated_devices, _FEWEST=size, _MOST=size)


@pytest.mark.parametrize("codec", ["sparse_quantized", "dead_zone", "error_feedback", "ideal"])
@pytest.mark.parametrize("aggregator", ["average_models", "server_adam", "median"])
def test_lots_change_nothing(codec: str, aggregator: str) -> None:
    csi = {"radio": {"csi": "noisy", "num_symbols": 4000}}  # packets fill their grants, and some links carry less
    wanted = small(ROOMY, csi, {"codec": {"name": codec}, "policy": {"aggregator": aggregator}})
    with lots_of(1000):
        whole = run(wanted, trainer=FakeTrainer(300))
    assert any(each.lost for each in whole.rounds)
    for size in (1, 5):
        with lots_of(size):
            again = run(wanted, trainer=FakeTrainer(300), threads=2)
        assert np.array_equal(again.model, whole.model)
        assert again.rounds == whole.rounds


def stacked(model: Any, starts: Any, updates: Any, weights: Any, age: Any) -> Any:
    """Average as before: all of them at once."""
    total = [np.zeros(len(model)), np.zeros(len(model))]
    for weight, start, update in zip(weights, starts, updates, strict=True):
        total = [total[0] + weight * start, total[1] + weight * update]
    return (total[0] + total[1]).astype(np.float32)


def test_a_streamed_run_is_one_with_all_updates_at_once() -> None:
    wanted = small(ROOMY)
    system = build(wanted, dataset=small_dataset())
    own = system._replace(policy=system.policy._replace(aggregator=as_aggregator(stacked)))
    trainer, model = FakeTrainer(300), FakeTrainer(300).initial_model(0)
    one = other = initial_state(model, 20)
    with lots_of(3):
        for tick in system.ticks:
            one, info = step(system.rules, one, tick, Simulated(system, trainer))
            other, expected = step(own.rules, other, tick, Simulated(own, trainer))
            assert np.array_equal(one.models[one.version], other.models[other.version])
            assert info.sent == expected.sent
            assert np.array_equal(info.weights, expected.weights)


def test_what_is_all_lost_was_trained_and_sent() -> None:
    """It costs what it costs."""
    alone = small(
        {"learning": {"trainer": "native"}, "policy": {"limit": 1}, "radio": {"csi": "noisy", "num_symbols": 100}}
    )
    lost = [record for record in fedtide.simulate(alone, dataset=small_dataset()).rounds if record.lost]
    assert lost
    assert all(record.sent_bits[0] > 0 for record in lost)


def test_the_broken_devices_of_a_lot_are_named() -> None:
    broken = frozenset((k, 1) for k in (2, 7, 11, 13))
    wanted = small(ROOMY, {"policy": {"limit": 20, "scheduler": "random"}, "timeline": {"name": "synchronous"}})
    for size, named in ((1, "2"), (100, "2, 7, 11, 13")):
        with lots_of(size), pytest.raises(TrainingError, match=rf"device {named} at aggregation 1 is not finite"):
            run(wanted, trainer=FakeTrainer(300, broken=broken))


def test_a_failure_in_the_middle_leaves_the_state_whole() -> None:
    class Failing:
        """Encodes six updates."""

        code = 9
        left = 6

        def num_kept(self, num_parameters: int, budget_bits: float) -> int:
            return num_parameters

        def encode(self, update: np.ndarray, budget_bits: float, rng: np.random.Generator) -> Packet:
            self.left -= 1
            if self.left < 0:
                raise TrainingError("no more")
            return Packet(len(update), len(update), 8 * update.nbytes, update.tobytes())

        def decode(self, packet: Packet) -> np.ndarray:
            return np.frombuffer(packet.data, np.float32)

    system = build(small(ROOMY), dataset=small_dataset())
    tick = next(tick for tick in system.ticks if len(tick.ready) >= 10)
    state = initial_state(FakeTrainer(40).initial_model(0), 20)
    before = state.models[1].copy()
    tick = tick._replace(index=1, start=np.ones_like(tick.start))
    with lots_of(4), pytest.raises(TrainingError, match="no more"):
        step(system.rules, state, tick, Simulated(system._replace(codec=Failing()), FakeTrainer(40)))
    assert (state.version, list(state.models), int(np.sum(state.uploads[np.arange(20)]))) == (1, [1], 0)
    assert np.array_equal(state.models[1], before)


class Lean(FakeTrainer):
    """Gives updates that are made without a copy of them all."""

    def train(self, jobs: Any) -> np.ndarray:
        made = np.empty((len(jobs), self.num_parameters), np.float32)
        for row, job in zip(made, jobs, strict=True):
            row[:] = job.device - job.start
        return made


def peak(limit: int, codec: str, aggregator: str, csi: str = "perfect") -> int:
    """Return the most memory in bytes that one aggregation of `limit` updates takes besides what was there."""
    d, num_devices = 20_000, 400
    wanted = small(
        {
            "fleet": {"num_devices": num_devices},
            "timeline": {"name": "synchronous"},
            "policy": {"limit": limit, "scheduler": "random", "aggregator": aggregator},
            "radio": {"num_symbols": 400_000, "csi": csi},
            "codec": {"name": codec},
        }
    )
    system = build(wanted, dataset=small_dataset(num_train=2 * num_devices))
    state, trainer = initial_state(np.ones(d, np.float32), num_devices), Lean(d)
    state, _ = step(system.rules, state, system.ticks[0], Simulated(system, trainer))  # whatever is cached
    tracemalloc.start()
    try:
        step(system.rules, state, system.ticks[1], Simulated(system, trainer))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["sparse_quantized", "ideal"])
@pytest.mark.parametrize("aggregator", ["average_models", "server_momentum"])
def test_memory_does_not_grow_with_the_number_of_updates(codec: str, aggregator: str) -> None:
    """R d numbers alone are 8 MB at R = 100 and 16 MB at 200; what remains to grow are a few words for each device."""
    few, many = peak(100, codec, aggregator), peak(200, codec, aggregator)
    assert many < few + 100 * 2000


def test_packets_whose_links_may_not_carry_them_are_held_and_not_their_updates() -> None:
    """Who arrives is known when all are encoded; all packets together fit into the symbols of the tick."""
    few, many = (peak(limit, "sparse_quantized", "average_models", "noisy") for limit in (100, 200))
    assert many < few + 100 * 4000


def test_a_aggregator_that_needs_all_has_them_all() -> None:
    assert peak(200, "ideal", "median") > 200 * 20_000 * 4


def test_a_lot_is_trained_when_the_last_was_added() -> None:
    """Not before: the loop says when."""
    system = build(small(ROOMY), dataset=small_dataset())
    tick = next(tick for tick in system.ticks if len(tick.ready) >= 10)._replace(index=1)
    tick = tick._replace(start=np.ones_like(tick.start))
    trainer, seen = FakeTrainer(40), []

    class Counting(AverageModels):
        """As ours, and notes how much was trained whenever a lot is added."""

        def add(self, acc: Any, rows: Any, starts: Any, updates: Any) -> Any:
            seen.append((rows, len(trainer.jobs)))
            return super().add(acc, rows, starts, updates)

    own = system._replace(policy=system.policy._replace(aggregator=Counting()))
    with lots_of(4):
        step(own.rules, initial_state(trainer.initial_model(0), 20), tick, Simulated(own, trainer))
    assert seen[:2] == [(slice(0, 4), 4), (slice(4, 8), 8)]
