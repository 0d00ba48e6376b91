"""The result of a run: its curves, its totals, its uploads and what made it; and results as rows of CSV tables."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from fedtide import config
from fedtide.config import Experiment, Part
from fedtide.errors import FedtideError
from fedtide.learning.trainer import trainer_backend
from fedtide.report.summary import evaluated_rounds
from fedtide.runs import UNKNOWN_PATH, Ledger, RoundRecord, provenance
from fedtide.types import Floats, Ints

_MOST_UPLOADS: Final = 2**24  # of a run; a longer one is kept without them
_USUAL_LABELS: Final = 10  # of MNIST and most others; a result says how many there are if they are not as many
csv.field_size_limit(2**26)  # bytes of an experiment

# The columns of the tables of numbers, and whether they hold whole numbers.
_CURVES: Final[Mapping[str, type]] = {
    "index": int,
    "time": float,
    "test_accuracy": float,
    "test_loss": float,
    "train_loss": float,
    "symbols": float,
    "bits": float,
    "samples_used": int,
    "samples_trained": int,
    "control_bits": float,
    "bits_down": float,
    "air_time": float,
    "joules": float,
}
_ROUNDS: Final[Mapping[str, type]] = {"index": int, "time": float, "num_ready": int, "uploads": int}
_UPLOADS: Final[Mapping[str, type]] = {"index": int, "device": int, "age": int, "capacity": float, "lost": int}
# Columns after these, in tables of runs that have any: newer ones, and what was measured, as METRIC_PREFIX + its name.
_MORE_CURVES: Final[Mapping[str, type]] = {"symbols_sent": float, "co2_grams": float}
_MORE_UPLOADS: Final[Mapping[str, type]] = {"silent": float, "retransmitted": float}  # 0, 1 or NaN: not known
METRIC_PREFIX: Final = "metrics/"
_HIGHEST: Final = {
    "test_accuracy": 1.0,
    "lost": 1.0,
    "silent": 1.0,
    "retransmitted": 1.0,
}  # of all others any finite number
COLUMNS: Final = (*_CURVES, *_MORE_CURVES)
# Columns that a result has only if anything was spent or counted, and how they are read otherwise.
IF_ABSENT: Final = {
    "control_bits": 0.0, "air_time": 0.0, "joules": 0.0, "bits_down": math.nan, "symbols_sent": math.nan,
    "co2_grams": math.nan,
}  # fmt: skip


class Uploads(NamedTuple):
    """All aggregations [n] of a run, evaluated or not, and all its uploads [u], aggregation after aggregation."""

    time: Floats
    num_ready: Ints
    counts: Ints  # of uploads [n]
    picked: Ints  # the device [u]
    age: Ints
    capacity: npt.NDArray[np.float32]  # bit/symbol, to seven digits: they can be drawn again from the seed
    lost: Ints  # 1 if it did not arrive
    silent: Ints | None = None  # 1 if nothing was sent; None: stored by an older version, which does not tell
    retransmitted: Ints | None = None  # 1 if a lost packet was retransmitted; None: not stored

    @property
    def offsets(self) -> Ints:
        """Where the uploads of each aggregation begin, and where the last ones end [n + 1]."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class RunResult:
    """Curves of a finished run, by column, a few totals, and what made it."""

    experiment: dict[str, Any]
    columns: Mapping[str, npt.NDArray[Any]]  # an entry per evaluation; missing values are NaN
    totals: Mapping[str, float | None]
    provenance: dict[str, Any] | None = None  # None: not known
    elsewhere: tuple[RunResult, ...] = ()  # the same run on other instruction paths, as the store has it
    sent: Uploads | Callable[[], Uploads | None] | None = None  # for `uploads`; None: not stored, or too many
    measured: dict[str, float] = field(default_factory=dict, init=False, repr=False)  # metrics, each computed once

    def column(self, name: str) -> Floats:
        """Return one curve, an entry per evaluation; missing values are NaN."""
        if name in self.columns or not (name in IF_ABSENT or name.startswith(METRIC_PREFIX)):
            return np.asarray(self.columns[name], np.float64)
        return np.full(len(self.columns["time"]), IF_ABSENT.get(name, math.nan))

    def uploads_if_stored(self) -> Uploads | None:
        """Return all aggregations and uploads, which are read when they are asked for; None if they were not stored."""
        return self.sent() if callable(self.sent) else self.sent

    @property
    def uploads(self) -> Uploads:
        """All aggregations and uploads."""
        found = self.uploads_if_stored()
        if found is None:
            raise FedtideError("this result was stored without its single uploads; run it again to have them")
        return found

    @property
    def counts_grants(self) -> bool:
        """Do its air_time and joules count what was granted? Those of newer versions count what was sent."""
        return bool({"air_time", "joules"} & {*self.columns}) and "symbols_sent" not in self.columns

    @property
    def metrics(self) -> list[str]:
        """What else was measured, by the names of columns."""
        return sorted(name for name in self.columns if name.startswith(METRIC_PREFIX))

    @property
    def seed(self) -> int:
        """The seed of its draws."""
        return int(self.experiment["seed"])

    @property
    def horizon(self) -> float:
        """For how long it ran."""
        return float(self.experiment["timeline"]["horizon"])

    @property
    def max_duration(self) -> float:
        """The longest computation, T_max."""
        return float(self.experiment["fleet"]["max_duration"])

    @property
    def diverged(self) -> float | None:
        """When its numbers did not stay finite; from then on it counts as a guess. None: they did."""
        return self.totals.get("diverged")

    @property
    def chance(self) -> float:
        """The accuracy of a guess."""
        return 1 / (self.totals.get("num_labels") or _USUAL_LABELS)

    @cached_property
    def backend(self) -> str:
        """Who did the steps of the training."""
        return trainer_backend(Part.of(self.experiment.get("learning", {}).get("trainer", "native")))

    @cached_property
    def path(self) -> str:
        """The instruction path on which it was made, or the package that trained; other paths give other bits."""
        known, trainer = self.provenance or {}, self.backend
        if trainer == "native":
            return str(known.get("isa") or UNKNOWN_PATH)
        return f"{trainer} {known.get(trainer) or UNKNOWN_PATH}"

    @property
    def paths(self) -> list[str]:
        """The instruction paths on which the store has it, its own first."""
        return [self.path, *(other.path for other in self.elsewhere)]


