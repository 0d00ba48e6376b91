"""A report read back from its theory.json, for drawing it again: nothing is measured anew."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.errors import FedtideError
from fedtide.theory.bound import Constants, Curve
from fedtide.theory.command import Report, Row
from fedtide.theory.options import make
from fedtide.theory.sweeps import Point
from fedtide.types import Floats


class StoredErrors(NamedTuple):
    """What was measured, without the single runs."""

    mean: Floats
    half_width: Floats
    squared_error: Floats  # [runs 0]


def read(file: Path) -> Report:
    """Return the report that `fedtide theory --out` wrote; raise if it is none."""
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        options, measured = make(**tree["options"]), tree["measured"]
        errors = StoredErrors(
            np.array(measured["mean"]), np.array(measured["half_width"]), np.empty((options.num_seeds, 0))
        )
        return Report(
            options,
            Constants(**tree["constants"]),
            [Row(symbol, _number(each["value"]), each["how"]) for symbol, each in tree["how"].items()],
            tree["alpha"],
            [_curve(each) for each in tree["bounds"].values()],
            errors,
            {key: [_point(each) for each in points] for key, points in tree["sweeps"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FedtideError(
            f"{file} is no report ({error!r}); `fedtide theory --out FOLDER` writes theory.json"
        ) from error


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _curve(tree: dict[str, Any]) -> Curve:
    values = None if tree["values"] is None else np.array(tree["values"])
    numbers = {name: _number(tree[name]) for name in ("step_limit", "contraction", "asymptote")}
    return Curve(**{**tree, **numbers, "values": values})


def _point(tree: dict[str, Any]) -> Point:
    floors, problems = tree["asymptote"], tree["problem"]
    return Point(
        value=tree["value"],
        constants=Constants(**tree["constants"]),
        alpha=tree["alpha"],
        curves={
            name: Curve(name, math.nan, math.nan, _number(floor), None, problems[name])
            for name, floor in floors.items()
        },
        half_life={name: _number(value) for name, value in tree["half_life"].items()},
        floor=tree["floor"],
        floor_half_width=tree["floor_half_width"],
        measured_half_life=_number(tree["measured_half_life"]),
        settled=tree["settled"],
    )
