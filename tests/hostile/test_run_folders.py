"""Run folders in hostile hands: nothing is shown or resumed to other numbers, and a refusal changes nothing."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from judge import SMALL, contents, refused, wrong

import fedtide
from fedtide.cli.main import app
from fedtide.codec.base import Packet
from fedtide.core import memory_budget as memory
from fedtide.engine.system import build
from fedtide.errors import FedtideError, RunFolderError, TrainingError
from fedtide.learning.trainer import Score
from fedtide.report.plan import plan_system
from fedtide.runs import read_rounds, read_run, read_run_header
from fedtide.types import Samples
from helpers import FakeTrainer, run, small, small_dataset

EXPERIMENT = small({"timeline": {"horizon": 2.0}})


def stopped(folder: Path, experiment: fedtide.Experiment = EXPERIMENT, after: int = 5, **more: Any) -> Path:
    def stop(record: Any, total: int) -> None:
        if record.index == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, folder, on_round=stop, **more)
    return folder


# ---- every single bit


def flips(path: Path, count: int) -> Iterator[bytes]:
    """Write a file with one bit changed, count times, and put it right again."""
    content = path.read_bytes()
    for bit in random.Random(5).sample(range(8 * len(content)), min(count, 8 * len(content))):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        yield bytes(flipped)
    path.write_bytes(content)


def test_no_flipped_bit_of_the_rounds_is_shown_as_another_number(tmp_path: Path) -> None:
    header = read_run_header(stopped(tmp_path / "run"))
    good = header.read()
    for _ in flips(header.path / "rounds.jsonl", 600):
        with pytest.raises(RunFolderError, match="damaged or was edited"):
            header.read()
    assert header.read() == good


@pytest.mark.parametrize("complete", [False, True])
def test_no_flipped_bit_is_shown_or_resumed_as_another_number(tmp_path: Path, complete: bool) -> None:
    """Whatever bit of whatever file is flipped: refused and nothing changed, or the numbers are the same."""
    folder = tmp_path / "run"
    run(EXPERIMENT, folder) if complete else stopped(folder)
    good = read_run(folder)
    names = ("rounds.jsonl", "checkpoint.npz", "experiment.yaml", "versions.json", "model.npy")
    for name in names if complete else names[:4]:
        for number, _ in enumerate(flips(folder / name, 25)):
            try:
                assert read_run(folder) == good, name
            except RunFolderError:
                if number % 8 == 0:
                    before = contents(folder)
                    with pytest.raises(RunFolderError):
                        run(EXPERIMENT, folder)
                    assert contents(folder) == before, name
    assert run(EXPERIMENT, folder).rounds == run(EXPERIMENT).rounds


def test_an_edited_accuracy_is_found(tmp_path: Path) -> None:
    run(EXPERIMENT, tmp_path / "run")
    path = tmp_path / "run" / "rounds.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    tree = json.loads(lines[3])
    text = lines[3].replace(str(tree["test_accuracy"]), f"{0.9:.{len(str(tree['test_accuracy'])) - 2}f}")
    path.write_text("".join([*lines[:3], text, *lines[4:]]))
    with pytest.raises(RunFolderError, match="damaged or was edited"):
        read_run(tmp_path / "run")


# ---- damaged files: one line, nothing changed


def archive(folder: Path, **changes: Any) -> None:
    with np.load(folder / "checkpoint.npz") as saved:
        kept = {key: saved[key] for key in saved}
    buffer = io.BytesIO()
    np.savez(buffer, **{key: each for key, each in {**kept, **changes}.items() if each is not None})
    (folder / "checkpoint.npz").write_bytes(buffer.getvalue())


def text(name: str, content: str | bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def in_manifest(**changes: Any) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        with np.load(folder / "checkpoint.npz") as saved:
            tree = json.loads(str(saved["manifest"]))
        archive(folder, manifest=json.dumps({**tree, **changes}))

    return act


def begun(**changes: Any) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / "versions.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return act


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "versions a list": (text("versions.json", "[1, 2]"), "versions.json is damaged .it=.1, 2.:"),
    "versions a number": (text("versions.json", "7"), "versions.json is damaged .it=7:"),
    "versions null": (text("versions.json", "null"), "versions.json is damaged"),
    "versions empty": (text("versions.json", ""), "versions.json is damaged"),
    "versions binary": (text("versions.json", b"\xff\xfe\x00"), "versions.json is damaged"),
    "versions cut": (text("versions.json", '{"python": "3.'), "versions.json is damaged"),
    "versions deep": (text("versions.json", "[" * 100_000), "versions.json is damaged"),
    "versions files a list": (begun(files=["a"]), "versions.json is damaged .files="),
    "versions files text": (begun(files="mine.py"), "files='mine.py'"),
    "versions isa a number": (begun(isa=512), "isa=512"),
    "versions identity text": (begun(identity="mine"), "identity='mine'"),
    "versions another numpy": (begun(numpy="0.1"), "not of the same run .numpy is"),
    "versions another isa": (begun(isa="sparc"), "set FEDTIDE_ISA=sparc"),
    "versions gone": (
        lambda folder: (folder / "versions.json").unlink(),
        "versions.json cannot be read .*No such file",
    ),
    "checkpoint of no arrays": (text("checkpoint.npz", b"PK\x05\x06" + bytes(18)), "checkpoint.npz is damaged"),
    "checkpoint format 99": (in_manifest(format=99), "checkpoint.npz is damaged .format=99"),
    "checkpoint of another experiment": (in_manifest(experiment="0" * 16), "another experiment"),
    "checkpoint without models": (lambda folder: archive(folder, models=None), "checkpoint.npz is damaged"),
    "checkpoint of fewer devices": (lambda folder: archive(folder, behind=np.ones(3, np.uint8)), "not of 6 devices"),
    "checkpoint behind text": (lambda folder: archive(folder, behind=np.array(list("abcdef"))), "not of 6 devices"),
    "checkpoint behind unknown": (lambda folder: archive(folder, behind=np.full(6, 99, np.uint8)), "lacks a model"),
    "checkpoint version ahead": (lambda folder: archive(folder, version=7), "lacks a model"),
    "checkpoint doubles": (lambda folder: archive(folder, models=np.zeros((2, 30))), "checkpoint.npz is damaged"),
    "checkpoint length negative": (in_manifest(rounds_bytes=-5), "rounds_bytes=-5"),
    "checkpoint length short": (in_manifest(rounds_bytes=100), "damaged or was edited"),
    "checkpoint length text": (in_manifest(rounds_bytes="all"), "rounds_bytes='all'"),
    "checkpoint manifest no JSON": (lambda folder: archive(folder, manifest="{"), "checkpoint.npz is damaged"),
    "checkpoint manifest gone": (lambda folder: archive(folder, manifest=None), "checkpoint.npz is damaged"),
    "checkpoint manifest of more": (in_manifest(more=1), "checkpoint.npz is damaged"),
    "checkpoint of another path": (
        lambda folder: in_manifest(versions={**json.loads((folder / "versions.json").read_text()), "isa": "avx512"})(
            folder
        ),
        "not of the same run .isa is 'avx512'",
    ),
    "checkpoint of other data": (
        lambda folder: in_manifest(
            versions={**json.loads((folder / "versions.json").read_text()), "identity": {"data": "x"}}
        )(folder),
        "not of the same run .identity is",
    ),
    "checkpoint a folder": (
        lambda folder: ((folder / "checkpoint.npz").unlink(), (folder / "checkpoint.npz").mkdir()),
        "checkpoint.npz cannot be read .*Is a directory",
    ),
    "rounds a folder": (
        lambda folder: ((folder / "rounds.jsonl").unlink(), (folder / "rounds.jsonl").mkdir()),
        "rounds.jsonl cannot be read .*Is a directory",
    ),
    "a model after half of it": (
        lambda folder: (
            np.save(folder / "model.npy", np.load(folder / "checkpoint.npz")["models"][-1]),
            os.truncate(folder / "rounds.jsonl", (folder / "rounds.jsonl").stat().st_size - 23),
        ),
        "final model after 5 of 8 aggregations",
    ),
    "experiment empty": (text("experiment.yaml", ""), "another experiment|damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_refused_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    folder = stopped(tmp_path / "run")
    with (folder / "rounds.jsonl").open("ab") as file:
        file.write(b'{"index": 6, "half a li')  # a resume would cut this off
    act, says = DAMAGES[damage]
    act(folder)
    before = contents(folder)
    with pytest.raises(RunFolderError, match=says) as caught:
        run(EXPERIMENT, folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert contents(folder) == before


# ---- what the machine does: good files are never called damaged


@pytest.mark.parametrize("name", ["versions.json", "checkpoint.npz", "rounds.jsonl", "experiment.yaml"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO, errno.ENAMETOOLONG, errno.ENOMEM])
def test_a_fault_of_the_machine_is_not_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    folder = stopped(tmp_path / "run")
    before = contents(folder)

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def fails(path: Any, *args: Any, **kwargs: Any) -> Any:
            if str(path).endswith(name):
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **kwargs)

        return fails

    for module in ("builtins", "io", "os"):
        monkeypatch.setattr(f"{module}.open", failing(sys.modules[module].open))
    with pytest.raises(RunFolderError, match=os.strerror(number)) as caught:
        run(EXPERIMENT, folder)
    monkeypatch.undo()
    assert "damaged" not in str(caught.value)
    assert "new folder" not in str(caught.value)
    assert contents(folder) == before
    assert run(EXPERIMENT, folder).rounds == run(EXPERIMENT).rounds


def test_a_finished_run_needs_no_disk_that_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(app, ["run", *SMALL, "-o", "r"]).exit_code == 0
    Path("r/curve.png").unlink()
    before, real = contents(Path("r")), os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *args, **kwargs)

    def fails(path: Any, content: bytes) -> None:
        raise RunFolderError(f"{path} cannot be written (Read-only file system): choose another")

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr("fedtide.plot.figure.write_atomically", fails)
    for words in (["resume", "r"], ["run", *SMALL, "-o", "r"], ["show", "r"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert "complete" in done.output
    assert contents(Path("r")) == before
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    for half in (b"", b"\x89PNG\r\n\x1a\n half"):
        Path("r/curve.png").write_bytes(half)
        assert CliRunner().invoke(app, ["resume", "r"]).exit_code == 0
        assert Path("r/curve.png").stat().st_size > 1000


# ---- what is handed over belongs to the run


def noisy() -> Any:
    dataset = small_dataset()
    labels = dataset.train.labels.copy()
    labels[0] = (labels[0] + 1) % 3
    return dataset._replace(train=dataset.train._replace(labels=labels))


class OtherTrainer(FakeTrainer):
    """The same numbers under another name."""


HANDED: dict[str, tuple[dict[str, Any], str]] = {
    "another seed's data": ({"dataset": small_dataset(seed=1)}, "data is .* there and"),
    "one label": ({"dataset": noisy()}, "data is .* there and"),
    "fewer test images": (
        {"dataset": small_dataset()._replace(test=small_dataset().test.taken(slice(10)))},
        "data is .* there and",
    ),
    "another trainer": ({"trainer": OtherTrainer()}, "trainer is .*FakeTrainer.* there and .*OtherTrainer"),
    "our trainer": ({"trainer": None}, "trainer is .*FakeTrainer.* there and 'torch' here"),
}


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("what", HANDED)
def test_a_run_goes_on_with_what_it_was_begun_with(tmp_path: Path, what: str, complete: bool) -> None:
    run(EXPERIMENT, tmp_path / "run") if complete else stopped(tmp_path / "run")
    before = contents(tmp_path / "run")
    more, says = HANDED[what]
    with pytest.raises(RunFolderError, match=says):
        run(EXPERIMENT, tmp_path / "run", **more)
    assert contents(tmp_path / "run") == before
    assert run(EXPERIMENT, tmp_path / "run").rounds == run(EXPERIMENT).rounds


@pytest.mark.parametrize("part", ["codec", "limit", "fleet", "ticks"])
def test_a_system_that_was_altered_is_another_system(tmp_path: Path, part: str) -> None:
    system = build(EXPERIMENT, dataset=small_dataset())
    other = build(small({"timeline": {"horizon": 2.0}, "codec": {"name": "ideal"}}), dataset=small_dataset())
    altered = {
        "codec": system._replace(codec=other.codec),
        "limit": system._replace(policy=system.policy._replace(limit=1)),
        "fleet": system._replace(fleet=system.fleet._replace(num_samples=system.fleet.num_samples + 1)),
        "ticks": system._replace(ticks=[tick._replace(time=tick.time / 2) for tick in system.ticks]),
    }[part]
    stopped(tmp_path / "run", system=altered)
    with pytest.raises(RunFolderError, match=r"was begun with something else .(policies|fleet|timeline) is"):
        run(EXPERIMENT, tmp_path / "run")


def test_the_command_line_refuses_what_it_cannot_rebuild() -> None:
    experiment = fedtide.experiment({**_tree(SMALL)})
    own = {"dataset": small_dataset(side=28), "trainer": FakeTrainer()}
    stopped(Path("half"), experiment, after=3, **own)
    before = contents(Path("half"))
    refused(wrong("resume", "half", says="data is .*continue it from Python with the same dataset", code=4))
    stopped(Path("taught"), experiment, after=3, trainer=FakeTrainer(), dataset=None)
    refused(wrong("resume", "taught", says="trainer is .*FakeTrainer.* there and 'native' here", code=4))
    run(experiment, Path("done"), **own)
    refused(wrong("run", *SMALL, "-o", "done", says="data is .* there and", code=4))
    assert CliRunner().invoke(app, ["resume", "done"]).exit_code == 0  # a finished run is shown as what it is
    assert contents(Path("half")) == before


def _tree(words: tuple[str, ...]) -> dict[str, Any]:
    from fedtide import config

    return dict(config.read_words(list(words)))


def test_what_the_experiment_gives_itself_may_be_handed_over(tmp_path: Path) -> None:
    """A study hands over the data that it has loaded; the command line may continue that run."""
    from fedtide.engine.making import load_dataset

    experiment = fedtide.experiment(_tree(SMALL))
    stopped(Path("r"), experiment, after=3, dataset=load_dataset(experiment), trainer=None)
    assert CliRunner().invoke(app, ["resume", "r"]).exit_code == 0
    assert read_rounds(Path("r")) == fedtide.simulate(experiment).rounds


@pytest.mark.parametrize("command", ["run", "resume"])
@pytest.mark.parametrize("complete", [False, True])
def test_a_federations_folder_is_its_servers(command: str, complete: bool) -> None:
    assert CliRunner().invoke(app, ["run", *SMALL, "-o", "fed"]).exit_code == 0
    if not complete:
        Path("fed/model.npy").unlink()
    Path("fed/trace.jsonl").write_text("{}\n")
    before = contents(Path("fed"))
    words = ("run", "fed/experiment.yaml", "-o", "fed") if command == "run" else ("resume", "fed")
    refused(wrong(*words, says="federation of real devices: start its ServerApp again", code=4))
    assert contents(Path("fed")) == before


# ---- folders of the version before


# ---- policies that keep state

HEAD = """
import itertools, functools, random
import numpy as np
from collections import deque
from fedtide.codec.sparse_quantized import SparseQuantized
def average(weights, starts, updates):
    return (weights[:, None] * (starts.astype(float) + updates)).sum(axis=0)
