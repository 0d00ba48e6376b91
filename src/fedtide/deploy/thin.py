"""A SuperNode in one process. Flower's own starts a process for every message and looks for messages every three seconds.

It speaks to the SuperLink as Flower's does and answers with the app of this installation: code that the server sends is not run,
and other code that lies here only by leave.
A process can hold several nodes, a thread each.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Error, Message, RecordDict
from flwr.common.config import get_fused_config_from_fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects, push_objects
from flwr.supercore.retry import http_retry
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import fleet_http_connection
from flwr.supernode.fleet_http_connection import http_request_response

from fedtide.core.faults import fault_text
from fedtide.deploy.apps import client_app
from fedtide.errors import FedtideError
from fedtide.parts.user_code import own_names

_log = logging.getLogger("fedtide.deploy")

_RAISED: Final = 2  # Flower's error number for an app that raised
_REFUSED: Final = (
    "register its key (flwr supernode register), wait a minute if it was killed just now, or set this machine's clock, which may be "
    "5 seconds ahead of the SuperLink's or 5 minutes behind"
)


class Door(NamedTuple):
    """Where a node finds its SuperLink."""

    address: str  # HOST:PORT
    authority: Path | None = None  # the certificate that the SuperLink's is checked with; None: nothing is encrypted
    look: float = 1.0  # seconds between two looks for a message
    allowed: tuple[
        str, ...
    ] = ()  # parts that are not fedtide's and that a run may name, as package.module:name or FILE:name


def run_thin_nodes(door: Door, nodes: Sequence[tuple[Mapping[str, Any], Path | None]]) -> None:
    """Run nodes, each with its node configuration and its private key, until the process is ended; raise if one of them ends."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 0  # of a process, which holds many nodes here
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    # Flower interrupts the whole process, without a word, when a SuperLink refuses one of its nodes
    told = SimpleNamespace(getpid=os.getpid, kill=lambda *_: ended.put(f"{door.address} refused a node: {_REFUSED}"))
    vars(http_retry)["os"] = vars(fleet_http_connection)["os"] = told

    def run(config: Mapping[str, Any], key: Path | None) -> None:
        why = "the connection ended"
        try:
            _run_node(door, config, key)
        except SystemExit as error:  # so Flower says that it could not connect
            why = f"no connection to the SuperLink: {error.__context__}"
        except Exception as error:
            why = fault_text(error)
        ended.put(f"node {dict(config)} at {door.address}: {why}")

    for node in nodes:
        threading.Thread(target=run, args=node, daemon=True).start()
    raise FedtideError(ended.get())


def _run_node(door: Door, config: Mapping[str, Any], key: Path | None) -> None:
    keys: Any = None
    if key is not None:
        private: Any = load_ssh_private_key(key.read_bytes(), None)
        keys = private, private.public_key()
    authority = None if door.authority is None else str(door.authority)
    with http_request_response(door.address, authority is None, authority, keys) as connection:
        node_id, receive, *rest = connection
        _log.info("node %s plays %s", node_id, dict(config))
        answer = Answering(node_id, config, door.allowed, *rest)
        while True:
            try:
                received = receive()
                if received is not None:
                    answer(*received)
            except RunNotRunningException:  # it has ended
                received = None
            if received is None:
                time.sleep(door.look)


class Answering:
    """Answers messages, one after the other. What the app keeps lives as long as this process."""

    def __init__(
        self,
        node_id: int,
        config: Mapping[str, Any],
        allowed: Container[str],
        send: Callable[[Message, Any, float], tuple[set[str], str]],
        get_run: Callable[[int], Any],
        get_fab: Callable[[str, int], Any],
        pull: Callable[[int, str], bytes],
        push: Callable[[int, str, str, bytes], None],
        confirm: Callable[[int, str], None],
    ) -> None:
        self._node_id, self._config, self._allowed = node_id, dict(config), allowed
        self._send, self._get_run, self._get_fab = send, get_run, get_fab
        self._pull, self._push, self._confirm = pull, push, confirm
        self._contexts: dict[int, Context] = {}  # by run

    def __call__(self, message: Message, tree: Any) -> None:
        """Pull what a message holds, act, and send the reply."""
        key, run = message.metadata.message_id, message.metadata.run_id
        context = self._context(run)
        contents = pull_objects([each.object_id for each in iterate_object_tree(tree)], partial(self._pull, run))
        self._confirm(run, key)
        whole: Any = inflate_object_from_contents(tree.object_id, contents)
        whole.metadata.__dict__["_message_id"] = key
        begun = time.monotonic()
        try:
            refuse_other_parts(context.run_config, self._allowed)
            reply = client_app(whole, context)
        except Exception as error:
            _log.warning("node %s: %s: %s", self._node_id, type(error).__name__, error)
            reply = Message(Error(_RAISED, f"{type(error).__name__}: {error}"), reply_to=whole)
        reply.metadata.__dict__["_src_node_id"] = self._node_id
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            parts, tree = get_all_nested_objects(reply), get_object_tree(reply)
            missing, session = self._send(reply, tree, time.monotonic() - begun)
            push_objects(parts, partial(self._push, run, session), object_ids_to_push=missing)

    def _context(self, run: int) -> Context:
        if run not in self._contexts:
            found = self._get_run(run)
            settings = get_fused_config_from_fab(self._get_fab(found.fab_hash, run).content, found)
            # A new run of the same app, after a server's restart, forgets what this one held, and so may we
            self._contexts = {run: Context(run, self._node_id, self._config, RecordDict(), settings)}
        return self._contexts[run]


def refuse_other_parts(run_config: Mapping[str, Any], allowed: Container[str]) -> None:
    """Raise if a run names code of this machine that is not fedtide's: whoever may start a run could name anything."""
    tree = {key: json.loads(str(run_config.get(key, "{}"))) for key in ("experiment", "deployment")}
    tree["experiment"].pop("tracker", None)  # the server's
    for name in own_names(tree):
        if name not in allowed:
            raise FedtideError(
                f"the run names {name}, which is not fedtide's: say --allow {name} at this node if you trust it"
            )
