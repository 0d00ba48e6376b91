"""What a stored result keeps of every single upload: ragged columns over the aggregations, packed.

EACH has one entry per aggregation, FLAT one per upload, aggregation after aggregation; `counts` says how many each had.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide import config
from fedtide.config import Experiment
from fedtide.core import reading
from fedtide.errors import FedtideError
from fedtide.runs import RoundRecord, names_files
from fedtide.runs.record import MOST_COLUMN_ENTRIES, pack_column, unpack_column
from fedtide.studies.spec import name_of
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
    if max(map(len, values.values())) > MOST_COLUMN_ENTRIES:
        return None
    return {name: pack_column(np.array(values[name], kind)) for name, kind in (EACH | FLAT).items()}


def offsets(rounds: Mapping[str, str]) -> Ints:
    """Return where the uploads of each aggregation begin, and where the last ones end [n + 1]."""
    return np.concatenate([[0], np.cumsum(unpack_column(rounds["counts"]))]).astype(np.int64)


def check_uploads(rounds: Any, num_devices: int, aggregations: int, uploads: int) -> None:
    """Raise ValueError if these are not the columns of so many aggregations and uploads."""
    if not isinstance(rounds, dict):
        raise ValueError(f"its rounds are a {type(rounds).__name__}, and should be a mapping of columns")
    for names, length in ((EACH, aggregations), (FLAT, uploads)):
        for name, kind in names.items():
            _check_column(name, kind, rounds.get(name), length, num_devices)
    counts = unpack_column(rounds["counts"])
    if counts.sum() != uploads or (counts > unpack_column(rounds["num_ready"])).any():
        raise ValueError(f"the counts of its rounds are not those of {uploads} uploads of ready devices")


def _check_column(name: str, kind: str, text: Any, length: int, num_devices: int) -> None:
    try:
        values: npt.NDArray[Any] = unpack_column(text, min(length, MOST_COLUMN_ENTRIES))
    except ValueError as error:
        raise ValueError(f"the {name} of its rounds: {error}") from None
    if values.dtype != np.dtype(kind) or len(values) != length:
        raise ValueError(
            f"the {name} of its rounds has {len(values)} entries of {values.dtype}, and should have {length}"
        )
    most = {"picked": num_devices - 1, "num_ready": num_devices, "counts": num_devices, "lost": 1}.get(name, np.inf)
    if not np.all((values >= 0) & (values <= most) & np.isfinite(values)):
        raise ValueError(f"the {name} of its rounds holds what cannot be: they go from 0 to {most:g}")


# What a stored result must be before its numbers are believed: of a known format, what its name says, and possible.


RESULT_FORMAT = 3
# The same curves: 1 says nothing of where they come from, 2 nothing of single uploads.
_READABLE = (1, 2, RESULT_FORMAT)
MOST_RESULT_BYTES = 2**27  # of the text inside: some 700,000 evaluations; beyond that it is no result


class _NumberForm(NamedTuple):
    """What the values of a column or a total may be; from zero on."""

    highest: float = math.inf
    whole: bool = False
    optional: bool = False  # may be null: not measured, or not a finite number
    grows: bool = False  # never falls from one evaluation to the next

    def check(self, what: str, value: object) -> None:
        """Raise ValueError for a value that cannot be."""
        if value is None and self.optional:
            return
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            kind = "a whole number" if self.whole else "a number"
            raise ValueError(f"{what} is {_short(value)}, and should be {kind}")
        if not 0 <= value <= self.highest or value > _LARGEST:
            beyond = f" to {self.highest:g}" if math.isfinite(self.highest) else " on"
            raise ValueError(f"{what} is {_short(value)}, and should be from 0{beyond}")


_LARGEST = 1e300  # a whole number of any length is JSON
# One value per evaluation.
_FORMS: Final[Mapping[str, _NumberForm]] = {
    "index": _NumberForm(whole=True),
    "time": _NumberForm(grows=True),
    "test_accuracy": _NumberForm(1.0),
    "test_loss": _NumberForm(optional=True),
    "train_loss": _NumberForm(optional=True),
    "symbols": _NumberForm(grows=True),
    "bits": _NumberForm(grows=True),
    "samples_used": _NumberForm(whole=True, grows=True),
    "samples_trained": _NumberForm(whole=True, grows=True),
    "control_bits": _NumberForm(grows=True),
    "bits_down": _NumberForm(grows=True),
    "air_time": _NumberForm(grows=True),
    "joules": _NumberForm(grows=True),
}
RESULT_COLUMNS = tuple(_FORMS)
ZERO = ("control_bits", "air_time", "joules")  # columns that are there only if anything was spent
UNKNOWN_COLUMNS = ("bits_down",)  # columns that older results do not have
_TOTALS: Final[Mapping[str, _NumberForm]] = {
    "aggregations": _NumberForm(whole=True),
    "uploads": _NumberForm(whole=True),
    "mean_kept_share": _NumberForm(1.0, optional=True),
    "mean_age": _NumberForm(optional=True),
    "mean_label_variance": _NumberForm(optional=True),
    "proved_minimal_share": _NumberForm(1.0, optional=True),
    "seconds": _NumberForm(optional=True),
    "overhead_bits": _NumberForm(whole=True),
    "num_labels": _NumberForm(256.0, whole=True),
    "diverged": _NumberForm(),  # the time; a run that stayed finite has none
}
_LATER = (
    "overhead_bits",
    "num_labels",
    "diverged",
)  # the first results were stored without; of ten labels nothing is said


class OtherFormatError(ValueError):
    """A result of a format that this version does not know."""


def unpack_result(content: bytes) -> dict[str, Any]:
    """Return what a result's file holds as plain data; raise ValueError if that cannot be had from it."""
    tree = reading.parse_json(_unzipped(content))
    if not isinstance(tree, dict) or "format" not in tree:
        raise ValueError("it says no format")
    if type(tree["format"]) is not int or tree["format"] not in _READABLE:
        raise OtherFormatError(
            f"is a result of format {_short(tree['format'])}, and this fedtide reads {', '.join(map(str, _READABLE))}"
        )
    return tree


