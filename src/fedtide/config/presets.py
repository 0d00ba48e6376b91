"""Frameworks and profiles: whose values fill what an experiment leaves out."""

from __future__ import annotations

import math
from typing import Any

# A framework is a composition of timeline, scheduler, aggregation and learning; each entry is what differs from the default.
# "=group.key" stands for the value of another key.
FRAMEWORKS: dict[str, dict[str, Any]] = {
    "periodic": {},
    "fedavg": {"timeline": {"name": "synchronous"}, "learning": {"proximal": 0.0}},
    "fedasync": {
        "timeline": {"name": "per_arrival"},
        "policy": {"scheduler": "random", "limit": 1, "combiner": "mix", "combiner_args": {"mixing": 0.4}},
        "learning": {"evaluate_every": 0.25},
    },
    "fedbuff": {
        "timeline": {"name": "buffered", "args": {"waits": False}},
        # everyone in the buffer counts, unless told otherwise
        "policy": {
            "scheduler": "random",
            "limit": "=timeline.buffer_size",
            "weighting": "uniform",
            "combiner": "buffered_mean",
        },
    },
}


# What the authors' released code used where it differs from the text.
PROFILES: dict[str, dict[str, Any]] = {
    "paper": {},
    "released-code": {
        "radio": {"snr_db": 10 * math.log10(20)},
        "codec": {"name": "sparse_quantized", "args": {"whole_bits": True}, "element_bits": 3},
        "policy": {"scheduler": "best_of_random_subsets"},
        "learning": {"proximal": 0.0},
    },
}