"""
COMBINE = "def mine(model, starts, updates, weights, age):\n"
STATEFUL = {
    "momentum": (
        "aggregator",
        "class mine:\n    v = 0.0\n    def __call__(self, model, starts, updates, weights, age):\n"
        "        self.v = 0.9 * self.v + average(weights, starts, updates) - model\n        return model + self.v\n",
    ),
    "a global": (
        "aggregator",
        f"N = 0\n{COMBINE}    global N\n    N += 1\n    return average(weights, starts, updates) * (1 - 0.01 * N)\n",
    ),
    "a global that is not there yet": (
        "aggregator",
        f"{COMBINE}    global OLD\n    try:\n        new = (OLD + model) / 2\n    except NameError:\n        new = model\n"
        "    OLD = model.copy()\n    return new\n",
    ),
    "a list": (
        "aggregator",
        f"SEEN = []\n{COMBINE}    SEEN.append(len(age))\n    return average(weights, starts, updates) / len(SEEN)\n",
    ),
    "a closure": (
        "aggregator",
        "def make():\n    n = 0\n    def step(model, starts, updates, weights, age):\n        nonlocal n\n        n += 1\n"
        "        return average(weights, starts, updates) / n\n    return step\nmine = make()\n",
    ),
    "a mutable default": (
        "aggregator",
        "def mine(model, starts, updates, weights, age, seen=[]):\n    seen.append(1)\n"
        "    return average(weights, starts, updates) / len(seen)\n",
    ),
    "an attribute of the function": (
        "aggregator",
        f"{COMBINE}    mine.n += 1\n    return average(weights, starts, updates) / mine.n\nmine.n = 0\n",
    ),
    "an attribute of the class": (
        "aggregator",
        "class mine:\n    n = 0\n    def __call__(self, model, starts, updates, weights, age):\n        type(self).n += 1\n"
        "        return average(weights, starts, updates) / self.n\n",
    ),
    "slots": (
        "aggregator",
        "class mine:\n    __slots__ = ('n',)\n    def __init__(self):\n        self.n = 0\n"
        "    def __call__(self, model, starts, updates, weights, age):\n        self.n += 1\n"
        "        return average(weights, starts, updates) / self.n\n",
    ),
    "an iterator": (
        "aggregator",
        f"COUNT = itertools.count(1)\n{COMBINE}    return average(weights, starts, updates) / next(COUNT)\n",
    ),
    "a generator": (
        "aggregator",
        f"def numbers():\n    n = 0\n    while True:\n        n += 1\n        yield n\nNUMBERS = numbers()\n{COMBINE}"
        "    return average(weights, starts, updates) / next(NUMBERS)\n",
    ),
    "dice of its own": ("aggregator", f"{COMBINE}    return average(weights, starts, updates) * random.uniform(0.9, 1)\n"),
    "a generator of NumPy's": (
        "aggregator",
        f"RNG = np.random.default_rng(1)\n{COMBINE}    return average(weights, starts, updates) * RNG.uniform(0.9, 1)\n",
    ),
    "a count that matters later": (
        "aggregator",
        "class mine:\n    def __init__(self):\n        self.calls = 0\n"
        "    def __call__(self, model, starts, updates, weights, age):\n        self.calls += 1\n"
        "        return average(weights, starts, updates) / (2 if self.calls > 5 else 1)\n",
    ),
    "an object inside": (
        "aggregator",
        "class Memory:\n    def __init__(self):\n        self.old = deque(maxlen=2)\n"
        "class mine:\n    def __init__(self):\n        self.memory = Memory()\n"
        "    def __call__(self, model, starts, updates, weights, age):\n        self.memory.old.append(float(model[0]))\n"
        "        return average(weights, starts, updates) + sum(self.memory.old) / 100\n",
    ),
    "a dict of its own kind": (
        "aggregator",
        "class Table(dict):\n    pass\nTABLE = Table()\n"
        f"{COMBINE}    TABLE[len(TABLE)] = 1\n    return average(weights, starts, updates) / len(TABLE)\n",
    ),
    "a file on disk": (
        "aggregator",
        "import pathlib, tempfile\nWHERE = pathlib.Path(tempfile.mkdtemp()) / 'n'\n"
        f"{COMBINE}    n = int(WHERE.read_text()) if WHERE.exists() else 0\n    WHERE.write_text(str(n + 1))\n"
        "    return average(weights, starts, updates) / (n + 1)\n",
    ),
    "a codec with error feedback": (
        "codec",
        "class mine(SparseQuantized):\n    def __init__(self):\n        super().__init__(4)\n"
        "        object.__setattr__(self, 'rest', {})\n    def encode(self, update, bits, rng):\n"
        "        packet = super().encode(update + self.rest.get('x', 0), bits, rng)\n"
        "        self.rest['x'] = update - self.decode(packet)\n        return packet\n",
    ),
    "a scheduler of norms that remembers": (
        "scheduler",
        "class mine:\n    needs = ('update_sq_norm',)\n    def __init__(self):\n        self.last = np.zeros(6)\n"
        "    def __call__(self, candidates, limit, rng):\n"
        "        score = candidates.update_sq_norm - self.last[candidates.device]\n"
        "        self.last[candidates.device] = candidates.update_sq_norm\n        return np.argsort(score)[:limit]\n",
    ),
}  # fmt: skip


def with_policy(folder: Path, kind: str, source: str) -> fedtide.Experiment:
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(HEAD + source)
    name = f"{folder / 'mine.py'}:mine"
    return small(
        {"codec": {"name": name}} if kind == "codec" else {"policy": {kind: name}}, {"timeline": {"horizon": 2.0}}
    )


# what a few calls on small inputs do not show
LATE = ("a global that is not there yet", "a count that matters later")


@pytest.mark.parametrize("what", [what for what in STATEFUL if what not in LATE])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_policy_that_depends_on_more_than_its_arguments_is_refused_at_once(tmp_path: Path, what: str) -> None:
    kind, source = STATEFUL[what]
    with pytest.raises(TrainingError, match=f"{kind}=.*mine.py:mine.* when it is called again") as caught:
        run(with_policy(tmp_path, kind, source), tmp_path / "run")
    assert "\n" not in str(caught.value)


STATELESS = {
    "a function": ("aggregator", f"{COMBINE}    return average(weights, starts, updates)\n"),
    "an answer into a buffer of its own": (
        "aggregator",
        f"{COMBINE}    out = average(weights, starts, updates)\n    return out[:]\n",
    ),
    "its argument": ("aggregator", f"{COMBINE}    return model\n"),
    "a cache": (
        "aggregator",
        f"@functools.lru_cache\ndef scale(n):\n    return 1 - n / 1000\n{COMBINE}"
        "    return average(weights, starts, updates) * scale(len(age))\n",
    ),
    "a table": (
        "aggregator",
        f"TABLE = np.arange(100.0)\n{COMBINE}    return average(weights, starts, updates) + TABLE[1] / 100\n",
    ),
    "a codec": ("codec", "class mine(SparseQuantized):\n    pass\n"),
    "a codec that draws": ("codec", "class mine(SparseQuantized):\n    def __init__(self):\n        super().__init__(8)\n"),
    "a scheduler of norms": (
        "scheduler",
        "def mine(candidates, limit, rng):\n    order = rng.permutation(len(candidates.device))\n"
        "    return order[np.argsort(candidates.update_sq_norm[order])][:limit]\nmine.needs = ('update_sq_norm',)\n",
    ),
    "a weighting": ("weighting", "def mine(num_samples, age):\n    return num_samples / num_samples.sum()\n"),
}  # fmt: skip


@pytest.mark.parametrize("what", STATELESS)
def test_policies_without_state_resume_to_the_same_bits(tmp_path: Path, what: str) -> None:
    """And those whose whole history can be asked again."""
    kind, source = STATELESS[what]
    experiment = with_policy(tmp_path, kind, source)
    stopped(tmp_path / "run", experiment)
    resumed = run(experiment, tmp_path / "run")
    whole = run(experiment)
    assert resumed.rounds == whole.rounds
    assert np.array_equal(resumed.model, whole.model)


def test_a_weighting_with_dice_is_found_out(tmp_path: Path) -> None:
    source = "def mine(num_samples, age):\n    w = np.random.uniform(1, 2, len(age))\n    return w / w.sum()\n"
    with pytest.raises(TrainingError, match=r"weighting=.* gives another answer when it is called again"):
        run(with_policy(tmp_path, "weighting", source), tmp_path / "run")


def test_a_aggregator_may_use_one_buffer(tmp_path: Path) -> None:
    """The models that devices still train from are ours, not the aggregator's."""
    fresh = f"{COMBINE}    return average(weights, starts, updates).astype(np.float32)\n"
    reused = (
        f"OUT = np.zeros(30, np.float32)\n{COMBINE}    OUT[:] = average(weights, starts, updates)\n    return OUT\n"
    )
    results = [run(with_policy(tmp_path / name, "aggregator", each)) for name, each in (("a", fresh), ("b", reused))]
    assert results[0].rounds == results[1].rounds


