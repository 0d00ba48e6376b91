"""Selective multiuser diversity (Gesbert and Alouini, "How much feedback is multi-user diversity really worth?", ICC 2004).

    picked at t:  of the ready devices with C_k(t) >= C_th, the R best; fewer than R if there are fewer

C_th: threshold in bit/symbol. In the paper users below a threshold of the SNR keep silent, and the best of the others is
served; here R are. Under equal bits one deep fade starves all, and nobody below the threshold can do so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.scheduling import largest
from fedtide.types import Candidates, Ints, Rng


@dataclass(frozen=True)
class Threshold:
    """The R best channels of those with at least a given capacity; fewer than R if there are fewer."""

    least: Annotated[float, arg("C_th: capacity that is needed", unit="bit/symbol", ge=0)] = 3.0

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Ints:
        """Cut, then sort by C_k(t)."""
        strong = np.flatnonzero(candidates.capacity >= self.least)
        return strong[largest(candidates.capacity[strong], limit)]
