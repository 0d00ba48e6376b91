"""Deployments and replays under wrong words, wrong folders and a machine that fails: one line, and nothing lost."""

from __future__ import annotations

import builtins
import errno
import importlib
import importlib.util
import io
import math
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in ("flwr.app", "flwr.clientapp", "flwr.serverapp"):
        importlib.import_module(name)

from click.testing import CliRunner
from flwr.app import ConfigRecord, Context, Message, RecordDict
from judge import Wrong, contents, refused, wrong
from memory_grid import Federation, Node, terms

from fedtide.cli.main import app
from fedtide.deploy import apps, trace
from fedtide.deploy.log import logged_run, server_error
from fedtide.deploy.protocol import TrainOrder, model_record
from fedtide.deploy.replay import replay
from fedtide.deploy.settings import from_run_config, to_run_config
from fedtide.engine.simulate import simulate
from fedtide.errors import FedtideError, RunFolderError, TrainingError
from fedtide.runs import is_complete, read_run
from fedtide.runs.checkpoint import read_checkpoint

TINY: dict[str, Any] = {
    "data": {"num_train": 48, "num_test": 10, "num_shards": 12},
    "timeline": {"horizon": 50.0},
    "radio": {"num_symbols": 3000},
}
LONG = 10 * [300 * "x"]