# ---- packets that cannot be recorded

PACKETS = [
    ("bits", float("nan")), ("bits", float("inf")), ("bits", -1), ("bits", "12"), ("bits", True), ("bits", 10**400),
    ("bits", None), ("bits", 12.5), ("bits", np.array([1, 2])), ("bits", 10**6), ("num_kept", float("nan")),
    ("num_kept", -1), ("num_kept", "all"), ("num_kept", False), ("num_kept", 31), ("num_kept", 2**70),
    ("num_parameters", 29), ("num_parameters", "30"), ("data", "text"), ("data", None), ("data", bytearray(8)),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), PACKETS)
def test_a_packet_that_cannot_be_recorded_is_refused(field: str, value: Any) -> None:
    class Mine:
        def encode(self, update: Any, budget_bits: float, rng: Any) -> Packet:
            return Packet(len(update), 0, 8, b"1234")._replace(**{field: value})

        def decode(self, packet: Packet) -> Any:
            return np.zeros(packet.num_parameters)

        def num_kept(self, num_parameters: int, budget_bits: float) -> int:
            return 0

    system = build(EXPERIMENT, dataset=small_dataset())._replace(codec=Mine())
    with pytest.raises(TrainingError, match=field) as caught:
        run(EXPERIMENT, system=system)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [float("nan"), "many", None, -3])
