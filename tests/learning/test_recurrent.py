"""The model for text: what it computes, that it learns, and who can train it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedtide
from fedtide.engine import making
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning.model import GRU, MODELS, Embedding, Linear, Model, initialize, num_parameters, parameter_places
from fedtide.learning.native import _lower
from fedtide.learning.trainer import LocalWork, Task
from fedtide.rng import stream
from fedtide.runs import RoundRecord
from fedtide.types import Job, Samples

SHAPE, SYMBOLS = (1, 1, 6), 5
SMALL = MODELS["char_gru"](SHAPE, SYMBOLS, embedding=3, hidden=4)


def rule(num: int, seed: int = 0) -> Samples:
    """Characters at random, after which the last but one comes again."""
    codes = np.random.default_rng(seed).integers(0, SYMBOLS, (num, 1, 1, SHAPE[2]))
    return Samples(codes.astype(np.float32), codes[:, 0, 0, -2].astype(np.uint8))


def reference(vector: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the logits of SMALL for codes [b steps], written out in NumPy."""
    cuts = np.cumsum([SYMBOLS * 3, 12 * 3, 12 * 4, 12, 12, SYMBOLS * 4])
    table, w, u, b, c, last, bias = np.split(vector.astype(np.float64), cuts)
    table, w, u, last = table.reshape(SYMBOLS, 3), w.reshape(12, 3), u.reshape(12, 4), last.reshape(SYMBOLS, 4)
    state = np.zeros((len(codes), 4))
    for step in codes.T:
        coming, going = table[step] @ w.T + b, state @ u.T + c
        reset, update = (1 / (1 + np.exp(-(coming[:, k : k + 4] + going[:, k : k + 4]))) for k in (0, 4))
        state = (1 - update) * np.tanh(coming[:, 8:] + reset * going[:, 8:]) + update * state
    return state @ last.T + bias


def trainer(threads: int = 1, work: LocalWork | None = None, **options: object):  # type: ignore[no-untyped-def]
    pytest.importorskip("torch")
    from fedtide.learning.torch import TorchTrainer

    return TorchTrainer(Task(SMALL, work or LocalWork(8, 1, None, 0.0), 0, SHAPE, SYMBOLS, threads), **options)  # type: ignore[arg-type]


def test_where_its_parameters_lie() -> None:
    model = MODELS["char_gru"]((1, 1, 80), 81)
    assert model.layers == (Embedding(81, 8), GRU(128), Linear(81))
    assert [place.bias.stop - place.weight.start for place in parameter_places(model)] == [648, 52_992, 10_449]
    assert num_parameters(model) == 64_089
    assert num_parameters(MODELS["char_gru"]((1, 1, 9), 81)) == 64_089  # whatever the window


def test_its_first_parameters_are_as_pytorch_draws_them() -> None:
    model = MODELS["char_gru"]((1, 1, 80), 81)
    vector = initialize(model, stream(0, "initial_model"))
    table, gates, _ = (vector[place.weight.start : place.bias.stop] for place in parameter_places(model))
    assert table.std() == pytest.approx(1, abs=0.1)
    assert np.abs(table).max() > 2
    assert 0.99 / np.sqrt(128) < np.abs(gates).max() <= (1 + 1e-6) / np.sqrt(128)


def test_the_module_is_the_description_written_out() -> None:
    made, samples = trainer(), rule(20)
    vector = made.initial_model(3) * 2
    logits = reference(vector, samples.images[:, 0, 0].astype(np.int64))
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    score = made.evaluate(vector, samples)
    assert score.loss == pytest.approx(-np.log(chances[np.arange(20), samples.labels]).mean(), rel=1e-5)
    assert score.accuracy == pytest.approx((logits.argmax(1) == samples.labels).mean())


def test_it_learns() -> None:
    made = trainer(work=LocalWork(20, None, 400, 0.0), optimizer="adam")
    start = made.initial_model(0)
    update = made.train([Job(0, 1, start, 0.03, rule(500), np.arange(500))])[0]
    assert made.evaluate(start, rule(200, 1)).accuracy < 0.5
    assert made.evaluate(start + update, rule(200, 1)).accuracy > 0.75  # one in five at random


