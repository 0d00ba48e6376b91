"""FedAsync with its hinge: the share of a device's model falls only beyond some age.

Xie, Koyejo, Gupta, Asynchronous federated optimization (2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedtide.core.arguments import arg
from fedtide.policy.combining import Mix
from fedtide.policy.streaming import Sums, fed
from fedtide.types import Floats, Ints, Vector


@dataclass(frozen=True)
class MixHinge:
    """FedAsync: theta(t+1) = (1-m) theta(t) + m sum_k w_k [theta_k(t,0) + u_k], m = mixing s(mean age).

    s(x) = 1 if x <= b, else 1 / (a (x - b) + 1). The paper has one device at a time, whose age the mean is. Its other two, the
    constant and (1 + x)^-a, are `mix`.
    """

    takes_sum: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    mixing: Annotated[float, arg("alpha: share of the device's model", gt=0, le=1)] = 0.4
    slope: Annotated[float, arg("a: how fast the share falls beyond the window", ge=0)] = 1.0
    window: Annotated[float, arg("b: age up to which the share stays whole", unit="ticks", ge=0)] = 4.0

    def __call__(self, model: Vector, starts: Vector, updates: Vector, weights: Floats, age: Ints) -> Vector:
        """Move towards the devices' models."""
        made: Vector = fed(self.begin(model, weights, age), starts, updates)
        return made

    def begin(self, model: Vector, weights: Floats, age: Ints) -> Sums:
        """Begin to take models one after the other."""
        beyond = max(float(weights @ age) - self.window, 0.0)
        return Mix(self.mixing / (self.slope * beyond + 1)).begin(model, weights, age)
