"""The server acts at its tick whatever a node, a connection, the disk or its own machine does, and nothing is lost."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from memory_grid import Federation, MemoryGrid, Node, terms

from fedtide.deploy import trace
from fedtide.deploy.coordinator import Coordinator
from fedtide.deploy.mailbox import Mailbox
from fedtide.deploy.replay import replay
from fedtide.errors import RunFolderError
from fedtide.runs import RunFolder, is_complete, read_rounds

LONG = {"timeline": {"horizon": 200.0}}
PERIOD = 10.0
FAULT = (32.0, 95.0)  # seconds from the start


def finished(folder: Path, count: int = 20) -> list[trace.Period]:
    """Check that all periods are there and give the same bits in a replay; return them."""
    assert is_complete(folder)
    recorded = trace.read_trace(folder).periods
    assert len(recorded) == len(read_rounds(folder)) == count
    result = replay(folder)
    assert result.first_difference is None
    assert np.array_equal(result.model, np.load(folder / "model.npy"))
    return recorded


def on_schedule(periods: list[trace.Period], period: float = PERIOD) -> None:
    """Check that every tick was at a whole number of periods from the start, less than one late, and that none drifted."""
    due = np.array([each.wall - timing(each).late for each in periods])
    assert np.allclose(due / period, np.round(due / period), atol=1e-6)
    assert all(timing(each).late < period for each in periods)


def timing(period: trace.Period) -> trace.Timing:
    assert period.timing is not None
    return period.timing


def federation(folder: Path, **settings: Any) -> Federation:
    return Federation(terms(LONG, poll=0.5, **settings), folder)


def stop(node: Node, clock: Callable[[], float], begin: float, end: float) -> None:
    """SIGSTOP and SIGCONT: what the node would have said in between, it says later."""

    def act(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        delay = node.duration if message.metadata.message_type == "train" else 0.5
        at = clock() - 1000.0
        answered = at + delay
        return [(delay + end - max(begin, at) if at < end and answered > begin else delay, reply)]

    node.act = act


def hang(wanted: Federation, begin: float, end: float) -> None:
    """No request returns, and nothing is saved, from one time to another."""
    start = wanted.clock()

    def run(job: Callable[[], None]) -> None:
        if begin <= wanted.clock() - start < end:
            wanted.clock.at(end, job)
        else:
            job()

    wanted.run = run


# -- on a virtual clock ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [[0], [0, 2, 4], [0, 1, 2, 3, 4, 5]], ids=["one", "half", "all"])
def test_nodes_are_stopped(tmp_path: Path, stopped: list[int]) -> None:
    wanted = federation(tmp_path / "run")
    for position in stopped:
        stop(wanted.node(position), wanted.clock, *FAULT)
    wanted.coordinator().run()
    periods = finished(tmp_path / "run")
    assert [each.wall for each in periods] == [PERIOD * each.tick for each in periods]
    during = [each for each in periods if FAULT[0] + PERIOD < each.wall < FAULT[1]]
    assert not any({*stopped} & {*each.arrived} for each in during)
    assert all(each.arrived for each in during if {*each.ready} - {*stopped}) or 0 in stopped
    assert any(each.arrived for each in during) == (len(stopped) < 6)
    back = [each for each in periods if each.wall > FAULT[1]]
    assert {*stopped} <= {device for each in back for device in each.ready}  # nobody is lost


def test_an_update_that_was_stopped_counts_at_the_next_tick(tmp_path: Path) -> None:
    """Node 0 is stopped while it trains: what it made from the old model is used when it goes on, with its age."""
    wanted = federation(tmp_path / "run")
    stop(wanted.node(0), wanted.clock, 51.0, 95.0)  # it was sent version 6 half a second before
    wanted.coordinator().run()
    periods = finished(tmp_path / "run")
    first = next(each for each in periods if each.wall > 95.0 and 0 in each.ready)
    assert first.tick == 10
    assert first.start[first.ready.index(0)] == 6
    assert 51.0 < 95.0 < first.ready_at[first.ready.index(0)] < 100.0


def test_no_request_returns_and_nothing_is_saved(tmp_path: Path) -> None:
    wanted = federation(tmp_path / "run")
    hang(wanted, *FAULT)
    wanted.coordinator().run()
    periods = finished(tmp_path / "run")
    assert [each.wall for each in periods] == [PERIOD * each.tick for each in periods]
    assert not any(each.arrived for each in periods[4:9])
    assert all(each.arrived for each in periods[10:])
    assert "SuperLink silent for" in timing(periods[8]).why
    assert timing(periods[8]).silent == pytest.approx(90.0 - FAULT[0], abs=1.0)
    assert "5 periods wait for the disk" in timing(periods[8]).why


def test_a_superlink_that_is_gone_for_a_while(tmp_path: Path) -> None:
    wanted = federation(tmp_path / "run")
    wanted.clock.at(FAULT[0], lambda: setattr(wanted.grid, "broken", True))
    wanted.clock.at(FAULT[1], lambda: setattr(wanted.grid, "broken", False))
    wanted.coordinator().run()
    periods = finished(tmp_path / "run")
    assert [each.wall for each in periods] == [PERIOD * each.tick for each in periods]
    assert all(each.arrived for each in periods[10:])


def fill_disk(monkeypatch: pytest.MonkeyPatch, wanted: Federation, begin: float, end: float, where: str) -> None:
    """Let the trace, the rounds (with half a line in them) or the checkpoint fail to be written."""
    start, full = wanted.clock(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    rounds = RunFolder._rounds

    def is_full() -> bool:
        return begin <= wanted.clock() - start < end

    def sync(file: int) -> None:
        if is_full() and where == Path(os.readlink(f"/proc/self/fd/{file}")).name.split(".")[0].lstrip("."):
            raise full

    def half(folder: RunFolder) -> Any:
        file = rounds(folder)
        if is_full() and where == "half":
            file.write(b'{"index"')
            file.flush()
            raise full
        return file

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(RunFolder, "_rounds", half)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files are found through /proc")
@pytest.mark.parametrize("where", ["trace", "half", "rounds", ""])  # "": the checkpoint, which is written aside
def test_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    plain = federation(tmp_path / "plain").coordinator().run()
    wanted = federation(tmp_path / "run")
    fill_disk(monkeypatch, wanted, *FAULT, where)
    model = wanted.coordinator().run()
    periods = finished(tmp_path / "run")
    assert [each.wall for each in periods] == [PERIOD * each.tick for each in periods]
    assert all(each.arrived for each in periods)
    assert np.array_equal(model, plain)
    assert "No space left on device" in caplog.text
    assert "the federation goes on" in caplog.text
    assert max(timing(each).unsaved for each in periods) == 6
    assert timing(periods[-1]).unsaved == 0


def test_a_disk_that_stays_full_ends_the_run_with_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = federation(tmp_path / "run")
    with monkeypatch.context() as patch:
        fill_disk(patch, wanted, FAULT[0], 1e9, "half")
        with pytest.raises(RunFolderError, match="No space left on device"):
            wanted.coordinator().run()
    assert trace.read_trace(tmp_path / "run").periods
    federation(tmp_path / "run").coordinator().run()
    finished(tmp_path / "run")


def test_a_machine_that_sleeps_leaves_out_what_it_missed(tmp_path: Path) -> None:
    """The clock leaps by 77 s: one tick at once, and the next at a whole number of periods again."""
    wanted = federation(tmp_path / "run")
    sleep, leap = wanted.clock.sleep, [77.0]

    def oversleep(seconds: float) -> None:
        sleep(seconds)
        if wanted.clock() >= 1044.0 and leap:
            wanted.clock.now += leap.pop()

    wanted.clock.sleep = oversleep  # type: ignore[method-assign]
    wanted.coordinator().run()
    periods = finished(tmp_path / "run")
    on_schedule(periods)
    assert [each.wall for each in periods[3:7]] == pytest.approx([40.0, 121.0, 130.0, 140.0])
    assert timing(periods[4]).skipped == 7
    assert str(timing(periods[4])) == "1.0 s late after 7 skipped (busy machine 71.0 s)"
    assert all(timing(each).skipped == 0 for each in periods if each.tick != 5)
    assert periods[4].arrived  # what had come before is not lost


@pytest.mark.parametrize("seconds", [6.0, 9.0, 12.0])
def test_a_server_that_is_slow_itself_does_not_drift(tmp_path: Path, seconds: float) -> None:
    """Scoring takes long: it may act late, but never by a whole period, and always by the same timetable."""
    wanted = federation(tmp_path / "run")
    wanted.on_round = lambda record: wanted.clock.sleep(seconds)
    wanted.coordinator().run()
    periods = finished(tmp_path / "run")
    on_schedule(periods)
    late = [timing(each).late for each in periods[2:]]
    if seconds < 9.5:
        assert max(late) == 0.0
    else:
        assert max(late) > 1.0
        assert any(timing(each).skipped for each in periods)
        worst = max(periods, key=lambda each: timing(each).late)
        assert "own work" in str(timing(worst))


def test_an_upload_after_the_deadline_is_dropped_and_a_training_after_the_tick_counts_at_the_next(
    tmp_path: Path,
) -> None:
    wanted = federation(tmp_path / "run")
    wanted.node(0).act = lambda node, message, reply: [
        (7.0 if message.metadata.message_type == "query.upload" else 9.7, reply)
    ]
    wanted.coordinator().run()
    periods = finished(tmp_path / "run")
    assert any(0 in each.picked for each in periods)
    assert all(0 not in each.arrived for each in periods)
    after = next(each for each in periods[1:] if 0 in each.ready)
    assert after.wall - after.ready_at[after.ready.index(0)] < PERIOD
    assert after.start[after.ready.index(0)] < after.tick  # it is a period older


# -- in real time, with requests in threads -------------------------------------------------------------------------


class HangingGrid(MemoryGrid):
    """Replies of some nodes, or whole requests, hang until the end. A reply that was given to a look is given to no other."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lock, self.end, self.hanging = threading.Lock(), threading.Event(), set[Any]()

    def get_nodes(self) -> list[Node]:
        if "nodes" in self.hanging:
            self.end.wait()
        with self.lock:
            return super().get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        if "push" in self.hanging:
            self.end.wait()
        with self.lock:
            return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        if "pull" in self.hanging:
            self.end.wait()
        with self.lock:
            found = super().pull_messages(message_ids)
        if any(reply.metadata.src_node_id in self.hanging for reply in found):
            self.end.wait()  # Flower waits for what the node has announced
        return found


