"""Whatever goes wrong with nodes or servers, every period is finished."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message
from memory_grid import Federation, Node, terms

from fedtide.deploy import trace
from fedtide.deploy.replay import replay
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs import RunFolder, is_complete, read_rounds

LONG = {"timeline": {"horizon": 200.0}}


def trainings(node: Node) -> list[int]:
    """Return the versions that a node was told to train from."""
    return [message.content["order"]["version"] for message in node.seen if message.metadata.message_type == "train"]


def finished(folder: Path, periods: int = 20) -> list[trace.Period]:
    """Check that all periods are there and can be replayed to the bit; return them."""
    assert is_complete(folder)
    recorded = trace.read_trace(folder).periods
    assert len(recorded) == len(read_rounds(folder)) == periods
    assert replay(folder).first_difference is None
    return recorded


def test_a_node_dies_and_comes_back_with_its_key(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run")
    node = federation.node(2)  # needs two periods
    federation.clock.at(25.0, lambda: federation.grid.kill(node))
    federation.clock.at(42.0, lambda: federation.grid.restart(node))
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    absent = [each.tick for each in periods if 2 in each.arrived]
    assert not {4, 5} & set(absent)
    assert max(absent) > 10
    assert {each.nodes["2"] for each in periods} == {103}


def test_a_node_dies_for_good(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run")
    federation.clock.at(25.0, lambda: federation.grid.kill(federation.node(0)))
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert all(0 not in each.arrived for each in periods[3:])
    assert all(0 not in each.ready for each in periods[9:])  # Flower has noticed by then
    assert sum(len(each.arrived) for each in periods[9:]) > 5


def test_a_node_comes_back_without_its_key_and_takes_the_free_seat(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run")
    federation.clock.at(25.0, lambda: federation.grid.kill(federation.node(0)))
    federation.clock.at(30.0, lambda: federation.grid.join(0, 3.0, node_id=999))
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert periods[-1].nodes["0"] == 999
    assert any(0 in each.arrived for each in periods[10:])


def test_a_new_node_takes_an_empty_seat_at_once(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run", durations=(3.0, 8.0))
    federation.clock.at(33.0, lambda: federation.grid.join(4, 3.0, node_id=999))
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert periods[4].ready == [0, 1, 2]
    assert periods[4].data[2] == 4
    assert trainings(federation.grid.nodes[999])[0] == 5


def test_more_nodes_than_seats(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run", durations=(3.0,) * 8)
    federation.coordinator().run()
    finished(tmp_path / "run")
    assert not federation.node(6).seen
    assert not federation.node(7).seen


@pytest.mark.parametrize("code", [2, 3, 8, 0])
def test_errors_are_retried_later_and_later(tmp_path: Path, code: int) -> None:
    federation = Federation(terms(LONG), tmp_path / "run")
    node = federation.node(0)
    node.act = lambda node, message, reply: [(1.0, Message(Error(code, "no"), reply_to=message))]
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert all(0 not in each.ready for each in periods)
    assert trainings(node) == [1, 2, 4, 8, 16]


def test_an_upload_that_raises_is_asked_for_again(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run")
    calls = []

    def act(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            return [(3.0, reply)]
        calls.append(message)
        return [(0.5, reply if len(calls) % 2 == 0 else Message(Error(2, "no"), reply_to=message))]

    federation.node(0).act = act
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert all(each.arrived == each.picked for each in periods)
    assert len(calls) == 2 * sum(0 in each.picked for each in periods)


def test_an_upload_for_which_nothing_is_held_fails_and_the_node_goes_on(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run")
    node = federation.node(0)

    def forget(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        node.context.state.clear()
        return [(3.0, reply)]

    node.act = forget
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert all(0 not in each.arrived for each in periods)
    assert len(trainings(node)) == 20


def test_late_uploads_are_not_used(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run")
    federation.node(0).act = lambda node, message, reply: [
        (7.0 if message.metadata.message_type == "query.upload" else 3.0, reply)
    ]
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert any(0 in each.picked for each in periods)
    assert all(0 not in each.arrived for each in periods)


def test_answers_twice_or_unasked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = Federation(terms(LONG), tmp_path / "plain")
    model = plain.coordinator().run()
    federation = Federation(terms(LONG), tmp_path / "run")

    def twice(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        federation.clock.at(federation.clock() - 1000 + 5.0, lambda: federation.grid.unasked.append(reply))
        return [(0.5, reply), (0.5, reply), (9.0, reply)]

    plain_durations = federation.node(0).duration
    assert plain_durations == 3.0
    federation.node(0).act = twice
    with caplog.at_level(logging.WARNING):
        again = federation.coordinator().run()
    finished(tmp_path / "run")
    assert np.array_equal(model, again)
    assert "node 101 sent a reply that nobody waits for" in caplog.text


def test_answers_for_an_old_version(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation(terms(LONG, ban_after=None), tmp_path / "run")
    first: list[Message] = []

    def stale(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type != "train":
            return [(0.5, reply)]
        first.append(reply)
        return [(3.0, Message(first[0].content, reply_to=message))]

    federation.node(0).act = stale
    with caplog.at_level(logging.WARNING):
        federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert [each.tick for each in periods if 0 in each.ready] == [1]
    assert "node 101 (device 0) refused: the reply is for another order" in caplog.text
    assert any(refusal.node == 101 for each in periods for refusal in each.refused)


def test_trains_for_too_long(tmp_path: Path) -> None:
    federation = Federation(terms(LONG, train_timeout=30.0), tmp_path / "run", durations=(3.0, 1000.0))
    federation.coordinator().run()
    finished(tmp_path / "run")
    assert trainings(federation.node(1))[:3] == [1, 4, 9]  # given up after 30 s: a new model, the next after a pause


def test_the_superlink_stumbles(tmp_path: Path) -> None:
    federation = Federation(terms(LONG), tmp_path / "run")
    federation.clock.at(32.0, lambda: setattr(federation.grid, "broken", True))
    federation.clock.at(58.0, lambda: setattr(federation.grid, "broken", False))
    federation.coordinator().run()
    periods = finished(tmp_path / "run")
    assert not any(each.arrived for each in periods[3:5])
    assert all(each.arrived for each in periods[7:])


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("when", [1, 7, 19])
def test_killed_and_started_again(tmp_path: Path, when: int) -> None:
    """A new ServerApp goes on at the next period; what nodes did for the old one is not awaited."""
    folder = tmp_path / "run"

    def die(record: object) -> None:
        if len(read_rounds(folder)) == when:
            raise Killed

    first = Federation(terms(LONG), folder, on_round=die)
    with pytest.raises(Killed):
        first.coordinator().run()
    before = (folder / "rounds.jsonl").read_bytes()
    second = Federation(terms(LONG), folder)
    second.coordinator().run()
    assert (folder / "rounds.jsonl").read_bytes().startswith(before)
    periods = finished(folder)
    assert periods[when].tick == when + 1
    assert trainings(second.node(0))[0] == when + 1
    assert periods[-1].wall > periods[when - 1].wall


def test_killed_between_trace_and_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        appended = RunFolder.append

        def append(self: RunFolder, record: object, state: object) -> None:
            if record.index == 5:  # type: ignore[attr-defined]
                raise Killed
            appended(self, record, state)  # type: ignore[arg-type]

        patch.setattr(RunFolder, "append", append)
        with pytest.raises(Killed):
            Federation(terms(LONG), folder).coordinator().run()
    assert len(trace.read_trace(folder).periods) == 5
    Federation(terms(LONG), folder).coordinator().run()
    finished(folder)


def test_seats_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def die(record: object) -> None:
        if len(read_rounds(folder)) == 4:
            raise Killed

    first = Federation(terms(LONG), folder, durations=(3.0, 3.0), on_round=die)
    with pytest.raises(Killed):
        first.coordinator().run()
    second = Federation(terms(LONG), folder, durations=())
    second.grid.join(0, 3.0, node_id=50)  # a lower number, but a stranger
    second.grid.join(1, 3.0, node_id=102)
    second.grid.join(0, 3.0, node_id=101)
    second.coordinator().run()
    assert finished(folder)[-1].nodes == {"0": 101, "1": 102, "2": 50}


def test_other_settings_cannot_continue(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Federation(terms(), folder).coordinator().run()
    (folder / "model.npy").unlink()
    with pytest.raises(RunFolderError, match="other deployment settings"):
        Federation(terms(deadline=0.5), folder).coordinator().run()


def test_too_few_nodes(tmp_path: Path) -> None:
    with pytest.raises(FedtideError, match="min_nodes=7"):
        Federation(terms(min_nodes=7, start_timeout=20.0), tmp_path / "run").coordinator().run()


def test_nobody_is_ever_ready(tmp_path: Path) -> None:
    model = Federation(terms(), tmp_path / "run", durations=(500.0,)).coordinator().run()
    assert all(not each.ready for each in finished(tmp_path / "run", 8))
    assert np.isfinite(model).all()


def test_a_finished_run_asks_nobody(tmp_path: Path) -> None:
    model = Federation(terms(), tmp_path / "run").coordinator().run()
    again = Federation(terms(), tmp_path / "run")
    assert np.array_equal(again.coordinator().run(), model)
    assert not any(node.seen for node in again.grid.nodes.values())


def test_a_folder_of_another_experiment_is_refused(tmp_path: Path) -> None:
    Federation(terms(), tmp_path / "run").coordinator().run()
    with pytest.raises(RunFolderError, match="another experiment"):
        Federation(terms({"seed": 9}), tmp_path / "run").coordinator().run()
