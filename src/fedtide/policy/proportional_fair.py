"""Proportional fair scheduling (Viswanath, Tse and Laroia, "Opportunistic beamforming using dumb antennas", 2002, sec. II).

    picked at t:  the R ready devices with the largest C_k(t) / R_k(t)
    R_k(t+1) = (1 - 1/t_c) R_k(t) + (1/t_c) C_k(t) 1{k picked at t}      for every device, ready or not

R_k: average rate of device k in bit/symbol; t_c: window in ticks; C_k: capacity as the server believes it, which stands for the
rate that a picked device gets. Over a long window sum_k log R_k is largest. The paper picks one user per slot; here R. Ticks at
which nobody was ready count, too. R_k(1) = 1 bit/symbol for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from fedtide.core.arguments import arg
from fedtide.policy.scheduling import largest
from fedtide.types import Candidates, Ints, Memory, Rng

LEAST: Final = 1e-200  # bit/symbol: whoever waits for ever is not forgotten to 0


@dataclass(frozen=True)
class ProportionalFair:
    """The R best channels relative to what each device had on average so far: C_k / R_k."""

    window: Annotated[float, arg("t_c: over which the past is averaged", unit="ticks", gt=1)] = 20.0

    def init(self, num_devices: int) -> Memory:
        """Return R_k(1) in bit/symbol [N], and the last tick that was seen."""
        return {"rate": np.ones(num_devices), "tick": np.zeros((), np.int64)}

    def __call__(self, memory: Memory, candidates: Candidates, limit: int, rng: Rng) -> tuple[Ints, Memory]:
        """Pick by C_k / R_k, then go on with all averages."""
        kept, device = 1 - 1 / self.window, candidates.device
        idle = max(candidates.tick - int(memory["tick"]) - 1, 0)
        rate = np.maximum(memory["rate"] * kept**idle, LEAST)
        picked = largest(candidates.capacity / rate[device], limit)
        rate *= kept
        rate[device[picked]] += candidates.capacity[picked] / self.window
        return picked, {"rate": rate, "tick": np.array(candidates.tick, np.int64)}
