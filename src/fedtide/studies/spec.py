"""A study: a base experiment, axes or named variants, and seeds. Every run is named by the hash of its experiment."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtide import config
from fedtide.config import Experiment, build
from fedtide.config.values import explain_validation
from fedtide.core.yaml12 import ConfigSyntaxError, in_line, plain_tree, shown
from fedtide.errors import FedtideError
from fedtide.parts import user_code
from fedtide.runs import policy_files

_VERSION = 1
VARIANT = "variant"  # the axis of the named variants
_MOST_RUNS = 100_000  # of a study
_LONG = 60  # characters of a value in a label; longer ones are numbered
_LONGEST_NAME = 100  # characters of a study's name or a variant's

Cell = tuple[tuple[str, str], ...]  # a variant's place: (axis, how a label shows its value) for each axis in turn


class Run(NamedTuple):
    """One run of a study: its variant's label, its place on the axes, its seed."""

    label: str
    experiment: Experiment
    name: str  # the hash that identifies it
    beside: Path | None = None  # the study file's folder, where the user's own policies are looked for, too


def name_of(experiment: Experiment, files: Mapping[str, str] | None = None) -> str:
    """Return the hash that identifies a run: of its experiment, and of the user's own policy files (None: as they are now)."""
    files, digest = policy_files(experiment) if files is None else files, config.digest(experiment)
    if not files:
        return digest
    return hashlib.sha256(f"{digest} {sorted(files.values())}".encode()).hexdigest()[: len(digest)]


class Study(NamedTuple):
    """A named list of runs."""

    name: str
    runs: tuple[Run, ...]
    cells: Mapping[str, Cell] = MappingProxyType({})  # label -> its place on the axes; without any, a list of variants

    @property
    def stem(self) -> str:
        """The name as a file may have it, in the working folder."""
        plain = "".join("-" if each in '/\\:*?"<>|' else each for each in self.name).lstrip(".")
        return plain.encode()[:200].decode(errors="ignore") or "study"

    @property
    def labels(self) -> list[str]:
        """The variants, in the order in which they were given."""
        return list(dict.fromkeys(run.label for run in self.runs))


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = Field(description=f"of the study format; this is {_VERSION}")
    name: str = Field(min_length=1)
    base: dict[str, Any] = Field({}, description="keys that all runs share; {} for none")
    axes: dict[str, list[Any]] = Field({}, description="keys, each with a list of values")
    variants: dict[str, dict[str, Any]] = Field({}, description="names, each with the keys that differ; {} for none")
    seeds: Any = 1  # looked at by _seeds


def make_study(
    name: str,
    variants: Mapping[str, Mapping[str, Any] | Experiment],
    seeds: Sequence[int],
    base: Mapping[str, Any] | Experiment | None = None,
) -> Study:
    """Make a study from labelled override trees (or whole experiments): every variant with every seed, seeds outermost.

    Seeds come outermost so that a study that is stopped has complete pairs for the seeds it reached.
    """
    made: dict[str, tuple[Experiment, dict[str, str]]] = {}  # of the first seed: the others differ in nothing else
    for label, tree in variants.items() if seeds else ():
        try:
            experiment = config.experiment(base or {}, tree, {"seed": seeds[0]})
        except FedtideError as error:
            raise FedtideError(f"{label}: {error}" if len(variants) > 1 else str(error)) from None
        made[label] = experiment, policy_files(experiment)
    runs = []
    for seed, (label, (first, files)) in itertools.product(seeds, made.items()):
        experiment = first.model_copy(update={"seed": seed})
        runs.append(Run(label, experiment, name_of(experiment, files)))
    return Study(name, tuple(runs))


def read_study(path: Path) -> Study:
    """Read a study file (YAML). Policies of the user's own are looked for beside it, too."""
    tree = config.read_file(path, "study")
    try:
        file, folder = _checked(tree, path), path.parent.absolute()
        with user_code.search_folder(folder):
            made = _crossed(file, file.base)
    except FedtideError as error:
        raise FedtideError(f"{path}: {error}") from None
    return made._replace(runs=tuple(run._replace(beside=folder) for run in made.runs))