def core_seconds(runs: Sequence[RunResult]) -> float:
    """Return the time of one core that some runs took; those that were stopped and resumed count as the mean of the others."""
    known = [seconds for run in runs if (seconds := run.totals.get("seconds")) is not None]
    return math.fsum(known) * len(runs) / max(len(known), 1)


SeedResults = Mapping[str, Mapping[int, RunResult]]  # variant -> seed -> result


def results_from_rounds(
    experiment: Experiment,
    rounds: Sequence[RoundRecord],
    num_parameters: int,
    seconds: float | None,
    num_labels: int = _USUAL_LABELS,
    left: Sequence[tuple[int, float]] = (),
) -> RunResult:
    """Condense the rounds of a run.

    left: the evaluations (index, time) of a run that diverged, from that moment on. It counts as a guess there, with
    accuracy 1/num_labels and loss log(num_labels), and spends no more.
    """
    kept = [num_kept / num_parameters for record in rounds for num_kept in record.num_kept]
    sent = [record for record in rounds if record.picked]
    proved = [record.proved_minimal for record in rounds if record.proved_minimal is not None]
    totals: dict[str, float | None] = {
        "aggregations": len(rounds),
        "uploads": len(kept),
        "mean_kept_share": float(np.mean(kept)) if kept else None,
        "mean_age": float(np.mean([age for record in sent for age in record.age])) if sent else None,
        "mean_label_variance": float(np.mean([record.label_variance for record in sent])) if sent else None,
        "proved_minimal_share": float(np.mean(proved)) if proved else None,
        "overhead_bits": sum(bits for record in rounds for bits in record.overhead_bits),
        "num_labels": num_labels if num_labels != _USUAL_LABELS else None,
        "diverged": left[0][1] if left else None,
        # Wall time, None if not done in one go; the one number that may differ between repetitions.
        "seconds": None if seconds is None else round(seconds, 1),
    }
    rows: list[dict[str, Any]] = [
        {
            **record._asdict(),
            **record.ledger._asdict(),
            **{f"{METRIC_PREFIX}{name}": x for name, x in record.metrics.items()},
        }
        for record in evaluated_rounds(rounds)
    ]
    measured = sorted({name for row in rows for name in row if name.startswith(METRIC_PREFIX)})
    spent, loss = rounds[-1].ledger if rounds else Ledger(), math.log(num_labels)
    guess = {"test_accuracy": 1 / num_labels, "test_loss": loss, **spent._asdict()}
    guess["train_loss"] = loss if experiment.learning.training_loss else None
    rows += [{"index": index, "time": when, **guess} for index, when in left]
    columns = _column_arrays({name: [row.get(name) for row in rows] for name in (*COLUMNS, *measured)})
    uploads = None
    if max(len(rounds), len(kept)) <= _MOST_UPLOADS:
        uploads = Uploads(
            np.array([record.time for record in rounds], np.float64),
            np.array([record.num_ready for record in rounds], np.int64),
            np.array([len(record.picked) for record in rounds], np.int64),
            np.array([device for record in rounds for device in record.picked], np.int64),
            np.array([age for record in rounds for age in record.age], np.int64),
            np.array([capacity for record in rounds for capacity in record.capacity], np.float32),
            *(_fate_of_uploads(rounds, fate) for fate in ("lost", "silent", "retransmitted")),
        )
    return RunResult(config.dump(experiment), columns, totals, provenance(experiment), sent=uploads)


