"""fedtide as a Flower strategy: asynchronous, periodic training for any Flower app, whose model, data and training stay its own.

In the ServerApp, `PeriodicAsync(...).start(grid, ...)` stands where `FedAvg(...).start(grid, ...)` stood; in the ClientApp,
`app = asynchronous(app)` comes last. Nodes train at their own speed. Every period the server schedules some of those that are
ready, and only these send their update, in as many bits as they are granted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedtide import config
from fedtide.codec.base import Codec, Packet
from fedtide.deploy.apps import encode_held, train_and_hold
from fedtide.deploy.coordinator import Coordinator
from fedtide.deploy.log import logged_run
from fedtide.deploy.mailbox import Mailbox
from fedtide.deploy.privacy import reported_counts
from fedtide.deploy.protocol import TrainOrder, read_model
from fedtide.deploy.settings import OWN_TRAINING, Terms, deployment, from_run_config, to_run_config
from fedtide.engine.making import make_codec
from fedtide.errors import FedtideError
from fedtide.learning.trainer import Score
from fedtide.runs import read_rounds
from fedtide.types import Dataset, Ints, Job, Memory, Samples, Vector

Evaluate: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]

_TERMS = "fedtide"  # the record of a training order that says how updates are coded

# -- a Flower app's arrays as the flat vector that fedtide schedules, codes and averages -----------------------------


def _flat(arrays: ArrayRecord) -> Vector:
    """Return all floating-point numbers of a model [d]; whole numbers, such as counters of batches, stay where they are."""
    parts = [array.numpy() for array in arrays.values()]
    floats = [part.ravel().astype(np.float32) for part in parts if part.dtype.kind == "f"]
    if not floats:
        raise FedtideError("the model's arrays hold no floating-point numbers: give ArrayRecord(model.state_dict())")
    return np.concatenate(floats)


def _unflat(vector: Vector, like: ArrayRecord) -> ArrayRecord:
    """Return a model's arrays with these numbers [d] in place of its floating-point ones."""
    made, at = ArrayRecord(), 0
    for name, array in like.items():
        part = array.numpy()
        if part.dtype.kind == "f":
            part, at = vector[at : at + part.size].reshape(part.shape).astype(part.dtype), at + part.size
        made[name] = Array(np.array(part, order="C"))
    return made


# -- the ClientApp --------------------------------------------------------------------------------------------------


def asynchronous(app: ClientApp) -> ClientApp:
    """Make a Flower ClientApp asynchronous.

    The app trains as before: its train function receives `arrays` and `config` and returns `arrays` and `metrics` with
    `num-examples`. If the metrics also have `label-counts`, a list with the node's number of samples per label, schedulers can
    balance labels.

    app: your ClientApp.

    Returns: A ClientApp for use with `PeriodicAsync` on the server.
    """

    def train(message: Message, context: Context) -> Message:
        terms = message.content.pop(_TERMS)
        context.state[_TERMS] = terms
        worker = _OwnTraining(terms, app, message, context)
        return train_and_hold(message, context, worker, _flat(message.content["arrays"]))

    def upload(message: Message, context: Context) -> Message:
        if _TERMS not in context.state:
            raise FedtideError("this node was asked for an update and holds none: it was restarted")
        return encode_held(message, context, _OwnTraining(context.state[_TERMS], app, message, context))

    made = ClientApp()
    made.train()(train)
    made.query("upload")(upload)
    return made


class _OwnTraining:
    """A Flower user's app as what trains on a node."""

    part, updates_on_ack = -1, False

    def __init__(self, terms: ConfigRecord, app: ClientApp, message: Message, context: Context) -> None:
        self.experiment, self._settings = from_run_config(terms)
        self.codec: Codec = make_codec(self.experiment)
        self._app, self._message, self._context = app, message, context
        self._counts: Ints = np.zeros(0, np.int64)
        self._loss: Any = None

    def train(
        self, model: Vector, device: int, version: int, learning_rate: float, memory: Memory | None = None
    ) -> tuple[Vector, Memory | None]:
        """Let the app train from the model of its message, and return what that changed [d]."""
        reply = self._app(self._message, self._context)
        if reply.has_error():
            raise FedtideError(f"the app's train function failed: {reply.error.reason}")
        arrays, metrics = (reply.content.get(name) for name in ("arrays", "metrics"))
        if not isinstance(arrays, ArrayRecord) or not isinstance(metrics, MetricRecord):
            raise FedtideError("the app's train function must reply with the records 'arrays' and 'metrics'")
        counts: Any = metrics.get("label-counts", metrics.get("num-examples"))
        if counts is None:
            raise FedtideError(
                "the metrics of the app's train function lack num-examples, which updates are weighed by"
            )
        self._counts = np.atleast_1d(np.asarray(counts)).astype(np.int64)
        self._loss = metrics.get("train_loss")
        after = _flat(arrays)
        if after.shape != model.shape:
            raise FedtideError(f"the app was sent a model of {len(model):,} numbers and returned one of {len(after):,}")
        return after - model, None

    def label_counts(self, secret: bytes) -> Ints:
        """Return how many samples of each label the app trained on, or of all labels together."""
        return reported_counts(self._counts, self._settings, secret)

    def after_upload(self, packet: Packet, memory: Memory | None) -> Memory:
        """Nothing of the app's follows its uploads."""
        return {}

    def loss(self, model: Vector) -> float:
        """Return the loss that the app reports as `train_loss`."""
        if not isinstance(self._loss, int | float):
            raise FedtideError(
                f"policy.scheduler={self.experiment.policy.scheduler} asks for losses, and the metrics of the app's train function "
                "lack train_loss: add it or choose another scheduler"
            )
        return float(self._loss)


