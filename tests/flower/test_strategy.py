"""A Flower app that brings its own model, data and training: the template of examples/flower-app, and what it may do wrong."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from memory_grid import Clock, MemoryGrid

from fedtide.deploy import strategy, trace
from fedtide.deploy.demo import Federation
from fedtide.deploy.mailbox import Mailbox, at_once
from fedtide.deploy.replay import replay
from fedtide.deploy.strategy import PeriodicAsync, _flat, _unflat, asynchronous
from fedtide.deploy.watchdog import _federation_processes
from fedtide.errors import FedtideError
from fedtide.runs import is_complete, read_rounds

TEMPLATE = Path(__file__).parents[2] / "examples" / "flower-app"
TARGET = np.linspace(-1, 1, 40, dtype=np.float32).reshape(5, 8)
START = {"weight": np.zeros((5, 8), np.float32), "steps": np.array(7, np.int64)}

needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc")


def arrays_of(tree: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: strategy.Array(np.asarray(value)) for name, value in tree.items()})


def own_app(metrics: dict[str, Any] | None = None) -> ClientApp:
    """Return a user's app that goes half the way to the target, and counts its steps."""
    app = ClientApp()

    def train(message: Message, context: Context) -> Message:
        assert message.content["config"]["lr"] == 0.5
        before = {name: array.numpy() for name, array in message.content["arrays"].items()}
        assert before["steps"] == 7
        after = {"weight": before["weight"] + 0.5 * (TARGET - before["weight"]), "steps": before["steps"] + 3}
        found = {"num-examples": 10 + context.node_id % 5} if metrics is None else metrics
        content = RecordDict({"arrays": arrays_of(after), "metrics": MetricRecord(found)})
        return Message(content, reply_to=message)

    app.train()(train)
    return app


