"""A federation without sockets, processes or waiting: nodes run the real ClientApp, time is a number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedtide import config
from fedtide.deploy.apps import client_app
from fedtide.deploy.coordinator import Coordinator
from fedtide.deploy.mailbox import Mailbox, Run, at_once
from fedtide.deploy.settings import Deployment, Terms, to_run_config

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # Flower sets these in a ServerApp's process
OFFLINE_AFTER = 50.0  # seconds until Flower notices that a node is gone
Act = Callable[["Node", Message, Message], list[tuple[float, Message]]]

TINY: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "synthetic", "num_train": 240, "num_test": 60, "partition": "shards", "num_shards": 24},
    "fleet": {"num_devices": 6, "max_duration": 40.0},
    "timeline": {"period": 10.0, "horizon": 80.0},
    "policy": {"limit": 3},
    "radio": {"num_symbols": 12000},
    "learning": {"model": "softmax", "local_epochs": 1, "batch_size": 10, "learning_rate": 0.05},
}


def terms(*trees: dict[str, Any], **settings: Any) -> Terms:
    """Return a small federation's terms, with some keys changed."""
    return Terms(config.experiment(TINY, *trees), Deployment(**{"min_nodes": 1, **settings}))


@dataclass
class Clock:
    """Seconds that pass only when someone sleeps."""

    now: float = 1000.0
    events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Do something at so many seconds from the start."""
        self.events.append((1000.0 + time, event))

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        for each in sorted((each for each in self.events if each[0] <= until), key=lambda each: each[0]):
            self.events.remove(each)
            self.now = max(self.now, each[0])
            each[1]()
        self.now = until


@dataclass
class Node:
    """One SuperNode."""

    node_id: int
    context: Context
    duration: float  # of a training, in seconds
    life: int = 1
    died_at: float | None = None
    act: Act | None = None  # what it does with its honest reply
    seen: list[Message] = field(default_factory=list)

    @property
    def last_activated_at(self) -> str:
        return f"life {self.life}"


class MemoryGrid:
    """Flower's grid, as far as the coordinator uses it."""

    def __init__(self, terms: Terms, clock: Clock, durations: Iterable[float]) -> None:
        self.clock, self.terms = clock, terms
        self.nodes: dict[int, Node] = {}
        self.pending: list[tuple[float, int, Message]] = []  # when, from whom, reply
        self.unasked: list[Message] = []  # delivered at the next pull, whatever it asks for
        self.lost: dict[str, tuple[int, Message]] = {}  # orders that a node took to its grave
        self.broken = False
        self._ids = itertools.count(1)
        self._fresh = itertools.count(101)
        for part, duration in enumerate(durations):
            self.join(part, duration)

    def join(self, part: int, duration: float, node_id: int | None = None, **extra: Any) -> Node:
        """Connect a node that holds this part of the data."""
        node_id = next(self._fresh) if node_id is None else node_id
        run_config = to_run_config(self.terms)
        context = Context(1, node_id, {"partition-id": part, **extra}, RecordDict(), run_config)
        self.nodes[node_id] = Node(node_id, context, duration)
        return self.nodes[node_id]

    def kill(self, node: Node) -> None:
        """SIGKILL: what it worked on is lost."""
        node.died_at = self.clock()
        self.pending = [each for each in self.pending if each[1] != node.node_id]

    def restart(self, node: Node) -> None:
        """Start it again with its key: same number, no memory."""
        node.died_at, node.life = None, node.life + 1
        node.context.state = RecordDict()
        self.lost = {key: each for key, each in self.lost.items() if each[0] != node.node_id}

    def get_nodes(self) -> list[Node]:
        self._stumble()
        return [node for node in self.nodes.values() if self._online(node)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self._stumble()
        ids = []
        for message in messages:
            key = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = key
            ids.append(key)
            self._deliver(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        self._stumble()
        wanted, now = set(message_ids), self.clock()
        found, self.unasked = self.unasked, []
        left = []
        for time, node_id, reply in self.pending:
            asked = reply.metadata.reply_to_message_id in wanted
            if asked and time <= now:
                found.append(reply)
            else:
                left.append((time, node_id, reply))
        self.pending = left
        for key, (node_id, order) in list(self.lost.items()):
            if key in wanted and not self._online(self.nodes[node_id]):
                del self.lost[key]
                found.append(Message(Error(5, "node unavailable"), reply_to=order))
        return found

    def _online(self, node: Node) -> bool:
        return node.died_at is None or self.clock() < node.died_at + OFFLINE_AFTER

    def _stumble(self) -> None:
        if self.broken:
            raise ConnectionError("the SuperLink is down")

    def _deliver(self, message: Message) -> None:
        node = self.nodes[message.metadata.dst_node_id]
        node.seen.append(message)
        self.lost[message.metadata.message_id] = (node.node_id, message)
        if node.died_at is not None:
            return
        try:
            reply = client_app(message, node.context)
        except Exception as error:  # as Flower does
            reply = Message(Error(2, str(error)), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = node.node_id
        delay = node.duration if message.metadata.message_type == "train" else 0.5
        replies = node.act(node, message, reply) if node.act else [(delay, reply)]
        self.pending += [(self.clock() + after, node.node_id, each) for after, each in replies]


@dataclass
class Federation:
    """Clock, grid and a coordinator over them."""

    terms: Terms
    folder: Path
    durations: tuple[float, ...] = (3.0, 8.0, 12.0, 18.0, 25.0, 33.0)
    on_round: Callable[[Any], None] | None = None
    run: Run = at_once  # how requests and saves are done

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.grid = MemoryGrid(self.terms, self.clock, self.durations)

    def coordinator(self) -> Coordinator:
        mailbox = Mailbox(self.grid, self.run, self.clock)
        return Coordinator(mailbox, self.terms, self.folder, self.clock, self.clock.sleep, self.on_round)

    def node(self, position: int) -> Node:
        return self.grid.nodes[101 + position]
