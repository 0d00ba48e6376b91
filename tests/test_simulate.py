from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.engine.system import build, parameter_count
from fedtide.engine.ticks import planned
from fedtide.errors import FedtideError, TrainingError
from fedtide.runs import read_rounds
from fedtide.schedule.schedulers import SCHEDULERS
from fedtide.types import Job
from helpers import FakeTrainer, run, small, small_dataset

DATASET = small_dataset()


def same(one: fedtide.Result, other: fedtide.Result) -> None:
    assert one.rounds == other.rounds
    assert one.model.tobytes() == other.model.tobytes()


# ---- nothing but the experiment changes the result


@pytest.mark.parametrize("model", ["softmax", "paper_cnn"])
def test_threads_do_not_matter(model: str) -> None:
    experiment = small({"timeline": {"horizon": 1.0}, "learning": {"model": model}})
    dataset = small_dataset(side=28)
    one = fedtide.simulate(experiment, dataset=dataset, threads=1)
    same(one, fedtide.simulate(experiment, dataset=dataset, threads=2))


@pytest.mark.parametrize("scheduler", [name for name in SCHEDULERS if name != "oracle"])
def test_lazy_and_eager_training_are_the_same(scheduler: str) -> None:
    experiment = small({"policy": {"scheduler": scheduler, "limit": 2}})
    lazy, eager = FakeTrainer(), FakeTrainer()
    same(run(experiment, trainer=lazy), run(experiment, trainer=eager, eager=True))
    assert set(lazy.jobs) <= set(eager.jobs)
    if scheduler == "best_channel_best_norm":
        assert len(lazy.jobs) == len(eager.jobs)
    else:
        assert len(lazy.jobs) < len(eager.jobs)


def test_lazy_and_eager_with_torch_and_threads() -> None:
    experiment = small({"timeline": {"horizon": 2.0}, "policy": {"limit": 2}, "learning": {"model": "mlp"}})
    lazy = fedtide.simulate(experiment, dataset=DATASET)
    same(lazy, fedtide.simulate(experiment, dataset=DATASET, eager=True, threads=2))


def test_another_seed_is_another_run() -> None:
    one, other = run(small()), run(small(seed=1))
    assert one.rounds != other.rounds


def test_only_the_scheduled_are_trained_and_only_once() -> None:
    trainer = FakeTrainer()
    result = run(small({"policy": {"limit": 2}}), trainer=trainer)
    sent = [(k, r.index - a) for r in result.rounds for k, a in zip(r.picked, r.age, strict=True)]
    assert trainer.jobs == sent
    assert len(set(sent)) == len(sent)


def test_paired_policies_meet_the_same_world() -> None:
    one, other = (run(small({"policy": {"scheduler": name, "limit": 2}})) for name in ("random", "best_channel"))
    channel: dict[tuple[int, int], float] = {}
    for result in (one, other):
        for record in result.rounds:
            for k, c in zip(record.picked, record.capacity, strict=True):
                assert channel.setdefault((record.index, k), c) == c
    assert [r.ready for r in one.rounds] == [r.ready for r in other.rounds]
    assert [r.picked for r in one.rounds] != [r.picked for r in other.rounds]


ASKING = (
    "best_channel_best_norm",
    "max_loss",
    "oort",
    "pisces",
)  # what devices report after training, or of their losses


@pytest.mark.parametrize("scheduler", [name for name in SCHEDULERS if name not in (*ASKING, "oracle")])
def test_the_plan_is_what_happens(scheduler: str) -> None:
    experiment = small({"policy": {"scheduler": scheduler, "limit": 2}})
    system = build(experiment, dataset=DATASET)
    result = fedtide.simulate(experiment, system=system, trainer=FakeTrainer(parameter_count(system)))
    for record, each in zip(result.rounds, planned(system), strict=True):
        assert each.grant is not None
        assert record.picked == each.tick.ready[each.grant.picked].tolist()
        assert record.budget_bits == each.grant.bits.tolist()
        assert record.num_kept == [system.codec.num_kept(parameter_count(system), bits) for bits in each.grant.bits]


@pytest.mark.parametrize("scheduler", ASKING)
def test_a_plan_waits_for_reports_where_the_scheduler_asks_for_them(scheduler: str) -> None:
    system = build(small({"policy": {"scheduler": scheduler}}), dataset=DATASET)
    assert all(each.grant is None for each in planned(system))


# ---- the ledger


def test_totals_add_up() -> None:
    result = run(small({"learning": {"local_epochs": 2}}))
    symbols = bits = used = trained = 0.0
    for record in result.rounds:
        symbols += sum(record.symbols)
        bits += sum(record.sent_bits)
        used += 2 * 8 * len(record.picked)  # 48 samples on 6 devices, two epochs
        trained += 2 * 8 * len(record.ready)
        assert record.ledger.symbols == pytest.approx(symbols)
        assert record.ledger.bits == pytest.approx(bits)
        assert record.ledger.samples_used == used
        assert record.ledger.samples_trained == trained
    busy = sum(bool(record.picked) for record in result.rounds)
    assert symbols == pytest.approx(400 * busy)


