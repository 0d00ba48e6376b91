"""What a stored result must be before its numbers are believed: of a known format, what its name says, and possible."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from fedtide import config
from fedtide.config import Experiment
from fedtide.core import strict_json
from fedtide.errors import FedtideError
from fedtide.records import names_files
from fedtide.studies import uploads
from fedtide.studies.spec import name_of

FORMAT = 3
# The same curves: 1 says nothing of where they come from, 2 nothing of single uploads.
READABLE = (1, 2, FORMAT)
MOST_BYTES = 2**27  # of the text inside: some 700,000 evaluations; beyond that it is no result


class Form(NamedTuple):
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
FORMS: Final[Mapping[str, Form]] = {
    "index": Form(whole=True),
    "time": Form(grows=True),
    "test_accuracy": Form(1.0),
    "test_loss": Form(optional=True),
    "train_loss": Form(optional=True),
    "symbols": Form(grows=True),
    "bits": Form(grows=True),
    "samples_used": Form(whole=True, grows=True),
    "samples_trained": Form(whole=True, grows=True),
    "control_bits": Form(grows=True),
    "bits_down": Form(grows=True),
    "air_time": Form(grows=True),
    "joules": Form(grows=True),
}
COLUMNS = tuple(FORMS)
ZERO = ("control_bits", "air_time", "joules")  # columns that are there only if anything was spent
UNKNOWN = ("bits_down",)  # columns that older results do not have
TOTALS: Final[Mapping[str, Form]] = {
    "aggregations": Form(whole=True),
    "uploads": Form(whole=True),
    "mean_kept_share": Form(1.0, optional=True),
    "mean_age": Form(optional=True),
    "mean_label_variance": Form(optional=True),
    "proved_minimal_share": Form(1.0, optional=True),
    "seconds": Form(optional=True),
    "overhead_bits": Form(whole=True),
    "num_labels": Form(256.0, whole=True),
    "diverged": Form(),  # the time; a run that stayed finite has none
}
LATER = (
    "overhead_bits",
    "num_labels",
    "diverged",
)  # the first results were stored without; of ten labels nothing is said


class OtherFormatError(ValueError):
    """A result of a format that this version does not know."""


def unpack(content: bytes) -> dict[str, Any]:
    """Return what a result's file holds as plain data; raise ValueError if that cannot be had from it."""
    tree = strict_json.parse(_unzipped(content))
    if not isinstance(tree, dict) or "format" not in tree:
        raise ValueError("it says no format")
    if type(tree["format"]) is not int or tree["format"] not in READABLE:
        raise OtherFormatError(
            f"is a result of format {_short(tree['format'])}, and this fedtide reads {', '.join(map(str, READABLE))}"
        )
    return tree


def pack(tree: Mapping[str, Any]) -> bytes:
    """Return a result's file: the same bytes for the same data."""
    return gzip.compress(json.dumps(tree, separators=(",", ":"), allow_nan=False).encode(), 9, mtime=0)


def _unzipped(content: bytes) -> bytes:
    """Return the text inside, if it is not beyond all bounds: a small file may hold gigabytes of zeros."""
    unzip = zlib.decompressobj(wbits=31)  # gzip
    try:
        text = unzip.decompress(content, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if unzip.unconsumed_tail:
        raise ValueError(f"it holds more than {MOST_BYTES:,} bytes")
    if not unzip.eof:
        raise ValueError("it ends too early")
    if unzip.unused_data:
        raise ValueError("something comes after its end")
    return text


def check(tree: Mapping[str, Any], name: str) -> None:
    """Raise ValueError if a result is not what its name says, or holds what cannot be."""
    for part in ("experiment", "columns", "totals"):
        if not isinstance(tree.get(part), dict):
            raise ValueError(f"its {part} is {_short(tree.get(part))}, and should be a mapping")
    source = tree.get("provenance")
    _check_source(source)
    experiment = _check_name(tree["experiment"], source, name)
    _check_columns(tree["columns"], experiment.timeline.horizon)
    for total, form in TOTALS.items():
        if total in tree["totals"] or total not in LATER:
            form.check(f"its {total}", tree["totals"].get(total, ...))
    last, evaluated = tree["totals"]["aggregations"], tree["columns"]["index"][-1]
    if last != evaluated and not (last < evaluated and "diverged" in tree["totals"]):  # a run is evaluated at its end
        raise ValueError(f"its {last} aggregations do not end with the last that was evaluated, {evaluated}")
    if tree.get("rounds") is not None:
        uploads.check(tree["rounds"], experiment.fleet.num_devices, last, tree["totals"]["uploads"])


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
    columns = {name: columns.get(name) for name in COLUMNS if name in columns or name not in (*ZERO, *UNKNOWN)}
    for name in columns:
        if not isinstance(columns.get(name), list) or not columns[name]:
            raise ValueError(f"its column {name} is {_short(columns.get(name))}, and should be a list of numbers")
    if len(set(map(len, columns.values()))) > 1:
        raise ValueError("its columns are not of equal length")
    for name, values in columns.items():
        form = FORMS[name]
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
