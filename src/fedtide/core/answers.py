"""What a user's part answered, whatever that is: as an array, and in few words."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

MOST_CHARACTERS = 200


def as_array(answer: Any) -> Any:
    """Return what a part answered as an array; one of no dimension, which is no answer, if it holds no plain numbers.

    That is a list of lists of unequal length, an array with entries masked, a tensor that does not become an array.
    """
    try:
        masks = sys.modules.get("numpy.ma")  # not imported for this: without it there are no masks
        return np.array(None) if masks is not None and masks.is_masked(answer) else np.asarray(answer)
    except Exception:  # NumPy's own and whatever the object's conversion raises
        return np.array(None)


def shown(answer: Any) -> str:
    """Return an answer in few words, also if its own words raise."""
    try:
        return " ".join(str(answer).split())[:MOST_CHARACTERS]
    except Exception:
        return f"a {type(answer).__name__}"
