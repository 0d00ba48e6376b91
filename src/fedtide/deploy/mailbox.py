"""Flower's Grid without waiting: every request runs elsewhere, and what came of it is collected by the loop.

Flower repeats a request until the SuperLink answers, and waits up to three minutes for a reply that its node has begun to send.
Neither may hold up the server: requests that hang cost a thread each, of which there is a limited number.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias

import httpx
from flwr.app import Message

_log = logging.getLogger("fedtide.deploy")

_TRANSIENT: Final = (httpx.HTTPError, ConnectionError, TimeoutError)
_DENIED: Final = 3  # Flower's error number for an order or a reply that the SuperLink does not have
_LOOKS: Final = 16  # requests for replies at a time, each for a share of the orders
_MOST_LOOKS: Final = 64  # with those that hang
_PATIENCE: Final = 2.0  # seconds by which a later look must have overtaken one that is taken to hang
_NODES_SECONDS: Final = 5.0  # between two looks at who is connected

Run: TypeAlias = Callable[[Callable[[], None]], None]  # has something done, now or elsewhere


def in_thread(job: Callable[[], None]) -> None:
    """Do a job in a thread that keeps no process alive."""
    threading.Thread(target=job, daemon=True, name="fedtide-request").start()


def at_once(job: Callable[[], None]) -> None:
    """Do a job here and now: tests with a clock of their own."""
    job()


class Answer(NamedTuple):
    """What became of an order."""

    key: str
    message: Message | None = None  # None: Flower cannot unpack the reply
    sent: bool = True  # else it could not be sent


class _Look(NamedTuple):
    """A request for the replies to some orders that has not returned yet."""

    began: float
    ids: Collection[str]


class Mailbox:
    """Flower's Grid, as far as it is used; no method waits for a request if `run` does not. clock returns seconds."""

    def __init__(self, grid: Any, run: Run = in_thread, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self._grid, self._clock = grid, clock
        self._numbers = itertools.count()
        self._done: SimpleQueue[tuple[int, Callable[[Any], None], Any]] = SimpleQueue()  # requests that have returned
        self._bell = threading.Event()  # rings when one brought something
        self._begun: dict[int, float] = {}  # requests under way, by number
        self._looks: dict[int, _Look] = {}  # those of them that ask for replies
        self._newest_back = 0.0  # when the newest look that has returned was begun
        self._keys: dict[str, str] = {}  # by Flower's id, the orders that were sent and not answered
        self._heard_at = clock()  # when a request last returned
        self._answers: list[Answer] = []
        self._nodes: dict[int, str] | None = None
        self._nodes_at: tuple[int, float] = (-1, -_NODES_SECONDS)  # number and time of the last look at the nodes

    def wait(self, seconds: float) -> None:
        """Wait until something has come, at most so long."""
        self._bell.wait(seconds)
        self._bell.clear()

    def post(self, messages: Mapping[str, Message]) -> list[Answer]:
        """Send these messages, by key; return the answers that are known by now."""
        if messages:
            keys, content = [*messages], [*messages.values()]
            self._request(lambda: list(self._grid.push_messages(content)), partial(self._on_sent, keys))
        return self._take_in()

    def collect(self, wanted: Collection[str]) -> list[Answer]:
        """Return what has come, and look for replies to these orders; nobody waits for others any more."""
        self._drain()
        self._keys = {each: key for each, key in self._keys.items() if key in wanted}
        self._look()
        if self._clock() - self._nodes_at[1] >= _NODES_SECONDS:
            self._look_for_nodes()
        return self._take_in()

    def nodes(self) -> dict[int, str] | None:
        """Return the nodes that were connected when last seen, each with the moment its present life began; None: unknown."""
        self._look_for_nodes()
        self._drain()
        return self._nodes

    @property
    def silent(self) -> float:
        """Seconds for which no request has returned although some are under way."""
        now = self._clock()
        return now - max(self._heard_at, min(self._begun.values(), default=now))

    # -- requests ---------------------------------------------------------------------------------------------------

    def _request(self, call: Callable[[], Any], take_in: Callable[[Any], None], rings: bool = True) -> int:
        """Begin a request; what it returns or raises is taken in later, by the loop, which is woken if it rings."""
        number = next(self._numbers)
        self._begun[number] = self._clock()

        def job() -> None:
            try:
                outcome = call()
            except Exception as error:
                outcome = error
            self._done.put((number, take_in, outcome))
            if rings and outcome and not isinstance(outcome, Exception):
                self._bell.set()

        self.run(job)
        return number

    def _drain(self) -> None:
        """Take in what has returned."""
        while True:
            try:
                number, take_in, outcome = self._done.get_nowait()
            except Empty:
                return
            del self._begun[number]
            if look := self._looks.pop(number, None):
                self._newest_back = max(self._newest_back, look.began)
            self._heard_at = self._clock()
            take_in(outcome)

    def _take_in(self) -> list[Answer]:
        self._drain()
        answers, self._answers = self._answers, []
        return answers

    def _on_sent(self, keys: list[str], outcome: Any) -> None:
        """Note Flower's ids; what has none could not be sent."""
        ids = self._returned("send", outcome, [None] * len(keys))
        for key, each in zip(
            keys, [*ids, *[None] * len(keys)], strict=False
        ):  # Flower returns no ids if it was too much
            if each:
                self._keys[each] = key
            else:
                self._answers.append(Answer(key, sent=False))

    def _look_for_nodes(self) -> None:
        """Find out who is connected, unless that is under way."""
        if self._nodes_at[0] not in self._begun:
            began = self._clock()
            self._nodes_at = (self._request(lambda: list(self._grid.get_nodes()), self._on_nodes, rings=False), began)

    def _on_nodes(self, outcome: Any) -> None:
        nodes = self._returned("ask for nodes", outcome, None)
        self._nodes = None if nodes is None else {int(node.node_id): str(node.last_activated_at) for node in nodes}

    def _look(self) -> None:
        """Ask for replies. Orders for which a look is under way are not asked for again, unless it hangs.

        The SuperLink gives every reply once, to the look that comes first; a look that hangs holds up what it was given.
        """
        under_way = [look for look in self._looks.values() if not self._hangs(look)]
        asked = {each for look in under_way for each in look.ids}
        ids = [each for each in self._keys if each not in asked]
        free = min(_LOOKS - len(under_way), _MOST_LOOKS - len(self._looks), len(ids))
        for part in range(free):
            self._look_at(ids[part::free])

    def _hangs(self, look: _Look) -> bool:
        return look.began < self._newest_back - _PATIENCE

    def _look_at(self, ids: list[str]) -> None:
        look = _Look(self._clock(), ids)
        number = self._request(lambda: list(self._grid.pull_messages(ids)), partial(self._on_replies, ids))
        self._looks[number] = look

    def _on_replies(self, ids: list[str], outcome: Any) -> None:
        """Match replies with orders. A node can send what Flower cannot unpack: then the others are asked for one by one.

        The SuperLink denies a reply that it has given away: true unless the look that it was given to is still under way.
        """
        elsewhere = {each for look in self._looks.values() for each in look.ids}
        if isinstance(outcome, Exception) and not isinstance(outcome, _TRANSIENT):
            if len(ids) > 1:
                for each in ids:
                    self._look_at([each])
                return
            _log.warning("a reply cannot be unpacked: %s: %s", type(outcome).__name__, outcome)
            if key := self._keys.pop(ids[0], None):
                self._answers.append(Answer(key))
            return
        for reply in self._returned("fetch", outcome, []):
            order = reply.metadata.reply_to_message_id
            if order in elsewhere and reply.has_error() and reply.error.code == _DENIED:
                continue
            key = self._keys.pop(order, None)
            if key is None:
                _log.warning("node %s sent a reply that nobody waits for", reply.metadata.src_node_id)
            else:
                self._answers.append(Answer(key, reply))

    def _returned(self, what: str, outcome: Any, otherwise: Any) -> Any:
        """Return what a request returned, or something else if the SuperLink did not answer; raise what else went wrong."""
        if isinstance(outcome, _TRANSIENT):
            _log.warning("could not %s: %s: %s", what, type(outcome).__name__, outcome)
            return otherwise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
