"""The coordinator's door to Flower: push, pull, who is there. A SuperLink that stumbles is a mailbox that is empty."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from flwr.app import Message, RecordDict

log = logging.getLogger("fedtide.flower")


class Grid(Protocol):
    """The part of Flower's Grid that is used."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send; return the messages' ids."""
        ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        ...

    def get_nodes(self) -> Iterable[Any]:
        """Return the nodes that are connected, each with node_id and last_activated_at."""
        ...


class Letter(NamedTuple):
    """One message to one node."""

    node: int
    kind: str
    content: RecordDict
    ttl: float  # seconds
    round: int


class Fetched(NamedTuple):
    """What a look into the mailbox gave."""

    replies: list[Message]
    unreadable: list[str]  # ids of the messages whose replies are damaged


class Mailbox:
    """Grid calls that survive the errors named in `transient`."""

    def __init__(self, grid: Grid, transient: tuple[type[Exception], ...] = (ConnectionError, TimeoutError)) -> None:
        self._grid, self._transient = grid, transient

    def send(self, letters: Sequence[Letter]) -> list[str | None]:
        """Push the letters; return an id each, None for what could not be sent."""
        if not letters:
            return []
        messages = [
            Message(each.content, each.node, each.kind, ttl=each.ttl, group_id=str(each.round)) for each in letters
        ]
        ids = [each or None for each in self._try("send", lambda: list(self._grid.push_messages(messages)), [])]
        return [*ids, *[None] * (len(letters) - len(ids))][: len(letters)]

    def fetch(self, ids: Sequence[str]) -> Fetched:
        """Return the replies to these messages that have come, and which of them cannot be read.

        A node can send what Flower itself cannot unpack; then the others are fetched one by one.
        """
        if not ids:
            return Fetched([], [])
        try:
            return Fetched(list(self._grid.pull_messages(list(ids))), [])
        except self._transient as error:
            log.warning("could not fetch: %s: %s", type(error).__name__, error)
            return Fetched([], [])
        except Exception as error:  # whatever unpacking raises
            if len(ids) == 1:
                log.warning("a reply cannot be unpacked: %s: %s", type(error).__name__, error)
                return Fetched([], list(ids))
        each = [self.fetch([key]) for key in ids]
        return Fetched([m for one in each for m in one.replies], [key for one in each for key in one.unreadable])

    def nodes(self) -> dict[int, str] | None:
        """Return the connected nodes, each with the moment its present life began; None if that cannot be found out."""
        found: dict[int, str] | None = self._try(
            "ask for nodes",
            lambda: {int(each.node_id): str(each.last_activated_at) for each in self._grid.get_nodes()},
            None,
        )
        return found

    def _try(self, what: str, call: Any, otherwise: Any) -> Any:
        try:
            return call()
        except self._transient as error:
            log.warning("could not %s: %s: %s", what, type(error).__name__, error)
            return otherwise
