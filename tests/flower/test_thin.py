"""A thin SuperNode: it answers what the app answers, in its own process, from what Flower's connection gives it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from flwr.app import Message
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from memory_grid import terms

from fedtide.cli.deploy import deploy_node
from fedtide.deploy import thin
from fedtide.deploy.node import Worker
from fedtide.deploy.protocol import ReadyReply, TrainOrder, model_record, read_model
from fedtide.deploy.settings import Terms, write_app
from fedtide.deploy.thin import Answering, refuse_other_parts
from fedtide.engine.system import build, make_trainer
from fedtide.errors import FedtideError

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # of pathspec, in Flower


class Link:
    """The SuperLink's side of a node's connection: one message there, and what comes back."""

    def __init__(self, wanted: Terms, folder: Path, order: TrainOrder, model: Any) -> None:
        self.message = Message(order.content(model=model), 7, order.kind)
        self.message.metadata.__dict__.update(_message_id=self.message.object_id, _run_id=1)
        with no_object_id_recompute():
            self.tree = get_object_tree(self.message)
            self.contents = {key: each.deflate() for key, each in get_all_nested_objects(self.message).items()}
        self.fab = build_fab_from_disk(write_app(folder / "app", wanted, folder / "run"))
        self.back: dict[str, bytes] = {}
        self.confirmed: list[str] = []
        self.allowed: tuple[str, ...] = ()

    def node(self, **config: Any) -> Answering:
        run = SimpleNamespace(fab_hash="hash", override_config={})
        return Answering(
            7,
            config,
            self.allowed,
            self.send,
            lambda _: run,
            lambda *_: SimpleNamespace(content=self.fab),
            lambda _, key: self.contents[key],
            lambda _, session, key, content: self.back.update({key: content}),
            lambda _, key: self.confirmed.append(key),
        )

    def send(self, message: Message, tree: Any, seconds: float) -> tuple[set[str], str]:
        self.head = tree.object_id
        assert message.metadata.src_node_id == 7
        assert message.metadata.reply_to_message_id == self.message.metadata.message_id
        return {*get_all_nested_objects(message)}, "session"

    def reply(self) -> Any:
        return inflate_object_from_contents(self.head, dict(self.back))


def test_it_answers_as_the_app_does(tmp_path: Path) -> None:
    wanted = terms()
    model = make_trainer(build(wanted.experiment)).initial_model(3)
    order = TrainOrder(device=2, version=1, nonce="n", learning_rate=0.05)
    link = Link(wanted, tmp_path, order, model_record(model))
    node = link.node(**{"partition-id": 2})
    node(link.message, link.tree)
    assert link.confirmed == [link.message.metadata.message_id]
    assert ReadyReply.read(link.reply().content, order).num_samples == 40
    held = read_model(node._contexts[1].state["update"])  # type: ignore[arg-type]
    assert np.array_equal(held, Worker(wanted, 2).train(model, 2, 1, 0.05)[0])


def test_what_fails_is_told_as_flower_tells_it(tmp_path: Path) -> None:
    wanted = terms()
    order = TrainOrder(device=2, version=1, nonce="n", learning_rate=0.05)
    link = Link(wanted, tmp_path, order, model_record(np.zeros(3, np.float32)))
    link.node(**{"partition-id": 99})(link.message, link.tree)
    assert link.reply().error.code == 2
    assert "partition-id=99" in link.reply().error.reason


def refuse() -> None:
    thin.http_retry.os.kill(thin.http_retry.os.getpid(), signal.SIGINT)  # type: ignore[attr-defined]
    time.sleep(5)


def give_up() -> None:
    try:
        raise OSError("no route to host")
    except OSError:
        sys.exit(1)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (refuse, "fl.example.org:8000 refused a node: register its key .* or set this machine's clock"),
        (give_up, "^node {'partition-id': 3} at fl.example.org:8000: no connection to the SuperLink: no route to host"),
    ],
)
def test_a_node_that_is_not_let_in_says_why(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], says: str
) -> None:
    for module in (thin.http_retry, thin.fleet_http_connection):
        monkeypatch.setattr(module, "os", os)  # what the nodes put there is taken back
    monkeypatch.setattr(thin, "http_request_response", lambda *_: act())
    with pytest.raises(FedtideError, match=says):
        thin.run_thin_nodes(thin.Door("fl.example.org:8000"), [({"partition-id": 3}, None)])


def test_as_many_keys_as_nodes() -> None:
    words = ["localhost:1", "-c", "partition-id=0", "-c", "partition-id=1", "--key", "one"]
    result = CliRunner().invoke(deploy_node, words)
    assert "1 keys for 2 nodes" in str(result.exception)


def test_a_run_names_no_other_code_of_a_node_without_leave(tmp_path: Path) -> None:
    tree = {"data": {"name": {"name": "os:system", "command": f"touch {tmp_path / 'seen'}"}}}
    settings = {"experiment": json.dumps({**tree, "tracker": ["mine.py:told"]}), "deployment": '{"loader": null}'}
    with pytest.raises(FedtideError, match="the run names os:system, which is not fedtide's: say --allow os:system"):
        refuse_other_parts(settings, ())
    refuse_other_parts(settings, ("os:system",))
    with pytest.raises(FedtideError, match=r"mine\.py:load"):
        refuse_other_parts({**settings, "deployment": '{"loader": "mine.py:load"}'}, ("os:system",))


def test_a_node_that_is_asked_for_other_code_says_so(tmp_path: Path) -> None:
    wanted = terms(loader=f"{tmp_path / 'mine.py'}:load")
    (tmp_path / "mine.py").write_text("raise SystemExit\n")
    order = TrainOrder(device=2, version=1, nonce="n", learning_rate=0.05)
    link = Link(wanted, tmp_path, order, model_record(np.zeros(1, np.float32)))
    link.node(**{"partition-id": 2})(link.message, link.tree)
    assert "say --allow" in link.reply().error.reason