def test_a_codec_whose_num_kept_is_no_number(kept: Any) -> None:
    class Mine:
        def encode(self, update: Any, budget_bits: float, rng: Any) -> Packet:
            return Packet(len(update), 0, 8 * 10**6, bytes(10**6))

        def decode(self, packet: Packet) -> Any:
            return np.zeros(packet.num_parameters)

        def num_kept(self, num_parameters: int, budget_bits: float) -> Any:
            return kept

    system = build(EXPERIMENT, dataset=small_dataset())._replace(codec=Mine())
    with pytest.raises(TrainingError, match=r"num_kept\(30, "):
        run(EXPERIMENT, system=system)
    with pytest.raises(TrainingError, match=r"num_kept\(195, "):
        plan_system(system)


# ---- wrong arguments from Python


class NoTrainer:
    """Trains nothing."""

    def __init__(self, **methods: Any) -> None:
        self.__dict__.update(methods)


def trainer(**methods: Any) -> Any:
    fake = FakeTrainer()
    return NoTrainer(**{"initial_model": fake.initial_model, "train": fake.train, "evaluate": fake.evaluate, **methods})


DATA = small_dataset()
ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"experiment": {"seed": -1}}, "seed=-1"),
    ({"experiment": ["seed"]}, r"\['seed'\] is not an experiment"),
    ({"experiment": None}, "None is not an experiment"),
    ({"experiment": "file.yaml"}, "experiment file not found"),
    ({"folder": 3}, "folder=3 names no folder"),
    ({"folder": ""}, "folder='' names no folder"),
    ({"folder": b"run"}, "names no folder"),
    ({"folder": ["run"]}, "names no folder"),
    ({"folder": "a\0b"}, "names no folder"),
    ({"folder": "x" * 5000}, "File name too long.*shorter path"),
    ({"threads": 0}, "threads=0 must be"),
    ({"threads": -1}, "threads=-1 must be"),
    ({"threads": 1.5}, "threads=1.5 must be"),
    ({"threads": True}, "threads=True must be"),
    ({"threads": "2"}, "threads='2' must be"),
    ({"on_round": 7}, "on_round=7 cannot be called"),
    ({"system": 7}, "system=7: give what"),
    ({"system": EXPERIMENT}, "system=.*: give what"),
    ({"dataset": 7}, "dataset is a int"),
    ({"dataset": "mnist"}, "dataset is a str"),
    ({"dataset": tuple(DATA)}, "dataset is a tuple"),
    ({"dataset": DATA._replace(num_labels=2)}, "labels from 0 to 2"),
    ({"dataset": DATA._replace(num_labels=0)}, "num_labels=0"),
    ({"dataset": DATA._replace(num_labels="3")}, "num_labels='3'"),
    ({"dataset": DATA._replace(train=None)}, "train is a NoneType"),
    ({"dataset": DATA._replace(test=Samples([1], [1]))}, "test is a Samples"),
    ({"dataset": DATA._replace(test=Samples(DATA.test.images[:0], DATA.test.labels[:0]))}, "no samples"),
    ({"dataset": DATA._replace(test=Samples(DATA.test.images, DATA.test.labels[:3]))}, "test has images"),
    ({"dataset": DATA._replace(train=Samples(DATA.train.images * np.nan, DATA.train.labels))}, "NaN or infinity"),
    ({"dataset": DATA._replace(train=Samples(DATA.train.images[0], DATA.train.labels))}, "train has images"),
    ({"trainer": 7}, "trainer=7 has no initial_model"),
    ({"trainer": trainer(train=None)}, "has no train"),
    ({"trainer": trainer(initial_model=lambda seed: None)}, "began with an array of shape"),
    ({"trainer": trainer(initial_model=lambda seed: np.full(3, np.nan))}, "initial_model returned nan"),
    ({"trainer": trainer(train=lambda *_: np.zeros(3))}, "returned updates"),
    ({"trainer": trainer(train=lambda jobs: np.stack([each.start for each in jobs]).astype(str))}, "returned updates"),
    ({"trainer": trainer(evaluate=lambda *_: None)}, "accuracy from 0 to 1"),
    ({"trainer": trainer(evaluate=lambda *_: Score(1.5, 0.0))}, "accuracy from 0 to 1"),
    ({"trainer": trainer(evaluate=lambda *_: Score(float("nan"), 0.0))}, "accuracy from 0 to 1"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), ARGUMENTS, ids=[says for _, says in ARGUMENTS])
