"""What else is measured of a model, besides accuracy and loss: `learning.metrics`, a list of parts.

A metric is a callable (model [d], context) -> numbers by name, asked whenever the model is scored. It depends on its arguments
alone and changes nothing of a run. What it measures is in the records (`metrics`), frames, exports, pages and `--metric`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import numpy as np

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning.forward import model_logits
from fedtide.learning.model import Model, needs_torch
from fedtide.parts.arguments import arg
from fedtide.parts.checks import part_label
from fedtide.types import Ints, MetricContext, Samples, Vector

_LONGEST_NAME: Final = 100  # characters


ModelMetric: TypeAlias = Callable[[Vector, MetricContext], Mapping[str, float]]


def predict_labels(trainer: Any, description: Any, model: Vector, samples: Samples) -> Ints:
    """Return the label that a model [d] gives each sample [n]: by the trainer's own `predict`, or from its description."""
    if callable(own := getattr(trainer, "predict", None)):
        return np.asarray(own(model, samples))
    if not isinstance(description, Model) or needs_torch(description):
        raise FedtideError(
            "labels cannot be predicted: the trainer has no predict(model, samples) -> labels [n], and the model no "
            "description that NumPy can follow; add that method, or use learning.trainer=torch"
        )
    return np.asarray(model_logits(description, model, samples.floats()).argmax(axis=1))


def measure_model(metrics: Sequence[ModelMetric], model: Vector, context: MetricContext) -> dict[str, float]:
    """Return what all metrics say of a model, by name; raise if one of them says anything but finite numbers."""
    found: dict[str, float] = {}
    for metric in metrics:
        label, answer = part_label("metric", metric), metric(model, context)
        if not isinstance(answer, Mapping):
            raise TrainingError(f"{label} returned {shown(answer, 80)}: it must give numbers by name")
        for name, value in answer.items():
            if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
                raise TrainingError(f"{label} named a number {shown(name, 80)}: a name is a short text")
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
                raise TrainingError(f"{label} returned {name}={shown(value, 80)}: it must be a finite number")
            if name in found:
                raise TrainingError(f"{label} measures {name!r}, which another of learning.metrics does: rename one")
            found[name] = float(value)
    return found


@dataclass(frozen=True)
class PerClassAccuracy:
    """Accuracy on the test samples of each label, its mean and its worst; labels without samples are left out."""

    def __call__(self, model: Vector, context: MetricContext) -> dict[str, float]:
        """Return class_accuracy/mean, class_accuracy/worst and class_accuracy/LABEL."""
        labels = context.test.labels
        found = {
            f"class_accuracy/{label}": context.score(context.test.taken(np.flatnonzero(labels == label))).accuracy
            for label in np.unique(labels).tolist()
        }
        values = list(found.values())
        return {"class_accuracy/mean": float(np.mean(values)), "class_accuracy/worst": min(values), **found}


@dataclass(frozen=True)
class PerDeviceAccuracy:
    """Accuracy on what each device holds: its mean, the mean of the worst tenth, its standard deviation (fairness)."""

    most: Annotated[
        int, arg("largest number of devices measured; of larger fleets, an evenly spaced sample", ge=1, le=10**6)
    ] = 100

    def __call__(self, model: Vector, context: MetricContext) -> dict[str, float]:
        """Return device_accuracy/mean, /worst_tenth and /std."""
        count = len(context.holdings)
        asked = np.arange(count)
        if count > self.most:
            asked = np.linspace(0, count - 1, self.most).astype(np.int64)
        held = [context.holdings[int(device)] for device in asked]
        values = np.sort([context.score(context.train.taken(each)).accuracy for each in held if len(each)])
        if not len(values):
            raise TrainingError("metric=per_device_accuracy: no device holds samples here; leave it out")
        worst = values[: max(1, math.ceil(len(values) / 10))]
        return {
            "device_accuracy/mean": float(values.mean()),
            "device_accuracy/worst_tenth": float(worst.mean()),
            "device_accuracy/std": float(values.std()),
        }


@dataclass(frozen=True)
class Confusion:
    """Which labels are confused: the share of a label's test samples that are predicted as each other label."""

    most: Annotated[int, arg("largest number of labels; with more there would be too many numbers", ge=2, le=64)] = 16

    def __call__(self, model: Vector, context: MetricContext) -> dict[str, float]:
        """Return confusion/TRUE_as_GIVEN for every two labels that differ."""
        labels, count = context.test.labels, context.num_labels
        if count > self.most:
            raise TrainingError(
                f"metric=confusion: {count} labels make {count * (count - 1):,} numbers; raise most={self.most} (up to 64) or "
                "measure per_class_accuracy"
            )
        given = np.asarray(context.predict(context.test))
        return {
            f"confusion/{true}_as_{other}": float(np.mean(given[labels == true] == other))
            for true in np.unique(labels).tolist()
            for other in range(count)
            if other != true
        }


METRIC_PARTS: Final[dict[str, Callable[..., ModelMetric]]] = {
    "per_class_accuracy": PerClassAccuracy,
    "per_device_accuracy": PerDeviceAccuracy,
    "confusion": Confusion,
}
