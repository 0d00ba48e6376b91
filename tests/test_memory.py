"""Parts that remember: saved and resumed to the byte, with every kind of lost upload, and refused in one line."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.engine.devices import Simulated
from fedtide.engine.step import ServerState, initial_state, step
from fedtide.engine.system import build, parameter_count
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import checks, registry
from fedtide.runs import Ledger, RoundRecord, read_rounds
from fedtide.runs import folder as run_folder
from fedtide.runs.checkpoint import read_checkpoint
from fedtide.runs.record import Scores, record_costs, round_record
from helpers import FakeTrainer, small, small_dataset
from remembering import KEYS, OUTAGE, Control

ROOMY = {"radio": {"num_symbols": 4000}}
ALL = [KEYS[kind] for kind in KEYS]


def simulated(experiment: fedtide.Experiment, folder: Path | None = None, **more: Any) -> fedtide.Result:
    """Run an experiment with the trainer that it names, or with one that learns nothing if that is ours."""
    handed = {} if ":" in experiment.learning.trainer.name else {"trainer": FakeTrainer(num_parameters=300)}
    return fedtide.simulate(experiment, folder, dataset=small_dataset(), **handed, **more)


def state_of(folder: Path, experiment: fedtide.Experiment) -> ServerState:
    saved = read_checkpoint(folder, experiment)
    assert saved is not None
    return saved.state


class Stop(fedtide.FedtideError):
    """Raised between two rounds."""


def stopped(experiment: fedtide.Experiment, folder: Path, after: int) -> None:
    def stop(record: RoundRecord, _: int) -> None:
        if record.index == after:
            raise Stop

    with pytest.raises(Stop):
        simulated(experiment, folder, on_round=stop)


@pytest.mark.parametrize("kind", [*KEYS, "all", "all, with outages"])
def test_stopped_after_any_round_it_ends_with_the_same_bytes(tmp_path: Path, kind: str) -> None:
    trees = [KEYS[kind]] if kind in KEYS else ALL + [OUTAGE] * kind.endswith("outages")
    wanted = small(ROOMY, *trees)
    whole = simulated(wanted, tmp_path / "whole")
    assert whole.rounds != simulated(small(ROOMY, *[OUTAGE] * kind.endswith("outages"))).rounds
    last = whole.rounds[-1].index
    for after in range(1, last):
        folder = tmp_path / str(after)
        stopped(wanted, folder, after)
        if after + 1 < last:
            stopped(wanted, folder, after + 1)  # twice
        simulated(wanted, folder)
        for name in ("rounds.jsonl", "model.npy"):
            assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_checkpoint_holds_what_is_remembered(tmp_path: Path) -> None:
    wanted = small(ROOMY, *ALL)
    rounds = simulated(wanted, tmp_path / "run").rounds
    state = state_of(tmp_path / "run", wanted)
    assert {*state.memory} == {"scheduler", "weighting", "aggregator"}
    assert state.memory["scheduler"]["calls"] == len(rounds)
    assert state.memory["weighting"]["times"].tolist() == state.uploads.tolist()
    touched = {device for each in rounds for device in each.ready}
    sent = {device for each in rounds for device in each.picked}
    assert {*state.devices["trainer"]} == touched  # of every ready device: it trained
    assert {*state.devices["codec"]} == sent
    for device, memory in state.devices["trainer"].items():
        assert memory["jobs"] == sum(device in each.ready for each in rounds)


def test_eager_changes_nothing() -> None:
    wanted = small(ROOMY, *ALL, OUTAGE)
    assert simulated(wanted).rounds == simulated(wanted, eager=True).rounds


def test_what_is_lost_is_sent_and_paid_for_but_not_remembered(tmp_path: Path) -> None:
    wanted = small(ROOMY, KEYS["codec"], KEYS["weighting"], OUTAGE)
    result = simulated(wanted, tmp_path / "run")
    state = state_of(tmp_path / "run", wanted)
    rows = [(each, k, n) for each in result.rounds for n, k in enumerate(each.picked)]
    lost = [(each, k, n) for each, k, n in rows if k in each.lost]
    assert lost
    assert len(lost) < len(rows)
    for each, device, n in rows:
        assert (device in each.lost) == ((device + each.index) % 3 == 0)
        assert 0 < each.sent_bits[n] <= each.budget_bits[n]
        assert (each.weight[n] == 0) == (device in each.lost)
    spent = sum(sum(each.sent_bits) for each in result.rounds)
    assert result.rounds[-1].ledger.bits == spent
    arrived = np.bincount([k for each, k, _ in rows if k not in each.lost], minlength=6)
    assert state.uploads.tolist() == arrived.tolist()
    assert state.memory["weighting"]["times"].tolist() == arrived.tolist()
    for each in result.rounds:
        assert not each.weight or sum(each.weight) in (0.0, pytest.approx(1.0))


def test_a_codecs_memory_stays_as_it_was_when_its_packet_is_lost() -> None:
    wanted = small(ROOMY, KEYS["codec"], OUTAGE)
    trainer = FakeTrainer(num_parameters=300)
    records = []
    made = build(wanted, dataset=small_dataset())
    state = initial_state(trainer.initial_model(0), 6)
    for tick in made.ticks:
        before = {k: each["left"] for k, each in state.devices.get("codec", {}).items()}
        state, info = step(made.rules, state, tick, Simulated(made, trainer))
        record = round_record(info, Scores(), Ledger(), record_costs(made, 300))
        found = {k: each["left"] for k, each in state.devices.get("codec", {}).items()}
        for device in range(6):
            same = np.array_equal(before.get(device, ()), found.get(device, ()))
            assert same == (device not in record.picked or device in record.lost)
        records.append(record)
    assert any(record.lost for record in records)


def mine(folder: Path, source: str, kind: str) -> fedtide.Experiment:
    """Return an experiment with a part `mine` of a file; the class stands in line 4."""
    (folder / "mine.py").write_text(
        "import numpy as np\nfrom remembering import *\nfrom remembering import Trained\n" + source
    )
    name = f"{folder / 'mine.py'}:mine"
    key = {"codec": {"codec": {"name": name}}, "trainer": {"learning": {"trainer": name}}}
    return small(ROOMY, key.get(kind, {"policy": {kind: name}}))


AFTER = """class mine(Momentum):
    def init(self, model):
        return {{"v": np.zeros(3), "n": np.zeros((), np.int64)}}
    def __call__(self, memory, model, starts, updates, weights, age, device):
        n = memory["n"] + 1
        good = {{"v": np.zeros(3), "n": n}}
        return {answer}