def test_threads_change_no_bit() -> None:
    alone, together, samples = trainer(), trainer(threads=3), rule(60)
    start = alone.initial_model(0)
    jobs = [Job(k, 1, start, 0.5, samples, np.arange(k, 60, 4)) for k in range(4)]
    np.testing.assert_array_equal(alone.train(jobs), together.train(jobs))
    np.testing.assert_array_equal(alone.train(jobs[2:3])[0], together.train(jobs)[2])


def test_codes_that_it_does_not_have() -> None:
    made = trainer()
    for code in (SYMBOLS, -1):
        spoilt = Samples(np.full((3, *SHAPE), code, np.float32), np.zeros(3, np.uint8))
        with pytest.raises(
            TrainingError, match=rf"codes from {code} to {code}, and .* has 5 symbols: give codes from 0"
        ):
            made.train([Job(0, 1, made.initial_model(0), 0.1, spoilt, np.arange(3))])


def test_the_native_kernel_does_not_know_it() -> None:
    with pytest.raises(FedtideError, match=r"no layer Embedding.*set learning\.trainer=torch"):
        _lower(SMALL)
    with pytest.raises(FedtideError, match=r"'char_gru' is trained by PyTorch only: add learning\.trainer=torch"):
        making.make_model(fedtide.experiment(learning={"model": "char_gru"}), (1, 1, 80), 81)


def test_images_are_no_codes() -> None:
    wanted = fedtide.experiment(learning={"model": "char_gru", "trainer": "torch"})
    with pytest.raises(FedtideError, match=r"needs codes \[1 1 steps\]"):
        making.make_model(wanted, (1, 28, 28), 10)


def test_its_arguments() -> None:
    wanted = fedtide.experiment(learning={"model": {"name": "char_gru", "hidden": 16}, "trainer": "torch"})
    model = making.make_model(wanted, (1, 1, 80), 81)
    assert isinstance(model, Model)
    assert model.layers[1] == GRU(16)
    wanted = fedtide.experiment(learning={"model": {"name": "char_gru", "hidden": 0}, "trainer": "torch"})
    with pytest.raises(FedtideError, match="hidden=0 cannot be"):
        making.make_model(wanted, (1, 1, 80), 81)


def test_a_plan_needs_no_pytorch(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["torch"] = None  # not installed
import fedtide, fedtide.data.shakespeare as module
play = "ACT I.\\n\\n" + "\\n\\n".join(f"ROLE {chr(65 + k)}.\\n" + "Who is there? " * 99 for k in range(6))
module._load_plays = lambda folder, say: ([play], "made up")
planned = fedtide.plan(fedtide.experiment(
    data={"name": "shakespeare", "partition": "natural"}, learning={"model": "char_gru", "trainer": "torch"},
    fleet={"num_devices": 5}, timeline={"horizon": 3}, policy={"limit": 2},
))
print(planned.summary["num_parameters"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stderr, done.stdout) == ("", "64089\n")


def test_a_run_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    play = "ACT I.\n\n" + "\n\n".join(f"ROLE {chr(65 + k)}.\n" + f"Who is {k}, there? " * 70 for k in range(6))
    monkeypatch.setattr("fedtide.data.shakespeare._load_plays", lambda folder, say: ([play], "made up"))
    wanted = fedtide.experiment(
        data={"name": {"name": "shakespeare", "window": 10}, "partition": "natural", "num_test": 20},
        learning={"model": {"name": "char_gru", "hidden": 4}, "trainer": "torch", "local_steps": 2},
        fleet={"num_devices": 5},
        timeline={"horizon": 2},
        policy={"limit": 2},
    )

    def stop(record: RoundRecord, total: int) -> None:
        if record.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(wanted, tmp_path / "run", on_round=stop)
    for folder, threads in (("run", 2), ("whole", 1)):
        fedtide.simulate(wanted, tmp_path / folder, threads=threads)
    for file in ("rounds.jsonl", "model.npy"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
