"""A study: a base experiment, axes or named variants, and seeds. Every run is named by the hash of its experiment."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fedtide import config
from fedtide.config import Experiment, build
from fedtide.config.nested import PART_KEYS
from fedtide.config.values import explain_validation
from fedtide.core.yaml12 import plain_yaml_tree, shown, yaml_in_line
from fedtide.errors import FedtideError
from fedtide.parts import user_code
from fedtide.runs import policy_files

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


def spec_run_name(experiment: Experiment, files: Mapping[str, str] | None = None) -> str:
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

    @property
    def places(self) -> dict[str, Cell]:
        """Every variant's place on the axes."""
        return {label: self.cells.get(label, ((VARIANT, label),)) for label in self.labels}

    @property
    def axes(self) -> dict[str, list[str]]:
        """Every axis with its values, those with several first."""
        pairs = dict.fromkeys(pair for cell in self.places.values() for pair in cell)
        found: dict[str, list[str]] = {}
        for axis, value in pairs:
            found.setdefault(axis, []).append(value)
        return dict(sorted(found.items(), key=lambda item: len(item[1]) == 1))


def cell_text(cell: Iterable[tuple[str, str]]) -> str:
    """Write a place on some axes as labels have it."""
    return ", ".join(text if axis == VARIANT else f"{axis.rpartition('.')[2]}={text}" for axis, text in cell)


def _check_name(name: Any) -> Any:
    """Raise if a name cannot stand in a table."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise FedtideError(
            f"the name {shown(name)}: a name has 1 to {_LONGEST_NAME} characters that can be seen, in one line"
        )
    return name


def checked_seeds(given: Any) -> Sequence[int]:
    """Return the seeds of a number (0 to it) or of a list."""
    remedy = "give a number of seeds, or a list of different ones from 0 on"
    if not isinstance(given, list):
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise FedtideError(f"seeds={shown(given)} leaves nothing to run or is not a whole number; {remedy}")
        return range(given)
    if wrong := [each for each in given if isinstance(each, bool) or not isinstance(each, int) or each < 0]:
        raise FedtideError(f"seeds has {shown(wrong[0])} in it; {remedy}")
    if not given or len(set(given)) < len(given):
        raise FedtideError(f"seeds={shown(given)} leaves nothing to run or repeats a seed; {remedy}")
    return given


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = Field(strict=True, ge=1, le=1, description="of the study format; this fedtide reads 1")
    name: Annotated[str, AfterValidator(_check_name)]
    base: dict[str, Any] = Field({}, description="keys that all runs share; {} for none")
    axes: dict[str, list[Any]] = Field({}, description="keys, each with a list of values")
    variants: dict[Annotated[str, AfterValidator(_check_name)], dict[str, Any]] = Field(
        {}, description="names, each with the keys that differ; {} for none"
    )
    seeds: Annotated[Any, AfterValidator(checked_seeds)] = range(1)


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
        runs.append(Run(label, experiment, spec_run_name(experiment, files)))
    return Study(name, tuple(runs))


def read_study(path: Path) -> Study:
    """Read a study file (YAML). Policies of the user's own are looked for beside it, too."""
    tree = config.read_yaml_file(path, "study")
    if "version" not in tree and set(tree) & set(Experiment.model_fields):
        raise FedtideError(
            f"{path} is an experiment, not a study: use `fedtide run {path}`; a study has version and name"
        )
    folder = path.parent.absolute()
    try:
        file = _checked(tree)
        with user_code.search_user_folder(folder):
            made = _crossed(file, file.base)
    except FedtideError as error:
        raise FedtideError(f"{path}: {error}") from None
    return made._replace(runs=tuple(run._replace(beside=folder) for run in made.runs))


def cross_study(
    name: str,
    base: Mapping[str, Any] | Experiment,
    axes: Mapping[str, Any],
    variants: Mapping[str, Any],
    seeds: Any,
) -> Study:
    """Make a study as a file does, but from Python, where parts may be objects; the seeds take the place of the base's."""
    listed = {
        axis: [build.part_object_value(axis, each) for each in values] if isinstance(values, (list, tuple)) else values
        for axis, values in axes.items()
    }
    named = {
        label: build.replaced_part_objects(each) if isinstance(each, Mapping) else each
        for label, each in variants.items()
    }
    tree = {"version": 1, "name": name, "axes": listed, "variants": named, "seeds": seeds}
    return _crossed(_checked(plain_yaml_tree(tree)), base)


def side_by_side_study(
    name: str,
    variants: Mapping[str, Mapping[str, Any] | Experiment],
    seeds: Any,
    base: Mapping[str, Any] | Experiment | None = None,
) -> Study:
    """Make a study of named experiments; the seeds take the place of theirs."""
    for label in (name, *variants):
        _check_name(label)
    return make_study(name, variants, checked_seeds(seeds), base)


