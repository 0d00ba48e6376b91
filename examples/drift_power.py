"""A joint decision: drift plus penalty with power, so that every device keeps to an average energy per aggregation.

fedtide run policy.scheduler=examples/drift_power.py:DriftPower radio.joules_per_symbol=1e-6 radio.max_power=4

A virtual queue Z_k counts what device k has spent beyond its budget (Neely, "Stochastic network optimization with application
to communication and queueing systems", 2010). At every aggregation the power p of a link maximises V log2(1 + p SNR_k) - Z_k e p,
which is water-filling: p = V / (Z_k e ln 2) - 1/SNR_k, cut off at 0 and at the largest power. The R largest values upload.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide import Decision, arg


@dataclass(frozen=True)
class DriftPower:
    """budget: J per aggregation and device, on average. value: V. joules_per_symbol: e, at nominal power."""

    budget: float = 0.01
    value: float = 1e-4
    joules_per_symbol: Annotated[float, arg("of sending one", unit="J", key="radio.joules_per_symbol")] = 1e-6

    def init(self, num_devices):
        """Return Z_k(1) in J [N], and the last aggregation that was seen."""
        return {"queue": np.zeros(num_devices), "tick": np.zeros((), np.int64)}

    def __call__(self, memory, candidates, limit, rng):
        """Choose powers, then devices; go on with all queues."""
        uplink, idle = candidates.uplink, max(candidates.tick - int(memory["tick"]) - 1, 0)
        queue = np.maximum(memory["queue"] - idle * self.budget, 0.0)
        owed, snr = queue[candidates.device], uplink.snr.mean(axis=1)
        symbols = uplink.symbols / limit
        price = owed * self.joules_per_symbol * symbols
        with np.errstate(divide="ignore"):
            power = np.clip(self.value / (price * np.log(2)) - 1 / snr, 0.0, uplink.max_power)
        worth = self.value * uplink.capacity(power).mean(axis=1) - price * power
        best = np.argsort(-worth, kind="stable")[:limit]
        best = best[power[best] > 0]
        spent = np.zeros(len(queue))
        spent[candidates.device[best]] = power[best] * self.joules_per_symbol * symbols
        memory = {"queue": np.maximum(queue + spent - self.budget, 0.0), "tick": np.array(candidates.tick)}
        return Decision(best, np.full(len(best), symbols), power=power[best]), memory