@pytest.mark.alone
@pytest.mark.parametrize("hanging", [[102], ["pull"], ["push", "nodes"]], ids=["a node", "replies", "orders"])
def test_a_request_hangs(tmp_path: Path, hanging: list[Any]) -> None:
    """One node's reply, or all requests of a kind, hang from the third period on: ticks go on."""
    period, count = 1.5, 6
    tree = {"timeline": {"period": period, "horizon": period * count}, "fleet": {"max_duration": 4 * period}}
    wanted = terms(tree, poll=0.1, deadline=0.5)
    grid = HangingGrid(wanted, time.monotonic, (0.1, 0.2, 0.3, 0.2, 0.1, 0.2))
    mailbox = Mailbox(grid)

    def on_round(record: Any) -> None:
        if record.index == 2:
            grid.hanging |= {*hanging}

    try:
        Coordinator(mailbox, wanted, tmp_path / "run", time.monotonic, mailbox.wait, on_round).run()
    finally:
        grid.end.set()
    periods = finished(tmp_path / "run", count)
    walls = [each.wall - timing(each).late for each in periods]
    assert np.allclose(np.diff(walls) / period, np.round(np.diff(walls) / period), atol=1e-3)  # no drift
    assert all(timing(each).late < period for each in periods)
    assert all(timing(each).skipped == 0 for each in periods)
    assert periods[1].arrived
    if hanging == [102]:
        assert all(each.arrived for each in periods)
        assert all(1 not in each.ready for each in periods[4:])
    else:
        assert not any(each.arrived for each in periods[4:])


