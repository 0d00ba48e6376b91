"""Numbers of the paper's set-up, worked out by hand: N=40 devices, d=21840, 13 dB, T~ = T_max/4."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from fedtide import config
from fedtide.codec.sparse_quantized import SparseQuantized, _bit_count, max_kept
from fedtide.data.synthetic import synthetic
from fedtide.engine.system import System, build
from fedtide.engine.ticks import planned
from helpers import FakeTrainer, run, small
from twins.sparse_quantized import dequantize, quantize

D = 21840


# ---- the clock


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_age_is_periods_less_one_and_at_most_tmax_over_period_less_one(parts: int) -> None:
    system = paper_system({"timeline": {"period": 1 / parts}})
    needed = np.ceil(system.fleet.duration * parts).astype(int)
    ages = set()
    for tick in system.ticks:
        age = tick.index - tick.start
        assert age.tolist() == (needed[tick.ready] - 1).tolist()
        ages |= set(age.tolist())
    assert max(ages) == math.ceil(parts) - 1  # ceil(T_max / T~) - 1


def test_only_the_last_few_models_are_kept() -> None:
    trainer = FakeTrainer()
    system = build(small({"timeline": {"period": 0.25, "horizon": 6.0}}), dataset=synthetic(0, 60, 10))
    from fedtide.engine.step import initial_state, next_state

    state = initial_state(trainer.initial_model(0), 6)
    for tick in system.ticks:
        state = next_state(state, tick.ready, np.zeros(0, np.int64), state.models[state.version], {})
        assert len(state.models) <= 4 + 1  # ceil(T_max / T~), and the newest
        assert set(state.held.tolist()) <= set(state.models)


def test_default_run_has_140_iterations() -> None:
    assert len(paper_system({}).ticks) == 140


def test_empty_ready_set_leaves_the_model_sends_nothing_and_counts() -> None:
    experiment = small({"fleet": {"num_devices": 3, "min_duration": 0.9}, "timeline": {"period": 0.25, "horizon": 2.0}})
    trainer = FakeTrainer()
    result = run(experiment, trainer=trainer)
    assert [bool(each.ready) for each in result.rounds] == [False, False, False, True] * 2
    before = trainer.evaluate(trainer.initial_model(0), synthetic(0, 1, 20).test)
    for each in result.rounds[:3]:
        assert each.picked == each.weight == each.symbols == each.sent_bits == each.num_kept == []
        assert (each.test_accuracy, each.test_loss) == before
        assert not any(each.ledger)
        assert each.label_variance == 0
    assert [each.index for each in result.rounds] == list(range(1, 9))
    assert result.rounds[3].age == [3, 3, 3]


# ---- radio


def test_budget_is_n_over_the_sum_of_inverse_capacities() -> None:
    for each in planned(paper_system({"policy": {"scheduler": "random"}})):
        capacity = each.candidates.capacity[each.grant.picked]
        np.testing.assert_allclose(each.grant.bits, 300_000 / np.sum(1 / capacity), rtol=1e-12)
        np.testing.assert_allclose(each.grant.symbols, each.grant.bits / capacity, rtol=1e-12)


def test_fair_symbols_between_the_frameworks() -> None:
    assert paper_system({}).num_symbols == pytest.approx(300_000)
    assert paper_system({"timeline": {"period": 0.125}}).num_symbols == pytest.approx(150_000)
    assert paper_system({"timeline": {"period": 1.0}}).num_symbols == pytest.approx(1_200_000)
    assert paper_system({"framework": "fedavg"}).num_symbols == pytest.approx(1_200_000)
    fedasync = paper_system({"framework": "fedasync"})
    assert fedasync.num_symbols == pytest.approx(4 * 300_000 * fedasync.ticks[-1].time / len(fedasync.ticks))


# ---- compression


def test_bit_count_of_the_papers_model() -> None:
    counts = _bit_count(D, np.arange(D + 1, dtype=float), 4)
    assert counts[0] == 32
    assert counts[1] == pytest.approx(50.4, abs=0.05)
    assert counts.argmax() == 20556
    assert counts.max() == pytest.approx(89295.7, abs=0.05)
    assert counts[D] == 87392


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        (1e9, D),
        (89295.0, D),
        (87392, D),
        (87391.99, 18428),
        (87391, 18427),
        (50.5, 1),
        (50.3, 0),
        (32, 0),
        (31.99, -1),
        (0, -1),
    ],
)
def test_largest_r_is_not_a_bisection(budget: float, kept: int) -> None:
    assert max_kept(D, budget, 4) == kept
    assert SparseQuantized(4).num_kept(D, budget) == max(kept, 0)


def test_just_below_all_of_it() -> None:
    """With whole bits, 87391 is the next smaller budget; f(18428) = 87391.44 lies between the two."""
    assert _bit_count(D, 18427, 4) < 87391 < _bit_count(D, 18428, 4) < 87392 < _bit_count(D, 18429, 4)


def test_variance_at_full_size_is_far_below_the_papers_bound() -> None:
    """r/(4 nu^2) is 341 at r = d, min(r/nu^2, sqrt(r)/nu) is 36.9."""
    assert pytest.approx(341.25) == D / (4 * 4**2)
    assert min(D / 4**2, math.sqrt(D) / 4) == pytest.approx(36.9, abs=0.06)
    rng = np.random.default_rng(0)
    vector = rng.standard_normal(D).astype(np.float32)
    sq_norm = np.square(vector, dtype=float).sum()
    ratio = [
        np.square(dequantize(*quantize(vector, 4, rng), 4) - vector.astype(float)).sum() / sq_norm for _ in range(30)
    ]
    assert 20 < np.mean(ratio) < 36.95


@cache
def _mnist_sized() -> object:
    return synthetic(0, 4000, 10)


def paper_system(*trees: dict) -> System:
    """The paper's experiment, its radio and its model, on a smaller data set: nothing here is trained."""
    base = {"data": {"name": "synthetic"}, "learning": {"model": "paper_cnn", "trainer": "torch"}}
    return build(config.experiment(base, *trees), dataset=_mnist_sized())


