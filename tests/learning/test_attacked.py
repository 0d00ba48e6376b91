"""Attackers send what their attack says, all others what they trained, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.deploy.settings import Deployment, Terms, check_terms
from fedtide.errors import FedtideError
from fedtide.learning.attacked import AttackedTrainer
from fedtide.learning.model import MODELS
from fedtide.learning.trainer import LocalWork, Task
from fedtide.parts import registry
from fedtide.types import Job, Samples
from helpers import small, small_dataset

DATA = small_dataset(num_train=60)
SHAPE = DATA.train.images.shape[1:]
N = 10


def made(seed: int = 3, **args: Any) -> AttackedTrainer:
    return AttackedTrainer(task(seed), num_devices=N, **args)


def task(seed: int = 3) -> Task:
    return Task(MODELS["softmax"](SHAPE, 3), LocalWork(4, 1), seed, SHAPE, 3)


def native(seed: int = 3) -> Any:
    return registry.resolve("trainer", "native", {}, {"run.task": task(seed)}.__getitem__)


def jobs(version: int = 1, samples: Samples = DATA.train) -> list[Job]:
    start = native().initial_model(0)
    return [Job(k, version, start, 0.1, samples, np.arange(k, 60, N)) for k in range(N)]


@pytest.mark.parametrize("attack", ["sign_flip", "scale", "noise", "collude", "label_flip"])
def test_attackers_send_what_the_attack_says_and_others_what_they_trained(attack: str) -> None:
    trainer, honest = made(share=0.3, attack=attack, strength=2.5), native().train(jobs())
    flipped = native().train(jobs(samples=DATA.train._replace(labels=(2 - DATA.train.labels).astype(np.uint8))))
    sent: Any = trainer.train(jobs())
    assert sent.dtype == np.float32
    liars = sorted(trainer.attackers)
    others = sorted(set(range(N)) - trainer.attackers)
    assert len(liars) == 3
    assert np.array_equal(sent[others], honest[others])
    exact = honest[liars].astype(np.float64)
    if attack in ("noise", "collude"):
        lengths = [np.linalg.norm(row) for row in sent[liars]]
        np.testing.assert_allclose(lengths, 2.5 * np.linalg.norm(exact, axis=1), rtol=4 / np.sqrt(2 * exact.shape[1]))
        for row, update in zip(sent[liars], exact, strict=True):
            assert abs(np.corrcoef(row, update)[0, 1]) < 4 / np.sqrt(len(update))
        later: Any = trainer.train(jobs(2))
        again = np.corrcoef(later[liars[0]], sent[liars[0]])[0, 1]
        assert again > 0.999999 if attack == "collude" else abs(again) < 4 / np.sqrt(exact.shape[1])
        together = np.corrcoef(sent[liars])[np.triu_indices(len(liars), 1)]
        assert np.all(together > 0.999999 if attack == "collude" else np.abs(together) < 4 / np.sqrt(exact.shape[1]))
    else:
        wanted = {
            "sign_flip": -2.5 * exact,
            "scale": 2.5 * exact,
            "label_flip": 2.5 * flipped[liars].astype(np.float64),
        }
        assert np.array_equal(sent[liars], wanted[attack].astype(np.float32))
    assert np.array_equal(made(share=0.3, attack=attack, strength=2.5).train(jobs()), sent)
    assert np.array_equal(trainer.train(jobs()[liars[1] :]), sent[liars[1] :])  # whoever trains with it


def test_the_seed_draws_the_attackers_and_a_larger_share_has_all_of_a_smaller_one() -> None:
    few, many = made(share=0.2).attackers, made(share=0.5, attack="noise", strength=7.0).attackers
    assert len(few) == 2
    assert len(many) == 5
    assert few < many
    assert len({made(seed, share=0.2).attackers for seed in range(8)}) > 3
    assert not made().attackers


def test_one_around_another_is_refused() -> None:
    for inner in ("scaffold", "attacked", "dask"):
        with pytest.raises(FedtideError, match=f"inner='{inner}' stands around a trainer itself: name native"):
            made(inner=inner)


def test_real_devices_are_not_made_to_lie() -> None:
    wanted = config.experiment({"learning.trainer": {"name": "attacked", "share": 0.2}})
    with pytest.raises(
        FedtideError, match=r"learning.trainer=attacked makes simulated devices lie.*learning.trainer=native"
    ):
        check_terms(Terms(wanted, Deployment()))


ATTACK = {
    "name": "attacked",
    "share": 0.5,
    "attack": "noise",
    "strength": 2.0,
    "inner": {"name": "native", "momentum": 0.5},
}


class Stop(fedtide.FedtideError):
    """Raised between two rounds."""


def test_a_run_with_attackers_differs_and_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    def stop(record: Any, _: int) -> None:
        if record.index == 3:
            raise Stop

    wanted = small(learning={"trainer": ATTACK, "model": "softmax"}, codec={"name": "ideal"})
    whole = fedtide.simulate(wanted, tmp_path / "whole", dataset=DATA)
    with pytest.raises(Stop):
        fedtide.simulate(wanted, tmp_path / "again", dataset=DATA, on_round=stop)
    fedtide.simulate(wanted, tmp_path / "again", dataset=DATA)
    for file in ("rounds.jsonl", "model.npy"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    honest = small(learning={"trainer": ATTACK["inner"], "model": "softmax"}, codec={"name": "ideal"})
    assert not np.array_equal(fedtide.simulate(honest, dataset=DATA).model, whole.model)


OWN = """
class Own:
    takes_work = True

    def __init__(self, task, inner: "Annotated[object, arg('who trains', part='trainer')]" = "native"):
        self.task, self.inner = task, inner
        self.initial_model, self.evaluate = inner.initial_model, inner.evaluate

    def train(self, jobs):
        return 2 * self.inner.train(jobs)
"""


def test_a_trainer_of_ones_own_may_be_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text("from typing import Annotated\nfrom fedtide import arg\n" + OWN)
    monkeypatch.chdir(tmp_path)
    entry = {"name": "attacked", "share": 0.5, "inner": "own.py:Own"}
    run = fedtide.simulate(small(learning={"trainer": entry, "model": "softmax"}), dataset=DATA)
    alone = fedtide.simulate(small(learning={"trainer": {**entry, "share": 0.0}, "model": "softmax"}), dataset=DATA)
    assert not np.array_equal(run.model, alone.model)
    own = fedtide.simulate(small(learning={"trainer": "own.py:Own", "model": "softmax"}), dataset=DATA)
    assert np.array_equal(alone.model, own.model)
