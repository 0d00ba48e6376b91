"""A parameter of a part that is itself a part: made, checked, named on the command line, and known by the content of its file."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide import config
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build, make_trainer, parameter_count
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning.trainer import trainer_backend
from fedtide.runs.manifest import manifest_instruction_path, policy_files

SMALL = {
    "data": {"name": "synthetic", "num_train": 240, "num_test": 60, "num_shards": 24},
    "fleet": {"num_devices": 6},
    "policy": {"limit": 3},
    "timeline": {"horizon": 3.0},
    "learning": {"model": "softmax", "local_epochs": 1, "batch_size": 10},
    "radio": {"num_symbols": 12000},
}
FILE = textwrap.dedent(
    """
    from dataclasses import dataclass
    from typing import Annotated

    import numpy as np
    from fedtide import arg
    from fedtide.codec.base import packet, unseal


    class Largest:  # the codec of docs/extending.md, without its memory
        code = 78

        def __init__(self, most: int = 10**6):
            self.most = most

        def num_kept(self, num_parameters, budget_bits):
            return min(int(budget_bits // 64), num_parameters, self.most)

        def encode(self, update, budget_bits, rng):
            r = self.num_kept(len(update), budget_bits)
            kept = np.argsort(-np.abs(update), kind="stable")[:r]
            payload = kept.astype("<u4").tobytes() + update[kept].astype("<f4").tobytes()
            return packet(self.code, len(update), r, payload, 64 * r)

        def decode(self, packet):
            header, payload = unseal(packet.data, self.code, packet.num_parameters)
            update, r = np.zeros(packet.num_parameters, np.float32), header.num_kept
            update[np.frombuffer(payload, "<u4", r)] = np.frombuffer(payload, "<f4", r, 4 * r)
            return update


    def shrunk(model, starts, updates, weights, age, by: float = 0.5):
        return model + by * (weights @ updates)


    class Counted:
        def init(self, model):
            return {"times": np.zeros(1, np.int64)}

        def __call__(self, memory, model, starts, updates, weights, age, device):
            return model + weights @ updates / (1 + memory["times"][0]), {"times": memory["times"] + 1}


    class Clipped:
        takes_work = True

        def __init__(self, task, inner: Annotated[object, arg("who trains", part="trainer")] = "native", most: float = 0.1):
            self.task, self.inner, self.most = task, inner, most

        def initial_model(self, seed):
            return self.inner.initial_model(seed)

        def train(self, jobs):
            updates = self.inner.train(jobs)
            return updates * np.minimum(1, self.most / np.linalg.norm(updates, axis=1, keepdims=True)).astype(np.float32)

        def evaluate(self, model, samples):
            return self.inner.evaluate(model, samples)
    """
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(*words: str, **keys: Any) -> config.Experiment:
    return config.experiment(SMALL, config.read_words(words), keys)


AROUND = {
    "codec": ["codec.name=error_feedback", "codec.name.inner=mine.py:Largest"],
    "ef21": ["method=ef21", "codec.name.inner=mine.py:Largest"],
    "aggregator": ["policy.aggregator=server_adam", "policy.aggregator.inner=mine.py:shrunk"],
    "aggregator with memory": ["policy.aggregator=server_momentum", "policy.aggregator.inner=mine.py:Counted"],
    "two deep": [
        "policy.aggregator=server_adam",
        "policy.aggregator.inner=server_momentum",
        "policy.aggregator.inner.inner=mine.py:shrunk",
    ],
    "scaffold": ["method=scaffold", "policy.aggregator.inner=mine.py:shrunk", "codec.name=dead_zone"],
    "trainer": [
        "learning.trainer=mine.py:Clipped",
        "learning.trainer.inner.momentum=0.5",
        "learning.trainer.inner.name=native",
    ],
}


@pytest.mark.parametrize("case", AROUND)
def test_it_runs_is_resumed_and_known_by_its_content(case: str, here: Path) -> None:
    experiment = small(*AROUND[case])
    whole = simulate(experiment, here / "whole")
    assert np.isfinite(whole.model).all()

    class Enough(Exception):
        pass

    def stop(record: Any, total: int) -> None:
        if record.index == 4:
            raise Enough

    with pytest.raises(TrainingError, match="Enough"):
        simulate(experiment, here / "run", on_round=stop)
    assert np.array_equal(simulate(experiment, here / "run").model, whole.model)
    assert policy_files(experiment).keys() == {"mine.py:" + FOUND[case]}
    before = policy_files(experiment)
    (here / "mine.py").write_text(FILE + "\n# edited\n")
    assert policy_files(experiment) != before


FOUND = {
    "codec": "Largest",
    "ef21": "Largest",
    "aggregator": "shrunk",
    "aggregator with memory": "Counted",
    "two deep": "shrunk",
    "scaffold": "shrunk",
    "trainer": "Clipped",
}


def test_the_inner_part_of_ones_own_does_what_it_would_do_alone() -> None:
    """server_momentum without momentum is its inner aggregator; error feedback of top-k is that of our top_k, at equal bits."""
    plain = small("policy.aggregator=mine.py:shrunk", "policy.aggregator.by=0.7")
    around = small(
        "policy.aggregator=server_momentum",
        "policy.aggregator.momentum=0",
        "policy.aggregator.inner=mine.py:shrunk",
        "policy.aggregator.inner.by=0.7",
    )
    np.testing.assert_allclose(simulate(around).model, simulate(plain).model, atol=1e-6)
    other = small(
        "policy.aggregator=server_momentum", "policy.aggregator.momentum=0", "policy.aggregator.inner=mine.py:shrunk"
    )
    assert not np.allclose(simulate(other).model, simulate(plain).model, atol=1e-6)


def test_names_and_parameters_may_be_given_in_any_of_three_ways() -> None:
    wanted = {"name": "error_feedback", "inner": {"name": "mine.py:Largest", "most": 20}}
    ways = [
        small(**{"codec.name": wanted}),
        small("codec.name=error_feedback", "codec.name.inner=mine.py:Largest", "codec.name.inner.most=20"),
        small("codec.name={name: error_feedback, inner: {name: 'mine.py:Largest', most: 20}}"),
    ]
    assert len({config.digest(each) for each in ways}) == 1
    old = small(**{"codec.name": {"name": "error_feedback", "inner": "mine.py:Largest", "inner_args": {"most": 20}}})
    runs = [simulate(each) for each in (ways[0], old)]
    assert np.array_equal(runs[0].model, runs[1].model)
    assert max(runs[0].rounds[0].num_kept) == 20
    another = config.experiment(ways[0], config.read_words(["codec.name.inner.most=30"]))
    assert another.codec.name.args == {"inner": {"name": "mine.py:Largest", "most": 30}}


def test_a_file_beside_the_experiment_is_found(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "e.yaml").write_text("codec: {name: {name: error_feedback, inner: {name: 'mine.py:Largest', most: 9}}}\n")
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    found = config.experiment(here / "e.yaml").codec.name.args["inner"]
    assert found == {"name": f"{here / 'mine.py'}:Largest", "most": 9}


def test_from_python_the_inner_part_may_be_an_object(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    import mine  # type: ignore[import-not-found]

    given = {"name": "error_feedback", "inner": mine.Largest}
    assert small(codec={"name": given}).codec.name.args == {"inner": "mine.py:Largest"}


def test_the_experiments_keys_reach_it() -> None:
    """FedNova inside a server optimizer knows the devices' learning rate and proximal term."""
    experiment = small(
        "policy.aggregator=server_momentum",
        "policy.aggregator.inner=fednova",
        "learning.learning_rate=0.07",
        "learning.proximal=0.3",
    )
    outer: Any = build(experiment).policy.aggregator
    inner = outer.policy._inner
    assert (inner.learning_rate, inner.proximal) == (0.07, 0.3)


def test_a_trainer_around_native_is_trained_on_this_machines_path() -> None:
    experiment = small("learning.trainer=mine.py:Clipped", "learning.trainer.most=0.05")
    assert trainer_backend(experiment.learning.trainer) == "native"
    assert manifest_instruction_path(experiment) == manifest_instruction_path(small())
    system = build(experiment)
    assert parameter_count(system) == 7850
    trainer: Any = make_trainer(system)
    assert trainer.inner.momentum == 0
    assert (
        trainer_backend(small("learning.trainer=mine.py:Clipped", "learning.trainer.inner=torch").learning.trainer)
        == "torch"
    )


BAD = [
    (["codec.name=error_feedback", "codec.name.inner=mine.py:Smallest"], "mine.py has no 'Smallest'"),
    (["codec.name=error_feedback", "codec.name.inner=topk"], "did you mean top_k"),
    (["codec.name=error_feedback", "codec.name.inner=5"], "inner=5 names no codec"),
    (["codec.name=error_feedback", "codec.name.inner=mine.py:Largest", "codec.name.inner.least=5"], "does not accept"),
    (["codec.name=error_feedback", "codec.name.inner=mine.py:shrunk"], "has no method encode"),
    (["policy.aggregator=server_adam", "policy.aggregator.inner=mine.py:none"], "mine.py has no 'none'"),
    (["learning.trainer=mine.py:Clipped", "learning.trainer.inner=natve"], "did you mean native"),
    (["learning.trainer=mine.py:Clipped", "learning.trainer.inner=[1]"], r"inner=\[1\] names no trainer"),
]


@pytest.mark.parametrize(("words", "says"), BAD)
def test_what_cannot_be_is_one_line(words: list[str], says: str) -> None:
    with pytest.raises(FedtideError, match=says) as error:
        simulate(small(*words))
    assert "\n" not in str(error.value)


READS, ENCODES = "def decode(self, packet):", "def encode(self, update, budget_bits, rng):"
SORTED, ADDED = 'np.argsort(-np.abs(update), kind="stable")', "return model + by * (weights @ updates)"
WRONG = [
    ("codec", READS, f"{READS}\n        return None\n    def _d(self, packet):", "codec='mine.py:Largest'"),
    ("codec", "return packet(", "return 7 or packet(", r"codec='mine.py:Largest'.* encoded to a int"),
    ("codec", ENCODES, f"{ENCODES}\n        fail()", "codec='mine.py:Largest' raised"),
    ("aggregator", ADDED, "return model[:-1]", "aggregator='mine.py:shrunk'.*an array of shape"),
    ("aggregator", ADDED, "return model * np.nan", "aggregator='mine.py:shrunk'.*returned nan"),
    ("aggregator", "by * (weights", "np.random.random() * (weights", "shrunk.*another answer when it is called again"),
    ("codec", SORTED, "np.random.permutation(len(update))", "Largest.*another answer when it is called again"),
    ("trainer", "updates = self.inner.train(jobs)", "updates = None", "trainer='mine.py:Clipped'"),
]


@pytest.mark.parametrize(("case", "old", "new", "says"), WRONG)
def test_what_it_answers_wrongly_is_one_line_with_its_name(
    case: str, old: str, new: str, says: str, here: Path
) -> None:
    assert FILE.count(old) == 1
    (here / "mine.py").write_text(FILE.replace(old, new))
    with pytest.raises(TrainingError, match=says) as error:
        simulate(small(*AROUND[case]))
    assert "\n" not in str(error.value)


def test_a_file_by_default_is_refused(here: Path) -> None:
    (here / "mine.py").write_text(FILE.replace('= "native"', '= "mine.py:Clipped"'))
    with pytest.raises(FedtideError, match="names a file by default"):
        simulate(small("learning.trainer=mine.py:Clipped"))
