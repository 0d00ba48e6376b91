"""Devices that do more or less than others: what is trained, counted, timed, and what FedNova makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregation import cohort, stepped
from fedtide import config
from fedtide.aggregate.averages import AverageDeltas, Normalized, unit_gradient_ways
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build, make_trainer
from fedtide.engine.ticks import planned
from fedtide.errors import FedtideError
from fedtide.learning.trainer import DeviceWork, samples_per_training, steps_per_training, work_rows
from fedtide.learning.work import PerDevice, UniformEpochs
from fedtide.runs.manifest import policy_files
from fedtide.types import LocalWork
from helpers import FakeTrainer

SMALL = {
    "data": {"name": "synthetic", "num_train": 240, "num_test": 60, "num_shards": 24},
    "fleet": {"num_devices": 6},
    "policy": {"limit": 3},
    "timeline": {"horizon": 3.0},
    "learning": {"model": "softmax", "local_epochs": 2, "batch_size": 10},
    "radio": {"num_symbols": 12000},
}


def small(**keys: Any) -> config.Experiment:
    return config.experiment(SMALL, keys)


UNEVEN = {"name": "per_device", "epochs": [1, 4], "batch_size": [10, 8, 40], "rate": [1.0, 0.5]}


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 30)), min_size=1, max_size=4),
    st.booleans(),
)
def test_columns_of_work_count_what_each_row_alone_does(
    held: list[int], rows: list[tuple[int, int]], steps: bool
) -> None:
    amount, size = (np.array(each) for each in zip(*(rows[k % len(rows)] for k in range(len(held))), strict=True))
    work = LocalWork(size, None, amount) if steps else LocalWork(size, amount)
    each = work_rows(work, len(held))
    assert all(isinstance(row.batch_size, int) for row in each)
    count = np.array(held)
    samples = [int(samples_per_training(row, count[k : k + 1])[0]) for k, row in enumerate(each)]
    assert samples_per_training(work, count).tolist() == samples
    assert steps_per_training(work, count).tolist() == [steps_per_training(row, held[k]) for k, row in enumerate(each)]


def test_epochs_are_uniform_and_drawn_for_every_job_or_once() -> None:
    device, job = np.repeat(np.arange(200), 50), np.tile(np.arange(1, 51), 200)
    drawn = np.asarray(UniformEpochs(2, 5)(1, device, job).epochs)
    share = np.bincount(drawn, minlength=6) / len(drawn)
    assert share[:2].sum() == 0
    np.testing.assert_allclose(share[2:], 0.25, atol=0.02)
    once = np.asarray(UniformEpochs(2, 5, per_job=False)(1, device, job).epochs).reshape(200, 50)
    assert np.all(once == once[:, :1])
    assert len(np.unique(once)) == 4


@pytest.mark.parametrize("trainer", ["native", "torch", "scaffold"])
def test_a_job_with_work_of_its_own_is_that_of_a_trainer_made_for_it(trainer: str) -> None:
    if trainer == "torch":
        pytest.importorskip("torch")
    own = {"method": "scaffold"} if trainer == "scaffold" else {"learning.trainer": trainer}
    uneven = small(**own, **{"learning.work": UNEVEN})
    found = _first_updates(uneven)
    for k in range(6):
        alone = small(
            **own,
            **{"learning.local_epochs": [1, 4][k % 2], "learning.batch_size": [10, 8, 40][k % 3]},
            **{"learning.learning_rate": 0.01 * [1.0, 0.5][k % 2]},
            **({"learning.trainer.scale": 1.0} if trainer == "scaffold" else {}),
        )
        if trainer == "scaffold":
            found = _first_updates(config.experiment(uneven, {"learning.trainer.scale": 1.0}))
        assert np.array_equal(found[k], _first_updates(alone)[k])


def _first_updates(experiment: config.Experiment) -> Any:
    """Return the updates of the first job of every device."""
    from fedtide.engine.devices import Simulated, train_jobs
    from fedtide.engine.step import initial_state

    system = build(experiment)
    trainer = make_trainer(system)
    devices, one = Simulated(system, trainer), np.ones(6, np.int64)
    state = initial_state(trainer.initial_model(0), 6)
    return train_jobs(trainer, devices._jobs(state, np.arange(6), one, one), {})[0]


def test_equal_work_changes_nothing_and_is_not_asked() -> None:
    usual, told = simulate(small()), simulate(small(**{"learning.work": {"name": "per_device", "epochs": [2]}}))
    assert usual.rounds == told.rounds
    assert np.array_equal(usual.model, told.model)


@pytest.mark.parametrize("timeline", ["periodic", "buffered", "synchronous", "per_arrival", "all"])
def test_ledger_and_durations_count_what_each_job_does(timeline: str) -> None:
    """Cycles at 1 per unit of time: a job takes as many units as it visits samples; the ledger adds the same numbers up."""
    experiment = small(
        **{
            "learning.work": {"name": "uniform_epochs", "min_epochs": 1, "max_epochs": 4},
            "fleet.duration": {"name": "cycles"},
            "fleet.cycles_per_sample": 1e7,
            "timeline.name": timeline,
            "timeline.buffer_size": 3,
            "policy.limit": 1 if timeline == "per_arrival" else 3,
        }
    )
    system = build(experiment)
    number = np.zeros(6, np.int64)
    trained, last = 0, dict.fromkeys(range(6), 0.0)
    ticks = [each.tick for each in planned(system)]
    for record, tick in zip(simulate(experiment).rounds, ticks, strict=True):
        number[tick.ready] += 1
        assert tick.job is not None
        assert tick.job.tolist() == number[tick.ready].tolist()
        epochs = np.asarray(UniformEpochs(1, 4)(0, tick.ready, number[tick.ready]).epochs)
        samples = epochs * system.fleet.num_samples[tick.ready]
        trained += int(samples.sum())
        assert record.ledger.samples_trained == trained
        for k, visited in zip(tick.ready.tolist(), samples.tolist(), strict=True):
            assert tick.time >= last[k] + visited * 1e7 / 1e9 - 1e-9  # it was ready no sooner,
            if timeline == "per_arrival":  # and there exactly then
                assert tick.time == pytest.approx(last[k] + visited * 1e7 / 1e9)
            last[k] = tick.time
    assert trained > 0


def test_a_duration_of_ones_own_is_told_that_jobs_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from typing import Annotated\nfrom fedtide import arg\n"
        "Samples = Annotated[object, arg('n', key='fleet.samples_per_job')]\n"
        "def indexed(seed, device, job, n: Samples = None):\n    return n[device] / 100\n"
        "def called(seed, device, job, n: Samples = None):\n    return n(device, job) / 100\n"
    )
    (tmp_path / "own.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    wanted = {"learning.work": "uniform_epochs", "fleet.duration": "own.py:called"}
    assert len(build(small(**wanted)).ticks)
    with pytest.raises(FedtideError, match=r"is a function of \(device, job\) here") as error:
        build(small(**{**wanted, "fleet.duration": "own.py:indexed"}))
    assert "\n" not in str(error.value)


def test_a_trainer_that_does_not_look_at_the_jobs_work_is_refused() -> None:
    with pytest.raises(FedtideError, match=r"takes_work = True.*learning\.work=uniform_epochs"):
        simulate(small(**{"learning.work": "uniform_epochs"}), trainer=FakeTrainer())


def test_a_federation_refuses_it_by_name() -> None:
    from fedtide.deploy.settings import Deployment, Terms, check_terms

    with pytest.raises(FedtideError, match=r"learning\.work=uniform_epochs: nodes are told"):
        check_terms(Terms(small(**{"learning.work": "uniform_epochs"}), Deployment()))


def test_the_key_counts_only_if_it_is_given() -> None:
    assert config.digest(small()) == config.digest(small(**{"learning.work": "equal", "learning.schedule": "halved"}))
    assert config.digest(small()) != config.digest(small(**{"learning.work": "uniform_epochs"}))
    assert config.dump(small())["learning"]["schedule"] == "halved"


# Schedules of one's own.


def test_a_schedule_of_ones_own_sets_the_learning_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("def power(elapsed, by: float = 1.0):\n    return (1 - elapsed / 2) ** by\n")
    monkeypatch.chdir(tmp_path)
    keys = {"learning.schedule": {"name": "mine.py:power", "by": 2.0}}
    trainer = FakeTrainer()
    experiment = small(**keys)
    simulate(experiment, trainer=trainer)
    system = build(experiment)
    from fedtide.engine.step import step_learning_rates

    start = np.array([1, 5, 9])
    elapsed = system.model_timestamps[start] / 3.0
    np.testing.assert_allclose(step_learning_rates(system, start), 0.01 * (1 - elapsed / 2) ** 2)
    before = policy_files(experiment)
    (tmp_path / "mine.py").write_text("def power(elapsed, by: float = 1.0):\n    return (1 - elapsed / 3) ** by\n")
    assert policy_files(experiment) != before  # it is another run


# FedNova.


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.floats(1e-3, 0.5),
    st.floats(0, 0.5),
    st.floats(0, 0.9),
)
def test_the_way_is_the_one_norm_of_the_papers_accumulation_vector(
    steps: list[int], rate: float, proximal: float, momentum: float
) -> None:
    """Section 3 of the paper: sum_j (1 - alpha)^j with a proximal term, sum_j (1 - rho^j) / (1 - rho) with momentum."""
    tau, eta = np.array(steps), np.full(len(steps), rate)
    np.testing.assert_allclose(unit_gradient_ways(tau, eta, 0.0, 0.0), rate * tau)
    alpha = rate * proximal
    wanted = [sum((1 - alpha) ** j for j in range(each)) for each in steps]
    np.testing.assert_allclose(unit_gradient_ways(tau, eta, proximal, 0.0), rate * np.array(wanted), rtol=1e-9)
    wanted = [sum((1 - momentum**j) / (1 - momentum) for j in range(1, each + 1)) for each in steps]
    np.testing.assert_allclose(unit_gradient_ways(tau, eta, 0.0, momentum), rate * np.array(wanted), rtol=1e-9)


def _fixed_point(aggregator: Any, tau: Any, curvature: Any, centre: Any, weights: Any, rate: float) -> Any:
    """Return where rounds of full participation end: device k steps on curvature_k / 2 (x - centre_k)^2, exactly, tau_k times."""
    model = np.zeros(centre.shape[1], np.float32)
    who = cohort(weights, np.zeros(len(tau), np.int64))._replace(steps=tau)
    for _ in range(4000):
        left = (1 - rate * curvature[:, None]) ** tau[:, None]
        updates = ((left - 1) * (model - centre)).astype(np.float32)
        model = stepped(aggregator, None, model, np.stack([model] * len(tau)), updates, who)[0]
    return model


def test_on_a_quadratic_fednova_finds_the_optimum_where_fedavg_does_not() -> None:
    """At a small rate FedAvg ends at sum p_k tau_k e_k / sum p_k tau_k (the paper's Lemma 1), FedNova at sum p_k e_k."""
    centre = np.array([[1.0, -2.0], [5.0, 0.0], [-3.0, 4.0]])
    tau, weights, rate = np.array([1, 4, 12]), np.array([0.5, 0.3, 0.2]), 1e-3
    curvature = np.ones(3)
    nova = _fixed_point(Normalized(learning_rate=rate), tau, curvature, centre, weights, rate)
    average = _fixed_point(AverageDeltas(), tau, curvature, centre, weights, rate)
    np.testing.assert_allclose(nova, weights @ centre, atol=0.05)
    np.testing.assert_allclose(average, weights * tau @ centre / (weights @ tau), atol=0.05)
    # In closed form, with no limit: the fixed point weighs each by w_k (1 - (1 - eta)^tau_k) / tau_k.
    pull = weights * (1 - (1 - rate) ** tau) / tau
    np.testing.assert_allclose(nova, pull @ centre / pull.sum(), atol=1e-4)


def test_devices_that_do_the_same_are_averaged_as_ever() -> None:
    rng = np.random.default_rng(1)
    model, updates = rng.standard_normal(7).astype(np.float32), rng.standard_normal((3, 7)).astype(np.float32)
    who = cohort(np.array([0.2, 0.5, 0.3]), np.zeros(3, np.int64))._replace(steps=np.full(3, 12))
    starts = np.stack([model] * 3)
    plain = stepped(AverageDeltas(), None, model, starts, updates, who)[0]
    for proximal, momentum in ((0.0, 0.0), (0.5, 0.0), (0.02, 0.9)):
        nova = stepped(Normalized(0.1, proximal, momentum), None, model, starts, updates, who)[0]
        np.testing.assert_allclose(nova, plain, rtol=1e-6)


def test_fednova_is_told_how_much_each_did() -> None:
    seen = []

    class Spy(Normalized):
        def start(self, state: Any, model: Any, who: Any) -> Any:
            seen.append(who)
            return super().start(state, model, who)

    experiment = small(**{"learning.work": UNEVEN, "learning.schedule": "constant"})
    system = build(experiment)
    simulate(experiment, system=system._replace(policy=system.policy._replace(aggregator=Spy())))
    assert seen
    work = DeviceWork(PerDevice(**{key: value for key, value in UNEVEN.items() if key != "name"}), LocalWork(), 0)  # type: ignore[arg-type]
    for who in seen:
        wanted = steps_per_training(work.of(who.device, None)[0], who.num_samples)
        assert who.steps.tolist() == wanted.tolist()
        assert who.rates.tolist() == [[1.0, 0.5][k % 2] for k in who.device.tolist()]
