"""What parts remember in a federation: a replay comes to the same bits, whatever was lost, late, killed or restarted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from memory_grid import Act, Federation, Node, terms

from fedtide.deploy import trace
from fedtide.deploy.apps import _recall, _store_memory
from fedtide.deploy.protocol import ReadyReply, Refused, TrainOrder, read_ready
from fedtide.deploy.replay import replay
from fedtide.deploy.settings import Terms
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.errors import RunFolderError
from fedtide.runs import RunFolder, is_complete, read_rounds
from fedtide.runs.checkpoint import read_checkpoint
from remembering import KEYS, OUTAGE

LONG = {"timeline": {"horizon": 200.0}}
DEVICE = [KEYS["codec"], KEYS["trainer"]]
ALL = [*KEYS.values()]


def every(nth: int, kind: str, change: Callable[[Message, Message], list[tuple[float, Message]]]) -> Act:
    """Return a node's doing: every nth message of a kind is answered otherwise, the rest honestly."""
    count = itertools.count(1)

    def act(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        is_kind = message.metadata.message_type == kind
        if is_kind and next(count) % nth == 0:
            return change(message, reply)
        return [(node.duration if message.metadata.message_type == "train" else 0.5, reply)]

    return act


def late_uploads(federation: Federation) -> None:
    for node in range(3):
        federation.node(node).act = every(2, "query.upload", lambda message, reply: [(35.0, reply)])


def lost_uploads(federation: Federation) -> None:
    for node in range(3):
        federation.node(node).act = every(2, "query.upload", lambda message, reply: [])


def failing_uploads(federation: Federation) -> None:
    for node in range(3):
        federation.node(node).act = every(
            2, "query.upload", lambda message, reply: [(0.1, Message(Error(2, "no"), reply_to=message))]
        )


def failing_trainings(federation: Federation) -> None:
    """They come to nothing, but the node has done them: its memory went on, and must go back."""
    for node in range(3):
        federation.node(node).act = every(
            3, "train", lambda message, reply: [(2.0, Message(Error(2, "no"), reply_to=message))]
        )


def a_killed_node(federation: Federation) -> None:
    one, other, grid = federation.node(0), federation.node(2), federation.grid
    federation.clock.at(45.0, lambda: grid.kill(one))
    federation.clock.at(62.0, lambda: grid.restart(one))
    federation.clock.at(85.0, lambda: grid.kill(other))
    federation.clock.at(91.0, lambda: grid.restart(other))


def a_node_that_leaves_and_comes_back(federation: Federation) -> None:
    """Another one plays its device meanwhile; it comes back with what it remembered when it left."""
    node, grid = federation.node(0), federation.grid

    def come_back() -> None:
        node.died_at = None

    federation.clock.at(45.0, lambda: grid.kill(node))
    federation.clock.at(46.0, lambda: grid.join(0, 3.0, node_id=999))
    federation.clock.at(122.0, lambda: grid.kill(grid.nodes[999]))
    federation.clock.at(175.0, come_back)


DISTURBANCES = {
    None: 0,
    late_uploads: 0,
    lost_uploads: 0,
    failing_uploads: 0,
    failing_trainings: 0,
    a_killed_node: 2,
    a_node_that_leaves_and_comes_back: 1,
}


@pytest.mark.parametrize("outage", [False, True], ids=["", "outage"])
@pytest.mark.parametrize(
    ("disturb", "forgetful"), DISTURBANCES.items(), ids=[getattr(each, "__name__", "calm") for each in DISTURBANCES]
)
def test_a_replay_comes_to_the_same_bits(
    tmp_path: Path, disturb: Callable[[Federation], None] | None, forgetful: int, outage: bool
) -> None:
    wanted = terms(LONG, *ALL, *[OUTAGE] * outage)
    federation = Federation(wanted, tmp_path / "run")
    if disturb is not None:
        disturb(federation)
    model = federation.coordinator().run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert is_complete(tmp_path / "run")
    assert len(periods) == 20
    if outage or disturb in (late_uploads, lost_uploads):
        assert any(each.picked != each.arrived for each in periods)
    forgot = {kind for each in periods for kind in each.forgot or {}}
    assert forgot == ({"codec", "trainer"} if forgetful else set())
    again = replay(tmp_path / "run", out=tmp_path / "again")
    assert again.first_difference is None
    assert np.array_equal(again.model, model)
    assert again.rounds == read_rounds(tmp_path / "run")
    assert memory(tmp_path / "again", wanted) == memory(tmp_path / "run", wanted)


def memory(folder: Path, wanted: Terms) -> dict[str, dict[str, list[float]]]:
    """Return what the server's parts remember at the end."""
    saved = read_checkpoint(folder, wanted.experiment)
    assert saved is not None
    assert {*saved.state.memory} == {"scheduler", "weighting", "aggregator"}
    return {kind: {name: each.tolist() for name, each in arrays.items()} for kind, arrays in saved.state.memory.items()}


class Stop(Exception):
    """The coordinator's end."""


@pytest.mark.parametrize("at", [3, 8])
@pytest.mark.parametrize("moment", ["after", "before"])
def test_a_coordinator_that_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, moment: str) -> None:
    """It stops when a period is saved, or just before that: then the uploads of the period were never acknowledged."""
    federation = Federation(terms(LONG, *ALL, OUTAGE), tmp_path / "run")

    def stop(record: object) -> None:
        if record.index == at:  # type: ignore[attr-defined]
            raise Stop

    saving = RunFolder.checkpoint

    def unsaved(self: RunFolder) -> None:
        if self._state is not None and self._state.version == at + 1:
            raise Stop
        saving(self)

    if moment == "after":
        federation.on_round = stop
    else:
        monkeypatch.setattr(RunFolder, "checkpoint", unsaved)
    with pytest.raises(Stop):
        federation.coordinator().run()
    federation.on_round = None
    monkeypatch.setattr(RunFolder, "checkpoint", saving)
    late_uploads(federation)
    model = federation.coordinator().run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert len(periods) == len(read_rounds(tmp_path / "run")) == 20
    assert not any(each.forgot for each in periods)
    again = replay(tmp_path / "run")
    assert again.first_difference is None
    assert np.array_equal(again.model, model)


