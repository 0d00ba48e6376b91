"""What would happen is what happens: outcomes are told by the server's own step, which leaves everything as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import FedtideError, config
from fedtide.deploy.settings import check_deployment_timeline
from fedtide.engine.system import build, load_dataset
from fedtide.errors import DivergedError
from fedtide.report.plan_text import plan_facts
from fedtide.runs import RoundRecord
from fedtide.schedule.schedulers import Random
from fedtide.types import Candidates, Dataset, Ints, Rng
from helpers import FakeTrainer, small, small_dataset

ORACLE: dict[str, Any] = {"policy": {"scheduler": "oracle"}}
SYNTHETIC: dict[str, Any] = {
    "data": {"name": "synthetic", "num_train": 120, "num_test": 40, "num_held_out": 30, "num_shards": 12},
    "fleet": {"num_devices": 6},
    "timeline": {"horizon": 1.5},
    "policy": {"limit": 2, "scheduler": "oracle"},
    "radio": {"num_symbols": 4000},
    "learning": {"model": "softmax", "local_epochs": 1, "batch_size": 10},
}
# Parts that remember: who is asked about and not chosen must leave no trace in any of them.
REMEMBERING: dict[str, Any] = {
    "policy": {"aggregator": "server_momentum"},
    "codec": {"name": {"name": "error_feedback", "inner": "top_k"}},
    "radio": {"csi": {"name": "noisy", "error": 0.5}, "retransmission": "resend"},
}


def with_held_out() -> Dataset:
    whole = small_dataset(num_train=60)
    train, held = whole.train.taken(slice(48)), whole.train.taken(slice(48, None))
    return whole._replace(train=train, held_out=held)


def simulated(tree: dict[str, Any], folder: Path | None = None, **more: Any) -> fedtide.Result:
    return fedtide.simulate(
        small(ORACLE, tree), folder, dataset=with_held_out(), trainer=FakeTrainer(num_parameters=300), **more
    )


class Curious:
    """Asks about sets in vain, then draws as random scheduling does."""

    needs = ("outcome",)

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        assert candidates.outcome is not None
        asked = [np.arange(size) for size in range(min(limit, len(candidates.device)) + 1)]
        first, second = candidates.outcome(asked), candidates.outcome(asked[::-1])
        assert first.tolist() == second[::-1].tolist()
        return Random()(candidates, limit, rng)


@pytest.mark.parametrize(
    "tree",
    [{}, REMEMBERING, {"method": "scaffold"}, {"method": "over_the_air"}, {"fleet": {"unpicked": "keep"}}],
    ids=["plain", "memory", "scaffold", "over the air", "kept"],
)
def test_asking_changes_nothing(tree: dict[str, Any]) -> None:
    e = config.experiment(SYNTHETIC, {"policy": {"scheduler": "random"}}, tree)
    system = build(e)
    asking = system._replace(policy=system.policy._replace(scheduler=Curious()))
    plain, curious = (fedtide.simulate(e, system=each) for each in (system, asking))
    assert plain.rounds == curious.rounds
    assert np.array_equal(plain.model, curious.model)


@pytest.mark.parametrize("tree", [{}, REMEMBERING], ids=["plain", "memory"])
def test_what_was_told_is_what_happens(tree: dict[str, Any]) -> None:
    result, data = simulated(tree), with_held_out()
    assert data.held_out is not None
    last = next(each for each in reversed(result.rounds) if each.picked)
    assert last.index == result.rounds[-1].index
    assert FakeTrainer().evaluate(result.model, data.held_out).loss == last.metrics["held_out_loss"]


class Stop(FedtideError):
    """Raised between two rounds."""


def test_stopped_and_resumed_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    simulated(REMEMBERING, tmp_path / "whole")

    def stop(record: RoundRecord, _: int) -> None:
        if record.index == 5:
            raise Stop

    with pytest.raises(Stop):
        simulated(REMEMBERING, tmp_path / "halves", on_round=stop)
    simulated(REMEMBERING, tmp_path / "halves")
    for file in ("rounds.jsonl", "model.npy"):
        assert (tmp_path / "halves" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_the_same_bits_whatever_the_threads() -> None:
    e = config.experiment(SYNTHETIC)
    one, three = (fedtide.simulate(e, threads=threads) for threads in (1, 3))
    assert one.rounds == three.rounds
    assert np.array_equal(one.model, three.model)
    assert one.rounds[-1].ledger.control_bits == 0  # no device reports anything: it is no schedule for devices


def test_it_is_ahead_of_random_on_the_samples_that_it_looks_at() -> None:
    e = config.experiment(SYNTHETIC)
    data = load_dataset(e)
    assert data.held_out is not None
    losses = [
        fedtide.simulate(config.experiment(SYNTHETIC, {"policy": {"scheduler": name}})).evaluate(data.held_out).loss
        for name in ("oracle", "random")
    ]
    assert losses[0] < losses[1]


def test_a_training_that_diverges_is_not_chosen() -> None:
    broken = FakeTrainer(num_parameters=300, broken=frozenset((2, version) for version in range(1, 99)))
    e = small(ORACLE)
    result = fedtide.simulate(e, dataset=with_held_out(), trainer=broken)
    assert any(2 in each.ready for each in result.rounds)
    assert not any(2 in each.picked for each in result.rounds if len(each.ready) > 1)


def test_where_all_diverge_the_error_says_so() -> None:
    broken = FakeTrainer(num_parameters=300, broken=frozenset((k, v) for k in range(6) for v in range(1, 99)))
    with pytest.raises(DivergedError, match="training diverged"):
        fedtide.simulate(small(ORACLE), dataset=with_held_out(), trainer=broken)


def test_a_plan_says_that_only_a_training_tells() -> None:
    plan = fedtide.plan(config.experiment(SYNTHETIC))
    assert "only a training tells" in plan_facts(plan)["schedule"]


def test_it_needs_held_out_samples() -> None:
    with pytest.raises(
        FedtideError, match=r"policy\.scheduler=oracle asks .* set data\.num_train and data\.num_held_out"
    ):
        fedtide.simulate(small(ORACLE), dataset=small_dataset())


def test_uploads_that_are_in_later_are_refused() -> None:
    e = small(ORACLE, {"timeline": {"uploads": "later"}, "radio": {"symbol_rate": 1e4}})
    with pytest.raises(FedtideError, match=r"timeline\.uploads=later .* set timeline\.uploads=fixed"):
        build(e, dataset=with_held_out())


def test_no_deployment_knows_outcomes() -> None:
    with pytest.raises(FedtideError, match=r"policy\.scheduler=oracle asks what .* simulate it with `fedtide run`"):
        check_deployment_timeline(small(ORACLE))
    with pytest.raises(FedtideError, match=r"policy\.aggregator=aflguard trains .* simulate it with `fedtide run`"):
        check_deployment_timeline(small({"policy": {"aggregator": "aflguard"}}))
