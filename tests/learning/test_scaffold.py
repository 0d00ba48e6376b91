"""SCAFFOLD against a loop written from its paper, what is known of its limits, and what its control variates go through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.engine.devices import Simulated
from fedtide.engine.step import initial_state, step
from fedtide.engine.system import build, make_trainer, parameter_count
from fedtide.errors import FedtideError
from fedtide.learning import native
from fedtide.learning.model import MODELS, num_parameters
from fedtide.learning.trainer import LocalWork, Task
from fedtide.methods import Scaffold
from fedtide.parts import checks
from fedtide.runs import RoundRecord
from fedtide.types import Job
from helpers import small, small_dataset
from remembering import OUTAGE

N = 6
DATA = small_dataset(num_train=60, side=8)
D = 3 * 64 + 3  # softmax: weights [3 64], then biases [3]
SCAFFOLD: dict[str, Any] = {"learning": {"trainer": "scaffold"}, "policy": {"aggregator": "scaffold"}}
# Whole mini-batches, so that a gradient does not depend on an order; nothing is lost on the way.
EXACT: dict[str, Any] = {
    "data": {"partition": "dirichlet", "concentration": 0.3},
    "policy": {"weighting": "uniform"},
    "codec": {"name": "ideal"},
    "learning": {"local_epochs": None, "local_steps": 4, "batch_size": 60, "learning_rate": 0.05, "proximal": 0.0},
}
EVERYONE: dict[str, Any] = {
    "framework": "fedavg",
    "timeline": {"horizon": 8.0},
    "policy": {"limit": N, "scheduler": "random"},
}
PLAIN: dict[str, Any] = {"learning": {"trainer": "native"}, "policy": {"aggregator": "average_deltas"}}


def simulated(*trees: Any, folder: Path | None = None, **more: Any) -> fedtide.Result:
    return fedtide.simulate(small(*trees), folder, dataset=DATA, **more)


# ---- from the paper


def slope(model: Any, images: Any, labels: Any) -> Any:
    """The gradient of the mean cross-entropy of softmax regression, in float64."""
    inputs, weights = images.reshape(len(images), -1).astype(float), model[:192].reshape(3, 64)
    logits = inputs @ weights.T + model[192:]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return np.concatenate([(chances.T @ inputs).ravel(), chances.sum(axis=0)]) / len(labels)


def of_the_paper(first: Any, rounds: Any, held: Any, steps: int, rate: Any, server_rate: float) -> Any:
    """Algorithm 1, option II, for the devices that a run heard; those began with the x and c of an older version."""
    x, c, own = {1: first.astype(float)}, {1: np.zeros(D)}, {k: np.zeros(D) for k in range(N)}
    for each in rounds:
        t, came = each.index, [k for k in each.picked if k not in each.lost]
        dy, dc = [], []
        for k in came:
            v = t - each.age[each.picked.index(k)]
            y = x[v].copy()
            for _ in range(steps):
                y = y - rate(v) * (slope(y, DATA.train.images[held[k]], DATA.train.labels[held[k]]) - own[k] + c[v])
            new = own[k] - c[v] + (x[v] - y) / (steps * rate(v))
            dy.append(y - x[v])
            dc.append(new - own[k])
            own[k] = new
        x[t + 1], c[t + 1] = x[t], c[t]
        if came:
            x[t + 1] = x[t] + server_rate * sum(dy) / len(came)
            c[t + 1] = c[t] + len(came) / N * (sum(dc) / len(came))
    return x[len(rounds) + 1], c[len(rounds) + 1]


WORLDS = {
    "synchronous, everyone": [EVERYONE],
    "synchronous, some": [EVERYONE, {"policy": {"limit": 2}}],
    "asynchronous": [{"policy": {"scheduler": "random"}}],
    "asynchronous, outages": [{"policy": {"scheduler": "random"}}, OUTAGE],
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("inner", ["native", "torch"])
def test_it_is_what_its_paper_says(world: str, inner: str) -> None:
    if inner == "torch":
        pytest.importorskip("torch")
    more = {
        "learning": {"trainer": {"inner": inner, "scale": 0.3}},
        "policy": {"aggregator": {"inner_args": {"server_rate": 0.7}}},
    }
    wanted = small(*WORLDS[world], EXACT, SCAFFOLD, more)
    system = build(wanted, dataset=DATA)
    result = fedtide.simulate(wanted, system=system)
    born = [0.0, *(tick.time for tick in system.ticks)]  # by version - 1
    first = make_trainer(system).initial_model(wanted.seed)[:D]

    def rate(version: int) -> float:
        return 0.05 if born[version - 1] < wanted.timeline.horizon / 2 else 0.025

    x, c = of_the_paper(first, result.rounds, system.fleet.partition, 4, rate, 0.7)
    np.testing.assert_allclose(result.model[:D], x, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(result.model[D:] / 0.3, c, rtol=1e-3, atol=1e-4)
    assert np.abs(c).max() > 0.01
    if world.startswith("asynchronous"):
        assert any(age for each in result.rounds for age in each.age)
    assert any(each.lost for each in result.rounds) == world.endswith("outages")


# ---- limits


def test_with_everyone_and_one_step_nobody_drifts() -> None:
    """Then it is SGD on the mean gradient, as FedAvg with one step is."""
    one = {"learning": {"local_steps": 1}}
    controlled, plain = (simulated(EVERYONE, EXACT, each, one) for each in (SCAFFOLD, PLAIN))
    np.testing.assert_allclose(controlled.model[:D], plain.model, rtol=1e-4, atol=1e-6)
    assert np.abs(controlled.model[D:]).max() > 0


def test_with_many_steps_it_comes_nearer_to_the_optimum_of_all_than_fedavg() -> None:
    long = {
        "learning": {"local_steps": 20, "learning_rate": 0.2, "schedule": "constant"},
        "timeline": {"horizon": 60.0},
    }
    left = []
    for each in (SCAFFOLD, PLAIN):
        model = simulated(EVERYONE, EXACT, each, long).model[:D].astype(float)
        held = build(small(EVERYONE, EXACT, each, long), dataset=DATA).fleet.partition
        every = [slope(model, DATA.train.images[own], DATA.train.labels[own]) for own in held]  # type: ignore[attr-defined]
        left.append(np.linalg.norm(np.mean(every, axis=0)))
    assert left[0] < left[1] / 2


def test_in_the_first_round_it_is_the_inner_trainer_to_the_bit() -> None:
    task = Task(MODELS["paper_cnn"]((1, 28, 28), 3), LocalWork(4, 1), 3, (1, 28, 28), 3)
    data, around, inside = small_dataset(num_train=20, side=28), Scaffold(task), native.NativeTrainer(task)
    start = around.initial_model(0)
    d = num_parameters(task.model)
    job = Job(1, 1, start, 0.05, data.train, np.arange(18))
    assert np.array_equal(around.train([job])[0, :d], inside.train([job._replace(start=start[:d])])[0])


def test_native_and_torch_agree_on_corrections() -> None:
    pytest.importorskip("torch")
    task = Task(MODELS["softmax"]((1, 28, 28), 3), LocalWork(4, 1), 3, (1, 28, 28), 3)
    data, rng = small_dataset(num_train=20, side=28), np.random.default_rng(0)
    around = [Scaffold(task, inner) for inner in ("native", "torch")]
    start = around[0].initial_model(0)
    start[len(start) // 2 :] = rng.standard_normal(len(start) // 2)
    memory = {"control": rng.standard_normal(len(start) // 2).astype(np.float32)}
    job = Job(1, 1, start, 0.05, data.train, np.arange(18), memory)
    one, other = (each.train([job]) for each in around)
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    assert not np.allclose(one, around[0].train([job._replace(memory=None)]), rtol=1e-2)


def test_jobs_of_one_call_keep_their_corrections_apart() -> None:
    task = Task(MODELS["paper_cnn"]((1, 28, 28), 3), LocalWork(4, 1), 3, (1, 28, 28), 3)
    data, trainer, rng = small_dataset(num_train=20, side=28), native.NativeTrainer(task), np.random.default_rng(0)
    start = trainer.initial_model(0)
    added = [rng.standard_normal(len(start)).astype(np.float32), None, np.zeros_like(start)]
    jobs = [Job(k, 1, start, 0.05, data.train, np.arange(18), correction=each) for k, each in enumerate(added)]
    together = trainer.train(jobs)
    assert np.array_equal(together, np.concatenate([trainer.train([job]) for job in jobs]))
    assert np.array_equal(together[1:], trainer.train([job._replace(correction=None) for job in jobs[1:]]))
    one_step = native.NativeTrainer(task._replace(work=LocalWork(18, None, 1)))
    moved, plain = (one_step.train([jobs[0]._replace(correction=each)])[0] for each in added[:2])
    np.testing.assert_allclose(moved - plain, -0.05 * added[0], rtol=1e-3, atol=1e-6)


# ---- what its memory goes through


@pytest.mark.parametrize("codec", ["sparse_quantized", "top_k", "ideal"])
def test_a_control_variate_goes_on_only_with_what_arrived_and_c_is_the_mean_of_all(codec: str) -> None:
    wanted = small(SCAFFOLD, OUTAGE, {"codec": {"name": codec}, "radio": {"num_symbols": 500}})
    system = build(wanted, dataset=DATA)
    trainer = make_trainer(system)
    state, lost, lossy = initial_state(trainer.initial_model(0), N), 0, False
    for tick in system.ticks:
        before = {k: each["control"] for k, each in state.devices.get("trainer", {}).items()}
        state, info = step(system.rules, state, tick, Simulated(system, trainer))
        after = {k: each["control"] for k, each in state.devices.get("trainer", {}).items()}
        arrived = {*info.rows.device[info.arrived].tolist()}
        for k in range(N):
            assert np.array_equal(before.get(k, ()), after.get(k, ())) == (k not in arrived)
        lost += len(info.grant.picked) - len(arrived)
        lossy |= any(packet.num_kept < 2 * D for packet in info.sent.values())
        mean = sum(each.astype(float) for each in after.values()) / N
        np.testing.assert_allclose(state.models[state.version][D:], mean, rtol=1e-4, atol=1e-6)
    assert lost
    assert lossy == (codec != "ideal")


def test_only_those_picked_are_trained_and_eager_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, trained, train = small(SCAFFOLD, OUTAGE, {"policy": {"limit": 1}}), list[int](), Scaffold.train

    def counted(self: Scaffold, jobs: Any) -> Any:
        trained.extend(job.device for job in jobs)
        return train(self, jobs)

    monkeypatch.setattr(Scaffold, "train", counted)
    system = build(wanted, dataset=DATA)
    lazy = fedtide.simulate(wanted, system=system)
    assert trained == [k for each in lazy.rounds for k in each.picked]
    eager = fedtide.simulate(wanted, system=system, eager=True)
    assert eager.rounds == lazy.rounds
    assert np.array_equal(eager.model, lazy.model)


@pytest.mark.parametrize(("damping", "grows"), [(None, False), (1.0, True)])
def test_what_a_noisy_codec_adds_to_control_variates_dies_out_if_damped(damping: float | None, grows: bool) -> None:
    noisy = {"codec": {"name": "sparse_quantized", "num_levels": 1}, "radio": {"num_symbols": 4000}}
    more = {"learning": {"trainer": {"damping": damping, "scale": 0.3}}, "timeline": {"horizon": 15.0}}
    control = simulated(SCAFFOLD, noisy, more).model[D:] / 0.3
    assert (np.linalg.norm(control) > 100) == grows


class Stop(fedtide.FedtideError):
    """Raised between two rounds."""


def test_stopped_after_any_aggregation_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    inner = {"policy": {"aggregator": {"inner": "server_momentum"}}}
    trees = [SCAFFOLD, OUTAGE, inner, {"radio": {"num_symbols": 2000}}]
    whole = simulated(*trees, folder=tmp_path / "whole")
    for after in range(1, whole.rounds[-1].index, 2):

        def stop(record: RoundRecord, _: int, last: int = after) -> None:
            if record.index == last:
                raise Stop

        with pytest.raises(Stop):
            simulated(*trees, folder=tmp_path / str(after), on_round=stop)
        simulated(*trees, folder=tmp_path / str(after))
        for file in ("rounds.jsonl", "model.npy"):
            assert (tmp_path / str(after) / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


# ---- what it costs, and what does not fit


def test_both_ways_cost_twice_as_much() -> None:
    controlled, plain = (simulated(EVERYONE, EXACT, each).rounds[-1].ledger for each in (SCAFFOLD, PLAIN))
    assert controlled.bits == 2 * plain.bits > 0
    assert controlled.bits_down == 2 * plain.bits_down > 0
    assert parameter_count(build(small(SCAFFOLD), dataset=DATA)) == 2 * D


@pytest.mark.parametrize(
    ("trees", "words"),
    [
        (
            [{"learning": {"trainer": "scaffold"}}],
            ("policy.aggregator=average_models", "add policy.aggregator=scaffold"),
        ),
        (
            [SCAFFOLD, {"learning": {"trainer": "native"}}],
            ("learning.trainer=native", "add learning.trainer=scaffold"),
        ),
        ([SCAFFOLD, {"learning": {"trainer": {"inner": "scaffold"}}}], ("inner='scaffold'", "native, torch")),
        (
            [SCAFFOLD, {"learning": {"trainer": {"inner": "mine.py:Own"}}}],
            ("inner='mine.py:Own'", "native, torch"),
        ),
        (
            [SCAFFOLD, {"learning": {"trainer": {"inner_args": {"momentum": 0.9}}}}],
            ("inner_args.momentum=0.9", "leave it out"),
        ),
        ([SCAFFOLD, {"learning": {"trainer": {"inner_args": {"speed": 1}}}}], ("speed", "it takes momentum")),
        ([SCAFFOLD, {"learning": {"trainer": {"scale": 0}}}], ("scale=0", "greater than 0")),
        (
            [SCAFFOLD, {"learning": {"model": "collections:OrderedDict"}}],
            ("a PyTorch module", "learning.trainer.inner=torch"),
        ),
        (
            [SCAFFOLD, {"policy": {"aggregator": {"name": "server_adam", "inner": "scaffold"}}}],
            ("policy.aggregator=server_adam", "add policy.aggregator=scaffold"),
        ),
        ([SCAFFOLD, {"policy": {"aggregator": {"inner": "ef21"}}}], ("inner='ef21'", "method=ef21")),
    ],
)
def test_what_does_not_fit_is_one_line(trees: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(FedtideError) as caught:
        make_trainer(build(small(*trees), dataset=DATA))
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_model_without_its_half_is_not_scored() -> None:
    trainer = make_trainer(build(small(SCAFFOLD), dataset=DATA))
    with pytest.raises(FedtideError, match=rf"\({D},\).*{2 * D}"):
        trainer.evaluate(trainer.initial_model(0)[:D], DATA.test)


def test_the_records_say_who_trained() -> None:
    from fedtide.runs import trainer_name
    from fedtide.runs.manifest import manifest_instruction_path

    wanted = small(SCAFFOLD)
    assert trainer_name(make_trainer(build(wanted, dataset=DATA))).startswith("scaffold around native, scale=")
    assert manifest_instruction_path(wanted) == native.native_isa()
    assert manifest_instruction_path(config.experiment(wanted, {"learning": {"trainer": {"inner": "torch"}}})) is None
    assert checks.part_remembers(make_trainer(build(wanted, dataset=DATA)))
