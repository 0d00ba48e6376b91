"""How much each arrived update counts. A weighting is a callable (num_samples [r], age [r]) -> weights [r], sum 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

import numpy as np

from fedtide.core.arguments import arg
from fedtide.types import Floats, Ints


class Weighting(Protocol):
    """Weighs what arrived."""

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Return weights [r] that are not negative and sum to 1."""
        ...


@dataclass(frozen=True)
class AgeAware:
    """w_k proportional to |S_k| gamma^{a_k} (eq:wk_t_age): age_base (gamma) > 1 favours old, < 1 fresh, 1 neither."""

    age_base: Annotated[float, arg("gamma: below 1 favours fresh updates", key="policy.age_base", gt=0)] = 1.0

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Powers are taken relative to the heaviest age, so that no age can overflow them."""
        heaviest = age.max() if self.age_base > 1 else age.min()
        weight = num_samples * self.age_base ** (age - heaviest).astype(np.float64)
        return np.asarray(weight / math.fsum(weight))


@dataclass(frozen=True)
class Uniform:
    """Every arrived update counts the same."""

    def __call__(self, num_samples: Ints, age: Ints) -> Floats:
        """Return 1/r each."""
        return np.full(len(age), 1 / len(age))


WEIGHTINGS: Final[dict[str, Callable[..., Weighting]]] = {"age_aware": AgeAware, "uniform": Uniform}
