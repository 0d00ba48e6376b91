"""A study: a base experiment, axes or named variants, and seeds. Every run is named by the hash of its experiment."""

from __future__ import annotations

import difflib
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError
from fedtide.records import policy_files

VERSION = 1
_LONG = 60  # characters of a value in a label; longer ones are numbered


class Run(NamedTuple):
    """One run of a study: its variant's label, its place on the axes, its seed."""

    label: str
    experiment: Experiment
    name: str  # the hash that identifies it


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

    @property
    def labels(self) -> list[str]:
        """The variants, in the order in which they were given."""
        return list(dict.fromkeys(run.label for run in self.runs))


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = Field(description=f"of the study format; this is {VERSION}")
    name: str = Field(min_length=1)
    base: dict[str, Any] = {}
    axes: dict[str, list[Any]] = {}
    variants: dict[str, dict[str, Any]] = {}
    seeds: int | list[int] = 1


def make(
    name: str,
    variants: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    base: Mapping[str, Any] | None = None,
) -> Study:
    """Make a study from labelled override trees: every variant with every seed, seeds outermost.

    Seeds come outermost so that a study that is stopped has complete pairs for the seeds it reached.
    """
    runs = []
    for seed, (label, tree) in itertools.product(seeds, variants.items()):
        try:
            experiment = config.experiment(base or {}, tree, {"seed": seed})
        except FedtideError as error:
            raise FedtideError(f"{label}: {error}" if len(variants) > 1 else str(error)) from None
        runs.append(Run(label, experiment, name_of(experiment)))
    return Study(name, tuple(runs))


def read(path: Path) -> Study:
    """Read a study file (YAML)."""
    tree = config.read_file(path, "study")
    if "version" not in tree and set(tree) & set(Experiment.model_fields):
        raise FedtideError(
            f"{path} is an experiment, not a study: use `fedtide run {path}`; a study has version and name"
        )
    if tree.get("version") != VERSION:
        raise FedtideError(
            f"{path} is a study of version {tree.get('version')!r}; this fedtide reads version {VERSION}: "
            f"write 'version: {VERSION}' at its top after checking its keys"
        )
    try:
        file = _File.model_validate(tree)
    except ValidationError as error:
        raise FedtideError(f"{path}: {_explain(error.errors()[0])}") from None
    for axis, values in file.axes.items():
        if axis not in config.all_keys():
            raise FedtideError(f"{path}: the axis {axis!r} names no field of an experiment{config.nearest(axis)}")
        if not values:
            raise FedtideError(f"{path}: the axis {axis!r} has no values; give a list of at least one")
    if any("seed" in part for part in (file.axes, file.base, *file.variants.values())):
        raise FedtideError(f"{path}: `seed` belongs to no axis, base or variant; say `seeds: [1, 2]` or `seeds: 5`")
    seeds = list(range(file.seeds)) if isinstance(file.seeds, int) else file.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        reason = "repeats a seed" if seeds else "leaves nothing to run"
        raise FedtideError(f"{path}: seeds={file.seeds} {reason}; give a number or a list of different ones")
    try:
        return make(file.name, _grid(file), seeds, file.base)
    except FedtideError as error:
        raise FedtideError(f"{path}: {error}") from None


def _explain(error: Any) -> str:
    """Say in one line what is wrong with a study file."""
    key = ".".join(map(str, error["loc"]))
    if error["type"] != "extra_forbidden":
        return f"{key}: {error['msg'][0].lower()}{error['msg'][1:]}"
    near = difflib.get_close_matches(key, _File.model_fields, 1)
    hint = f"did you mean {near[0]}?" if near else f"a study has {', '.join(_File.model_fields)}"
    return f"{key} is not a key of a study: {hint}"


def _grid(file: _File) -> dict[str, dict[str, Any]]:
    """Cross the named variants with the axes; labels say what differs."""
    found: dict[str, dict[str, Any]] = {}
    for name, tree in (file.variants or {"": {}}).items():
        for places in itertools.product(*(range(len(values)) for values in file.axes.values())):
            words, merged = [name] * bool(name), dict(tree)
            for (axis, values), place in zip(file.axes.items(), places, strict=True):
                group, _, key = axis.rpartition(".")
                merged = config.merge(merged, {group: {key: values[place]}} if group else {key: values[place]})
                text = yaml.safe_dump(values[place], default_flow_style=True, width=1e9).splitlines()[0]
                words.append(f"{key}={text if len(text) <= _LONG else f'#{place + 1}'}")
            found[", ".join(words) or file.name] = merged
    return found