"""
LATER = "(model, good if n < 4 else {bad})"
INIT = "class mine(Momentum):\n    def init(self, model):\n        {init}\n"
BAD = [
    ("not a mapping", LATER.format(bad="[1, 2]"), "gave a list for memory: give a mapping"),
    ("None", LATER.format(bad="None"), "gave a NoneType for memory"),
    ("objects", LATER.format(bad="{'v': np.array([object()]), 'n': n}"), r"memory\['v'\] is .*not an array of numbers"),
    ("words", LATER.format(bad="{'v': 'abc', 'n': n}"), r"memory\['v'\] is 'abc', which is not an array of numbers"),
    (
        "unequal lengths",
        LATER.format(bad="{'v': [[1], [2, 3]], 'n': n}"),
        r"memory\['v'\] is .*not an array of numbers",
    ),
    (
        "NaN",
        LATER.format(bad="{'v': np.array([0, np.nan, 0]), 'n': n}"),
        r"memory\['v'\] holds nan; it must hold finite",
    ),
    ("infinity", LATER.format(bad="{'v': np.full(3, -np.inf), 'n': n}"), r"memory\['v'\] holds -inf"),
    (
        "another shape",
        LATER.format(bad="{'v': np.zeros(4), 'n': n}"),
        r"was float64\[3\] and is float64\[4\].*cannot grow",
    ),
    (
        "another type",
        LATER.format(bad="{'v': np.zeros(3, np.float32), 'n': n}"),
        r"was float64\[3\] and is float32\[3\]",
    ),
    ("a new name", LATER.format(bad="{**good, 'w': 1}"), r"memory\['w'\] is new; memory keeps the names.*\(n, v\)"),
    ("a lost name", LATER.format(bad="{'n': n}"), r"memory\['v'\] is gone"),
    ("a name that is none", LATER.format(bad="{**good, 'a/b': 1}"), "the name 'a/b': names are words"),
    ("a name beyond ASCII", LATER.format(bad="{**good, '\u03b2': 1}"), "the name '\u03b2': names are words"),
    (
        "no tuple",
        "model if n >= 4 else (model, good)",
        r"returned a ndarray: a part with memory returns \(answer, memory\)",
    ),
    ("three values", "(model, good) if n < 4 else (model, good, 1)", "returned 3 values"),
    ("a list", "(model, good) if n < 4 else [model, good]", "returned a list"),
]


@pytest.mark.parametrize(("answer", "message"), [each[1:] for each in BAD], ids=[each[0] for each in BAD])
def test_bad_memory_is_one_line_and_what_was_saved_is_good(tmp_path: Path, answer: str, message: str) -> None:
    wanted = mine(tmp_path, AFTER.format(answer=answer), "aggregator")
    with pytest.raises(FedtideError, match=message) as raised:
        simulated(wanted, tmp_path / "run")
    assert "\n" not in str(raised.value)
    place = re.escape(f"aggregator='{tmp_path}/mine.py:mine' ({tmp_path}/mine.py:")
    assert re.match(place + r"\d+\)", str(raised.value))
    state = state_of(tmp_path / "run", wanted)
    arrivals = sum(any(each.weight) for each in read_rounds(tmp_path / "run"))
    assert arrivals == 3
    assert state.memory["aggregator"]["n"] == 3
    with pytest.raises(FedtideError, match=message):  # from there
        simulated(wanted, tmp_path / "run")


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("raise ValueError('no')", r"raised ValueError: no \(.*mine\.py:6\); correct it there"),
        ("return None", r"\(.*mine\.py:4\): init gave a NoneType for memory"),
        ("return {'v': np.full(2, np.nan)}", r"\(.*mine\.py:4\): init: memory\['v'\] holds nan"),
        ("return {3: np.zeros(2)}", "the name 3"),
        ("return {'v': {}}", "not an array of numbers"),
    ],
)
def test_a_bad_init(tmp_path: Path, init: str, message: str) -> None:
    with pytest.raises(FedtideError, match=message) as raised:
        simulated(mine(tmp_path, INIT.format(init=init), "aggregator"), tmp_path / "run")
    assert "\n" not in str(raised.value)


BAD_PARTS = {
    "scheduler": "class mine(Fair):\n    def __call__(self, memory, c, limit, rng):\n        return [0]\n",
    "weighting": "class mine(Heard):\n    def __call__(self, memory, n, age, device):\n        return n / n.sum(), 3\n",
    "codec": "class mine(TopK):\n    def encode(self, m, u, b, rng):\n        return super().encode(m, u, b, rng)[0]\n",
    "trainer": "class mine(Control):\n    def train(self, jobs):\n        return super().train(jobs).updates\n",
}


@pytest.mark.parametrize("kind", BAD_PARTS)
def test_every_kind_names_its_file_and_line(tmp_path: Path, kind: str) -> None:
    with pytest.raises(FedtideError) as raised:
        simulated(mine(tmp_path, BAD_PARTS[kind], kind))
    text = str(raised.value)
    assert re.match(re.escape(f"{kind}='{tmp_path}/mine.py:mine' ({tmp_path}/mine.py:") + r"\d+\)", text)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("Trained(answer.updates, None)", "returned Trained with None"),
        ("Trained(answer.updates, answer.memory[1:])", "a row and a memory for each of the"),
        ("Trained(answer.updates, iter(answer.memory))", "a row and a memory for each of the"),
        ("Trained([[1.0], [1.0, 2.0]], answer.memory)", "returned updates object"),
        (
            "Trained(answer.updates, [{'control': 1}] * len(jobs))",
            r"memory\['control'\] was float64\[300\] and is int64\[\]",
        ),
        ("Trained(answer.updates, [3] * len(jobs))", "gave a int for memory"),
    ],
)
def test_a_trainers_bad_answers(tmp_path: Path, answer: str, message: str) -> None:
    head = "class mine(Control):\n    def train(self, jobs):\n        answer = super().train(jobs)\n"
    source = f"{head}        return {answer}\n"
    with pytest.raises(FedtideError, match=message) as raised:
        simulated(mine(tmp_path, source, "trainer"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("needs", ["'loss'", "('lossy',)", "3"])
def test_a_scheduler_that_needs_what_nobody_reports(tmp_path: Path, needs: str) -> None:
    source = f"def mine(c, limit, rng):\n    return [0]\nmine.needs = {needs}\n"
    with pytest.raises(FedtideError, match=r"mine\.py:4\) has needs=.*'update_sq_norm', 'loss'"):
        simulated(mine(tmp_path, source, "scheduler"))


HIDDEN = {
    "aggregator": """class mine(Momentum):
    def __call__(self, memory, model, *rest):
        made, memory = super().__call__(memory, model, *rest)
        return made + np.random.random(len(made)) * 1e-3, memory
