"""A joint decision: as many uploads as can be in by a deadline, and the bandwidth that has them in soonest.

fedtide run policy.scheduler=examples/latency_deadline.py:ByDeadline timeline.uploads=wait radio.symbol_rate=1e6

Device k needs B/C_k symbols for B bits. With bandwidth in proportion to that, all finish together, after
T = (sum_k B/C_k) / W: no other division has the last one in sooner. Links that need the fewest symbols come first, so no other
choice serves more devices by the deadline.
"""

from dataclasses import dataclass

import numpy as np

from fedtide import Decision


@dataclass(frozen=True)
class ByDeadline:
    """payload_bits: B. deadline: in units of time."""

    payload_bits: float = 20_000.0
    deadline: float = 0.1

    def __call__(self, candidates, limit, rng):
        """Return the longest prefix of the best links that is in by the deadline."""
        uplink = candidates.uplink
        most = min(uplink.symbols, self.deadline * uplink.symbol_rate)
        best = np.argsort(-candidates.capacity, kind="stable")[:limit]
        needed = self.payload_bits / np.maximum(candidates.capacity[best], 1e-12)
        count = int(np.searchsorted(np.cumsum(needed), most, side="right"))
        picked, symbols = best[:count], needed[:count]
        bits = np.full(count, self.payload_bits)
        return Decision(picked, symbols, bits, share=symbols / max(symbols.sum(), 1e-12))