def test_wrong_arguments_are_one_line(given: dict[str, Any], says: str) -> None:
    experiment = given.get("experiment", EXPERIMENT)
    rest = {key: value for key, value in given.items() if key != "experiment"}
    with pytest.raises(FedtideError, match=says) as caught:
        fedtide.simulate(experiment, **{"dataset": DATA, "trainer": FakeTrainer(), **rest})
    assert "\n" not in str(caught.value)


def test_a_dataset_beside_another_system_is_refused() -> None:
    with pytest.raises(FedtideError, match="not the one that the system was built with"):
        run(EXPERIMENT, system=build(EXPERIMENT, dataset=small_dataset(seed=1)))


def test_a_path_may_be_text(tmp_path: Path) -> None:
    run(EXPERIMENT, str(tmp_path / "run"))
    assert read_run(str(tmp_path / "run")).complete
    shutil.rmtree(tmp_path / "run")


def test_the_seconds_are_all_of_the_wall_time(tmp_path: Path) -> None:
    import time

    begun = time.perf_counter()
    result = run(EXPERIMENT, tmp_path / "run", on_round=lambda *_: time.sleep(0.01))
    assert sum(result.seconds.values()) == pytest.approx(time.perf_counter() - begun, abs=0.2)
    assert result.seconds["other"] >= 0.08
    assert {"data", "records", "training", "evaluation"} <= set(result.seconds)