""",
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_memory_does_not_hide_other_state(tmp_path: Path, kind: str) -> None:
    wanted = mine(tmp_path, HIDDEN[kind], kind)
    with pytest.raises(TrainingError, match=rf"{kind}=.*gives another answer"):
        simulated(wanted, tmp_path / "run")


def test_a_part_that_writes_to_its_memory_and_fails_has_changed_nothing(tmp_path: Path) -> None:
    source = """class mine(Heard):
    def __call__(self, memory, n, age, device):
        memory["times"] += 100
        if memory["times"].max() >= 300:
            raise ValueError("enough")
        return n / n.sum(), memory
"""
    wanted = mine(tmp_path, source, "weighting")
    with pytest.raises(FedtideError, match=r"raised ValueError: enough \(.*mine\.py:8\)"):
        simulated(wanted, tmp_path / "run")
    assert state_of(tmp_path / "run", wanted).memory["weighting"]["times"].tolist() == [200.0] * 6


def test_a_part_without_memory_stays_a_plain_function(tmp_path: Path) -> None:
    for kind, source in {
        "scheduler": "def mine(candidates, limit, rng):\n    return range(limit - 1)\n",
        "weighting": "def mine(num_samples, age):\n    return num_samples / num_samples.sum()\n",
        "aggregator": "def mine(model, starts, updates, weights, age):\n    return model + updates.mean(axis=0)\n",
    }.items():
        wanted = mine(tmp_path, source, kind)
        made = registry.part(kind, f"{tmp_path / 'mine.py'}:mine", {})
        assert inspect.isfunction(made.policy)
        assert not checks.part_remembers(made)
        simulated(wanted, tmp_path / kind)
        state = state_of(tmp_path / kind, wanted)
        assert not state.memory
        assert not state.devices


def test_a_trainer_may_have_a_model_of_its_own_size() -> None:
    """Its d counts, not that of learning.model."""
    wanted = small(ROOMY, KEYS["trainer"], {"learning": {"model": "mlp"}})
    assert parameter_count(build(wanted, dataset=small_dataset())) == Control.size


def test_saved_rarely_or_always_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = small(ROOMY, *ALL)
    one = simulated(wanted, tmp_path / "one")
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    other = simulated(wanted, tmp_path / "other")
    assert one.rounds == other.rounds
    assert np.array_equal(one.model, other.model)
