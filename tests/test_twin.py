"""The fast path against the slow twin of reference.py, on small random systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fedtide
import reference
from fedtide import config
from fedtide.engine.system import build, make_trainer
from helpers import small_dataset

SCHEDULERS = ["random", "best_channel", "best_channel_best_norm", "age_based", "proposed"]
FRAMEWORKS = ["fedavg", "periodic", "fedasync"]
NUM_LABELS = 3


@st.composite
def systems(draw: st.DrawFn, framework: str, scheduler: str) -> fedtide.Experiment:
    num_devices = draw(st.integers(2, 7))
    seed = draw(st.integers(0, 2**32))
    period = draw(st.sampled_from([0.1, 0.25, 0.3, 0.5, 1.0]))
    rounds = {"fedavg": 3, "periodic": min(8.0, 2 / period), "fedasync": 1.5}[framework]
    unit = {"fedavg": 1.0, "periodic": period, "fedasync": 1.0}[framework]
    gain = draw(st.sampled_from([1.0, [draw(st.floats(0.01, 4)) for _ in range(num_devices)]]))
    return config.experiment(
        {
            "seed": seed,
            "framework": framework,
            "data": {
                "name": "synthetic",
                "partition": draw(st.sampled_from(["iid", "shards"])),
                "num_shards": num_devices * draw(st.integers(1, 2)),
                "size_spread": draw(st.sampled_from([0.0, 0.6])),
            },
            "fleet": {"num_devices": num_devices, "min_duration": draw(st.sampled_from([0.0, 0.4]))},
            "timeline": {"period": period, "horizon": round(unit * rounds + draw(st.sampled_from([0.0, 0.03])), 6)},
            "radio": {
                # from nothing sent at all to everything kept
                "num_symbols": draw(st.sampled_from([4.0, 20.0, 60.0, 150.0, 500.0, 5000.0])),
                "snr_db": draw(st.sampled_from([-3.0, 13.0, 25.0])),
                "large_scale": gain,
            },
            "policy": {
                "scheduler": scheduler,
                "limit": 1 if framework == "fedasync" else draw(st.integers(1, num_devices)),
                "age_base": draw(st.sampled_from([0.5, 1.0, 2.3 / np.e, 2.0])),
            },
            "codec": {"num_levels": draw(st.sampled_from([1, 3, 4, 7]))},
            "learning": {
                "model": "softmax",
                "trainer": "torch",
                "local_epochs": draw(st.integers(1, 2)),
                "batch_size": draw(st.sampled_from([3, 50])),
                "learning_rate": 0.5,
                "proximal": draw(st.sampled_from([0.0, 0.02, 0.5])),
            },
        },
        {"policy": {"aggregator": {"mixing": draw(st.sampled_from([0.4, 0.8]))}}} if framework == "fedasync" else {},
    )


def twin_of(system: Any) -> reference.Setup:
    e = system.experiment
    scale = e.radio.large_scale
    return reference.Setup(
        seed=e.seed,
        samples=system.dataset.train,
        num_labels=NUM_LABELS,
        partition=[mine.tolist() for mine in system.fleet.partition],
        duration=system.fleet.duration.tolist(),
        max_duration=e.fleet.max_duration,
        framework=e.framework,
        period=e.timeline.period,
        horizon=e.timeline.horizon,
        num_symbols=e.radio.num_symbols,
        snr_db=e.radio.snr_db,
        large_scale=list(scale) if isinstance(scale, tuple) else [scale] * e.fleet.num_devices,
        scheduler=e.policy.scheduler.name,
        limit=e.policy.limit,
        gamma=e.policy.age_base,
        num_levels=e.codec.num_levels,
        epochs=e.learning.local_epochs,
        batch_size=e.learning.batch_size,
        learning_rate=e.learning.learning_rate,
        proximal=e.learning.proximal,
        mixing=e.policy.aggregator.args.get("mixing", 0.0),
        joules_per_symbol=e.radio.joules_per_symbol,
        joules_per_sample=e.fleet.joules_per_sample,
        symbol_rate=e.radio.symbol_rate,
    )


def assert_same(experiment: fedtide.Experiment) -> None:
    dataset = small_dataset(experiment.seed % 7, num_train=21, num_labels=NUM_LABELS)
    prices = {"radio": {"symbol_rate": 7.0, "joules_per_symbol": 0.5}, "fleet": {"joules_per_sample": 0.25}}
    experiment = config.experiment(experiment, prices)
    system = build(experiment, dataset=dataset)
    trainer = make_trainer(system)
    fast = fedtide.simulate(experiment, system=system, trainer=trainer)
    slow = reference.simulate(twin_of(system), trainer.initial_model(experiment.seed).tolist())
    assert len(fast.rounds) == len(slow.rounds)
    for ours, theirs in zip(fast.rounds, slow.rounds, strict=True):
        assert ours.ready == theirs.ready
        assert ours.picked == theirs.picked
        assert ours.age == theirs.age
        assert ours.num_kept == theirs.kept
        assert ours.sent_bits == theirs.sent
        assert ours.label_variance == pytest.approx(theirs.label_variance, rel=1e-12, abs=1e-12)
        for name, other in (
            ("capacity", theirs.capacity),
            ("symbols", theirs.symbols),
            ("budget_bits", theirs.budget),
            ("weight", theirs.weight),
        ):
            np.testing.assert_allclose(getattr(ours, name), other, rtol=1e-12, err_msg=name)
        assert ours.time == pytest.approx(theirs.time, rel=1e-12)
        assert ours.ledger.air_time == pytest.approx(theirs.air_time, rel=1e-9)
        assert ours.ledger.joules == pytest.approx(theirs.joules, rel=1e-9)
    np.testing.assert_allclose(fast.model, np.array(slow.model), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_same_as_the_paper_by_loops(framework: str, scheduler: str) -> None:
    @settings(max_examples=25)
    @given(systems(framework, scheduler))
    def check(experiment: fedtide.Experiment) -> None:
        assert_same(experiment)

    check()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("partition", ["iid", "shards"])
def test_same_on_a_longer_run(partition: str, scheduler: str) -> None:
    assert_same(
        config.experiment(
            {
                "seed": 5,
                "framework": "periodic",
                "data": {"name": "synthetic", "partition": partition, "num_shards": 14},
                "fleet": {"num_devices": 7},
                "timeline": {"horizon": 6.0},
                "radio": {"num_symbols": 160},
                "policy": {"scheduler": scheduler, "limit": 3, "age_base": 0.8},
                "learning": {"model": "softmax", "trainer": "torch", "local_epochs": 1, "learning_rate": 0.3},
            }
        )
    )


@settings(max_examples=60)
@given(
    st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=60),
    st.floats(0, 400),
    st.integers(1, 9),
    st.integers(0, 2**32),
)
def test_codec_reads_the_same_draws(values: list[float], budget: float, nu: int, seed: int) -> None:
    from fedtide.codec.sparse_quantized import SparseQuantized

    update = np.array(values, np.float32)
    edges = [reference.bits_needed(len(values), r, nu) for r in range(len(values) + 1)]
    assume(min(abs(edge - budget) for edge in edges) > 1e-6)  # not on the edge, where a rounding decides
    codec = SparseQuantized(nu)
    packet = codec.encode(update, budget, np.random.default_rng(seed))
    received, kept, bits = reference.compress(update.tolist(), budget, nu, np.random.default_rng(seed))
    assert packet.num_kept == kept
    assert packet.bits == bits <= max(budget, 0)
    np.testing.assert_allclose(codec.decode(packet), np.array(received), rtol=1e-6, atol=0)