def small(*trees: dict[str, Any], **settings: Any) -> Any:
    return terms(TINY, *trees, **settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "run"
    Federation(small(), folder).coordinator().run()
    return folder


# -- words ----------------------------------------------------------------------------------------------------------

DEMO = ("deploy", "demo", "--synthetic", "--out", "out")
APP = ("deploy", "app", "out")
KEYS = ("deploy", "keys", "out")
PRIVACY = ("deploy", "privacy", "data.name=synthetic", "data.num_train=200", "data.num_shards=20", "fleet.num_devices=6",
           "policy.limit=2", "timeline.horizon=1", "--draws", "1")  # fmt: skip
PLANNED = "plans who is ready when, and nodes are ready when they are"

WORDS = [
    wrong(*DEMO, "framework=fedavg", says=f"synchronous of framework=fedavg {PLANNED}"),
    wrong(*DEMO, "timeline.name=synchronous", says=PLANNED),
    wrong(*DEMO, "timeline.name=sampled_staleness", says=PLANNED),
    wrong(*DEMO, "timeline.name=own.py:ticks", says="not found in the working folder"),
    wrong(*DEMO, "framework=fedbuff", "policy.limit=2", "timeline.buffer_size=7", says="exceeds fleet.num_devices=6"),
    wrong(*DEMO, "fleet.interrupt=true", says="a node that trains reads no message"),
    wrong(*DEMO, "fleet.concurrency=7", says="fleet.concurrency=7 is more than the 6 devices"),
    wrong(*DEMO, "policy.limit=7", says=r"policy.limit=7 .* exceeds fleet.num_devices=6"),
    wrong(*DEMO, "--nodes", "2", "policy.limit=3", says="exceeds fleet.num_devices=2"),
    wrong(*DEMO, "fleet.num_devices=3", says="fleet.num_devices=3: .* use --nodes 3"),
    wrong(*DEMO, "fleet.num_devices=30", says="use --nodes 30"),
    wrong(*DEMO, "timeline.period=20", says="use --period 20"),
    wrong(*DEMO, "timeline.horizon=1", says="ends before the first aggregation"),
    wrong(*DEMO, "--period", "nan", says="nan: it must be a finite number"),
    wrong(*DEMO, "--period", "inf", says="inf: it must be a finite number"),
    wrong(*DEMO, "policy.scheduler=nope", says="scheduler='nope' is not known"),
    wrong(*DEMO, "policy.scheduler=nope.py:pick", says="not found in the working folder"),
    wrong(*DEMO, "policy.aggregator=averag_models", says="did you mean average_models"),
    wrong(*DEMO, "codec.name=nope", says="codec.name='nope' is not known"),
    wrong(*DEMO, "learning.model=nope", says="model='nope' is not known"),
    wrong(
        *DEMO,
        "learning.model=nope.py:make",
        "learning.trainer=torch",
        says="not found in the working folder|needs PyTorch",
    ),
    wrong(*DEMO, "data.num_shards=3", says="more devices than shards"),
    wrong(*DEMO, "data.num_train=3", says="num_shards"),
    wrong(*DEMO, "nosuch.yaml", says="experiment file not found"),
    wrong(*DEMO, "policy.limt=2", says="policy.limit"),
    wrong(*APP, "framework=fedavg", says=PLANNED),
    wrong(*APP, "timeline.name=own.py:ticks", says="not found in the working folder"),
    wrong(*APP, "fleet.concurrency=41", says="fleet.concurrency=41 is more than the 40 devices"),
    wrong(*APP, "-s", "longest_wait=0", says="longest_wait=0"),
    wrong(*APP, "-s", "min_nodes=41", says="min_nodes=41 exceeds fleet.num_devices=40"),
    wrong(*APP, "-s", "min_nodes=0", says="min_nodes=0"),
    wrong(*APP, "-s", "min_nodes=-3", says="min_nodes=-3"),
    wrong(*APP, "-s", "min_nodes=2.5", says="min_nodes=2.5"),
    wrong(*APP, "-s", "min_nodes=many", says="min_nodes='many'"),
    wrong(*APP, "-s", "deadline=.nan", says="deadline=nan"),
    wrong(*APP, "-s", "deadline=0", says="deadline=0"),
    wrong(*APP, "-s", "deadline=1.01", says="deadline=1.01"),
    wrong(*APP, "-s", "poll=-1", says="poll=-1"),
    wrong(*APP, "-s", "poll=.inf", says="poll=inf"),
    wrong(*APP, "-s", "poll=", says="poll=None"),
    wrong(*APP, "-s", "poll=[1]", says="poll"),
    wrong(*APP, "-s", "poll=301", says="poll=301.0 exceeds start_timeout"),
    wrong(*APP, "-s", "capacity=guessed", says="capacity='guessed'"),
    wrong(*APP, "-s", "capacty=measured", says="did you mean capacity"),
    wrong(*APP, "-s", "epsilon=0", says="epsilon=0"),
    wrong(*APP, "-s", "epsilon=-1", says="epsilon=-1"),
    wrong(*APP, "-s", "label_clip=0", says="label_clip=0"),
    wrong(*APP, "-s", "max_update_norm=.nan", says="max_update_norm=nan"),
    wrong(*APP, "-s", "ban_after=0", says="ban_after"),
    wrong(*APP, "-s", "loader=[]", says="loader"),
    wrong(*APP, "-s", "min_nodes", says="is not key=value"),
    wrong(*APP, "-s", "min_nodes.x=1", says="min_nodes"),
    wrong(*APP, "-s", "min_nodes={a: 1}", says="min_nodes"),
    wrong(*KEYS, "--host", "a" * 300, says="--host"),
    wrong(*KEYS, "--host", "a b", says="--host"),
    wrong(*KEYS, "--host", " ", says="--host"),
    wrong(*KEYS, "--days", "100000000", says="--days"),
    wrong(*KEYS, "--days", "4000000", says="--days"),
    wrong(*KEYS, "--nodes", "1000000000", says="--nodes"),
    wrong(*KEYS, "--host", "fl.example.org", "--host", "-x-", says="--host '-x-'"),
    wrong(*PRIVACY, "-e", "0", says="epsilon=0"),
    wrong(*PRIVACY, "-e", "nan", says="epsilon=nan"),
    wrong(*PRIVACY, "-e", "inf", says="epsilon=inf"),
    wrong(*PRIVACY, "-e", "-1", says="epsilon=-1"),
    wrong(*PRIVACY, "-e", "1e-300", says="epsilon=1e-300"),
    wrong(*PRIVACY, "-e", "1e-19", says="epsilon=1e-19"),
]


@pytest.mark.parametrize("case", WORDS, ids=str)
def test_words(case: Wrong, tmp_path: Path) -> None:
    refused(case)
    assert not (tmp_path / "out").exists()


WHAT_IF = [
    wrong("seed=4", says="seed is part of what happened"),
    wrong("framework=fedasync", says="framework is part of what happened"),
    wrong("profile=released-code", says="profile is part of what happened"),
    wrong("fleet.num_devices=7", says="fleet.num_devices is part"),
    wrong("fleet={num_devices: 7}", says="fleet.num_devices is part"),
    wrong("data.partition=iid", says="data.partition is part"),
    wrong("timeline.horizon=10", says="timeline.horizon is part"),
    wrong("timeline.name=synchronous", says="timeline.name is part"),
    wrong("radio.snr_db=3", says="radio.snr_db is part"),
    wrong("radio=3", says="radio is part"),
    wrong("radio={num_symbols: 9000, snr_db: 3}", says="radio.snr_db is part"),
    wrong("nonsense=3", says="nonsense"),
    wrong("policy=3", says="policy"),
    wrong("policy=", says="policy"),
    wrong("policy.limit=7", says="exceeds fleet.num_devices=6"),
    wrong("policy.limit=0", says="policy.limit=0"),
    wrong("policy.limit=two", says="policy.limit"),
    wrong("policy.limt=2", says="policy.limit"),
    wrong("policy.scheduler=nope", says="scheduler='nope'"),
    wrong("policy.scheduler=nope.py:x", says="not found in the working folder"),
    wrong("policy.scheduler={x: 1}", says="does not accept"),
    wrong("policy.age_base=.nan", says="age_base"),
    wrong("codec.name=nope", says="codec.name='nope'"),
    wrong("codec.num_levels=0", says="num_levels"),
    wrong("radio.num_symbols=0", says="num_symbols"),
    wrong("radio.num_symbols=.inf", says="num_symbols"),
    wrong("radio.num_symbols.x=1", says="num_symbols"),
    wrong("learning.model=nope", says="model='nope'"),
    wrong("learning.learning_rate=-1", says="learning_rate"),
    wrong("learning.local_epochs=0", says="local_epochs"),
    wrong("learning.local_steps=3", says="local_epochs"),
    wrong("learning.learning_rate=1e300", says="diverged|not finite", code=5),
    wrong("policy.limit", says="is not key=value"),
]


@pytest.mark.parametrize("case", WHAT_IF, ids=str)
def test_what_if_words(case: Wrong, run: Path, tmp_path: Path) -> None:
    before = contents(run)
    refused(case._replace(words=("replay", str(run), *case.words, "--out", str(tmp_path / "out"))))
    assert contents(run) == before
    assert not list(tmp_path.iterdir())


# -- folders --------------------------------------------------------------------------------------------------------


def test_a_replay_writes_into_a_new_folder_only(run: Path, tmp_path: Path) -> None:
    before = contents(run)
    for out in (run, run / ".", run / "experiment.yaml"):
        refused(wrong("replay", str(run), "-o", str(out), says="there already", code=4))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text").write_text("!")
    refused(wrong("replay", str(run), "-o", str(tmp_path / "thesis"), says="there already", code=4))
    (tmp_path / "empty").mkdir()
    assert CliRunner().invoke(app, ["replay", str(run), "-o", str(tmp_path / "empty")]).exit_code == 0
    assert read_run(tmp_path / "empty").complete
    assert contents(run) == before
    refused(wrong("replay", str(run), "-o", str(tmp_path / ("x" * 300)), says="too long", code=4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "thesis"]


def test_half_a_replay_leaves_no_folder(run: Path, tmp_path: Path) -> None:
    """A resume of it would go on with the simulator's devices."""

    def stop(record: Any, total: int) -> None:
        assert not (tmp_path / "out").exists()
        if record.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(run, out=tmp_path / "out", on_round=stop)
    assert not list(tmp_path.iterdir())


def test_a_replay_of_an_unfinished_federation(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    federation = Federation(small(), folder, on_round=stop_after(folder, 2))
    with pytest.raises(Killed):
        federation.coordinator().run()
    before = contents(folder)
    result = replay(folder)
    assert (result.compared, result.first_difference) == (2, None)
    assert contents(folder) == before
    shutil.rmtree(folder)
    with pytest.raises(FedtideError, match="min_nodes=6"):
        Federation(small(min_nodes=6), folder, durations=()).coordinator().run()
    refused(wrong("replay", str(folder), says="has no finished period yet", code=4))


def test_a_simulators_folder_is_not_replayed(tmp_path: Path) -> None:
    simulate(small().experiment, tmp_path / "run")
    refused(wrong("replay", str(tmp_path / "run"), says="the run folder that a deployment made", code=4))


class Killed(BaseException):
    """Stands for SIGKILL."""


def stop_after(folder: Path, count: int) -> Callable[[Any], None]:
    def stop(record: Any) -> None:
        if record.index == count:
            raise Killed

    return stop


def half_done(folder: Path, *trees: dict[str, Any], **settings: Any) -> Path:
    with pytest.raises(Killed):
        Federation(small(*trees, **settings), folder, on_round=stop_after(folder, 3)).coordinator().run()
    return folder


def not_continued(folder: Path, says: str, *trees: dict[str, Any], error: type[FedtideError] = RunFolderError) -> None:
    """Check that a new server refuses a folder, asks nobody and changes nothing."""
    before, federation = contents(folder), Federation(small(*trees), folder)
    with pytest.raises(error, match=says) as failure:
        federation.coordinator().run()
    assert "\n" not in str(failure.value)
    assert contents(folder) == before
    assert not any(node.seen for node in federation.grid.nodes.values())


@pytest.mark.parametrize("complete", [True, False])
def test_a_server_in_a_simulators_folder(tmp_path: Path, complete: bool) -> None:
    def stop(record: Any, total: int) -> None:
        if record.index == 2 and not complete:
            raise KeyboardInterrupt

    try:
        simulate(small().experiment, tmp_path / "run", on_round=stop)
    except KeyboardInterrupt:
        assert not complete
    not_continued(tmp_path / "run", r"it is a simulation's|holds a simulated run")


@pytest.mark.parametrize("lost", [None, "trace.jsonl", "deployment.json"])
def test_the_simulator_does_not_continue_a_federation(tmp_path: Path, lost: str | None) -> None:
    """Not even one whose trace is gone."""
    folder = half_done(tmp_path / "run")
    if lost:
        lose(lost)(folder)
    before = contents(folder)
    for words in (("resume", str(folder)), ("run", str(folder / "experiment.yaml"), "-o", str(folder))):
        refused(wrong(*words, says="devices|federation|deployment", code=4))
    with pytest.raises(RunFolderError, match="federation of real devices"):
        simulate(small().experiment, folder)
    assert contents(folder) == before


def lose(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))  # type: ignore[return-value]


def lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lose("trace.jsonl"), "its trace was lost"),
        (lose("checkpoint.npz"), r"checkpoint\.npz"),
        (lose("rounds.jsonl"), "damaged or was edited"),
        (edit("trace.jsonl", lambda data: b""), "line 1: it does not end with its seal"),
        (edit("trace.jsonl", lambda data: b"".join(lines(data)[:-1])), "2 periods and rounds.jsonl 3"),
        (edit("trace.jsonl", lambda data: b"".join(lines(data)[:1])), "0 periods and rounds.jsonl 3"),
        (edit("trace.jsonl", lambda data: data.replace(b'"wall":1', b'"wall":0', 1)), "does not fit its seal"),
        (edit("trace.jsonl", lambda data: data + b"{}\n"), "line 5: it does not end with its seal"),
        (edit("trace.jsonl", lambda data: b"".join([*lines(data)[:2], lines(data)[3], lines(data)[2]])), "seal"),
        (edit("trace.jsonl", lambda data: data[:-1]), "2 periods and rounds.jsonl 3"),
        (edit("rounds.jsonl", lambda data: b"".join(lines(data)[:-1])), "damaged or was edited"),
        (edit("experiment.yaml", lambda data: data.replace(b"seed: 3", b"seed: 4")), "another experiment"),
        (edit("checkpoint.npz", lambda data: data[:100]), "damaged"),
    ],
)
def test_a_damaged_federation_is_not_continued(tmp_path: Path, damage: Callable[[Path], None], says: str) -> None:
    folder = half_done(tmp_path / "run")
    damage(folder)
    not_continued(folder, says)


