"""What a stored result keeps of every single upload: ragged columns over the aggregations, packed.

EACH has one entry per aggregation, FLAT one per upload, aggregation after aggregation; `counts` says how many each had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedtide.records import RoundRecord
from fedtide.records.columns import MOST, pack, unpack
from fedtide.types import Ints

EACH: Final = {"time": "<f8", "num_ready": "<i8", "counts": "<i8"}
# Capacities to seven digits: they can be drawn again from the seed, and are most of a file.
FLAT: Final = {"picked": "<i8", "age": "<i8", "capacity": "<f4", "lost": "<i8"}  # lost: 1 if it did not arrive


def condensed(rounds: Sequence[RoundRecord]) -> dict[str, str] | None:
    """Return the columns of a run's rounds, packed; None for a run that is too long to keep them."""
    values: dict[str, list[Any]] = {
        "time": [each.time for each in rounds],
        "num_ready": [each.num_ready for each in rounds],
        "counts": [len(each.picked) for each in rounds],
        "picked": [device for each in rounds for device in each.picked],
        "age": [age for each in rounds for age in each.age],
        "capacity": [capacity for each in rounds for capacity in each.capacity],
        "lost": [int(device in each.lost) for each in rounds for device in each.picked],
    }
    if max(map(len, values.values())) > MOST:
        return None
    return {name: pack(np.array(values[name], kind)) for name, kind in (EACH | FLAT).items()}


def offsets(rounds: Mapping[str, str]) -> Ints:
    """Return where the uploads of each aggregation begin, and where the last ones end [n + 1]."""
    return np.concatenate([[0], np.cumsum(unpack(rounds["counts"]))]).astype(np.int64)


def check(rounds: Any, num_devices: int, aggregations: int, uploads: int) -> None:
    """Raise ValueError if these are not the columns of so many aggregations and uploads."""
    if not isinstance(rounds, dict):
        raise ValueError(f"its rounds are a {type(rounds).__name__}, and should be a mapping of columns")
    for names, length in ((EACH, aggregations), (FLAT, uploads)):
        for name, kind in names.items():
            _check_column(name, kind, rounds.get(name), length, num_devices)
    counts = unpack(rounds["counts"])
    if counts.sum() != uploads or (counts > unpack(rounds["num_ready"])).any():
        raise ValueError(f"the counts of its rounds are not those of {uploads} uploads of ready devices")


def _check_column(name: str, kind: str, text: Any, length: int, num_devices: int) -> None:
    try:
        values: npt.NDArray[Any] = unpack(text, min(length, MOST))
    except ValueError as error:
        raise ValueError(f"the {name} of its rounds: {error}") from None
    if values.dtype != np.dtype(kind) or len(values) != length:
        raise ValueError(
            f"the {name} of its rounds has {len(values)} entries of {values.dtype}, and should have {length}"
        )
    most = {"picked": num_devices - 1, "num_ready": num_devices, "counts": num_devices, "lost": 1}.get(name, np.inf)
    if not np.all((values >= 0) & (values <= most) & np.isfinite(values)):
        raise ValueError(f"the {name} of its rounds holds what cannot be: they go from 0 to {most:g}")