def _checked(tree: dict[str, Any]) -> _File:
    """Return what a study file says, with nested keys; raise if a part of it is not what it should be."""
    try:
        file = _File.model_validate(tree)
    except ValidationError as error:
        raise FedtideError(explain_validation(error, _File.model_fields, "key of a study")) from None
    file.base, file.variants = config.nest(file.base), {name: config.nest(each) for name, each in file.variants.items()}
    if any("seed" in part for part in (file.axes, file.base, *file.variants.values())):
        raise FedtideError("`seed` belongs to no axis, base or variant; say `seeds: [1, 2]` or `seeds: 5`")
    for axis, values in file.axes.items():
        _check_axis(axis, values, file.variants)
    count = max(len(file.variants), 1) * math.prod(map(len, file.axes.values())) * len(file.seeds)
    if count > _MOST_RUNS:
        raise FedtideError(
            f"variants, axes and seeds make {count:,} runs ({count / 525_600:,.3g} years at a minute each), and a study has at "
            f"most {_MOST_RUNS:,}; take fewer values or seeds"
        )
    return file


def _check_axis(axis: str, values: list[Any], variants: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise if an axis is none, says something twice, or takes away what a variant says."""
    group, _, key = axis.rpartition(".")
    if axis not in config.all_keys() and group not in PART_KEYS:
        raise FedtideError(f"the axis {shown(axis)} names no field of an experiment{config.nearest_key(axis)}")
    if not values:
        raise FedtideError(f"the axis {axis!r} has no values; give a list of at least one")
    whole = (int(value) if isinstance(value, float) and value.is_integer() else value for value in values)  # 1.0 is 1
    texts = [json.dumps(value, sort_keys=True, default=str) for value in whole]
    for number, value in enumerate(values):
        if texts[number] in texts[:number]:
            raise FedtideError(f"the axis {axis!r} repeats the value {shown(value)}; give different ones")
    for name, tree in variants.items():
        inner = tree.get(group, {}) if group else tree
        if isinstance(inner, Mapping) and key in inner:
            raise FedtideError(f"the variant {shown(name)} gives {axis}, which is an axis, too; keep one of the two")


def _crossed(file: _File, base: Mapping[str, Any] | Experiment) -> Study:
    """Cross the named variants with the axes; raise if two cells that only axes tell apart are the same experiment."""
    trees: dict[str, dict[str, Any]] = {}
    cells: dict[str, Cell] = {}
    for name, tree in (file.variants or {"": {}}).items():
        for values in itertools.product(*(enumerate(each, 1) for each in file.axes.values())):
            cell, merged = [(VARIANT, name)] if name else [], tree
            for axis, (number, value) in zip(file.axes, values, strict=True):
                merged = config.merge_nested(merged, config.nest({axis: value}))
                text = yaml_in_line(value)
                cell.append((axis, text if len(text) <= _LONG else f"#{number}"))
            label = cell_text(cell) or file.name
            trees[label], cells[label] = merged, tuple(cell)
    made = make_study(file.name, trees, file.seeds, base)._replace(cells=cells)
    seen: dict[tuple[str, str], str] = {}
    for run in made.runs[: len(trees)]:  # of the first seed
        other = seen.setdefault((dict(cells[run.label]).get(VARIANT, ""), run.name), run.label)
        if other != run.label:
            raise FedtideError(f"{shown(other)} and {shown(run.label)} are the same experiment; keep one")
    return made


# A study from Python.

Given = Experiment | Mapping[str, Any] | Path | str  # what an experiment may be given as


def given_study(
    base: Given,
    axes: Mapping[str, Sequence[Any]] | None,
    variants: Mapping[str, Mapping[str, Any]] | None,
    seeds: int | Iterable[int] | None,
    name: str,
    default_seeds: int | Sequence[int],
) -> Study:
    """Make a study as `fedtide.study` is given it: an experiment crossed with axes and variants, or a study file."""
    path = base if isinstance(base, (str, Path)) and "=" not in str(base) else None
    if path is not None and _is_study(Path(path)):
        if axes is not None or variants is not None or seeds is not None:
            raise FedtideError(f"{path} is a study file with axes, variants and seeds of its own: change them there")
        return read_study(Path(path))
    for what, each in (("axes", axes), ("variants", variants)):
        if each is not None and not isinstance(each, Mapping):
            raise FedtideError(f"{what}={shown(each)} is not a mapping: give names with their values")
    listed = {axis: _listed(values) for axis, values in (axes or {}).items()}
    return cross_study(
        name, given_base(base), listed, variants or {}, listed_seeds(default_seeds if seeds is None else seeds)
    )


def _is_study(path: Path) -> bool:
    """Say whether a file is a study's; raise if there is none."""
    tree = config.read_yaml_file(path)
    return bool(tree.keys() & {"axes", "variants"}) or tree.keys() >= {"version", "name"}


def given_base(given: Given) -> Any:
    """Return as it is laid under keys: an experiment as it is, all else as a nested mapping, a file's read once."""
    if isinstance(given, Experiment):
        return given
    if isinstance(given, (str, Path)):
        return config.read_words([str(given)])
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return config.nest(given)
    return config.experiment(given)  # raises, and says why


def _listed(values: Any) -> Any:
    """Return a range, an array or the like as a list; all else as it is, to be refused with the reason."""
    return list(values) if isinstance(values, (range, tuple, np.ndarray)) else values


def listed_seeds(seeds: Any) -> Any:
    """Return seeds as a study file gives them: a number, or a list."""
    seeds = _listed(seeds)
    return seeds.tolist() if isinstance(seeds, np.generic) else seeds
