"""Policies of a user's own, as they come: writing into their arguments, counting calls, overspending."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.engine.system import build, make_trainer
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import user_code
from fedtide.report.plan import plan_system
from fedtide.runs import RunFolder, read_run_header
from helpers import FakeTrainer, run, small, small_dataset

HEAD = """
from dataclasses import dataclass
import numpy as np
from fedtide import Tick
from fedtide.codec.base import packet
from fedtide.codec.sparse_quantized import Ideal, SparseQuantized
from fedtide.aggregate.averages import Mix
from fedtide.types import Selection
"""


def policy(folder: Path, kind: str, source: str, **more: Any) -> fedtide.Experiment:
    """Return the small experiment with `mine` of a file as one of its policies."""
    (folder / "mine.py").write_text(HEAD + source)
    name = f"{folder / 'mine.py'}:mine"
    tree = {"codec": {"name": name}} if kind == "codec" else {"policy": {kind: name}}
    return small({"timeline": {"name": name}} if kind == "timeline" else tree, more)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("scheduler", "def mine(c, limit, rng):\n    c.capacity[0] = -1.0\n    return range(limit)\n"),
        ("scheduler", "def mine(c, limit, rng):\n    c.device.sort()\n    return range(limit)\n"),
        ("weighting", "def mine(n, age):\n    n += 1\n    return n / n.sum()\n"),
        ("weighting", "def mine(n, age):\n    age += 1\n    return n / n.sum()\n"),
        (
            "aggregator",
            "def mine(model, starts, updates, weights, age):\n    model += updates.mean(axis=0)\n    return model\n",
        ),
        ("aggregator", "def mine(model, starts, updates, weights, age):\n    updates *= 2\n    return model\n"),
        ("codec", "class mine(Ideal):\n    def encode(self, update, bits, rng):\n        update *= 2\n"),
    ],
)
def test_what_a_policy_is_given_cannot_be_written_to(tmp_path: Path, kind: str, source: str) -> None:
    """Else it would change the models that devices train from, or the channel by which the symbols are shared."""
    with pytest.raises(FedtideError, match=rf"{kind}=.*read-only.*mine\.py:\d+"):
        run(policy(tmp_path, kind, source))


def test_a_system_of_another_experiment_is_refused() -> None:
    one, other = small(seed=1), small(seed=2)
    system = build(one, dataset=small_dataset())
    with pytest.raises(FedtideError, match="another experiment"):
        run(other, system=system)
    assert np.array_equal(run(one, system=system).model, run(one).model)


TURNS = """
class mine:
    def __init__(self):
        self.turn = 0
    def __call__(self, candidates, limit, rng):
        self.turn += 1
        return [(self.turn + i) % len(candidates.device) for i in range(limit)]
"""
DICE = "def mine(candidates, limit, rng):\n    return np.random.permutation(len(candidates.device))[:limit]\n"
TICKS = """
def mine(candidates, limit, rng):
    return [(candidates.tick + i) % len(candidates.device) for i in range(limit)]