# ---- who made it diverge


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"learning": {"proximal": 1e308}}, r"proximal=1e\+308 .*lower learning\.proximal"),
        (
            {"learning": {"learning_rate": 0.01}},
            r"look at the trainer .*FakeTrainer.*, or lower learning\.learning_rate=0.01",
        ),
    ],
)
def test_the_message_names_who_made_it_diverge(more: dict[str, Any], says: str) -> None:
    broken = FakeTrainer(broken=frozenset((k, v) for k in range(6) for v in range(9)))
    with pytest.raises(TrainingError, match=says):
        run(small(more), trainer=broken)


def test_a_aggregator_that_blows_up_the_model_is_named(tmp_path: Path) -> None:
    source = f"{COMBINE}    return average(weights, starts, updates) * 1e12\n"
    with pytest.raises(TrainingError, match=r"aggregator=.*mine.py:mine"):
        run(with_policy(tmp_path, "aggregator", source))


# ---- sizes

NO_SIZES = [
    wrong("run", *SMALL, "data.num_train=1000000000000", says="less than or equal to"),
    wrong("run", *SMALL, "data.num_test=9000000000", says="less than or equal to"),
    wrong("run", *SMALL, "timeline.period=1e-12", says="about 2e.12 aggregations.*raise timeline.period"),
    wrong("run", *SMALL, "timeline.horizon=1e300", says="lower timeline.horizon"),
    wrong("plan", *SMALL, "framework=fedasync", "policy.limit=1", "timeline.horizon=1e18", says="timeline.horizon"),
    wrong("plan", *SMALL, "framework=fedavg", "timeline.horizon=1e15", says="lower timeline.horizon"),
    wrong("run", *SMALL, "learning.local_epochs=1000000000000", says="learning.local_epochs=1000000000000.*lower it"),
    wrong("run", *SMALL, "learning.local_steps=1000000000000", "learning.local_epochs=null", says="local_steps=.*lower"),
    wrong("plan", *SMALL, "fleet.num_devices=1000000000000", says="less than or equal to"),
]  # fmt: skip


@pytest.mark.parametrize("case", NO_SIZES, ids=str)
def test_sizes_that_cannot_be_had(case: Any) -> None:
    refused(case)


def test_sizes_for_people() -> None:
    assert [memory._size(each) for each in (0, 999, 1e3, 2.5e10, 1e18)] == [
        "0 bytes",
        "999 bytes",
        "1 kB",
        "25 GB",
        "1e+03 PB",
    ]
    free = memory._available_bytes()
    assert free is None or free > 0