def kept_share(*trees: dict) -> np.ndarray:
    shares = []
    for seed in range(4):
        system = paper_system({"seed": seed, "policy": {"scheduler": "random"}}, *trees)
        for each in planned(system):
            if len(each.grant.bits) == system.policy.limit:
                shares.append(system.codec.num_kept(D, each.grant.bits[0]) / D)
    return np.array(shares)


def test_all_is_kept_in_three_quarters_of_the_rounds() -> None:
    assert (kept_share() == 1).mean() == pytest.approx(0.74, abs=0.06)


@pytest.mark.parametrize(("limit", "share"), [(2, 0.74), (4, 0.26), (8, 0.10), (12, 0.056), (20, 0.029)])
def test_typical_kept_share_at_50_000_symbols(limit: int, share: float) -> None:
    tree = {"radio": {"num_symbols": 50_000}, "policy": {"limit": limit}}
    assert kept_share(tree).mean() == pytest.approx(share, rel=0.12)


def test_typical_kept_share_of_a_hundred_devices() -> None:
    tree = {"fleet": {"num_devices": 100}, "radio": {"num_symbols": 380_000}, "policy": {"limit": 30}}
    assert 0.17 < kept_share(tree).mean() < 0.33


# ---- scheduling


@pytest.mark.parametrize("scheduler", ["random", "best_channel", "age_based", "proposed"])
def test_as_many_as_allowed_and_never_more_than_are_ready(scheduler: str) -> None:
    for limit in (1, 8, 30):
        system = paper_system({"policy": {"scheduler": scheduler, "limit": limit}, "timeline": {"horizon": 5.0}})
        for each in planned(system):
            assert len(each.grant.picked) == min(limit, len(each.tick.ready))


def test_all_subsets_are_tried_at_forty_devices() -> None:
    assert math.comb(20, 8) == 125_970
    assert all(each.grant.proved_minimal for each in planned(paper_system({"timeline": {"horizon": 5.0}})))


def test_age_based_counts_every_iteration_without_an_upload() -> None:
    system = paper_system({"policy": {"scheduler": "age_based", "limit": 3}, "timeline": {"horizon": 5.0}})
    uploads = np.zeros(40, int)
    for each in planned(system):
        assert each.candidates.missed.tolist() == (each.tick.index - uploads[each.tick.ready]).tolist()
        uploads[each.tick.ready[each.grant.picked]] += 1


def test_non_iid_devices_hold_five_shards_of_forty_devices() -> None:
    system = paper_system({})
    assert set(system.fleet.num_samples.tolist()) == {5 * 4000 // 200}
    assert system.fleet.label_counts.sum() == 4000