def _fate_of_uploads(rounds: Sequence[RoundRecord], fate: str) -> Ints:
    """Return 1 for every upload that was lost, silent or retransmitted [u]."""
    those = [(record.picked, set(getattr(record, fate))) for record in rounds]
    return np.array([device in some for picked, some in those for device in picked], np.int64)


def _column_arrays(columns: Mapping[str, Sequence[float | None]]) -> dict[str, npt.NDArray[Any]]:
    """Return curves as arrays, None as NaN; without those of IF_ABSENT of which nothing was spent."""
    return {
        name: np.array(values, _CURVES.get(name, float))
        for name, values in columns.items()
        if name not in IF_ABSENT or any(values) or (name in _MORE_CURVES and None not in values)
    }


# Results as rows of four tables, joined by the number of the run, and back. What was edited by hand is noticed by its
# checksum (`store`); here, every cell is of the kind of its column, and every run has what is computed with.


_Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(ge=0, le=1e300)]
_Word = Annotated[str, Field(min_length=1, max_length=99, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]


class _Row(BaseModel):
    """A row of the table of runs."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    run: _Whole
    name: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
    aggregations: _Whole
    uploads: _Whole
    mean_kept_share: _Share | None
    mean_age: _Positive | None
    mean_label_variance: _Positive | None
    proved_minimal_share: _Share | None
    overhead_bits: _Whole | None
    num_labels: Annotated[int, Field(ge=1, le=256)] | None
    diverged: _Positive | None  # the time
    seconds: _Positive | None
    provenance: Json[dict[str, _Word | dict[str, str] | None] | None]
    experiment: Json[dict[str, Any]]


_RUN_COLUMNS: Final = tuple(_Row.model_fields)
_TOTALS: Final = _RUN_COLUMNS[2:-2]
_IN_HEADER: Final = "/ ()[]{}:;.-_+=<>@#&$!*?|^~'"  # written as they are in the head of a table
NamedResult = tuple[str, RunResult]  # a run's name, and its result
_Columns = Sequence[npt.NDArray[Any]]


def write_result_tables(results: Sequence[NamedResult]) -> dict[str, bytes]:
    """Return named results as CSV: runs, curves, rounds and uploads."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_RUN_COLUMNS)
    curves: list[_Columns] = []
    rounds: list[_Columns] = []
    uploads: list[_Columns] = []
    names = [*_CURVES, *(name for name in _MORE_CURVES if any(name in result.columns for _, result in results))]
    names += sorted({name for _, result in results for name in result.metrics})
    stored = [result.uploads_if_stored() for _, result in results]
    fates = [name for name in _MORE_UPLOADS if any(sent is not None and _is_told(sent, name) for sent in stored)]
    for number, (name, result) in enumerate(results):
        trees = (json.dumps(tree, separators=(",", ":")) for tree in (result.provenance, result.experiment))
        rows.writerow([number, name, *(result.totals.get(total) for total in _TOTALS), *trees])
        unknown = np.full(len(result.columns["time"]), np.nan)
        curves.append([result.columns.get(column, unknown) for column in names])
        sent = stored[number]
        index = np.arange(1, len(sent.time) + 1) if sent else np.arange(0)
        rounds.append([index, sent.time, sent.num_ready, sent.counts] if sent else [])
        more = [_fate(sent, name) for name in fates] if sent else []
        uploads.append([np.repeat(index, sent.counts), *sent[3:7], *more] if sent else [])
    return {
        "runs": text.getvalue().encode(),
        "curves": _table_text([quote(name, _IN_HEADER) for name in names], curves),
        "rounds": _table_text(_ROUNDS, rounds),
        "uploads": _table_text([*_UPLOADS, *fates], uploads),
    }


def _fate(sent: Uploads, name: str) -> Floats:
    """Return which uploads were silent or retransmitted as 0 and 1 [u]; NaN: not known."""
    found = getattr(sent, name)
    return np.full(len(sent.lost), np.nan if name == "silent" else 0.0) if found is None else found.astype(np.float64)


def _is_told(sent: Uploads, name: str) -> bool:
    """Say whether uploads tell something with a column: who was silent, always; who retransmitted, if any did."""
    found = getattr(sent, name)
    return found is not None and (name == "silent" or bool(found.any()))


def _table_text(names: Iterable[str], blocks: Sequence[_Columns]) -> bytes:
    lines = [",".join(("run", *names))]
    for number, columns in enumerate(blocks):
        lines += (f"{number},{','.join(cells)}" for cells in zip(*map(_digits, columns), strict=True))
    return "\n".join([*lines, ""]).encode()


def _digits(values: npt.NDArray[Any]) -> Iterable[str]:
    """Write numbers with the digits that give them back to the bit; 7.0 as 7."""
    if values.dtype == np.float32:
        return (str(value).removesuffix(".0") for value in values)
    return (repr(value).removesuffix(".0").replace("nan", "NaN") for value in values.tolist())


def read_results(runs: bytes, curves: bytes) -> list[NamedResult]:
    """Return the results of the tables of runs and curves, without uploads; raise ValueError for what cannot be."""
    rows = _read_runs(runs)
    results = []
    kinds = _kinds(curves, _CURVES, _MORE_CURVES, METRIC_PREFIX)
    for row, block in zip(rows, _read_numbers(curves, kinds, len(rows)), strict=True):
        columns = {
            name: values
            for name, values in zip(kinds, block, strict=True)
            if (name in _CURVES and name not in IF_ABSENT) or not np.isnan(values).all()
        }
        totals = {total: getattr(row, total) for total in _TOTALS}
        result = RunResult(row.experiment, columns, totals, row.provenance)
        if not len(block[0]):
            raise ValueError(f"run {row.run} has no evaluation")
        try:
            _ = result.seed, result.horizon, result.max_duration, result.path
        except (KeyError, TypeError, ValueError, AttributeError, FedtideError) as error:
            raise ValueError(f"the experiment of run {row.run} is none ({reprlib.repr(error)})") from None
        results.append((row.name, result))
    return results


def read_result_uploads(results: Sequence[NamedResult], rounds: bytes, uploads: bytes) -> list[Uploads | None]:
    """Return the uploads of results from the other two tables; None where they are not stored."""
    found: list[Uploads | None] = []
    kinds = _kinds(uploads, _UPLOADS, _MORE_UPLOADS)
    tables = ((rounds, _kinds(rounds, _ROUNDS)), (uploads, kinds))
    blocks = (_read_numbers(*each, len(results)) for each in tables)
    for (name, result), (index, time, ready, counts), sent in zip(results, *blocks, strict=True):
        if counts.sum() != len(sent[0]):
            raise ValueError(f"run {name} has {len(sent[0])} uploads, and should have {counts.sum()}")
        _, device, age, capacity, lost, *more = sent
        told = {name: x.astype(np.int64) for name, x in zip([*kinds][5:], more, strict=True) if not np.isnan(x).any()}
        stored = len(index) > 0 or not result.totals["aggregations"]
        told.setdefault("retransmitted", np.zeros_like(lost))  # older versions had none
        each = Uploads(time, ready, counts, device, age, capacity.astype(np.float32), lost, **told)
        found.append(each if stored else None)
    return found


def _read_runs(text: bytes) -> list[_Row]:
    try:
        header, *lines = [*csv.reader(io.StringIO(text.decode(), newline=""))] or [[]]
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if tuple(header) != _RUN_COLUMNS:
        raise ValueError(f"its columns are {reprlib.repr(header)}, and should be {', '.join(_RUN_COLUMNS)}")
    try:
        rows = [_Row(**{key: cell or None for key, cell in zip(header, cells, strict=True)}) for cells in lines]
    except ValidationError as error:
        raise ValueError(result_fault(error)) from None
    if [row.run for row in rows] != list(range(len(rows))):
        raise ValueError("its runs are not numbered from 0 on")
    return rows


def result_fault(error: ValidationError) -> str:
    """Say in one line what is wrong with a stored thing."""
    found = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, found['loc']))} is {reprlib.repr(found['input'])[:80]}: {found['msg']}"