"""


def interrupted(experiment: fedtide.Experiment, folder: Path) -> None:
    def stop(record: Any, total: int) -> None:
        if record.index == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, folder, on_round=stop)


def test_a_scheduler_that_counts_its_calls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"scheduler=.*mine\.py:\d+.*another answer when it is called again"):
        run(policy(tmp_path, "scheduler", TURNS), tmp_path / "run")


def test_a_scheduler_that_takes_turns_by_the_tick_resumes_to_the_same_bits(tmp_path: Path) -> None:
    experiment = policy(tmp_path, "scheduler", TICKS)
    interrupted(experiment, tmp_path / "run")
    trainer = FakeTrainer()
    assert np.array_equal(run(experiment, tmp_path / "run", trainer=trainer).model, run(experiment).model)
    assert min(version for _, version in trainer.jobs) >= 3  # nothing was trained again


ROLLED = {
    "np.random": DICE,
    "random": "import random\ndef mine(c, limit, rng):\n    return random.sample(range(len(c.device)), limit)\n",
    "a generator of its own": (
        "OWN = np.random.default_rng(3)\ndef mine(c, limit, rng):\n    return OWN.permutation(len(c.device))[:limit]\n"
    ),
    "an attribute": (
        "class mine:\n    def __init__(self):\n        self.own = np.random.RandomState(3)\n"
        "    def __call__(self, c, limit, rng):\n        return self.own.permutation(len(c.device))[:limit]\n"
    ),
}


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("source", ROLLED)
def test_a_scheduler_with_dice_of_its_own_is_refused(tmp_path: Path, source: str, kept: bool) -> None:
    experiment = policy(tmp_path, "scheduler", ROLLED[source], policy={"limit": 1})
    with pytest.raises(
        TrainingError, match=r"scheduler=.*another answer when it is called again .*draw only from the rng"
    ):
        run(experiment, tmp_path / "run" if kept else None)


PARTS = {
    "duration": "def mine(seed, device, job): return 1 + np.random.random(len(device))\n",
    "availability": "def mine(seed, device, time): return time + np.random.random(len(device))\n",
    "downlink": "def mine(seed, device, time, bits): return np.random.random(len(device))\n",
    "partition": "def mine(dataset, n, seed): return np.random.permutation(len(dataset.train.labels)).reshape(n, -1)\n",
}
KEYS = {"duration": "fleet", "availability": "fleet", "downlink": "radio", "partition": "data"}


@pytest.mark.parametrize("kind", PARTS)
def test_dice_in_what_is_asked_before_a_run_are_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine.py").write_text(HEAD + PARTS[kind])
    experiment = small({KEYS[kind]: {kind: f"{tmp_path / 'mine.py'}:mine"}})
    with pytest.raises(TrainingError, match=rf"{kind}=.*when it is called again.*draw only "):
        run(experiment)


class Rolling(FakeTrainer):
    def train(self, jobs: Any) -> Any:
        return super().train(jobs) * np.random.default_rng().random()


class Counting(FakeTrainer):
    def train(self, jobs: Any) -> Any:
        return super().train(jobs) * (1 + len(self.jobs))


@pytest.mark.parametrize("trainer", [Rolling, Counting])
def test_a_trainer_with_dice_or_hidden_state_is_refused(tmp_path: Path, trainer: Any) -> None:
    """Its run would resume to other bytes."""
    with pytest.raises(TrainingError, match=r"another update when it trains the same job again.*job\.memory"):
        run(small(), tmp_path / "run", trainer=trainer())


def test_a_trainer_is_asked_again_in_a_copy() -> None:
    trainer = FakeTrainer()
    run(small(), trainer=trainer)
    assert len(trainer.jobs) == len(set(trainer.jobs))


class Whitening(FakeTrainer):
    def train(self, jobs: Any) -> Any:
        jobs[0].samples.images[:] = 0
        return super().train(jobs)


def test_a_trainer_cannot_write_to_the_images() -> None:
    data = small_dataset()
    before = data.train.images.copy()
    with pytest.raises(ValueError, match="read-only"):
        run(small(), trainer=Whitening(), dataset=data)
    assert np.array_equal(data.train.images, before)
    data.train.images[0] = 0  # the caller's own array stays the caller's


ONCE = """
from pathlib import Path

def mine(candidates, limit, rng):
    seen = Path(__file__).with_name(f"tick {candidates.tick}")
    if seen.exists():
        raise SystemExit(0)
    seen.touch()
    return range(limit)
"""


def test_a_scheduler_that_ends_the_process_when_it_is_asked_again_ends_no_run(tmp_path: Path) -> None:
    experiment = policy(tmp_path, "scheduler", ONCE, policy={"limit": 1})
    with pytest.raises(TrainingError, match="raises SystemExit when it is called again") as caught:
        run(experiment, tmp_path / "run")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # as a worker of a study hands it over


OVER = """
class mine(Ideal):
    def num_kept(self, d, bits):
        return 1
