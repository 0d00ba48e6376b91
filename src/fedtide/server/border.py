"""Checks of what a user's parts answer, so that the mathematics need not: one line with the part, the value and the reason.

Ours run under the contract tests, and through here too: what is cheap is checked always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

import numpy as np

from fedtide.core import parts
from fedtide.core.answers import as_array, shown
from fedtide.core.arguments import MOST_MEMORY
from fedtide.errors import DivergedError, TrainingError
from fedtide.types import Floats, Ints, Memory, Vector

LONGEST_NAME = 100  # characters: it is a file's name in the checkpoint


def positions(answer: Any, most: int, ready: int, scheduler: str) -> Ints:
    """Return the positions that a scheduler picked, ascending; it may pick fewer than it may."""
    picked = as_array(answer)
    problem = None
    if picked.ndim != 1 or (len(picked) and not np.issubdtype(picked.dtype, np.integer)):
        problem = "they must be a one-dimensional array of whole numbers"
    elif len(picked) > most:
        problem = f"there are {len(picked)}, and at most min(limit, ready) = {most} are asked for"
    elif len(set(picked.tolist())) != len(picked):
        problem = "some are duplicates"
    elif len(picked) and (picked.min() < 0 or picked.max() >= ready):
        problem = (
            f"they must lie in 0..{ready - 1}; a scheduler returns positions within the candidates, not device numbers"
        )
    if problem:
        raise TrainingError(f"{scheduler} returned positions {shown(answer)}: {problem}")
    return np.sort(picked).astype(np.int64)


def truth(answer: Any, scheduler: str) -> bool | None:
    """Return what a scheduler says of its choice: proved minimal, not proved, or None."""
    if answer is None or isinstance(answer, (bool, np.bool_)):
        return None if answer is None else bool(answer)
    raise TrainingError(f"{scheduler} said proved_minimal={shown(answer)}: say True, False or None")


def metrics(answer: Any, scheduler: str) -> dict[str, float]:
    """Return what a scheduler says besides of its choice: finite numbers by name, for the record."""
    if not isinstance(answer, Mapping):
        raise TrainingError(f"{scheduler} said metrics={shown(answer)}: give finite numbers by name, or nothing")
    for name, value in answer.items():
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if not isinstance(name, str) or not number:
            raise TrainingError(
                f"{scheduler} said metrics[{shown(name)}]={shown(value)}: give finite numbers by name, or leave it out"
            )
    return {name: float(value) for name, value in answer.items()}


def weights(answer: Any, count: int, weighting: str) -> Floats:
    """Return the weights [count] that a weighting gave."""
    given = as_array(answer)
    found = given.astype(np.float64) if given.dtype.kind in "fiub" else np.array(np.nan)
    exact = given.dtype.itemsize >= 8  # else they add up to 1 as well as single precision can
    if found.shape != (count,) or not np.all(found >= 0) or not abs(found.sum() - 1) < (1e-9 if exact else 1e-5):
        total = f" (the sum is {found.sum():.12g})" if found.shape == (count,) else ""
        raise TrainingError(
            f"{weighting} returned {shown(answer)}{total}: it must give {count} weights >= 0 with sum 1"
        )
    return found if exact else found / found.sum()


def vector(answer: Any, num_parameters: int, part: str) -> Vector:
    """Return what a combiner or a codec made as a float32 [d] of our own, or say how it went wrong.

    It is a copy: whoever made it may write to it again, or may have returned what it was given.
    """
    found = as_array(answer)
    if found.shape != (num_parameters,) or found.dtype.kind not in "fiu":
        what = f"an array of shape {found.shape}" if found.ndim else f"{shown(answer)}"
        raise TrainingError(f"{part} returned {what}: it must give the {num_parameters} numbers of the model")
    with np.errstate(over="ignore"):
        made = np.array(found, np.float32)
    if not np.isfinite(made).all():
        at = int(np.flatnonzero(~np.isfinite(made))[0])
        raise TrainingError(
            f"{part} returned {found[at]} at position {at}: it must give finite numbers (what it was given was finite)"
        )
    return made


def finite(
    device: Ints,
    updates: Iterable[Vector],
    version: int,
    culprit: Callable[[], str] = lambda: "lower learning.learning_rate",
) -> Iterator[Vector]:
    """Return the updates [d] of these devices [r] one after the other; raise if one holds NaN or infinity.

    culprit: says what most likely made it so, and what to do. The error names all that are broken: the others are looked at,
    too, before it is raised.
    """
    broken: list[int] = []
    for k, update in zip(device.tolist(), updates, strict=True):
        if not np.isfinite(update).all():
            broken.append(k)
        elif not broken:
            yield update
    if broken:
        some = ", ".join(map(str, broken[:8])) + (f" and {len(broken) - 8} more" if len(broken) > 8 else "")
        raise DivergedError(
            f"the update of device {some} at aggregation {version} is not finite: training diverged; {culprit()} "
            "(everything up to the previous aggregation is saved)"
        )


def first_memory(part: Any, kind: str, *given: Any) -> Memory:
    """Return what a part remembers at the beginning."""
    return _arrays(part.init(*given), f"{parts.label(kind, part)}: init")


def pair(answer: Any, before: Memory, label: str) -> tuple[Any, Memory]:
    """Return what a part with memory answered and what it remembers now, which must be shaped as before."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        many = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        raise TrainingError(
            f"{label} returned {many}: a part with memory returns (answer, memory), the memory a mapping of names to arrays"
        )
    return answer[0], memory(answer[1], before, label)


