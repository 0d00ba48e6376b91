"""The accuracy of guessing, as far as an experiment alone tells it."""

from __future__ import annotations

from typing import Final

from fedtide.config import Experiment

# Labels of the sets that have a fixed number of them; of the others only the data tells.
_LABELS: Final = {
    "mnist": 10,
    "fashion_mnist": 10,
    "cifar10": 10,
    "svhn": 10,
    "synthetic": 10,
    "femnist": 62,
}


def chance(experiment: Experiment) -> float | None:
    """Return what guessing among equally frequent labels reaches; None if the number of labels is not known."""
    data = experiment.data
    if data.name == "cifar100":
        return 1 / 20 if data.args.get("labels") == "coarse" else 1 / 100
    given = data.args.get("num_labels")
    count = given if isinstance(given, int) and given > 0 else _LABELS.get(data.name)
    return 1 / count if count else None