"""


def test_a_codec_that_overspends_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"encoded to 960 bits, and \d+\.\d were granted to device \d"):
        run(policy(tmp_path, "codec", OVER, radio={"num_symbols": 100}))
    run(small({"codec": {"name": "ideal"}, "radio": {"num_symbols": 100}}))  # which says that it keeps everything


def test_a_codec_that_decodes_to_doubles_is_the_same(tmp_path: Path) -> None:
    source = "class mine(Ideal):\n    def decode(self, packet):\n        return super().decode(packet).astype(float)\n"
    whole = run(small({"codec": {"name": "ideal"}}))
    assert np.array_equal(run(policy(tmp_path, "codec", source)).model, whole.model)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (
            "codec",
            "class mine(Ideal):\n    def decode(self, packet):\n        return super().decode(packet) * np.nan\n",
        ),
        ("aggregator", "def mine(model, starts, updates, weights, age):\n    return model / 0.0\n"),
        ("aggregator", "def mine(model, starts, updates, weights, age):\n    return model * 1e300 * 1e9\n"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_that_are_not_finite_are_blamed_on_who_made_them(tmp_path: Path, kind: str, source: str) -> None:
    with pytest.raises(TrainingError, match=rf"{kind}=.* returned -?(nan|inf) at position 0"):
        run(policy(tmp_path, kind, source))


SAME_TICKS = """
def mine(clock):
    everyone = range(clock.num_devices)
    return [Tick(i, np.float32(i), list(everyone), [i for _ in everyone]) for i in np.arange(1, 4)]
"""


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (
            "codec",
            "class mine(Ideal):\n    def encode(self, update, bits, rng):\n        n = np.int64(len(update))\n"
            "        return packet(0, int(n), n, update.astype('<f4').tobytes(), 32 * n)\n"
            "    def num_kept(self, d, bits):\n        return np.minimum(d, 10**9)\n",
        ),
        (
            "scheduler",
            "def mine(c, limit, rng):\n    p = np.arange(limit)\n    return Selection(p, (p >= 0).all())\n",
        ),
        ("timeline", SAME_TICKS),
    ],
)
def test_numbers_of_numpy_are_as_good_as_ours(tmp_path: Path, kind: str, source: str) -> None:
    experiment = policy(tmp_path, kind, source)
    run(experiment, tmp_path / "run")
    json.dumps(plan_system(build(experiment, dataset=small_dataset())).rows)


def test_ticks_beyond_the_horizon_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtideError, match=r"its time 3\.0 lies beyond timeline\.horizon=2\.5"):
        run(policy(tmp_path, "timeline", SAME_TICKS, timeline={"horizon": 2.5}))


def test_weights_in_single_precision_are_taken(tmp_path: Path) -> None:
    source = "def mine(n, age):\n    return np.full(len(n), 1 / np.float32(len(n)), np.float32)\n"
    for record in run(policy(tmp_path, "weighting", source)).rounds:
        assert sum(record.weight) == pytest.approx(1 if record.weight else 0, abs=1e-15)
    with pytest.raises(TrainingError, match=r"\(the sum is 0\.9"):
        run(policy(tmp_path, "weighting", "def mine(n, age):\n    return np.full(len(n), 0.9 / len(n))\n"))


def test_an_object_of_our_own_classes_is_a_policy_too(tmp_path: Path) -> None:
    run(policy(tmp_path, "aggregator", "mine = Mix(mixing=0.5)\n", policy={"limit": 1}))
    run(policy(tmp_path, "codec", "mine = SparseQuantized(8)\n"))


def test_a_file_may_import_its_neighbour_and_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("SHARED = []\n")
    (tmp_path / "both.py").write_text(
        "from beside_it import SHARED\nSEEN = []\n"
        "def pick(candidates, limit, rng):\n    SEEN.append(limit)\n    return range(limit)\n"
        "def weigh(n, age):\n    assert SEEN, 'another copy'\n    return n / n.sum()\n"
    )
    run(small({"policy": {"scheduler": f"{tmp_path}/both.py:pick", "weighting": f"{tmp_path}/both.py:weigh"}}))


def test_a_run_is_resumed_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its policy was named from the folder it was begun in; the run folder remembers which that was."""
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "mine.py").write_text("def f(candidates, limit, rng):\n    return list(range(limit))\n")
    monkeypatch.chdir(tmp_path / "begun")
    experiment = small({"policy": {"scheduler": "mine.py:f"}})
    RunFolder.open(tmp_path / "run", experiment).close()
    monkeypatch.chdir(tmp_path)
    with user_code.search_user_folder(read_run_header(tmp_path / "run").versions.files_folder):
        RunFolder.open(tmp_path / "run", experiment).close()
        assert user_code.user_source_digest("mine.py:f") is not None
    assert user_code.user_source_digest("mine.py:f") is None


