"""Private label histograms, and private updates."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from memory_grid import Federation, Node, terms

from fedtide.codec.base import received_packet
from fedtide.deploy import trace
from fedtide.deploy.apps import encode_held
from fedtide.deploy.node import Worker
from fedtide.deploy.privacy import privacy_cost, private_counts, secret_rng
from fedtide.deploy.replay import replay
from fedtide.deploy.settings import deployment_doubts
from fedtide.errors import FedtideError
from fedtide.report.summary import summarise
from fedtide.runs.folder import read_run


def test_the_noise_is_discrete_laplace() -> None:
    """P(z) = tanh(eps/2) exp(-eps |z|), checked at every value that matters; neighbours differ by a factor exp(eps)."""
    epsilon, count = 0.7, 200_000
    noisy = private_counts(np.full((1, count), 500), epsilon, 1000, secret_rng(b"secret"))[0] - 500
    for value in range(-4, 5):
        expected = math.tanh(epsilon / 2) * math.exp(-epsilon * abs(value))
        assert abs((noisy == value).mean() - expected) < 4 * math.sqrt(expected / count)
    assert abs(noisy.var() / (2 * math.exp(-epsilon) / (1 - math.exp(-epsilon)) ** 2) - 1) < 0.05


def test_counts_stay_in_range_and_never_vanish() -> None:
    noisy = private_counts(np.array([[0, 0, 0], [5, 900, 10**6]]), 0.1, 1000, secret_rng(b"a"))
    assert noisy.min() >= 0
    assert noisy.max() <= 1000
    rows = private_counts(np.zeros((1000, 2), np.int64), 5.0, 10, secret_rng(b"b"))
    assert (rows.sum(axis=1) >= 1).all()


def test_a_bad_epsilon() -> None:
    with pytest.raises(FedtideError, match="epsilon=0"):
        private_counts(np.ones(3, np.int64), 0.0, 10, secret_rng(b""))


def test_one_draw_per_node_and_none_that_the_server_could_repeat(tmp_path: Path) -> None:
    federation = Federation(terms(epsilon=0.5), tmp_path / "run", durations=())
    for part in range(6):
        federation.grid.join(part, 3.0, **{"privacy-key": "same text"} if part < 2 else {})
    federation.coordinator().run()
    rows: dict[int, set[tuple[int, ...]]] = {}
    for period in trace.read_trace(tmp_path / "run").periods:
        for device, counts, total in zip(period.ready, period.label_counts, period.num_samples, strict=True):
            rows.setdefault(device, set()).add(tuple(counts))
            assert sum(counts) == total
    assert all(len(each) == 1 for each in rows.values())
    again = Federation(terms(epsilon=0.5), tmp_path / "again", durations=())
    for part in range(6):
        again.grid.join(part, 3.0, **{"privacy-key": "same text"} if part < 2 else {})
    again.coordinator().run()
    first = trace.read_trace(tmp_path / "again").periods[0]
    assert [tuple(each) in rows[device] for device, each in zip(first.ready, first.label_counts, strict=True)] == [
        *[True] * 2,
        *[False] * 4,
    ]


PRIVATE = {"codec": {"name": {"name": "private", "clip": 0.1, "noise": 3.0}}}


def test_the_noise_of_updates_is_a_nodes_own_and_drawn_once(tmp_path: Path) -> None:
    """An update that is asked for twice, at another tick and into other bits, has the same noise; another node has other."""
    federation = Federation(terms(PRIVATE), tmp_path / "run", durations=(3.0,) * 6)
    worker, seen = Worker(terms(PRIVATE), 0), dict[int, list[Any]]()
    num_parameters = len(worker.trainer.initial_model(0))

    def act(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            return [(3.0, reply)]
        for grant in (message, _changed(message, tick=99, bits=1e7)):
            upload: Any = encode_held(grant, node.context, worker).content["upload"]
            packet = received_packet(upload["packet"], num_parameters)
            seen.setdefault(node.node_id, []).append(worker.codec.decode(packet))
        return [(0.5, reply)]

    for position in (0, 2):
        federation.node(position).act = act
    model = federation.coordinator().run()
    assert len(seen) == 2
    for updates in seen.values():
        assert all(np.array_equal(*pair) for pair in zip(updates[::2], updates[1::2], strict=True))
        assert updates[0].std() == pytest.approx(0.3, rel=0.2)
    again = Federation(terms(PRIVATE), tmp_path / "again", durations=(3.0,) * 6)
    assert not np.array_equal(again.coordinator().run(), model)
    with pytest.raises(FedtideError, match=r"only the nodes of .* know the noise"):
        replay(tmp_path / "run")
    assert replay(tmp_path / "run", {"codec": {"name": "ideal"}}).compared == 0


def _changed(message: Message, **values: Any) -> Message:
    other = copy.deepcopy(message)
    for key, value in values.items():
        other.content["grant"][key] = value
    return other


def test_doubts_about_private_updates() -> None:
    (key,) = deployment_doubts(terms(PRIVATE, epsilon=1.0))
    assert "privacy-key" in key
    counts, _ = deployment_doubts(terms(PRIVATE))
    assert "exact label counts" in counts
    norms, _ = deployment_doubts(terms(PRIVATE, {"policy": {"scheduler": "best_channel_best_norm"}}, epsilon=1.0))
    assert "exact norms of updates" in norms


def test_honest_noise_is_not_refused_for_its_length(tmp_path: Path) -> None:
    noisy = {"codec": {"name": {"name": "private", "clip": 10.0, "noise": 12.0}}}
    federation = Federation(terms(noisy, ban_after=3), tmp_path / "run", durations=(3.0,) * 6)
    federation.coordinator().run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert all(each.arrived == each.picked for each in periods)
    assert not any(each.refused for each in periods)


def test_an_update_that_came_late_has_spent_epsilon(tmp_path: Path) -> None:
    def late(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        return [(9.0 if message.metadata.message_type == "query.upload" else node.duration, reply)]

    federation = Federation(terms(PRIVATE, {"policy": {"limit": 6}}), tmp_path / "run", durations=(3.0,) * 6)
    federation.node(0).act = late
    federation.coordinator().run()
    run = read_run(tmp_path / "run")
    spent = summarise(run.experiment, run.rounds, run.num_parameters)["privacy"]["epsilon"]
    assert len({*spent.values()}) == 1
    assert {*spent} == {*range(6)}


def test_the_study_shows_the_price() -> None:
    rows = privacy_cost(terms({"policy": {"limit": 2}}).experiment, [0.01, 1.0, 100.0], draws=5)
    reached = [row.label_variance for row in rows]
    exact, rand = rows[0].exact, rows[0].random
    assert exact < rand
    assert reached[2] == pytest.approx(exact)
    assert exact <= reached[1] <= reached[0]
