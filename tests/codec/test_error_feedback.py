"""Error feedback and EF21 around other codecs, alone and in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from aggregation import cohort, stepped
from fedtide.codec.baselines import ErrorFeedback
from fedtide.codec.sparse_quantized import SparseQuantized
from fedtide.engine.making import make_codec
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.methods import Ef21, Ef21Sum
from fedtide.parts import registry
from fedtide.runs import RoundRecord
from fedtide.runs.checkpoint import read_checkpoint
from helpers import FakeTrainer, small, small_dataset
from remembering import OUTAGE

RNG = np.random.default_rng
INNER = [("top_k", None), ("top_k", {"value_bits": 32}), ("sign", None), ("dead_zone", None), ("ideal", None)]


def largest(values: list[float], k: int) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:k]
    return [value if i in order else 0.0 for i, value in enumerate(values)]


def test_ef_sgd_is_the_papers_loop() -> None:
    """Karimireddy et al. 2019, algorithm 2, with top-3 of 12."""
    codec, rng, d, k = ErrorFeedback("top_k", {"value_bits": 32}), RNG(0), 12, 3
    memory, error, budget = codec.init(d), [0.0] * d, 104.0
    for _ in range(20):
        update = rng.standard_normal(d).astype(np.float32)
        packet, memory = codec.encode(memory, update, budget, rng)
        wanted = [u + e for u, e in zip(update.tolist(), error, strict=True)]
        sent = largest(wanted, k)
        error = [p - c for p, c in zip(wanted, sent, strict=True)]
        assert packet.num_kept == k
        np.testing.assert_allclose(codec.decode(packet), sent, rtol=1e-5)
        np.testing.assert_allclose(memory["error"], error, rtol=1e-4, atol=1e-6)


def test_ef21_is_the_papers_loop() -> None:
    """Richtarik et al. 2021, algorithm 2, with two devices of which one or both upload."""
    codec, server, rng, d, k = Ef21("top_k", {"value_bits": 32}), Ef21Sum(rate=0.5), RNG(0), 12, 3
    device: list[Any] = [codec.init(d), codec.init(d)]
    model = np.zeros(d, np.float32)
    memory, known, x = server.init(model, 2), [[0.0] * d, [0.0] * d], [0.0] * d
    for who in ([0, 1], [0], [1], [0, 1], [1], [0, 1]):
        came = []
        for n in who:
            update = rng.standard_normal(d).astype(np.float32)
            packet, device[n] = codec.encode(device[n], update, 104.0, rng)
            came.append(codec.decode(packet))
            change = largest([u - g for u, g in zip(update.tolist(), known[n], strict=True)], k)
            known[n] = [g + c for g, c in zip(known[n], change, strict=True)]
        x = [value + 0.5 * (a + b) / 2 for value, a, b in zip(x, *known, strict=True)]
        r = len(who)
        arrived = cohort(np.full(r, 1 / r), np.zeros(r), np.array(who), 2)
        model, memory = stepped(server, memory, model, np.zeros((r, d)), np.stack(came), arrived)
        np.testing.assert_allclose(model, x, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(memory["mean"], (device[0]["known"] + device[1]["known"]) / 2, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("inner", "args"), INNER)
def test_what_arrived_and_what_is_left_is_what_was_trained(inner: str, args: dict[str, Any] | None) -> None:
    codec, rng, d = ErrorFeedback(inner, args), RNG(1), 200
    memory, trained, arrived = codec.init(d), np.zeros(d), np.zeros(d)
    for _ in range(30):
        update = rng.standard_normal(d).astype(np.float32)
        packet, memory = codec.encode(memory, update, rng.uniform(0, 900), rng)
        trained, arrived = trained + update, arrived + codec.decode(packet)
    np.testing.assert_allclose(arrived + memory["error"], trained, atol=1e-4)
    assert memory["error"].any() == (inner != "ideal")


@pytest.mark.parametrize(("inner", "args"), INNER[:-1])
def test_ef21_learns_an_update_that_stays_the_same(inner: str, args: dict[str, Any] | None) -> None:
    """|u - g| falls to nothing, where the codec alone leaves the same error for ever."""
    codec, rng, d = Ef21(inner, args), RNG(2), 100
    update, memory = rng.standard_normal(d).astype(np.float32), codec.init(d)
    for _ in range(150):
        _, memory = codec.encode(memory, update, 300.0, rng)
    assert np.linalg.norm(memory["known"] - update) < 0.05 * np.linalg.norm(update)


def test_the_experiments_keys_reach_the_inner_codec() -> None:
    experiment = small(codec={"name": {"name": "error_feedback", "inner": "sparse_quantized"}, "num_levels": 9})
    inner: Any = make_codec(experiment)
    update = RNG(0).standard_normal(30).astype(np.float32)
    packet = inner.encode(inner.init(30), update, 300.0, RNG(1))[0]
    assert packet == SparseQuantized(9).encode(update, 300.0, RNG(1))
    assert inner.planned_bits(30, 300.0) == packet.bits
    assert getattr(ErrorFeedback("dead_zone"), "planned_bits", None) is None


@pytest.mark.parametrize("wrapper", ["error_feedback", "ef21"])
@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"inner": "ef21"}, "memory of its own"),
        ({"inner": "topk"}, "did you mean top_k"),
        ({"inner": "top_k", "inner_args": {"value_bits": 5}}, "value_bits=5"),
        ({"inner": "top_k", "inner_args": {"values": 5}}, "value_bits"),
        ({"inner_args": 3}, "inner_args=3"),
    ],
)
def test_refused_in_one_line(wrapper: str, args: dict[str, Any], says: str) -> None:
    with pytest.raises(FedtideError, match=says) as raised:
        registry.part("codec", wrapper, args)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "one", [{"codec": {"name": "ef21"}}, {"policy": {"aggregator": "ef21"}}], ids=["codec alone", "aggregator alone"]
)
def test_half_of_ef21_is_refused(one: dict[str, Any]) -> None:
    with pytest.raises(FedtideError, match=r"differ from the last ones.*: add (policy\.aggregator|codec\.name)=ef21$"):
        build(small(one), dataset=small_dataset())


def simulated(experiment: fedtide.Experiment, folder: Path | None = None, **more: Any) -> fedtide.Result:
    trainer = FakeTrainer(num_parameters=300)
    return fedtide.simulate(experiment, folder, dataset=small_dataset(), trainer=trainer, **more)


def test_around_ideal_it_changes_nothing() -> None:
    plain = simulated(small(codec={"name": "ideal"}))
    around = simulated(small(codec={"name": {"name": "error_feedback", "inner": "ideal"}}))
    assert plain.rounds == around.rounds
    np.testing.assert_array_equal(plain.model, around.model)


METHODS: list[dict[str, Any]] = [
    {"codec": {"name": "error_feedback"}},
    {"codec": {"name": {"name": "error_feedback", "inner": "sign"}}},
    {"codec": {"name": "ef21"}, "policy": {"aggregator": "ef21"}},
    {"codec": {"name": {"name": "sign", "scaled": False}}, "policy": {"aggregator": "majority_vote"}},
    {"codec": {"name": "qsgd"}},
]


class Stop(fedtide.FedtideError):
    """Raised between two rounds."""


@pytest.mark.parametrize("method", METHODS, ids=lambda each: each["codec"]["name"])
def test_stopped_after_any_round_it_ends_with_the_same_bytes(method: dict[str, Any], tmp_path: Path) -> None:
    wanted = small(method, {"radio": {"num_symbols": 900}})
    whole = simulated(wanted, tmp_path / "whole")
    assert all(
        0 < sent <= granted
        for each in whole.rounds
        for sent, granted in zip(each.sent_bits, each.budget_bits, strict=True)
    )

    for after in range(1, whole.rounds[-1].index):

        def stop(record: RoundRecord, _: int, after: int = after) -> None:
            if record.index == after:
                raise Stop

        folder = tmp_path / str(after)
        with pytest.raises(Stop):
            simulated(wanted, folder, on_round=stop)
        simulated(wanted, folder)
        for name in ("rounds.jsonl", "model.npy"):
            assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_servers_mean_is_that_of_what_devices_remember(tmp_path: Path) -> None:
    """Uploads that are lost in an outage included: neither side remembers them."""
    wanted = small(METHODS[2], {"radio": {"num_symbols": 900}}, OUTAGE)
    result = simulated(wanted, tmp_path / "run")
    assert any(each.lost for each in result.rounds)
    saved = read_checkpoint(tmp_path / "run", wanted)
    assert saved is not None
    known = sum(each["known"].astype(np.float64) for each in saved.state.devices["codec"].values())
    np.testing.assert_allclose(saved.state.memory["aggregator"]["mean"], known / 6, rtol=1e-4, atol=1e-6)