@pytest.mark.parametrize("outage", [False, True], ids=["", "outage"])
def test_the_same_bits_as_the_simulator(tmp_path: Path, outage: bool) -> None:
    """If all is well, or lost over the simulated radio alone, and readiness is the simulator's."""
    wanted = terms(*ALL, *[OUTAGE] * outage)
    system = build(wanted.experiment)
    simulated = simulate(wanted.experiment, system=system)
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    model = Federation(wanted, tmp_path / "run", durations).coordinator().run()
    assert read_rounds(tmp_path / "run") == simulated.rounds
    assert np.array_equal(model, simulated.model)
    assert any(each.lost for each in simulated.rounds) == outage


def test_memory_matters(tmp_path: Path) -> None:
    """Else all of the above would hold without it."""
    calm = Federation(terms(LONG, *DEVICE), tmp_path / "calm").coordinator().run()
    federation = Federation(terms(LONG, *DEVICE), tmp_path / "run")
    a_killed_node(federation)
    assert not np.array_equal(federation.coordinator().run(), calm)


def test_a_node_goes_on_from_what_the_server_has_seen() -> None:
    state, one, two = RecordDict(), {"v": np.array([1.0])}, {"v": np.array([2.0])}
    assert _recall(state, "codec", 3, 0) is None
    _store_memory(state, "codec", 3, {0: None, 4: one})
    found = _recall(state, "codec", 3, 4)
    assert found is not None
    assert found["v"] == 1.0
    assert _recall(state, "codec", 3, 0) is None  # it was lost: as before it
    _store_memory(state, "codec", 3, {4: one, 7: two})
    assert [_recall(state, "codec", 3, seen) for seen in (4, 7)] == [one, two]
    assert _recall(state, "codec", 3, 6) is None  # of another node
    assert _recall(state, "codec", 2, 7) is None  # of another device
    _store_memory(state, "codec", 3, {9: None})
    assert not state


@pytest.mark.parametrize("forgot", [["scheduler"], [1], "codec", ["codec", "x"]])
def test_what_a_node_says_it_forgot_is_not_believed_blindly(forgot: object) -> None:
    order = TrainOrder(device=1, version=1, nonce="n", learning_rate=0.1)
    row = {"num_samples": 3, "label_counts": [1, 2], "data": 0, "isa": "avx2", "forgot": ["codec"]}
    content = ReadyReply(device=1, version=1, nonce="n", **row).content()
    assert read_ready(content, order, 2, 6, terms().deployment).forgot == ["codec"]
    content["ready"]["forgot"] = forgot
    with pytest.raises(Refused, match=r"forgot.*=.*: input should be (a valid list|'codec' or 'trainer')"):
        read_ready(content, order, 2, 6, terms().deployment)


@pytest.mark.parametrize(
    ("forgot", "message"),
    [
        ([0], r"forgot=\[0\]: input should be an object"),
        ({"codec": 1}, "forgot.codec=1: input should be a valid array"),
        ({"c" * 40: []}, "input should be 'codec' or 'trainer'"),
    ],
)
def test_a_trace_that_forgets_wrongly_is_damaged(tmp_path: Path, forgot: object, message: str) -> None:
    Federation(terms(*DEVICE, {"timeline": {"horizon": 10.0}}), tmp_path / "run").coordinator().run()
    found = trace.read_trace(tmp_path / "run")
    assert 5 not in found.periods[0].ready
    trace.write_trace(
        tmp_path / "run", found._replace(periods=[found.periods[0].model_copy(update={"forgot": forgot})])
    )
    with pytest.raises(RunFolderError, match=message):
        trace.read_trace(tmp_path / "run")


def test_memory_without_dimensions_stays_without() -> None:
    state = RecordDict()
    _store_memory(state, "codec", 3, {0: None, 7: {"count": np.array(5), "left": np.zeros(2, np.float32)}})
    found = _recall(state, "codec", 3, 7)
    assert found["count"].shape == ()
    assert found["left"].dtype == np.float32
