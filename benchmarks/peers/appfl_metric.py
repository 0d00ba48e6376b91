"""The metric that APPFL's trainer computes after every epoch, of what it gathered anyway."""

from __future__ import annotations

import numpy as np


def share_right(labels: np.ndarray, outputs: np.ndarray) -> float:
    """Return the share of right answers. labels [n], outputs [n c]."""
    return float(np.mean(outputs.argmax(1) == labels))