def test_a_lost_checkpoint_and_rounds_do_not_cost_the_trace(tmp_path: Path) -> None:
    folder = half_done(tmp_path / "run")
    lose("checkpoint.npz")(folder)
    lose("rounds.jsonl")(folder)
    not_continued(folder, r"3 periods in trace\.jsonl but no checkpoint\.npz")


def test_half_a_line_is_a_kill_and_the_federation_goes_on(tmp_path: Path, run: Path) -> None:
    folder = half_done(tmp_path / "run")
    edit("trace.jsonl", lambda data: data + b'{"tick":4,"wall"')(folder)
    Federation(small(), folder).coordinator().run()
    assert replay(folder).first_difference is None
    assert len(trace.read_trace(folder).periods) == 5


def test_a_finished_federation_can_lie_on_a_disk_that_is_read_only(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, opened = contents(run), builtins.open

    def read_only(path: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if set(mode) & set("wax+") and isinstance(path, (str, Path)) and str(run.parent) in str(path):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, mode, *rest, **more)

    monkeypatch.setattr(builtins, "open", read_only)
    monkeypatch.setattr(io, "open", read_only)
    assert CliRunner().invoke(app, ["replay", str(run)]).exit_code == 0
    refused(wrong("replay", str(run), "-o", str(run.parent / "run-again"), says="Read-only file system", code=4))
    assert contents(run) == before


# -- policies with a memory -----------------------------------------------------------------------------------------

POLICIES = """
import itertools
import numpy as np

dice = np.random.default_rng()

class Counting:
    \"\"\"Gets its count back when it is asked again for all periods.\"\"\"
    def __init__(self): self.calls = 0
    def __call__(self, candidates, limit, rng):
        self.calls += 1
        return (np.arange(limit) + self.calls) % len(candidates.device)

def own_dice(candidates, limit, rng):
    return dice.permutation(len(candidates.device))[:limit]

def plain(candidates, limit, rng):
    return np.arange(limit)

class Drifting:
    def __init__(self): self.first = dice.random()
    def __call__(self, num_samples, age):
        weights = num_samples + self.first * np.arange(len(num_samples))
        return weights / weights.sum()

class Momentum:
    def __init__(self): self.velocity = 0.0
    def __call__(self, model, starts, updates, weights, age):
        self.velocity = 0.9 * self.velocity + weights @ updates
        return (model + self.velocity).astype(np.float32)

def by_age(num_samples, age):
    weights = num_samples / (1.0 + age)
    return (weights / weights.sum()).astype(np.float32)
"""


@pytest.mark.parametrize(
    "policy",
    [
        {"scheduler": "own.py:own_dice", "limit": 1},
        {"aggregator": "own.py:Momentum"},
        {"scheduler": "own.py:Counting"},
    ],
)
def test_a_policy_that_depends_on_the_past_is_refused(tmp_path: Path, policy: dict[str, Any]) -> None:
    (tmp_path / "own.py").write_text(POLICIES)
    with pytest.raises(
        FedtideError, match=r"='own\.py:\w+' \(own\.py:\d+\) gives another answer when it is called again"
    ):
        Federation(small({"policy": policy}), tmp_path / "run").coordinator().run()


def test_a_policy_that_answers_otherwise_later_is_not_continued(tmp_path: Path) -> None:
    """Its dice fall when it is made: only a resume can notice."""
    (tmp_path / "own.py").write_text(POLICIES)
    tree = {"policy": {"weighting": "own.py:Drifting"}, "timeline": {"horizon": 200.0}}
    folder = tmp_path / "run"
    with pytest.raises(Killed):
        Federation(small(tree), folder, (3.0,) * 6, stop_after(folder, 12)).coordinator().run()
    not_continued(folder, "weighting='own.py:Drifting' .*gives other weights in period", tree, error=FedtideError)


@pytest.mark.parametrize("policy", [{"scheduler": "own.py:plain"}, {"weighting": "own.py:by_age"}])
def test_a_policy_that_answers_again_goes_on(tmp_path: Path, policy: dict[str, Any]) -> None:
    (tmp_path / "own.py").write_text(POLICIES)
    folder = half_done(tmp_path / "run", {"policy": policy})
    Federation(small({"policy": policy}), folder).coordinator().run()
    assert replay(folder).first_difference is None


# -- a machine that fails -------------------------------------------------------------------------------------------

FAULTS = [errno.ENOSPC, errno.EACCES, errno.EMFILE, errno.EIO, errno.EROFS, errno.ENAMETOOLONG]


class Failing(io.FileIO):
    """A file that takes half of what it is given, and then no more."""

    def write(self, data: Any) -> int:
        if self.tell() > 2000:
            super().write(bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def failing(number: int, name: str, after: int) -> Callable[..., Any]:
    """Return an open() that fails for writing a file of this name from some call on."""
    calls, opened = [0], builtins.open

    def fake(path: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if name in Path(str(path)).name and set(mode) & set("wax+"):
            calls[0] += 1
            if calls[0] > after:
                raise OSError(number, os.strerror(number), str(path))
        return opened(path, mode, *rest, **more)

    return fake


@pytest.mark.parametrize(
    ("name", "after", "number"),
    [
        *[("trace.jsonl", 3, number) for number in FAULTS],
        ("checkpoint.npz", 3, errno.ENOSPC),
        ("rounds.jsonl", 0, errno.EIO),
        ("model.npy", 0, errno.EROFS),
    ],
)
def test_a_disk_that_fails_costs_nothing_that_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, name: str, after: int
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", failing(number, name, after))
        with pytest.raises(RunFolderError, match=os.strerror(number)) as failure:
            Federation(small(), folder).coordinator().run()
    assert "damaged" not in str(failure.value)
    assert "\n" not in str(failure.value)
    checkpoint = read_checkpoint(folder, small().experiment)
    saved = read_run(folder).rounds[: checkpoint.state.version - 1 if checkpoint else 0]
    Federation(small(), folder).coordinator().run()
    assert is_complete(folder)
    assert read_run(folder).rounds[: len(saved)] == saved
    assert replay(folder).first_difference is None


def test_half_a_line_of_a_full_disk_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, opened = tmp_path / "run", builtins.open

    def fake(path: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        is_trace = Path(str(path)).name == trace.NAME and mode == "ab"
        return Failing(path, "a") if is_trace else opened(path, mode, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", fake)
        with pytest.raises(RunFolderError, match="everything up to the period before is saved"):
            Federation(small(), folder).coordinator().run()
    assert not (folder / trace.NAME).read_bytes().endswith(b"\n")
    Federation(small(), folder).coordinator().run()
    assert replay(folder).first_difference is None


@pytest.mark.parametrize("number", FAULTS, ids=errno.errorcode.get)
def test_a_trace_that_cannot_be_read_is_not_damaged(run: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    opened, before = io.open, contents(run)

    def fake(path: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if Path(str(path)).name == trace.NAME:
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, mode, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", fake)
        line = refused(
            wrong("replay", str(run), says=rf"trace\.jsonl cannot be read \({os.strerror(number)}\)", code=4)
        )
        assert "damaged" not in line
    assert contents(run) == before


# -- nodes and servers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"partition-id": "first"}, "partition-id='first'"),
        ({"partition-id": 1.5}, "partition-id=1.5"),
        ({"partition-id": -2}, "partition-id=-2"),
        ({"partition-id": 6}, "partition-id=6 is not one of the 6 parts"),
        ({}, "partition-id=-1 is not one of the 6 parts"),
        ({"partition-id": 0, "pace": "slow"}, "pace='slow'"),
        ({"partition-id": 0, "pace": -1.0}, "pace=-1.0"),
        ({"partition-id": 0, "pace": math.nan}, "pace=nan"),
        ({"partition-id": 0, "pace": 1e18}, "pace=1e[+]18"),
        ({"partition-id": 0, "capacity": "2"}, "capacity='2'"),
        ({"partition-id": 0, "capacity": math.inf}, "capacity=inf"),
        ({"partition-id": 0, "data-folder": 5}, "data-folder=5"),
    ],
)
def test_a_nodes_own_settings(config: dict[str, Any], says: str) -> None:
    context = Context(1, 7, config, RecordDict(), to_run_config(small()))
    wanted = TrainOrder(device=0, version=1, nonce="n", learning_rate=0.05)
    order = Message(wanted.content(model=model_record(np.zeros(7850, np.float32))), 7, "train")
    order.metadata.__dict__["_message_id"] = "a"
    with pytest.raises(FedtideError, match=says):
        apps.client_app(order, context)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"experiment": "{"}, "fedtide deploy app"),
        ({"experiment": "[]"}, "fedtide deploy app"),
        ({"experiment": "5"}, "fedtide deploy app"),
        ({"experiment": '{"seed": -1}'}, "seed=-1"),
        ({"experiment": "[" * 100_000}, "fedtide deploy app"),
        ({"deployment": "null"}, "fedtide deploy app"),
        ({"deployment": '{"pol": 1}'}, "did you mean poll"),
        ({"deployment": '{"poll": NaN}'}, "poll=nan"),
        ({"deployment": None}, "fedtide deploy app"),
    ],
)
def test_a_run_configuration_that_is_none(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        from_run_config({**to_run_config(small()), **changes})


@pytest.mark.parametrize("name", [None, 5, "", "/", "a\0b"])
def test_a_run_folder_that_is_none(name: Any) -> None:
    with pytest.raises(FedtideError, match="run-folder="):
        apps._run_folder({"run-folder": name})


def test_a_server_says_why_it_gave_up(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_config = {**to_run_config(small({"timeline": {"name": "synchronous"}}))}
    context = Context(1, 7, {}, RecordDict(), {**run_config, "run-folder": str(folder)})
    with pytest.raises(FedtideError):
        apps._run_server(Federation(small(), folder).grid, context)  # type: ignore[arg-type]
    assert PLANNED in (server_error(folder) or "")
    assert server_error(folder, (tmp_path / "run.log").stat().st_size) is None
    assert server_error(tmp_path / "nobody") is None
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written"), logged_run(tmp_path / "file" / "run"):
        pass


RUBBISH: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another device": lambda record: {**record, "device": 1 - record["device"]},
    "a device as text": lambda record: {**record, "device": str(record["device"])},
    "another version": lambda record: {**record, "version": record["version"] + 1},
    "no nonce": lambda record: {key: value for key, value in record.items() if key != "nonce"},
    "an empty packet": lambda record: {**record, "packet": b""},
    "half a packet": lambda record: {**record, "packet": record["packet"][: len(record["packet"]) // 2]},
    "a packet and more": lambda record: {**record, "packet": record["packet"] + b"\0"},
    "a packet of a megabyte": lambda record: {**record, "packet": bytes(10**6)},
    "a packet as text": lambda record: {**record, "packet": "FT"},
    "a packet as numbers": lambda record: {**record, "packet": [1.0, math.nan]},
    "another wire version": lambda record: {**record, "packet": record["packet"][:2] + b"\7" + record["packet"][3:]},
    "another codec": lambda record: {**record, "packet": record["packet"][:3] + b"\7" + record["packet"][4:]},
    "bits that do not fit": lambda record: {
        **record,
        "packet": record["packet"][:12] + b"\xff\xff\xff\xff" + record["packet"][16:],
    },
}


@pytest.mark.parametrize("kind", RUBBISH)
def test_rubbish_does_not_end_a_federation(tmp_path: Path, kind: str) -> None:
    federation = Federation(small(ban_after=None), tmp_path / "run")

    def lie(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            return [(3.0, reply)]
        record = RUBBISH[kind](dict(reply.content["upload"]))
        return [(0.5, Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=message))]

    federation.node(0).act = lie
    federation.coordinator().run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert len(periods) == 5
    assert any(each.refused for each in periods)
    assert all(0 not in each.arrived for each in periods)
    assert replay(tmp_path / "run").first_difference is None


class Brittle:
    """A codec that raises what no list of exceptions foresees."""

    def __init__(self, inner: Any, error: type[Exception]) -> None:
        self.inner, self.error = inner, error

    def decode(self, packet: Any) -> Any:
        raise self.error("first line\nsecond line")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    "error", [RuntimeError, AttributeError, AssertionError, MemoryError, RecursionError, TrainingError]
)
def test_whatever_decoding_raises_is_a_refusal(tmp_path: Path, error: type[Exception]) -> None:
    coordinator = Federation(small(ban_after=None), tmp_path / "run").coordinator()
    coordinator._talk._codec = Brittle(coordinator._talk._codec, error)
    coordinator.run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert not any(each.arrived for each in periods)
    assert all("\n" not in refusal.why for each in periods for refusal in each.refused)


@pytest.mark.parametrize("capacity", [0.0, 1e-9, 5e-324, 41.0, -0.0])
def test_a_dead_link_does_not_starve_the_others(tmp_path: Path, capacity: float) -> None:
    federation = Federation(small(capacity="reported", ban_after=None), tmp_path / "run", durations=())
    for part in range(3):
        federation.grid.join(part, 3.0, capacity=capacity if part == 0 else 3.0)
    federation.coordinator().run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert all(0 not in each.ready for each in periods)
    assert all(bits > 0 for each in periods for bits in each.bits)


def test_the_table_is_long_enough() -> None:
    assert len(WORDS) + len(WHAT_IF) >= 60
