"""Yang, Arafa, Quek and Poor, ICASSP 2020: the age of update against the subchannels that it takes to renew it."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedtide import Decision, arg


@dataclass(frozen=True)
class AgeOfUpdate:
    """The most age per subchannel first, as long as subchannels are left."""

    bits: Annotated[float, arg("what an update takes", gt=0)]
    subchannels: Annotated[int, arg("that the band consists of", ge=1)] = 20
    exponent: Annotated[float, arg("f(T) = (T + 1)^exponent; 0: the best channels, whatever their age", ge=0)] = 1.0

    def init(self, num_devices):
        return {"age": np.zeros(num_devices, np.int64)}  # T_k, aggregations since the last upload [N]

    def __call__(self, memory, candidates, limit, rng):
        size = candidates.uplink.symbols / self.subchannels  # symbols of a subchannel
        with np.errstate(divide="ignore"):
            needed = np.ceil(self.bits / candidates.capacity / size)  # subchannels [m]
        gain = (memory["age"][candidates.device] + 1.0) ** self.exponent
        picked, left = [], self.subchannels
        for position in np.argsort(-gain / needed, kind="stable")[:limit]:
            if needed[position] <= left:
                picked.append(position)
                left -= needed[position]
        picked = np.array(picked, np.int64)
        age = memory["age"] + 1
        age[candidates.device[picked]] = 0
        metrics = {"mean_age": age.mean(), "max_age": age.max()}
        bits, share = np.full(len(picked), self.bits), needed[picked] / self.subchannels
        return Decision(picked, needed[picked] * size, bits, share=share, metrics=metrics), {"age": age}
