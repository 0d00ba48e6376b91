"""A study: a base experiment, axes or named variants, and seeds. Every run is named by the hash of its experiment."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError

VERSION = 1


class Run(NamedTuple):
    """One run of a study: its variant's label, its place on the axes, its seed."""

    label: str
    experiment: Experiment

    @property
    def name(self) -> str:
        """The hash that identifies the run."""
        return config.digest(self.experiment)


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
    name: str
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
    runs = [
        Run(label, config.experiment(base or {}, tree, {"seed": seed}))
        for seed in seeds
        for label, tree in variants.items()
    ]
    return Study(name, tuple(runs))


def read(path: Path) -> Study:
    """Read a study file (YAML)."""
    tree = config.read_file(path)
    if tree.get("version") != VERSION:
        raise FedtideError(
            f"{path} is a study of version {tree.get('version')!r}; this fedtide reads version {VERSION}: "
            f"write 'version: {VERSION}' at its top after checking its keys"
        )
    try:
        file = _File.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        raise FedtideError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    for axis in file.axes:
        if axis not in config.all_keys():
            hint = config.nearest(axis)
            raise FedtideError(f"{path}: the axis {axis!r} names no field of an experiment{hint}")
    seeds = list(range(file.seeds)) if isinstance(file.seeds, int) else file.seeds
    if not seeds:
        raise FedtideError(f"{path}: seeds={file.seeds} leaves nothing to run; give a number or a list")
    return make(file.name, _grid(file), seeds, file.base)


def _grid(file: _File) -> dict[str, dict[str, Any]]:
    """Cross the named variants with the axes; labels say what differs."""
    found: dict[str, dict[str, Any]] = {}
    for name, tree in (file.variants or {"": {}}).items():
        for values in itertools.product(*file.axes.values()):
            words = [
                f"{axis}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}"
                for axis, value in zip(file.axes, values, strict=True)
            ]
            short = [word.rpartition("=")[0].rpartition(".")[2] + "=" + word.rpartition("=")[2] for word in words]
            label = ", ".join([name] * bool(name) + short) or file.name
            found[label] = config.merge(tree, config.parse_overrides(words))
    return found