def test_the_mailbox_asks_for_what_a_hanging_request_was_not_given(tmp_path: Path) -> None:
    """Two orders share a look that hangs with the reply to the first: the second's reply comes through a later look."""
    waiting: list[Callable[[], None]] = []
    now = [0.0]
    mailbox = Mailbox(Slow(), waiting.append, lambda: now[0])
    mailbox._keys = {f"id {number}": f"key {number}" for number in range(40)}
    mailbox.collect(mailbox._keys.values())
    looks, hangs = waiting[1:], waiting[0]
    assert len(looks) == 16  # 15 of them are looks, and one asks for nodes
    first = set(mailbox._looks[0].ids)
    assert len(first) == 3
    waiting.clear()
    for time_passed in (1.0, 4.0, 8.0):
        now[0] = time_passed
        for look in looks:
            look()
        mailbox.collect([f"key {number}" for number in range(40)])
        looks = waiting[:]
        waiting.clear()
    asked = [look.ids for look in mailbox._looks.values()]
    assert sum(first <= {*each} or bool(first & {*each}) for each in asked) > 1  # the look that hangs, and a later one
    assert hangs not in looks


def test_a_reply_that_is_on_its_way_is_not_taken_for_lost() -> None:
    """The SuperLink denies a second time what it has given to a look that hangs; if that look fails, it is lost indeed."""
    order = Message(RecordDict(), 7, "train")
    order.metadata.__dict__["_message_id"] = "id"
    denied, reply = Message(Error(3, "not there"), reply_to=order), Message(RecordDict(), reply_to=order)
    for outcome in (reply, denied):
        replies, waiting, now = [[outcome], [denied]], list[Callable[[], None]](), [0.0]

        class Twice(Slow):
            def pull_messages(self, ids: Iterable[str], replies: Any = replies) -> list[Message]:
                return list(replies.pop(0))

        mailbox = Mailbox(Twice(), waiting.append, lambda now=now: now[0])  # type: ignore[misc]
        mailbox._keys = {"id": "key"}
        mailbox.collect(["key"])
        given = waiting.pop(0)
        mailbox._newest_back = now[0] = 10.0  # the look hangs
        assert mailbox.collect(["key"]) == []
        again = waiting.pop()
        first = replies.pop(0)
        again()  # it is denied
        assert mailbox.collect(["key"]) == []
        replies[:] = [first]
        given()
        waiting.clear()
        replies.append([denied])
        found = mailbox.collect(["key"])
        assert [(each.key, each.message) for each in found] in ([("key", outcome)], [])
        if outcome is reply:
            assert found


class Slow:
    """A grid that answers nothing."""

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        return []

    def get_nodes(self) -> list[Node]:
        return []


def test_requests_are_bounded() -> None:
    """However long nothing returns, there are so many requests and no more."""
    waiting: list[Callable[[], None]] = []
    now = [0.0]
    mailbox = Mailbox(Slow(), waiting.append, lambda: now[0])
    mailbox._keys = {f"id {number}": f"key {number}" for number in range(1000)}
    for _ in range(100):
        now[0] += 60.0
        mailbox.collect([f"key {number}" for number in range(1000)])
        mailbox.nodes()
    assert len(waiting) == 17
    assert mailbox.silent == 99 * 60.0