def pack_result(tree: Mapping[str, Any]) -> bytes:
    """Return a result's file: the same bytes for the same data."""
    return gzip.compress(json.dumps(tree, separators=(",", ":"), allow_nan=False).encode(), 9, mtime=0)


def _unzipped(content: bytes) -> bytes:
    """Return the text inside, if it is not beyond all bounds: a small file may hold gigabytes of zeros."""
    unzip = zlib.decompressobj(wbits=31)  # gzip
    try:
        text = unzip.decompress(content, MOST_RESULT_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if unzip.unconsumed_tail:
        raise ValueError(f"it holds more than {MOST_RESULT_BYTES:,} bytes")
    if not unzip.eof:
        raise ValueError("it ends too early")
    if unzip.unused_data:
        raise ValueError("something comes after its end")
    return text


def check_result(tree: Mapping[str, Any], name: str) -> None:
    """Raise ValueError if a result is not what its name says, or holds what cannot be."""
    for part in ("experiment", "columns", "totals"):
        if not isinstance(tree.get(part), dict):
            raise ValueError(f"its {part} is {_short(tree.get(part))}, and should be a mapping")
    source = tree.get("provenance")
    _check_source(source)
    experiment = _check_name(tree["experiment"], source, name)
    _check_columns(tree["columns"], experiment.timeline.horizon)
    for total, form in _TOTALS.items():
        if total in tree["totals"] or total not in _LATER:
            form.check(f"its {total}", tree["totals"].get(total, ...))
    last, evaluated = tree["totals"]["aggregations"], tree["columns"]["index"][-1]
    if last != evaluated and not (last < evaluated and "diverged" in tree["totals"]):  # a run is evaluated at its end
        raise ValueError(f"its {last} aggregations do not end with the last that was evaluated, {evaluated}")
    if tree.get("rounds") is not None:
        check_uploads(tree["rounds"], experiment.fleet.num_devices, last, tree["totals"]["uploads"])


def _check_source(source: object) -> None:
    """Raise if what is said about where a result comes from cannot be shown."""
    if source is None:
        return
    if not isinstance(source, dict):
        raise ValueError(f"its provenance is {_short(source)}, and should be a mapping")
    for key in ("fedtide", "commit", "date", "isa", "isa_found_by", "torch"):
        value = source.get(key)
        if value is not None and not (isinstance(value, str) and 0 < len(value) < 100 and value.isprintable()):
            raise ValueError(f"its provenance says {key}={_short(value)}, and should say a short word")
    if source.get("isa") is not None and not re.fullmatch(r"[A-Za-z0-9_]+", source["isa"]):
        raise ValueError(f"its provenance says isa={source['isa']!r}, which is no instruction path")
    files = source.get("files")
    if files is not None and not (isinstance(files, dict) and all(isinstance(each, str) for each in files.values())):
        raise ValueError(f"its provenance says files={_short(files)}, and should say their hashes")


def _check_name(tree: Mapping[str, Any], source: Mapping[str, Any] | None, name: str) -> Experiment:
    """Return a result's experiment; raise if that is not the one that its name stands for."""
    try:
        experiment = config.experiment(tree)
    except FedtideError as error:
        raise ValueError(f"its experiment is none: {error}") from None
    files = (source or {}).get("files") or {}
    if names_files(experiment) and not files:  # older results do not say which files these were
        return experiment
    if name_of(experiment, files) != name:
        raise ValueError(f"it holds the run {name_of(experiment, files)}, not the one that its name says")
    return experiment


def _check_columns(columns: Mapping[str, Any], horizon: float) -> None:
    columns = {
        name: columns.get(name) for name in RESULT_COLUMNS if name in columns or name not in (*ZERO, *UNKNOWN_COLUMNS)
    }
    for name in columns:
        if not isinstance(columns.get(name), list) or not columns[name]:
            raise ValueError(f"its column {name} is {_short(columns.get(name))}, and should be a list of numbers")
    if len(set(map(len, columns.values()))) > 1:
        raise ValueError("its columns are not of equal length")
    for name, values in columns.items():
        form = _FORMS[name]
        for value in values:
            form.check(name, value)
        if form.grows and any(b < a for a, b in _steps(values)):
            raise ValueError(f"{name} falls")
    if columns["index"][0] < 1 or any(b <= a for a, b in _steps(columns["index"])):
        raise ValueError("index does not count upwards from 1")
    if columns["time"][-1] > horizon * (1 + 1e-9):
        raise ValueError(f"time goes to {columns['time'][-1]:g}, beyond the horizon {horizon:g}")
    if any(used > trained for used, trained in zip(columns["samples_used"], columns["samples_trained"], strict=True)):
        raise ValueError("more samples are used than were trained on")


def _steps(values: list[float]) -> Iterable[tuple[float, float]]:
    return itertools.pairwise(values)


def _short(value: object) -> str:
    """Show a value of any size or kind in few characters."""
    if value is None or value is ...:
        return "missing" if value is ... else "null"
    if isinstance(value, int) and abs(value) > 10**30:
        return "a very large number"
    text = repr(value) if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:40]}..."