# -- the ServerApp --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeriodicAsync:
    """Asynchronous training with periodic aggregation, used like a Flower strategy.

    num_devices: number of nodes that take part. period: seconds between two aggregations. folder: the run folder on the
    server's host; None: a new one. Start again with the same folder to continue a run. num_labels: number of labels in the
    nodes' `label-counts`, if they report them. keys: keys of the experiment, such as {"policy.limit": 4}. settings: settings of
    the deployment, such as {"min_nodes": 10}.
    """

    num_devices: int
    period: float = 15.0
    folder: Path | str | None = None
    num_labels: int = 1
    keys: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def terms(self, num_rounds: int) -> Terms:
        """Return the terms that server and nodes share. Raises FedtideError if the settings are invalid."""
        tree: dict[str, Any] = {
            "data": {"name": "synthetic"},  # nothing of it is used
            "fleet": {"num_devices": self.num_devices, "max_duration": 4 * self.period},
            "timeline": {"period": self.period, "horizon": self.period * num_rounds},
            "policy": {"limit": max(1, self.num_devices // 2)},
            "learning": {"model": "softmax", "evaluate_every": 0.0},
        }
        if self.num_labels == 1:  # labels that nobody reports cannot be balanced
            tree["policy"]["scheduler"] = "random"
        experiment = config.experiment(tree, dict(self.keys))
        usual = {"capacity": "measured", "deadline": 0.9, "poll": min(1.0, self.period / 10)}
        settings = {**usual, **self.settings, "loader": OWN_TRAINING}
        for key, value, other in (
            ("radio.access", experiment.radio.access.name, "orthogonal"),
            ("learning.trainer", experiment.learning.trainer.name, "native"),
        ):
            if value != other:
                raise FedtideError(f"{key}={value} does not go with a Flower app's own model: leave {key} out")
        return Terms(experiment, deployment(settings))

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        evaluate_fn: Evaluate,
        num_rounds: int = 3,
        train_config: ConfigRecord | None = None,
    ) -> Result:
        """Run a number of periods.

        grid: Flower's Grid. initial_arrays: the first model. evaluate_fn: (round, arrays) -> MetricRecord with `accuracy` from 0
        to 1 and optionally `loss`. num_rounds: number of periods. train_config: passed to the nodes' train function.

        Returns: The last model, and the results of evaluate_fn after every period.
        """
        terms, folder = self.terms(num_rounds), Path(self.folder or time.strftime("fedtide-%Y%m%d-%H%M%S")).absolute()
        print(f"fedtide keeps this run in {folder}", flush=True)  # Flower shows what a ServerApp prints
        result = Result(arrays=initial_arrays)
        scorer = _Scorer(initial_arrays, evaluate_fn, result, len(read_rounds(folder)))
        translated = _OwnArrays(grid, initial_arrays, train_config or ConfigRecord(), to_run_config(terms))
        nothing = Samples(np.zeros((1, 1, 1, 1), np.float32), np.zeros(1, np.uint8))
        dataset = Dataset("the nodes' own", nothing, nothing, self.num_labels, "a Flower app")
        with logged_run(folder):
            own = dataset, scorer
            mailbox = Mailbox(translated)
            coordinator = Coordinator(mailbox, terms, folder, time.monotonic, mailbox.wait, own=own)
            result.arrays = _unflat(coordinator.run(), initial_arrays)
        return result


@dataclass
class _Scorer:
    """Gives the first model and scores the others: what a coordinator needs of a trainer."""

    arrays: ArrayRecord
    evaluate_fn: Evaluate
    result: Result
    rounds: int  # scored so far

    def initial_model(self, seed: int) -> Vector:
        return _flat(self.arrays)

    def train(self, jobs: Sequence[Job]) -> Vector:
        raise FedtideError("nodes train themselves")

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        self.rounds += 1
        found = self.evaluate_fn(self.rounds, _unflat(model, self.arrays)) or MetricRecord()
        self.result.evaluate_metrics_serverapp[self.rounds] = found
        accuracy, loss = (found.get(name) for name in ("accuracy", "loss"))
        if not isinstance(accuracy, int | float):
            raise FedtideError("evaluate_fn must return a MetricRecord with 'accuracy', a number from 0 to 1")
        return Score(float(accuracy), float(loss) if isinstance(loss, int | float) else math.nan)


@dataclass
class _OwnArrays:
    """A grid that gives every training order the form of Flower's own: `arrays` and `config`."""

    grid: Grid
    arrays: ArrayRecord
    config: ConfigRecord
    terms: Mapping[str, str]
    _last: tuple[Any, ArrayRecord] | None = None  # a model that was sent, and its arrays: one for all nodes

    def push_messages(self, messages: Iterable[Message]) -> Any:
        return self.grid.push_messages([self._translated(message) for message in messages])

    def _translated(self, message: Message) -> Message:
        content = message.content
        if message.metadata.message_type == TrainOrder.kind:
            model = content.pop("model")
            if self._last is None or self._last[0] is not model:
                self._last = model, self._own_arrays(read_model(model))
            content["arrays"] = self._last[1]
            content["config"] = ConfigRecord({**self.config, "server-round": TrainOrder.read(content).version})
            content[_TERMS] = ConfigRecord(dict(self.terms))
        return message

    def _own_arrays(self, model: Vector) -> ArrayRecord:
        if len(model) != (wanted := len(_flat(self.arrays))):
            raise FedtideError(
                f"the run folder holds a model of {len(model):,} numbers, and initial_arrays have {wanted:,}: another model "
                "needs a folder of its own"
            )
        return _unflat(model, self.arrays)

    def pull_messages(self, message_ids: Iterable[str]) -> Any:
        return self.grid.pull_messages(message_ids)

    def get_nodes(self) -> Any:
        return self.grid.get_nodes()
