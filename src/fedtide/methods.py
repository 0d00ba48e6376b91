"""Methods that are several parts at once: each is named here with all of its parts, as `method` of an experiment.

A part of a method works with the others of it only: SCAFFOLD's server reads the control variates that its trainer sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide.errors import FedtideError
from fedtide.types import Vector


class Method(NamedTuple):
    """What a paper publishes: parts that belong together."""

    parts: dict[str, str]  # the part's name by key
    why: str  # why one of them does not work without the others


METHODS: Final[dict[str, Method]] = {
    "scaffold": Method(
        {"learning.trainer": "scaffold", "policy.aggregator": "scaffold"},
        "the trainer sends control variates besides updates, and the aggregator reads both",
    ),
    "ef21": Method(
        {"codec.name": "ef21", "policy.aggregator": "ef21"},
        "the codec sends how updates differ from the last ones, and the aggregator adds these up",
    ),
    "over_the_air": Method(
        {"radio.access": "over_the_air", "codec.name": "ideal"},
        "devices send at once, uncoded, and the server hears the weighted sum of their updates",
    ),
}


def check_methods(name_of: Callable[[str], str]) -> None:
    """Raise if an experiment has one part of a method without the others. name_of: the name of a part by key.

    A user's own part (`file.py:name`) may stand for one of them. Over the air is checked with its access (`engine/over_the_air.py`).
    """
    for method, (parts, why) in METHODS.items():
        if method == "over_the_air":
            continue
        used = [key for key, name in parts.items() if name_of(key) == name]
        for key, name in parts.items() if used else ():
            if (other := name_of(key)) != name and ":" not in other:
                raise FedtideError(f"{used[0]}={method} does not work with {key}={other}: {why}: add {key}={name}")


class Payload(NamedTuple):
    """What travels with SCAFFOLD, down and up."""

    model: Vector  # x or dy [d]
    control: Vector  # S c or S dc [d]


def pack(model: Any, control: Any) -> Vector:
    """Return a payload as the one vector that a codec encodes [2d]."""
    return np.concatenate([model, control]).astype(np.float32)


def unpack(vector: Vector) -> Payload:
    """Return the payload of a vector [2d], or of several [r 2d], as views."""
    num_parameters = (vector.shape[-1] + 1) // 2
    return Payload(vector[..., :num_parameters], vector[..., num_parameters:])