@pytest.mark.parametrize(("steps", "samples"), [(1, 3), (2, 6), (3, 8), (4, 11), (7, 19)])
def test_samples_of_steps(steps: int, samples: int) -> None:
    """8 samples in batches of 3, 3, 2."""
    result = run(small({"learning": {"local_epochs": None, "local_steps": steps, "batch_size": 3}}))
    first = next(record for record in result.rounds if record.picked)
    assert first.ledger.samples_used == samples * len(first.picked)


# ---- evaluation


def test_evaluate_every() -> None:
    result = run(small({"timeline": {"period": 0.25, "horizon": 2.25}, "learning": {"evaluate_every": 1.0}}))
    assert [r.time for r in result.rounds if r.test_accuracy is not None] == [1.0, 2.0, 2.25]
    every = run(small({"timeline": {"period": 0.25, "horizon": 2.25}}))
    assert all(r.test_accuracy is not None for r in every.rounds)
    assert np.array_equal(every.model, result.model)


def test_evaluate_every_is_not_missed_by_a_rounding() -> None:
    """3 * 0.3 is just under 0.9."""
    result = run(small({"timeline": {"period": 0.3, "horizon": 4.0}, "learning": {"evaluate_every": 0.9}}))
    times = [r.time for r in result.rounds if r.test_accuracy is not None]
    np.testing.assert_allclose(times, [0.9, 1.8, 2.7, 3.6, 3.9])


def test_training_loss_on_request() -> None:
    assert all(r.train_loss is None for r in run(small()).rounds)
    result = run(small({"learning": {"training_loss": True}}))
    # the fake trainer adds the number of samples to its loss: 48 to train on, 20 to test on
    assert all(r.train_loss - r.test_loss == pytest.approx(28) for r in result.rounds)


def test_the_score_is_that_of_the_new_model() -> None:
    trainer = FakeTrainer()
    result = run(small(), trainer=trainer)
    assert result.rounds[-1].test_loss == trainer.evaluate(result.model, DATASET.test).loss


# ---- frameworks


def test_fedavg_is_fresh_and_has_everyone_ready() -> None:
    result = run(small({"framework": "fedavg"}))
    assert [r.time for r in result.rounds] == [1.0, 2.0, 3.0]
    for record in result.rounds:
        assert record.ready == list(range(6))
        assert record.age == [0, 0, 0]
        assert sum(record.symbols) == pytest.approx(4 * 400)


def test_fedasync_mixes_one_device_at_a_time() -> None:
    experiment = small(
        {
            "framework": "fedasync",
            "policy": {"limit": 1, "aggregator": {"mixing": 0.8}},
            "codec": {"name": "ideal"},
        }
    )
    trainer = FakeTrainer()
    result = run(experiment, trainer=trainer)
    assert all(len(r.picked) == len(r.ready) == 1 for r in result.rounds)
    assert all(r.weight == [1.0] for r in result.rounds)
    models = {1: trainer.initial_model(0).astype(np.float64)}
    again = FakeTrainer()
    rates = iter(trainer.rates)
    for record in result.rounds:
        start = models[record.index - record.age[0]].astype(np.float32)
        job = Job(record.picked[0], record.index - record.age[0], start, next(rates), DATASET.train, np.arange(1))
        update = again.train([job])[0]
        models[record.index + 1] = 0.2 * models[record.index] + 0.8 * (start + update)
    np.testing.assert_allclose(result.model, models[len(result.rounds) + 1], rtol=1e-4, atol=1e-6)


def test_fedbuff_waits_for_its_buffer() -> None:
    experiment = small({"framework": "fedbuff", "timeline": {"buffer_size": 3}, "codec": {"name": "ideal"}})
    result = run(experiment)
    assert experiment.policy.aggregator.name == "buffered_mean"
    assert all(len(r.ready) == len(r.picked) == 3 for r in result.rounds)
    assert all(r.weight == [1 / 3] * 3 for r in result.rounds)
    assert any(max(r.age) > 0 for r in result.rounds)


def test_released_code_profile_runs() -> None:
    result = run(small({"profile": "released-code"}))
    assert all(r.proved_minimal in (False, None) for r in result.rounds)


def test_learning_works_over_a_good_channel() -> None:
    experiment = small(
        {"timeline": {"horizon": 5.0}, "radio": {"num_symbols": 1e6}, "learning": {"learning_rate": 0.02}}
    )
    result = fedtide.simulate(experiment, dataset=small_dataset(num_train=240))
    assert result.rounds[-1].test_loss < 0.8 * result.rounds[0].test_loss


def test_a_starved_uplink_leaves_stale_starts_but_no_nan() -> None:
    result = run(small({"radio": {"num_symbols": 1e-3}}))
    assert all(kept == 0 for r in result.rounds for kept in r.num_kept)
    assert result.rounds[-1].ledger.bits == 0
    np.testing.assert_allclose(result.model, FakeTrainer().initial_model(0), rtol=1e-6)


# ---- what goes wrong