def cross(
    name: str,
    base: Mapping[str, Any] | Experiment,
    axes: Mapping[str, Sequence[Any]],
    variants: Mapping[str, Mapping[str, Any]],
    seeds: Any,
) -> Study:
    """Make a study as a file does, but from Python; the seeds take the place of the base's."""
    listed = {axis: _written(axis, values) for axis, values in axes.items()}
    named = {label: _written_tree(each) for label, each in variants.items()}
    tree = {"version": _VERSION, "name": name, "axes": listed, "variants": named, "seeds": seeds}
    try:
        form = _checked(plain_tree(tree), Path())
    except ConfigSyntaxError as error:
        raise FedtideError(str(error)) from None
    return _crossed(form, base)


def _written(axis: str, values: Any) -> Any:
    """Return the values of an axis with names in the place of parts that are Python objects."""
    return [build.object_value(axis, each) for each in values] if isinstance(values, (list, tuple)) else values


def _written_tree(tree: Any) -> Any:
    return build.replaced(tree) if isinstance(tree, Mapping) else tree


def side_by_side(
    name: str,
    variants: Mapping[str, Mapping[str, Any] | Experiment],
    seeds: Any,
    base: Mapping[str, Any] | Experiment | None = None,
) -> Study:
    """Make a study of named experiments; the seeds take the place of theirs."""
    for label in (name, *variants):
        if not isinstance(label, str):
            raise FedtideError(f"the name {shown(label)} is no text; a name has 1 to {_LONGEST_NAME} characters")
        _check_name("the name", label)
    return make_study(name, variants, _seeds(seeds), base)


def _crossed(form: _Form, base: Mapping[str, Any] | Experiment) -> Study:
    """Return the study of variants crossed with axes; raise if two cells are the same experiment."""
    grid = _grid(form)
    labels = [", ".join(_words(cell)) or form.name for cell, _ in grid]
    made = make_study(form.name, {label: each for label, (_, each) in zip(labels, grid, strict=True)}, form.seeds, base)
    return _told_apart(made._replace(cells={label: cell for label, (cell, _) in zip(labels, grid, strict=True)}))


class _Form(NamedTuple):
    """A study file whose parts are what they should be."""

    name: str
    base: dict[str, Any]
    axes: dict[str, list[Any]]
    variants: dict[str, dict[str, Any]]
    seeds: Sequence[int]


def _checked(tree: dict[str, Any], path: Path) -> _Form:
    """Return what a study file says, or raise if a part of it is not what it should be."""
    if "version" not in tree and set(tree) & set(Experiment.model_fields):
        raise FedtideError(f"it is an experiment, not a study: use `fedtide run {path}`; a study has version and name")
    version = tree.get("version")
    if version != _VERSION or isinstance(version, bool):
        raise FedtideError(
            f"it is a study of version {shown(version)}; this fedtide reads version {_VERSION}: "
            f"write 'version: {_VERSION}' at its top after checking its keys"
        )
    try:
        file = _File.model_validate(tree)
    except ValidationError as error:
        raise FedtideError(explain_validation(error, _File.model_fields, "key of a study")) from None
    _check_name("name", file.name)
    for name in file.variants:
        _check_name("the variant", name)
    base, variants = config.nest(file.base), {name: config.nest(each) for name, each in file.variants.items()}
    if any("seed" in part for part in (file.axes, base, *variants.values())):
        raise FedtideError("`seed` belongs to no axis, base or variant; say `seeds: [1, 2]` or `seeds: 5`")
    for axis, values in file.axes.items():
        _check_axis(axis, values, variants)
    form = _Form(file.name, base, file.axes, variants, _seeds(tree.get("seeds", 1)))
    count = max(len(variants), 1) * math.prod(map(len, file.axes.values())) * len(form.seeds)
    if count > _MOST_RUNS:
        raise FedtideError(
            f"variants, axes and seeds make {count:,} runs ({count / 525_600:,.3g} years at a minute each), and a study has at "
            f"most {_MOST_RUNS:,}; take fewer values or seeds"
        )
    return form


