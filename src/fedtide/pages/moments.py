"""Moments of a run that are worth a look, found from its records: each with its aggregation and a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from fedtide.report.summary import TARGETS, evaluated_rounds
from fedtide.runs import RoundRecord

_MOST_MOMENTS: Final = 10
_PER_KIND: Final = 2
_AIRTIME_FACTOR: Final = 2.5  # times the even share that one upload takes
_STALE_FACTOR: Final = 3.0  # times the mean age
_STALE_AGE: Final = 5  # aggregations, at least
_JUMP: Final = 0.02  # of the test accuracy, at least
_JUMP_FACTOR: Final = 4.0  # times the usual change between two evaluations
_PASSED_OVER: Final = 8  # times that a device was ready and was not picked, at least


class Moment(NamedTuple):
    """A moment: when it was, what happened, and how much it stands out among those of its kind."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    time: float
    kind: str
    text: str
    weight: float


def find_moments(rounds: Sequence[RoundRecord]) -> list[Moment]:
    """Return what stands out in a run, in the order of time: the strongest two of each kind, ten at most.

    Kinds: airtime (one upload took much of it), outage (uploads lost or silent), stale (an old update), jump (of the test
    accuracy, up or down), target (an accuracy first reached), waiting (a device passed over again and again).
    """
    kinds = (_airtime_hogs, _outages, _stale_uploads, _jumps, _targets_reached, _passed_over)
    best = [sorted(kind(rounds), key=lambda each: -each.weight)[:_PER_KIND] for kind in kinds]
    found = [moments[rank] for rank in range(_PER_KIND) for moments in best if rank < len(moments)]
    return sorted(found[:_MOST_MOMENTS], key=lambda each: (each.time, each.kind))


def _moment(record: RoundRecord, kind: str, text: str, weight: float) -> Moment:
    return Moment(record.index, record.time, kind, text, weight)


def _airtime_hogs(rounds: Sequence[RoundRecord]) -> Iterator[Moment]:
    for record in rounds:
        total = sum(record.symbols)
        if len(record.picked) < 2 or total <= 0:
            continue
        at = int(np.argmax(record.symbols))
        share, even = record.symbols[at] / total, 1 / len(record.picked)
        if share >= min(_AIRTIME_FACTOR * even, 0.9):
            others = float(np.median(np.delete(record.capacity, at)))
            yield _moment(
                record, "airtime",
                f"device {record.picked[at]}'s channel took {share:.0%} of this aggregation's airtime: "
                f"{record.capacity[at]:.2g} bit/symbol, the others' median {others:.2g}",
                share / even,
            )  # fmt: skip


def _outages(rounds: Sequence[RoundRecord]) -> Iterator[Moment]:
    for record in rounds:
        lost, silent, sent = len(record.lost), len(record.silent), len(record.picked)
        if lost or silent:
            words = [f"{lost} of {sent} uploads did not arrive"] if lost else []
            words += [f"{silent} of {sent} picked devices sent nothing"] if silent else []
            yield _moment(record, "outage", " and ".join(words), (lost + silent) / sent)


def _stale_uploads(rounds: Sequence[RoundRecord]) -> Iterator[Moment]:
    ages = [age for record in rounds for age in record.age]
    mean = float(np.mean(ages)) if ages else 0.0
    for record in rounds:
        if record.age and max(record.age) >= max(_STALE_FACTOR * mean, _STALE_AGE):
            at = int(np.argmax(record.age))
            text = (
                f"device {record.picked[at]}'s update was {record.age[at]} aggregations old; the mean age is {mean:.2g}"
            )
            yield _moment(record, "stale", text, record.age[at])


def _jumps(rounds: Sequence[RoundRecord]) -> Iterator[Moment]:
    """Changes of the test accuracy, once it has made half of its way: before, it rises steeply anyway."""
    scored = evaluated_rounds(rounds)
    level = np.array([record.test_accuracy or 0.0 for record in scored])
    if len(level) < 4:
        return
    half = int(np.argmax(level >= (level[0] + level.max()) / 2))
    change = np.diff(level)
    usual = float(np.median(np.abs(change[half:]))) if len(change) > half else 0.0
    for at in np.flatnonzero(np.abs(change) >= max(_JUMP, _JUMP_FACTOR * usual)).tolist():
        if at >= half:
            word = "rose" if change[at] > 0 else "fell"
            text = f"the test accuracy {word} by {abs(change[at]):.3f}, to {level[at + 1]:.3f}"
            yield _moment(scored[at + 1], "jump", text, abs(float(change[at])))


def _targets_reached(rounds: Sequence[RoundRecord]) -> Iterator[Moment]:
    scored = evaluated_rounds(rounds)
    for target in TARGETS[1:]:
        first = next((record for record in scored if (record.test_accuracy or 0.0) >= target), None)
        if first is not None:
            yield _moment(first, "target", f"the test accuracy reached {target:.0%} for the first time", target)


def _passed_over(rounds: Sequence[RoundRecord]) -> Iterator[Moment]:
    """The device that was ready most often in a row without being picked, when that ended."""
    waited: dict[int, int] = {}
    longest: tuple[int, int, RoundRecord] | None = None
    for record in rounds:
        for device in record.picked:
            waited.pop(device, None)
        for device in set(record.ready).difference(record.picked):
            waited[device] = waited.get(device, 0) + 1
            if longest is None or waited[device] > longest[0]:
                longest = waited[device], device, record
    if longest is not None and longest[0] >= _PASSED_OVER:
        count, device, record = longest
        yield _moment(
            record, "waiting", f"device {device} was ready and not picked for the {count}th time in a row", count
        )
