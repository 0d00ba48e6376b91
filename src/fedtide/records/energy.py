"""What a run costs in energy by prices: so much per symbol on the air, so much per sample that a device trains on.

Runs count their joules themselves; this is for records of older formats, which do not hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide.config import Experiment
from fedtide.types import Floats

UNPRICED = (
    "radio.joules_per_symbol and fleet.joules_per_sample are both 0: give one, or another fleet.energy, to count energy"
)


class Prices(NamedTuple):
    """Energy per piece of work, in J; 0: not counted."""

    joules_per_symbol: float = 0.0  # sent
    joules_per_sample: float = 0.0  # visited in training, whether its update was used or not

    @property
    def known(self) -> bool:
        """Is any of them given?"""
        return any(self)


def prices(experiment: Experiment | Mapping[str, Any]) -> Prices:
    """Return the prices of an experiment, or of one as a stored result has it; one that is older than the keys has none.

    One with an energy of another kind has none either.
    """
    if _named(experiment) != "per_unit":
        return Prices()
    return Prices(
        _value(experiment, "radio", "joules_per_symbol"),
        _value(experiment, "fleet", "joules_per_sample"),
    )


def _named(experiment: Any) -> str:
    if isinstance(experiment, Mapping):
        return str(experiment.get("fleet", {}).get("energy", "per_unit"))
    return str(experiment.fleet.energy)


def _value(experiment: Any, group: str, key: str) -> float:
    if isinstance(experiment, Mapping):
        return float(experiment.get(group, {}).get(key, 0.0))
    return float(getattr(getattr(experiment, group), key, 0.0))


def joules(
    symbols: npt.ArrayLike, samples_trained: npt.ArrayLike, joules_per_symbol: float, joules_per_sample: float
) -> Floats:
    """Return the energy spent so far in J [n], from the symbols sent and the samples trained on so far [n]."""
    spent = joules_per_symbol * np.asarray(symbols, np.float64) + joules_per_sample * np.asarray(
        samples_trained, np.float64
    )
    return np.asarray(spent)