def test_nan_updates_stop_the_run_and_leave_it_resumable(tmp_path: Path) -> None:
    experiment = small()
    whole = run(experiment, tmp_path / "whole")
    late = next(r for r in whole.rounds if r.index >= 6 and r.picked)
    broken = frozenset({(late.picked[0], late.index - late.age[0])})
    with pytest.raises(
        TrainingError, match=f"device {late.picked[0]} at aggregation {late.index} is not finite"
    ) as caught:
        run(experiment, tmp_path / "run", trainer=FakeTrainer(broken=broken))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5
    assert len(read_rounds(tmp_path / "run")) == late.index - 1
    same(run(experiment, tmp_path / "run"), whole)
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == (tmp_path / "whole" / "rounds.jsonl").read_bytes()


def test_divergence_of_a_real_trainer_is_named() -> None:
    experiment = small({"learning": {"learning_rate": 1e38, "local_epochs": 3}})
    with pytest.raises(TrainingError, match=r"lower learning\.learning_rate"):
        fedtide.simulate(experiment, dataset=DATASET)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("[0] * limit", "duplicates"),
        ("list(range(limit + 1))", "are asked for"),
        ("list(range(limit + 2))", "at most"),
        ("[len(candidates.device) + i for i in range(limit)]", "not device numbers"),
        ("candidates.device[-limit:]", "not device numbers"),
        ("'abc'", "one-dimensional"),
        ("None", "one-dimensional"),
    ],
)
def test_a_custom_scheduler_that_breaks_its_contract(tmp_path: Path, body: str, reason: str) -> None:
    (tmp_path / "mine.py").write_text(f"def pick(candidates, limit, rng):\n    return {body}\n")
    experiment = small({"policy": {"scheduler": f"{tmp_path}/mine.py:pick", "limit": 2}})
    with pytest.raises(FedtideError) as caught:
        run(experiment, tmp_path / "run")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_custom_timeline_that_breaks_its_contract(tmp_path: Path) -> None:
    source = "from fedtide import Tick\nimport numpy as np\ndef when(clock):\n    return {}\n"
    for body, reason in (
        ("[Tick(1, 1.0, np.array([0]), np.array([2]))]", "start versions"),
        ("[]", "no aggregation before"),
        ("[Tick(1, 1.0, np.array([99]), np.array([1]))]", "not ascending, distinct and below 6"),
    ):
        (tmp_path / "mine.py").write_text(source.format(body))
        with pytest.raises(FedtideError, match=reason):
            run(small({"timeline": {"name": f"{tmp_path}/mine.py:when"}}))


def test_names_that_nobody_knows() -> None:
    for group, key in (("policy", "scheduler"), ("policy", "weighting"), ("policy", "aggregator"), ("codec", "name")):
        with pytest.raises(FedtideError, match="is not known"):
            run(small({group: {key: "nonsense"}}))
    with pytest.raises(FedtideError, match="'sotmax' is not known; did you mean softmax"):
        run(small({"learning": {"model": "sotmax"}}))


MODULES = """
from torch import nn
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 3))
def make():
    return Net()
net = Net()
number = 3
def wrong():
    return 3
"""


def test_a_module_may_be_named_by_its_class_or_by_a_function(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULES)
    results = [
        fedtide.simulate(small({"learning": {"model": f"{tmp_path}/mine.py:{name}"}}), dataset=DATASET)
        for name in ("Net", "make")
    ]
    assert np.array_equal(results[0].model, results[1].model)


@pytest.mark.parametrize(
    ("name", "reason"), [("net", "name the class"), ("number", "name the class"), ("wrong", "return the module")]
)
def test_what_is_no_module(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "mine.py").write_text(MODULES)
    with pytest.raises(FedtideError, match=reason):
        fedtide.simulate(small({"learning": {"model": f"{tmp_path}/mine.py:{name}"}}), dataset=DATASET)


def test_a_module_needs_the_torch_trainer(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULES)
    with pytest.raises(FedtideError, match=r"add learning\.trainer=torch"):
        build(small({"learning": {"model": f"{tmp_path}/mine.py:Net", "trainer": "native"}}), dataset=DATASET)


def test_on_round_sees_every_record_in_order() -> None:
    seen: list[Any] = []
    result = run(small(), on_round=lambda record, total: seen.append((record, total)))
    assert seen == [(record, 12) for record in result.rounds]


def test_stages_are_timed() -> None:
    seconds = run(small()).seconds
    assert {"set-up", "training", "codec", "aggregation", "evaluation"} <= set(seconds)
    assert all(value >= 0 for value in seconds.values())


def test_arguments_of_built_in_policies_are_not_ignored():
    tree = {
        "data": {"name": "synthetic", "num_train": 200, "num_test": 20, "num_shards": 20},
        "fleet": {"num_devices": 6},
        "policy": {"limit": 2, "aggregator": {"name": "mix", "mixing": 0.5}},
        "codec": {"name": {"whole_bits": True}},
    }
    system = build(fedtide.experiment(tree))
    assert system.policy.aggregator.mixing == 0.5  # type: ignore[attr-defined]
    assert system.codec.whole_bits  # type: ignore[attr-defined]
    with pytest.raises(FedtideError, match="does not accept"):
        build(fedtide.experiment(tree, {"timeline": {"name": {"perod": 1}}}))