DEALT = {
    "shared": "def mine(dataset, n, seed):\n    return [[k, k + 1] for k in range(n)]\n",
    "shared in one array": (
        "from fedtide.data.holdings import flat_holdings\n"
        "def mine(dataset, n, seed):\n"
        "    return flat_holdings(np.repeat(np.arange(n), 2), np.add.outer(np.arange(n), np.arange(2)).ravel(), n)\n"
    ),
    "written to": "def mine(dataset, n, seed):\n    dataset.train.labels[:] = 0\n    return [[k] for k in range(n)]\n",
}


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("shared", "gives sample 1 to the devices 0 and 1: give each sample to one device, or declare shares_samples"),
        ("shared in one array", "gives sample 1 to the devices 0 and 1"),
        ("written to", "read-only"),
    ],
)
def test_a_partition_neither_shares_samples_unsaid_nor_writes_to_the_data(
    tmp_path: Path, what: str, reason: str
) -> None:
    (tmp_path / "mine.py").write_text(HEAD + DEALT[what])
    experiment = small({"data": {"partition": f"{tmp_path / 'mine.py'}:mine"}})
    with pytest.raises(FedtideError, match=rf"partition=.*{reason}"):
        run(experiment)
    if what != "written to":
        (tmp_path / "mine.py").write_text(HEAD + DEALT[what] + "mine.shares_samples = True\n")
        run(experiment)


def test_data_that_changed_between_two_runs_are_read_anew() -> None:
    """Also by a trainer that is used for both, and a system that was built before is no longer right."""
    experiment, data = small(), small_dataset()
    system = build(experiment, dataset=data)
    trainer = make_trainer(system)
    fedtide.simulate(experiment, dataset=data, trainer=trainer)
    data.train.labels[:] = (data.train.labels + 1) % 3
    data.train.images[:] = data.train.images[::-1].copy()
    again = fedtide.simulate(experiment, dataset=data, trainer=trainer).model
    assert np.array_equal(again, fedtide.simulate(experiment, dataset=data).model)
    with pytest.raises(FedtideError, match="the labels of the dataset changed since the system was built"):
        fedtide.simulate(experiment, system=system)


def _raising(*_: Any) -> None:
    raise ZeroDivisionError("mine")


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("on_round", lambda given: run(given, on_round=_raising)),
        ("on_done", lambda given: fedtide.study(given, seeds=[1], on_done=_raising)),
    ],
)
def test_what_a_callback_raises_is_one_line(name: str, call: Any) -> None:
    given = small(data={"num_train": 60, "num_test": 20}, timeline={"horizon": 1.0})
    with pytest.raises(
        TrainingError, match=rf"callback='{name}' raised ZeroDivisionError: mine \(.*py:\d+\); correct it"
    ):
        call(given)


def test_an_experiment_says_that_it_cannot_be_changed() -> None:
    given: Any = small()
    with pytest.raises(FedtideError, match=r"limit cannot be changed: an experiment is frozen; make another"):
        given.policy.limit = 4
    with pytest.raises(FedtideError, match="seed cannot be changed"):
        given.seed = 4
    with pytest.raises(FedtideError, match="seed cannot be changed"):
        del given.seed