class Virtual:
    """A federation of such apps, whose time is a number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, made: PeriodicAsync, app: ClientApp) -> None:
        self.made, clock = made, Clock()
        self.grid = MemoryGrid(made.terms(3), clock, (3.0, 8.0, 12.0, 18.0))
        monkeypatch.setattr("memory_grid.client_app", asynchronous(app))
        monkeypatch.setattr(time, "monotonic", clock)

        def mailbox(grid: Any) -> Mailbox:
            made = Mailbox(grid, at_once, clock)
            monkeypatch.setattr(made, "wait", clock.sleep)
            return made

        monkeypatch.setattr("fedtide.deploy.strategy.Mailbox", mailbox)
        self.seen: list[int] = []

    def evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        self.seen.append(server_round)
        error = float(np.abs(arrays["weight"].numpy() - TARGET).mean())
        return MetricRecord({"accuracy": math.exp(-error), "loss": error})

    def run(self, num_rounds: int, start: dict[str, Any] = START) -> Any:
        config = ConfigRecord({"lr": 0.5})
        return self.made.start(self.grid, arrays_of(start), self.evaluate, num_rounds, config)


def made(folder: Path, **changes: Any) -> PeriodicAsync:
    keys = {"radio.num_symbols": 4000, **changes.pop("keys", {})}
    return PeriodicAsync(4, 10.0, folder / "run", keys=keys, **changes)


def test_an_app_of_ones_own_learns_and_keeps_its_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Virtual(monkeypatch, made(tmp_path), own_app())
    result = world.run(12)
    assert world.seen == list(range(1, 13))
    assert list(result.evaluate_metrics_serverapp) == world.seen
    assert np.abs(result.arrays["weight"].numpy() - TARGET).max() < 0.1
    assert result.arrays["steps"].numpy() == 7  # whole numbers are not averaged
    rounds, recorded = read_rounds(tmp_path / "run"), trace.read_trace(tmp_path / "run")
    assert sum(each.num_arrived for each in rounds) >= 12
    assert all(sum(each.sent_bits) <= sum(each.budget_bits) for each in rounds)
    assert {count for each in recorded.periods for count in each.num_samples} <= {10, 11, 12, 13, 14}
    with pytest.raises(FedtideError, match="cannot be replayed here"):
        replay(tmp_path / "run")


def test_it_goes_on_in_its_folder_and_refuses_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(Exception):
        pass

    world = Virtual(monkeypatch, made(tmp_path), own_app())
    honest = world.evaluate

    def stop(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round == 5:
            raise Stopped
        return honest(server_round, arrays)

    monkeypatch.setattr(world, "evaluate", stop)
    with pytest.raises(Stopped):
        world.run(8)
    assert len(read_rounds(tmp_path / "run")) == 4
    again = Virtual(monkeypatch, made(tmp_path), own_app())
    with pytest.raises(FedtideError, match="holds a model of 40 numbers, and initial_arrays have 41"):
        again.run(8, {**START, "bias": np.zeros(1, np.float32)})
    again = Virtual(monkeypatch, made(tmp_path), own_app())
    again.run(8)
    assert again.seen == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("metrics", "changes", "says"),
    [
        ({}, {}, "lack num-examples"),
        ({"num-examples": 0}, {}, "num_samples is 0"),
        ({"num-examples": 4}, {"num_labels": 3}, "label_counts has 1 entries for 3 labels"),
        ({"num-examples": 4}, {"keys": {"policy.scheduler": "pisces"}}, "lack train_loss"),
    ],
)
def test_what_an_app_leaves_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: dict[str, Any], changes: dict[str, Any], says: str
) -> None:
    Virtual(monkeypatch, made(tmp_path, **changes), own_app(metrics)).run(3)
    assert says in (tmp_path / "run.log").read_text()
    assert not any(each.num_arrived for each in read_rounds(tmp_path / "run"))


def test_label_counts_and_losses_reach_the_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {"label-counts": [3, 0, 4], "train_loss": 0.5}
    changes = {"num_labels": 3, "keys": {"policy.scheduler": "pisces"}}
    Virtual(monkeypatch, made(tmp_path, **changes), own_app(metrics)).run(4)
    periods = trace.read_trace(tmp_path / "run").periods
    assert {tuple(each) for period in periods for each in period.label_counts} == {(3, 0, 4)}
    assert {each for period in periods for each in period.loss or []} == {0.5}


def test_a_histogram_stays_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"num_labels": 2, "settings": {"epsilon": 0.01}}
    Virtual(monkeypatch, made(tmp_path, **changes), own_app({"label-counts": [500, 500]})).run(3)
    told = {tuple(each) for period in trace.read_trace(tmp_path / "run").periods for each in period.label_counts}
    assert told
    assert (500, 500) not in told


def test_arrays_keep_shapes_and_kinds() -> None:
    tree = {"a": np.ones((2, 3), np.float64), "n": np.array([4, 5]), "b": np.full(2, 3, np.float16)}
    back = _unflat(_flat(arrays_of(tree)), arrays_of(tree))
    for name, value in tree.items():
        assert back[name].numpy().dtype == value.dtype
        assert np.array_equal(back[name].numpy(), value)
    with pytest.raises(FedtideError, match="no floating-point numbers"):
        _flat(arrays_of({"n": np.array([1])}))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"radio.access": "over_the_air"}, "leave radio.access out"),
        ({"learning.trainer": "torch"}, "leave learning.trainer out"),
    ],
)
def test_what_needs_fedtides_own_training_is_refused(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        PeriodicAsync(4, keys=keys).terms(3)


# -- the template with the real `flwr run` --------------------------------------------------------------------------


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with Federation(tmp_path / "home") as made:
        yield made
    assert _federation_processes(made.home) == []


def wait_for(condition: Callable[[], bool], seconds: float, home: Path) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            logs = "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in home.parent.rglob("*.log"))
            pytest.fail(f"nothing in {seconds:.0f} s\n{logs}")
        time.sleep(0.3)


@pytest.mark.slow
@pytest.mark.integration
@needs_proc
def test_the_template_runs_in_flowers_simulation(tmp_path: Path, federation: Federation) -> None:
    pytest.importorskip("ray")
    (federation.home / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local]\naddress = ":local:"\n'
    )
    run = tmp_path / "run"
    settings = f'num-devices=3 num-rounds=8 period=6.0 run-folder="{run}"'
    words = ["--federation-config", "num-supernodes=3", "--run-config", settings]
    federation.flwr("run", str(TEMPLATE), *words)
    wait_for(lambda: is_complete(run), 150, federation.home)
    rounds = read_rounds(run)
    assert len(rounds) == 8
    assert sum(each.num_arrived for each in rounds) >= 2
    assert (rounds[-1].test_accuracy or 0) > 0.2  # chance is 0.1


@pytest.mark.slow
@pytest.mark.integration
@needs_proc
def test_the_template_runs_in_a_deployment(tmp_path: Path, federation: Federation) -> None:
    run = tmp_path / "run"
    federation.start_superlink()
    for part in range(2):
        federation.start_node(f"node-{part}", {"partition-id": part})
    # Every message starts a process that imports PyTorch: on a busy machine that takes ten seconds.
    words = ["--run-config", f'num-devices=2 num-rounds=20 period=20.0 run-folder="{run}"']
    federation.flwr("run", str(TEMPLATE), "here", *words)
    wait_for(lambda: sum(each.num_arrived for each in read_rounds(run)) >= 2, 240, federation.home)
    assert max(each.test_accuracy or 0 for each in read_rounds(run)) > 0.11  # chance is 0.1
