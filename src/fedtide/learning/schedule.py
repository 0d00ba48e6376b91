"""Learning-rate schedules: a factor for the share of the horizon that has passed when a device receives its model."""

from __future__ import annotations

import numpy as np

from fedtide.types import Floats


def constant(elapsed: Floats) -> Floats:
    """Return 1 always."""
    return np.ones_like(elapsed)


def halved(elapsed: Floats) -> Floats:
    """Return 1 in the first half and 1/2 from half-time on."""
    return np.where(elapsed < 0.5, 1.0, 0.5)


def cosine(elapsed: Floats) -> Floats:
    """Fall from 1 to 0 along half a cosine."""
    return (1 + np.cos(np.pi * elapsed)) / 2


SCHEDULES = {"constant": constant, "halved": halved, "cosine": cosine}
