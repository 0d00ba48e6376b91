"""FedCS's choice of clients; the paper and its symbols are in fedcs.yaml."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedtide import arg


@dataclass(frozen=True)
class FedCs:
    """Ask some clients what they can do, and take as many as fit into a round, those first that lengthen it least."""

    duration: Annotated[Any, arg("t_UD, as clients report it", key="run.duration")]
    coverage: Annotated[Any, arg("SNR, as clients report it", key="run.coverage")]
    update_bits: Annotated[float, arg("D_m", unit="bits", gt=0)]
    greedy: Annotated[bool, arg("false: FedLim, the first that fit in the order in which they were drawn")] = True
    asked: Annotated[int, arg("ceil(K C), clients that are asked in a round", key="fleet.concurrency")] = 10
    deadline: Annotated[float, arg("T_round", key="timeline.period")] = 1.0
    symbol_rate: Annotated[float, arg("of the uplink, shared in turn", key="radio.symbol_rate")] = 1.0
    seed: Annotated[int, arg("of the fleet", key="seed")] = 0

    def __call__(self, idle, count, rng):
        """Return who trains in this round."""
        if count < self.asked:  # a round is on
            return []
        left = list(rng.permutation(len(idle.device))[: self.asked])
        trains = self.duration(self.seed, idle.device, idle.jobs + 1)  # t_UD [m]
        snr = self.coverage(self.seed, idle.device, np.full(len(idle.device), idle.time))
        uploads = self.update_bits / (self.symbol_rate * np.log2(1 + snr))  # t_UL [m]
        chosen, trained, sent = [], 0.0, 0.0
        while left:
            length = np.maximum(trained, trains[left]) + sent + uploads[left]  # of the round with each one more
            at = int(length.argmin()) if self.greedy else 0
            client = left.pop(at)
            if length[at] <= self.deadline:
                chosen, trained, sent = [*chosen, client], max(trained, trains[client]), sent + uploads[client]
        return chosen