def memory(answer: Any, before: Memory, label: str) -> Memory:
    """Return memory as arrays of our own; raise unless names, shapes and types are those it began with."""
    after = _arrays(answer, label)
    for name in sorted({*before, *after}):
        if name not in after or name not in before:
            wrong = "is gone" if name not in after else "is new"
            raise TrainingError(
                f"{label}: memory[{name!r}] {wrong}; memory keeps the names that init gave it "
                f"({', '.join(sorted(before)) or 'none'})"
            )
        old, new = before[name], after[name]
        if old.shape != new.shape or old.dtype != new.dtype:
            raise TrainingError(
                f"{label}: memory[{name!r}] was {old.dtype}{list(old.shape)} and is {new.dtype}{list(new.shape)}; memory "
                "keeps the shapes and types that init gave it, so that it cannot grow"
            )
    return after


def _arrays(answer: Any, label: str) -> Memory:
    """Return a mapping of names to arrays as copies of our own."""
    if not isinstance(answer, Mapping):
        raise TrainingError(f"{label} gave a {type(answer).__name__} for memory: give a mapping of names to arrays")
    made: Memory = {}
    size = 0
    for name, value in dict(answer).items():
        if not isinstance(name, str) or not (name.isidentifier() and name.isascii() and len(name) <= LONGEST_NAME):
            raise TrainingError(f"{label} gave memory the name {shown(name)}: names are words, such as 'momentum'")
        array = as_array(value)
        size += array.nbytes
        if size > MOST_MEMORY:
            raise TrainingError(
                f"{label}: memory of {size / 1e9:,.3g} GB is more than {MOST_MEMORY / 1e9:g} GB, and is saved with every "
                "checkpoint; keep less"
            )
        if array.dtype.kind not in "biuf":
            raise TrainingError(
                f"{label}: memory[{name!r}] is {shown(value)}, which is no array of numbers; memory is saved as arrays"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = array[~np.isfinite(array)][0] if array.ndim else array
            raise TrainingError(f"{label}: memory[{name!r}] holds {bad}; it must hold finite numbers")
        made[name] = np.array(array)  # a copy: whoever made it may write to it again
    return made


def lent_memory(held: Memory) -> Memory:
    """Return a copy for a part to write to: what was saved stays as it is if the part fails."""
    return {name: value.copy() for name, value in held.items()}
