"""Over-the-air aggregation against a slow twin of symbols and channels, its limits, what it costs and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from aggregation import aggregated
from companions import with_companions
from fedtide import config
from fedtide.engine.system import build
from fedtide.engine.ticks import planned
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from fedtide.radio.over_the_air import OverTheAir, _noise_variance
from fedtide.rng import stream
from fedtide.runs import RoundRecord
from promises import part

BASE: dict[str, Any] = {
    "seed": 4,
    "data": {"name": "synthetic", "num_train": 240, "num_test": 60, "partition": "shards", "num_shards": 24},
    "fleet": {"num_devices": 6, "joules_per_sample": 0.25},
    "timeline": {"horizon": 3.0},
    "policy": {"limit": 4},
    "radio": {"num_symbols": 12000, "symbol_rate": 1000.0, "joules_per_symbol": 0.5},
    "codec": {"name": "ideal"},
    "learning": {"model": "softmax", "local_epochs": 1, "batch_size": 10, "learning_rate": 0.05},
}
D = 7850
AIR = {"radio": {"access": "over_the_air"}}


def wanted(*trees: dict[str, Any]) -> fedtide.Experiment:
    return config.experiment(BASE, *trees)


def truncated(min_snr: float) -> dict[str, Any]:
    return {"radio": {"access": {"name": "over_the_air", "min_snr": min_snr}}}


# ---- the papers, symbol by symbol


def sent_over_the_air(
    updates: np.ndarray, weights: np.ndarray, gain: np.ndarray, power: float, sigma2: float, z: np.ndarray
) -> tuple[np.ndarray, list[float]]:
    """Two real numbers a symbol, channels inverted, noise added, scaled back; and the power that each device used.

    gain: h_k, complex. z: standard complex noise of each symbol.
    """
    num_symbols = updates.shape[1] // 2
    symbols = [[complex(u[2 * i], u[2 * i + 1]) for i in range(num_symbols)] for u in updates]
    reach = []
    for k, row in enumerate(symbols):
        own = sum(abs(weights[k] * s / gain[k]) ** 2 for s in row) / num_symbols
        reach.append(math.sqrt(power / own))
    amplitude = min(reach)
    used, found = [0.0] * len(symbols), []
    for i in range(num_symbols):
        received = math.sqrt(sigma2) * z[i]
        for k, row in enumerate(symbols):
            x = amplitude * weights[k] * row[i] / gain[k]
            used[k] += abs(x) ** 2 / num_symbols
            received += gain[k] * x
        found += [(received / amplitude).real, (received / amplitude).imag]
    return np.array(found), used


def test_the_twin_keeps_to_the_power_and_has_the_stated_noise() -> None:
    draws = np.random.default_rng(1)
    r, d, power, sigma2 = 4, 20000, 2.0, 0.3
    updates = (draws.standard_normal((r, d)) * draws.uniform(0.5, 3, (r, 1))).astype(np.float32)
    weights = draws.dirichlet(np.ones(r))
    gain = draws.standard_normal(r) + 1j * draws.standard_normal(r)
    snr = power * abs(gain) ** 2 / sigma2
    z = (draws.standard_normal(d // 2) + 1j * draws.standard_normal(d // 2)) / math.sqrt(2)
    heard, used = sent_over_the_air(updates, weights, gain, power, sigma2, z)
    assert max(used) == pytest.approx(power)
    assert min(used) < 0.9 * power  # whoever needs its full power is one of them
    variance = _noise_variance(updates, weights, snr)
    exact = sum(w * u.astype(float) for w, u in zip(weights, updates, strict=True))
    assert np.var(heard - exact) == pytest.approx(variance, rel=0.04)
    ours = OverTheAir(0.0)(updates, weights, snr, np.random.default_rng(2))
    assert np.var(ours - exact) == pytest.approx(variance, rel=0.04)
    assert np.mean(ours - exact) == pytest.approx(0, abs=4 * math.sqrt(variance / d))
    # the same standard noise gives the same numbers
    n = np.random.default_rng(2).standard_normal(d)
    again, _ = sent_over_the_air(updates, weights, gain, power, sigma2, (n[0::2] + 1j * n[1::2]) / math.sqrt(2))
    assert np.allclose(again, ours, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        ({"updates": 3.0}, 9.0),  # noise follows the updates: what is relative to them stays
        ({"snr": 10.0}, 0.1),
        ({"weights": 0.5}, 0.25),
    ],
)
def test_how_the_noise_goes(change: dict[str, float], factor: float) -> None:
    given = {"updates": np.ones((3, 8), np.float32), "weights": np.full(3, 1 / 3), "snr": np.array([1.0, 4.0, 9.0])}
    before = _noise_variance(**given)
    assert before == pytest.approx(1 / 9)
    assert _noise_variance(**{key: each * change.get(key, 1.0) for key, each in given.items()}) == pytest.approx(
        factor * before
    )
    assert _noise_variance(np.zeros((3, 8), np.float32), given["weights"], given["snr"]) == 0


# ---- a whole run against the twin


def test_every_aggregation_is_the_sum_plus_noise() -> None:
    """Updates from an orthogonal exchange of the same models, the rest from the papers."""
    from fedtide.engine.devices import Simulated
    from fedtide.engine.step import initial_state, step, step_links
    from fedtide.engine.system import make_trainer

    threshold = 8.0
    experiment = wanted(truncated(threshold), {"policy": {"aggregator": "average_deltas"}})
    system, plain = build(experiment), build(wanted({"policy": {"aggregator": "average_deltas"}}))
    trainer = make_trainer(system)
    state, silent = initial_state(trainer.initial_model(experiment.seed), 6), 0
    for tick in system.ticks:
        before = state
        exchange = Simulated(plain, trainer)
        ready = exchange.ready(before, tick)
        state, info = step(system.rules, before, tick, Simulated(system, trainer))
        alone = exchange.announce(before, tick, ready, info.grant)
        updates = {
            k: update
            for lot in alone.lots
            for k, update in zip(lot.device.tolist(), exchange.send(before, tick, lot).updates, strict=True)
        }
        capacity = dict(zip(tick.ready.tolist(), step_links(system, tick).capacity.tolist(), strict=True))
        picked = tick.ready[info.grant.picked].tolist()
        snr = {k: 2 ** capacity[k] - 1 for k in picked if 2 ** capacity[k] - 1 >= threshold}
        silent += len(picked) - len(snr)
        assert tick.ready[info.arrived].tolist() == [*snr]
        if not snr:
            assert np.array_equal(state.models[state.version], before.models[before.version])
            continue
        sizes = {k: len(system.fleet.partition[k]) for k in snr}
        total, worst = np.zeros(D), 0.0
        for (k, gamma), weight in zip(snr.items(), info.weights, strict=True):
            assert weight == pytest.approx(sizes[k] / sum(sizes.values()))  # over those that send; age_base is 1
            total += weight * updates[k]
            worst = max(worst, weight**2 * float(np.dot(updates[k], updates[k])) / D / gamma)
        total += math.sqrt(worst) * stream(experiment.seed, "air", tick.index).standard_normal(D)
        assert np.allclose(state.models[state.version], before.models[before.version] + total, atol=1e-6)
    assert silent > 3


# ---- limits


def test_without_noise_and_threshold_it_is_the_ideal_orthogonal_run() -> None:
    loud = {"radio": {"snr_db": 200.0}}
    exact, air = fedtide.simulate(wanted(loud)), fedtide.simulate(wanted(loud, truncated(0.0)))
    assert [each.picked for each in air.rounds] == [each.picked for each in exact.rounds]
    assert [each.weight for each in air.rounds] == [each.weight for each in exact.rounds]
    assert np.allclose(air.model, exact.model, atol=1e-5)
    noisy = fedtide.simulate(wanted(truncated(0.0)))
    assert not np.allclose(noisy.model, fedtide.simulate(wanted()).model, atol=1e-5)


def test_devices_below_the_threshold_weigh_nothing_and_cost_nothing_to_send() -> None:
    rounds = fedtide.simulate(wanted(truncated(15.0))).rounds
    joules = symbols = control = 0.0
    for each in rounds:
        strong = [capacity >= math.log2(16) for capacity in each.capacity]
        assert [weight > 0 for weight in each.weight] == strong
        assert sum(each.weight) == pytest.approx(1 if any(strong) else 0)
        assert [kept == D for kept in each.num_kept] == strong
        assert each.lost == []
        symbols += D / 2
        control += 32 * sum(strong)
        joules += 0.5 * (D / 2) * sum(strong)
        assert each.ledger.symbols == symbols == sum(map(sum, (one.symbols for one in rounds[: each.index])))
        assert each.ledger.control_bits == control
        assert each.ledger.joules == pytest.approx(joules + 0.25 * each.ledger.samples_trained)
    assert any(sum(each.weight) > 0 and 0.0 in each.weight for each in rounds)
    deaf = fedtide.simulate(wanted(truncated(1e9)))
    assert not any(any(each.weight) for each in deaf.rounds)
    assert np.array_equal(deaf.model, fedtide.simulate(wanted(truncated(1e9), {"timeline": {"horizon": 0.25}})).model)


def test_time_on_the_air_does_not_depend_on_how_many_send() -> None:
    ledgers = [fedtide.simulate(wanted(AIR, {"policy": {"limit": r}})).rounds[-1].ledger for r in (1, 3, 6)]
    assert [each.symbols for each in ledgers] == pytest.approx([12 * D / 2] * 3)
    assert [each.air_time for each in ledgers] == pytest.approx([12 * D / 2 / 1000.0] * 3)
    assert [each.bits for each in ledgers] == [0, 0, 0]
    assert ledgers[0].joules < ledgers[1].joules < ledgers[2].joules


def test_an_odd_number_of_parameters_takes_half_a_symbol_more() -> None:
    from fedtide.radio.over_the_air import symbols_over_the_air

    assert [symbols_over_the_air(OverTheAir(), d) for d in (1, 2, 7)] == [1, 1, 4]


# ---- plans, resumes, digests


@pytest.mark.parametrize("min_snr", [0.0, 15.0])
def test_a_plan_is_what_the_run_does(min_snr: float) -> None:
    experiment = wanted(truncated(min_snr), {"policy": {"scheduler": "age_based", "limit": 2}})
    rounds = fedtide.simulate(experiment).rounds
    made = list(planned(build(experiment)))
    assert [each.candidates.device[each.grant.picked].tolist() for each in made if each.grant] == [
        each.picked for each in rounds
    ]
    summary = fedtide.plan(experiment).summary
    assert summary["symbols"] == rounds[-1].ledger.symbols
    assert summary["sent_bits_per_upload"]["max"] == 0


class Stop(fedtide.FedtideError):
    """Raised between two rounds."""


def test_stopped_after_any_aggregation_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    experiment = wanted(truncated(8.0), {"policy": {"aggregator": "server_adam"}})
    fedtide.simulate(experiment, tmp_path / "whole")

    for after in (1, 5, 8):

        def stop(record: RoundRecord, _: int, at: int = after) -> None:
            if record.index == at:
                raise Stop

        with pytest.raises(Stop):
            fedtide.simulate(experiment, tmp_path / str(after), on_round=stop)
        fedtide.simulate(experiment, tmp_path / str(after))
        for file in ("rounds.jsonl", "model.npy"):
            assert (tmp_path / str(after) / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_weighting_of_ones_own_is_resumed_where_some_stay_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again for the whole run, of those who were heard."""
    own = "def by_size(num_samples, age):\n    return num_samples / num_samples.sum()\n"
    (tmp_path / "own.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    experiment = wanted(truncated(15.0), {"policy": {"weighting": "own.py:by_size"}})

    def stop(record: RoundRecord, total: int) -> None:
        if record.index == 4:
            raise Stop

    whole = fedtide.simulate(experiment)
    assert any(0 in record.num_kept for record in whole.rounds[:4])
    with pytest.raises(Stop):
        fedtide.simulate(experiment, tmp_path / "run", on_round=stop)
    assert np.array_equal(fedtide.simulate(experiment, tmp_path / "run").model, whole.model)


def test_the_key_counts_only_when_it_is_used() -> None:
    assert config.digest(wanted({"radio": {"access": "orthogonal"}})) == config.digest(wanted())
    assert len({config.digest(wanted(each)) for each in ({}, AIR, truncated(2.0))}) == 3


# ---- who can do with the sum


SUM = {
    *("average_models", "average_deltas", "mix", "mix_hinge"),
    *("server_momentum", "server_adam", "server_yogi", "fadas"),
}


# with one edge it is its inner aggregator; that several are refused, tests/test_edges.py has
@pytest.mark.parametrize("name", [name for name in builtin_parts("aggregator") if name != "hierarchical"])
def test_a_aggregator_takes_the_sum_or_is_refused(name: str) -> None:
    """Those that declare it, and only those, make the same models of the sum in the place of every update."""
    draws = np.random.default_rng(3)
    r, d = 5, 12
    model = draws.standard_normal(d).astype(np.float32)
    starts, updates = draws.standard_normal((2, r, d)).astype(np.float32)
    weights, age = draws.dirichlet(np.ones(r)), np.array([0, 1, 4, 0, 2])
    aggregator = part("aggregator", name)
    total = np.broadcast_to((weights @ updates).astype(np.float32), (r, d))
    alone, together = (aggregated(aggregator, model, starts, each.copy(), weights, age) for each in (updates, total))
    if name in SUM:
        assert aggregator.takes_sum
        assert np.allclose(alone, together, atol=1e-5)
        assert fedtide.simulate(wanted(AIR, {"policy": {"aggregator": name}})).rounds
        return
    assert not getattr(aggregator, "takes_sum", False)
    if name not in ("ca2fl", "fednova"):  # they differ where devices work unequally, or the second time
        assert not np.allclose(alone, together, atol=1e-5)
    with pytest.raises(FedtideError, match=f"policy.aggregator={name} as it is needs them one by one: choose"):
        build(wanted(AIR, with_companions("aggregator", name)))


@pytest.mark.parametrize(
    ("name", "args", "takes"),
    [
        ("buffered_mean", {"staleness": 0.0}, True),
        ("server_momentum", {"inner": "median"}, False),
        ("fadas", {"inner": "buffered_mean"}, False),
        ("server_yogi", {"inner": "buffered_mean", "inner_args": {"staleness": 0}}, True),
        ("server_adam", {"inner": "server_momentum", "inner_args": {"inner": "mifa"}}, False),
    ],
)
def test_arguments_and_inner_aggregators_count(name: str, args: dict[str, Any], takes: bool) -> None:
    given = registry.part("aggregator", name, args)
    assert given.takes_sum is takes
    if not takes:
        with pytest.raises(FedtideError, match="one by one"):
            build(wanted(AIR, {"policy": {"aggregator": {"name": name, **args}}}))


OWN = """
def bare(model, starts, updates, weights, age):
    return model + (weights[:, None] * updates).sum(axis=0)

def told(model, starts, updates, weights, age):
    return bare(model, starts, updates, weights, age)

told.takes_sum = True
"""


def test_a_aggregator_of_ones_own_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    with pytest.raises(FedtideError, match=r"one of your own .* says takes_sum = True"):
        build(wanted(AIR, {"policy": {"aggregator": "own.py:bare"}}))
    mine = fedtide.simulate(wanted(AIR, {"policy": {"aggregator": "own.py:told"}}))
    ours = fedtide.simulate(wanted(AIR, {"policy": {"aggregator": "average_deltas"}}))
    assert np.allclose(mine.model, ours.model, atol=1e-5)
