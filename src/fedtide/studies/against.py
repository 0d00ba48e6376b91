"""Which variant each variant is compared with: the one that differs from it in one thing only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fedtide.core.forms import shown
from fedtide.errors import FedtideError
from fedtide.studies.spec import VARIANT, Cell, Study


class Reference(NamedTuple):
    """What a variant is compared with."""

    label: str
    text: str  # what of it differs, as a reader should see it


def references(study: Study, against: str | None = None) -> dict[str, Reference | None]:
    """Return every variant's reference by its label; None for a reference itself.

    Without `against` it is the cell with the first value on the first axis that has several (or the first variant), all other
    axes being equal. against: a variant's label, for all; or a part of labels (`scheduler=random`, a variant's name, a bare
    value; several with commas): the cell that has this, all else being equal.
    """
    cells = {label: study.cells.get(label, ((VARIANT, label),)) for label in study.labels}
    wanted = _first(cells) if against is None else _wanted(cells, against)
    by_cell = {cell: label for label, cell in cells.items()}
    found: dict[str, Reference | None] = {}
    for label, cell in cells.items():
        place = tuple((axis, wanted.get(axis, value)) for axis, value in cell)
        text = ", ".join(_shown(axis, value) for axis, value in place if axis in wanted)
        found[label] = None if place == cell else Reference(by_cell[place], text)
    return found


def _shown(axis: str, value: str) -> str:
    return value if axis == VARIANT else f"{axis.rpartition('.')[2]}={value}"


def _values(cells: Mapping[str, Cell]) -> dict[str, list[str]]:
    """Return every axis with its values, in order."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells.values():
        for axis, value in cell:
            found.setdefault(axis, {})[value] = None
    return {axis: list(values) for axis, values in found.items()}


def _first(cells: Mapping[str, Cell]) -> dict[str, str]:
    axes = _values(cells)
    several = [axis for axis, values in axes.items() if len(values) > 1] or list(axes)
    return {axis: axes[axis][0] for axis in several[:1]}


def _wanted(cells: Mapping[str, Cell], against: str) -> dict[str, str]:
    """Return which value on which axis is meant."""
    if against in cells:
        return dict(cells[against])
    wanted: dict[str, str] = {}
    for word in [against] if _places(cells, against) else against.split(","):
        places = _places(cells, word.strip())
        if len(places) != 1:
            reason = "is no variant" if not places else f"is on several axes ({', '.join(axis for axis, _ in places)})"
            parts = [_shown(axis, value) for axis, values in _values(cells).items() for value in values]
            known = _listed(list(cells)) if len(_values(cells)) == 1 else f"{_listed(parts)}, and whole labels"
            raise FedtideError(f"--against {shown(word.strip())} {reason}; there are {known}")
        wanted |= dict(places)
    return wanted


def _places(cells: Mapping[str, Cell], word: str) -> list[tuple[str, str]]:
    """Return the (axis, value) pairs that a word may mean: `axis=value`, `key=value` or a value; the fullest form counts."""
    pairs = [(axis, value) for axis, values in _values(cells).items() for value in values]
    for found in (
        [(axis, value) for axis, value in pairs if word == f"{axis}={value}"],
        [(axis, value) for axis, value in pairs if word == _shown(axis, value)],
        [(axis, value) for axis, value in pairs if word == value],
    ):
        if found:
            return found
    return []


def _listed(words: list[str], most: int = 6) -> str:
    return ", ".join(map(repr, words[:most])) + (f" and {len(words) - most} more" if len(words) > most else "")