def _kinds(text: bytes, first: Mapping[str, type], more: Mapping[str, type] = {}, prefix: str = "") -> dict[str, type]:
    """Return the columns of a table: the first ones, some of the others, and whatever begins with a prefix."""
    run, *names = map(unquote, text.partition(b"\n")[0].decode().split(","))
    known = [name in more or (bool(prefix) and name.startswith(prefix)) for name in names[len(first) :]]
    if [run, *names[: len(first)]] != ["run", *first] or not all(known) or len({*names}) < len(names):
        raise ValueError(
            f"its columns are {reprlib.repr(','.join([run, *names]))}, and should be run,{','.join(first)}"
        )
    return {**first, **{name: more.get(name, float) for name in names[len(first) :]}}


def _read_numbers(text: bytes, columns: Mapping[str, type], num_runs: int) -> list[list[npt.NDArray[Any]]]:
    """Return each run's part of a table of these columns, one by one, checked."""
    body = text.partition(b"\n")[2]
    table = np.empty((0, len(columns) + 1))
    if body:
        table = np.loadtxt(io.BytesIO(body), delimiter=",", comments=None, ndmin=2)
    run, *values = table.T
    if len(values) != len(columns) or not np.isin(run, np.arange(num_runs)).all() or (np.diff(run) < 0).any():
        raise ValueError(f"its rows are not those of {num_runs} runs, one after another")
    for position, (name, kind) in enumerate(columns.items()):
        column, highest = values[position], _HIGHEST.get(name, 1e300)
        lowest = -highest if name.startswith(METRIC_PREFIX) else 0.0
        wrong = (column < lowest) | (column > highest)
        if kind is int:
            wrong |= column != np.floor(column)
        if wrong.any():
            words = f"{'a whole number ' if kind is int else ''}from {lowest:g} to {highest:g}"
            raise ValueError(f"{name} of run {run[wrong][0]:g} is {column[wrong][0]:g}, and should be {words}")
        values[position] = column.astype(kind)
    begin = np.searchsorted(run, np.arange(num_runs + 1))
    return [[column[first:end] for column in values] for first, end in itertools.pairwise(begin)]
