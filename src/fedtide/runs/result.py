"""A run as a value: what it was, what happened, what came out; as a frame, a picture or a line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedtide.config import Experiment
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs import RoundRecord, Run, read_run
from fedtide.types import Ints, Samples, Vector, documented

if TYPE_CHECKING:
    from fedtide.engine.system import System
    from fedtide.learning.trainer import Score, Trainer

_SCORES = ("test_accuracy", "test_loss", "train_loss")
_LONGEST = 250  # characters of the experiment in a repr
_CARD = (
    *(
        "final test accuracy",
        "best test accuracy",
        "aggregations",
        "simulated time",
        "uploads",
        "updates lost",
        "stayed silent",
        "bits sent",
    ),
    *("kept share r/d, mean", "age of updates, mean"),
)


@documented
class Result(NamedTuple):
    """The result of a run, from `fedtide.simulate` or `fedtide.load`."""

    experiment: Experiment  # the experiment, with every key
    rounds: list[RoundRecord]  # one record per aggregation, in order
    # the final model, float32 [d]; for an incomplete run the model of the last checkpoint, empty if there is none
    model: Vector
    seconds: dict[str, float]  # seconds of wall-clock time by stage in this session; empty if read from a folder
    complete: bool = True  # whether the run reached its horizon
    handed: tuple[str, ...] = ()  # which of dataset, system and trainer were passed to `simulate`

    def frame(self) -> Any:
        """Return one row per aggregation: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        Columns: index, time, num_ready, num_picked, num_arrived, num_lost, num_silent (sent nothing), num_retransmitted; means
        over the uploads of age (ticks), capacity (bit/symbol) and num_kept, and sums of budget_bits, sent_bits and
        overhead_bits; label_variance, proved_minimal; test_accuracy from 0 to 1, test_loss and train_loss in nats (NaN if not
        measured); totals so far of symbols (granted), symbols_sent, bits, samples_used, samples_trained, air_time (units of
        time) and joules; and metrics/NAME from the scheduler and from learning.metrics.

        >>> import fedtide
        >>> small = {"data.name": "synthetic", "learning.model": "softmax", "timeline.horizon": 0.5}
        >>> result = fedtide.simulate({**small, "data.num_train": 400, "data.num_test": 100})
        >>> list(result.frame()["time"])
        [0.25, 0.5]
        """
        from fedtide.report.notebook import notebook_columns, notebook_frame, notebook_round_rows

        return notebook_frame(notebook_columns(notebook_round_rows(self.rounds)))

    def uploads(self) -> Any:
        """Return one row per upload: a pandas DataFrame, or a dict of NumPy arrays if pandas is not installed.

        Columns: index (of the aggregation), time, device, age (ticks), capacity (bit/symbol), symbols, budget_bits, sent_bits,
        overhead_bits, num_kept (elements), weight, lost (sent but not received), silent (nothing was sent) and retransmitted;
        with several cells also cell and interference (I/N, linear); with edge servers also edge.
        """
        from fedtide.report.notebook import notebook_frame, notebook_upload_columns

        return notebook_frame(notebook_upload_columns(self.rounds))

    def evaluate(self, samples: Samples | None = None) -> Score:
        """Evaluate the model.

        samples: the samples to use; None: the test set of the experiment.

        Returns: A Score with `accuracy` from 0 to 1 and `loss`, the mean cross-entropy in nats.
        """
        from fedtide.engine.loop import score_model

        system, trainer = self._remade("samples" if samples is None else "")
        return score_model(trainer, self.model, system.dataset.test if samples is None else samples)

    def predict(self, images: Any) -> Ints:
        """Predict the labels of images.

        images: float32 [n channels height width], normalised like the data set (`load_dataset(experiment).test.images`), or
        Samples, whose labels are ignored.

        Returns: The predicted labels, integers [n].
        """
        from fedtide.learning.metrics import predict_labels

        system, trainer = self._remade()
        wanted = system.dataset.test.images.shape[1:]
        if not isinstance(images, Samples):
            given = np.ascontiguousarray(images, np.float32)
            images = Samples(given, np.zeros(len(given) if given.ndim else 0, np.uint8))
        if images.images.shape[1:] != wanted:
            raise FedtideError(f"images are {images.images.shape}; this model takes [n, *{wanted}]")
        return predict_labels(trainer, system.model, self.model, images)

    def state_dict(self) -> dict[str, Any]:
        """Return the parameters of the model by layer, with the names of PyTorch's state_dict.

        Returns: For a model described by layers, NumPy arrays; `fedtide.learning.torch.build_module` makes the matching module.
        For your own PyTorch module, its state_dict.
        """
        from fedtide.learning.forward import state_arrays
        from fedtide.learning.model import Model

        system, trainer = self._remade()
        if isinstance(system.model, Model):
            return state_arrays(system.model, self.model)
        made: dict[str, Any] = trainer.module_of(self.model).state_dict()  # type: ignore[attr-defined]  # a TorchTrainer
        return made

    def _remade(self, need: str = "") -> tuple[System, Trainer]:
        """Make the system and the trainer of the experiment once more; need: what a caller has to give if the data was handed."""
        from fedtide.engine.making import load_dataset
        from fedtide.engine.system import build, make_trainer

        if not len(self.model):
            raise FedtideError("this run has no model yet: run it longer")
        if other := [name for name in self.handed if name != "dataset" or need]:
            give = f"give {need}" if other == ["dataset"] else "use that object"
            raise FedtideError(
                f"the {' and '.join(other)} of this run came from Python and cannot be made again: {give}"
            )
        system = build(self.experiment, dataset=load_dataset(self.experiment))
        return system, make_trainer(system)

    def summary(self) -> dict[str, Any]:
        """Return summary metrics as a dict, such as `final_accuracy`, `best_accuracy` and the totals of bits and symbols."""
        from fedtide.report.summary import summarise

        return summarise(self.experiment, self.rounds, len(self.model) or None)

    def plot(self, ax: Any = None, column: str = "test_accuracy", **style: Any) -> Any:
        """Plot a column over simulated time.

        ax: the Matplotlib Axes to draw into; None: a new figure. column: test_accuracy, test_loss or train_loss. style: keyword
        arguments of Matplotlib's `Axes.plot`, such as `label="random"`.

        Returns: The Axes.
        """
        from fedtide.plot.figure import shown_figure
        from fedtide.plot.run import draw_run

        if column not in _SCORES:
            raise FedtideError(f"column={column!r} is not a score of a model; use one of {', '.join(_SCORES)}")
        if all(getattr(each, column) is None for each in self.rounds):
            need = ": it needs learning.training_loss=true" if column == "train_loss" else "; run it longer"
            raise FedtideError(f"{column} was not measured in the {len(self.rounds)} aggregations of this run{need}")
        if ax is not None:
            return draw_run(ax, self.experiment, self.rounds, column, **style)
        with shown_figure(5.2, 3.2) as figure:
            return draw_run(figure.subplots(), self.experiment, self.rounds, column, **style)

    def __repr__(self) -> str:
        summary = self.summary()
        accuracy = summary["final_accuracy"]
        words = [
            f"{len(self.rounds):,} aggregations{'' if self.complete else ' so far (not complete)'}",
            "no test accuracy yet" if accuracy is None else f"test accuracy {accuracy:.4f}",
            f"{summary['bits']:,.0f} bits sent",
        ]
        return f"<Result {self._label()}: {', '.join(words)}>"

    def _label(self) -> str:
        from fedtide.plot.run import describe_run

        text = describe_run(self.experiment).replace("$\\gamma$", "γ")
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

    def _repr_html_(self) -> str:
        from fedtide.plot.figure import inline_figure
        from fedtide.plot.run import draw_run
        from fedtide.report import notebook
        from fedtide.report.summary import summary_texts

        summary = self.summary()
        texts = {**summary_texts(summary), "simulated time": f"{summary['time']:g}"}
        texts["aggregations"] += "" if self.complete else ", not complete"
        facts = notebook.notebook_facts((name, texts[name]) for name in _CARD)
        if summary["final_accuracy"] is None:
            return notebook.notebook_card(self._label(), facts)
        with inline_figure(4.2, 2.4) as figure:
            draw_run(figure.subplots(), self.experiment, self.rounds, "test_accuracy")
            return notebook.notebook_card(self._label(), facts, figure)


# Reading a run back from its folder.


def load(run: Path | str) -> Result:
    """Read a run from its folder. The folder is not changed.

    An interrupted run, or one in progress, has `complete == False`, the rounds up to its last checkpoint, and the model of that
    checkpoint.

    run: the run folder.

    Returns: The result, as `fedtide.simulate` returned it.

    Raises: FedtideError if the folder has no run, or its files are damaged or inconsistent.
    """
    if not isinstance(run, (str, os.PathLike)) or not str(run) or "\0" in str(run):
        raise RunFolderError(
            f"{shown(run)} names no run folder: give the path that `fedtide run` or simulate was given"
        )
    return as_result(read_run(run))


def as_result(run: Run) -> Result:
    """Return a run that was read from its folder."""
    model = np.empty(0, np.float32) if run.checkpoint is None else run.checkpoint.model
    return Result(run.experiment, run.rounds, model, {}, run.complete, tuple(run.versions.handed))