def _check_name(what: str, name: str) -> None:
    """Raise if a name cannot stand in a table."""
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise FedtideError(
            f"{what} {shown(name)}: a name has 1 to {_LONGEST_NAME} characters that can be seen, in one line"
        )


def _check_axis(axis: str, values: list[Any], variants: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise if an axis is none, says something twice, or takes away what a variant says."""
    if axis not in config.all_keys():
        raise FedtideError(f"the axis {shown(axis)} names no field of an experiment{config.nearest(axis)}")
    if not values:
        raise FedtideError(f"the axis {axis!r} has no values; give a list of at least one")
    seen: set[str] = set()
    for value in values:
        same = json.dumps(value, sort_keys=True, default=str)
        if isinstance(value, float) and value.is_integer():
            same = str(int(value))  # 1.0 is 1
        if same in seen:
            raise FedtideError(f"the axis {axis!r} repeats the value {shown(value)}; give different ones")
        seen.add(same)
    group, _, key = axis.rpartition(".")
    for name, tree in variants.items():
        inner = tree.get(group, {}) if group else tree
        if isinstance(inner, Mapping) and key in inner:
            raise FedtideError(f"the variant {shown(name)} gives {axis}, which is an axis, too; keep one of the two")


def _seeds(given: Any) -> Sequence[int]:
    """Return the seeds of a number (0 to it) or of a list."""
    remedy = "give a number of seeds, or a list of different ones from 0 on"
    if isinstance(given, list):
        if not given:
            raise FedtideError(f"seeds=[] leaves nothing to run; {remedy}")
        if wrong := [each for each in given if isinstance(each, bool) or not isinstance(each, int) or each < 0]:
            raise FedtideError(f"seeds has {shown(wrong[0])} in it; {remedy}")
        if len(set(given)) < len(given):
            raise FedtideError(f"seeds={shown(given)} repeats a seed; {remedy}")
        return given
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise FedtideError(f"seeds={shown(given)} leaves nothing to run or is no whole number; {remedy}")
    return range(given)


def _told_apart(study: Study) -> Study:
    """Raise if two cells that only axes tell apart are one and the same experiment."""
    seen: dict[tuple[str, str], str] = {}
    for run in itertools.takewhile(lambda run: run.experiment.seed == study.runs[0].experiment.seed, study.runs):
        variant = dict(study.cells[run.label]).get(VARIANT, "")
        other = seen.setdefault((variant, run.name), run.label)
        if other != run.label:
            raise FedtideError(f"{shown(other)} and {shown(run.label)} are the same experiment; keep one")
    return study


def _words(cell: Cell) -> list[str]:
    """Return how a label shows a cell."""
    return [f"{axis.rpartition('.')[2]}={text}" if axis != VARIANT else text for axis, text in cell]


def _grid(file: _Form) -> list[tuple[Cell, dict[str, Any]]]:
    """Cross the named variants with the axes: every cell and what it lays on the base."""
    found: list[tuple[Cell, dict[str, Any]]] = []
    for name, tree in (file.variants or {"": {}}).items():
        for places in itertools.product(*(range(len(values)) for values in file.axes.values())):
            cell, merged = [(VARIANT, name)] * bool(name), dict(tree)
            for (axis, values), place in zip(file.axes.items(), places, strict=True):
                group, _, key = axis.rpartition(".")
                merged = config.lay(merged, {group: {key: values[place]}} if group else {key: values[place]})
                text = in_line(values[place])
                cell.append((axis, text if len(text) <= _LONG else f"#{place + 1}"))
            found.append((tuple(cell), merged))
    return found
