"""Many cosines at once, in single precision where it is enough: sums of sinusoids are asked for at every tick."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.types import Floats

Singles: TypeAlias = npt.NDArray[np.float32]


def cosine(cycles: Floats) -> Singles:
    """Return cos(2 pi cycles), exact to single precision for any number of cycles; what it is given is written over."""
    cycles -= np.floor(cycles)  # in double precision: what is left of a turn is exact enough in single
    cycles *= 2 * np.pi
    return np.asarray(np.cos(cycles.astype(np.float32)))


def sum_of_rows(rows: Singles) -> Floats:
    """Return the sum of the rows [m], one row after the other: NumPy's own order depends on how many columns there are."""
    total: Floats = rows[0].astype(np.float64)
    for row in rows[1:]:
        total += row
    return total
