"""What a run depends on besides its experiment: packages, instruction path, files, data, and parts that were handed over.

versions.json keeps it, and the manifest in the checkpoint repeats it: a run goes on only with what it was begun with.
Arrays are compared by SHA-256 of what they hold (MNIST takes an eighth of a second), objects by name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import os
import platform
import subprocess
import sys
import types
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from fedtide import __version__, config
from fedtide.config import Experiment
from fedtide.config.workload import LARGE_FLEET_DEVICES
from fedtide.core.files import is_own_file
from fedtide.data.fetch import fetched_folder_digest
from fedtide.data.holdings import has_virtual_holdings
from fedtide.devices.fleet import Fleet
from fedtide.engine.making import make_channel, make_coverage, make_system_part
from fedtide.engine.system import System
from fedtide.learning.model import Model
from fedtide.learning.trainer import trainer_backend
from fedtide.parts import checks, user_code
from fedtide.parts.user_code import user_file_digest, user_source_digest
from fedtide.timeline.clock import Ticks, clock_span, start_times
from fedtide.types import Dataset

UNKNOWN_PATH = "unknown"
_MOST_ASKED = 64  # devices that are asked what they hold, if that is computed from their numbers
_MOST_TICK_ROWS = 10_000  # ticks and ready devices of a large fleet's timeline that are digested


class Versions(BaseModel):
    """versions.json: what a run was begun with. Versions of packages are further fields."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    isa: str | None  # the instruction path of the kernel; None: another package trains
    files: dict[str, str]  # SHA-256 of the user's own files, by name
    commit: str | None = None
    beside: str | None = None  # the folder from which the user's own files were named, percent-encoded
    identity: dict[str, str] | None = None  # what a simulation is made of; None: a federation or a replay
    handed: list[str] = []  # which of its parts a caller of `simulate` handed over

    @property
    def files_folder(self) -> Path | None:
        """The folder from which the user's own files were named."""
        return Path(os.fsdecode(unquote_to_bytes(self.beside))) if self.beside else None


class Manifest(BaseModel):
    """What a checkpoint says about itself and the files beside it."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    format: Literal[1] = 1
    experiment: str  # digest
    rounds_bytes: NonNegativeInt  # length of rounds.jsonl
    rounds_sha256: str  # of these bytes
    versions: Versions


def manifest_versions(experiment: Experiment) -> dict[str, Any]:
    """Return what a result may depend on besides the experiment: packages, instruction path, the user's own files."""
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine(), "fedtide": __version__}
    for package in ("numpy", "scipy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    found["isa"] = manifest_instruction_path(experiment)
    # The kernel's expf and log are the platform's.
    found["libm"] = " ".join(platform.libc_ver()).strip() or f"{platform.system()} {platform.release()}"
    sources = file_sources(experiment)
    return {
        **found,
        "files": policy_files(experiment),
        **({"sources": sources} if sources else {}),
        "commit": _commit(),
    }


def provenance(experiment: Experiment) -> dict[str, Any]:
    """Return the versions and the date (UTC): what a stored result carries."""
    return {**manifest_versions(experiment), "date": datetime.now(UTC).isoformat(timespec="seconds")}


def manifest_instruction_path(experiment: Experiment) -> str | None:
    """Return the path on which this machine would train an experiment; None if another package trains."""
    from fedtide.learning.native import native_isa  # planning does without the kernel

    return native_isa() if trainer_backend(experiment.learning.trainer) == "native" else None


def policy_files(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 of the user's own files that an experiment names, by name: parts, and what their arguments name.

    So of a data folder, if what it holds is known by no checksum of ours.
    """
    own = {name: digest for name in config.own_file_keys(experiment).values() if (digest := user_source_digest(name))}
    own |= {place: user_file_digest(place) for place in config.experiment_argument_files(experiment).values()}
    held = fetched_folder_digest(experiment.part("data").name, experiment.data.folder)
    return own if held is None else {**own, "data.folder": held}


def file_sources(experiment: Experiment) -> dict[str, str]:
    """Return where measured uplinks come from and under which licence, by the name of their file, if that is known."""
    place = config.experiment_argument_files(experiment).get("radio.channel.path")
    if place is None:
        return {}
    channel = make_system_part(experiment, "channel", run_coverage=make_coverage(experiment))
    said = [getattr(channel, name, "") for name in ("source", "license")]
    return {place: "; ".join(filter(None, said))} if any(said) else {}


@functools.cache
def _commit() -> str | None:
    """Return the commit that this code was checked out at, with a + if it was changed since; None outside a checkout."""
    folder = Path(__file__).parent
    try:
        top = Path(_git(folder, "rev-parse", "--show-toplevel"))
        if top != folder.parents[2] or not (top / "pyproject.toml").exists():
            return None  # installed inside somebody else's checkout
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", str(folder.parent), "native")
        return _git(folder, "rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


# What a simulation is made of besides its experiment.


def run_identity(system: System, trainer: Any) -> dict[str, str]:
    """Return what a run is made of, by part: digests of numbers, names of objects."""
    policies = {**system.policy._asdict(), "codec": system.codec}
    own_model = is_own_file(system.experiment.learning.model.name)
    return {
        "data": data_digest(system.dataset),
        "fleet": _fleet_digest(system.fleet),
        "timeline": _timeline_digest(system),
        "policies": "; ".join(f"{kind}={_described(policy)}" for kind, policy in policies.items()),
        "model": repr(system.model) if isinstance(system.model, Model) else _type_label(system.model, own_model),
        "trainer": trainer_name(trainer),
        **_replaced(system),
    }


def _timeline_digest(system: System) -> str:
    """Return the digest of all ticks; of a large fleet on a timeline of ours, of how long it is and how it begins."""
    ticks, symbols = system.ticks, system.num_symbols
    if not isinstance(ticks, Ticks) or system.fleet.num_devices <= LARGE_FLEET_DEVICES:
        columns = (column for tick in ticks for column in (tick.ready, tick.start))
        return _digest(chain([start_times(ticks)[2:], np.array([symbols])], columns))
    span, seen, rows = clock_span(ticks), [], 0
    for tick in ticks:
        seen += [np.array([tick.time]), tick.ready, tick.start]
        rows += 1 + len(tick.ready)
        if rows > _MOST_TICK_ROWS:
            break
    return _digest([np.array([span.count, span.end, symbols]), *seen])


def _replaced(system: System) -> dict[str, str]:
    """Return channel, allocation and energy where a caller put others in the place of those that the experiment names."""
    experiment = system.experiment
    found = {"channel": system.channel, "allocation": system.allocation, "energy": system.energy}
    named = {
        "channel": make_channel(experiment, make_coverage(experiment)),
        **{kind: make_system_part(experiment, kind) for kind in ("allocation", "energy")},
    }
    texts = {kind: _described(part) for kind, part in found.items()}
    return {kind: text for kind, text in texts.items() if text != _described(named[kind])}


def _fleet_digest(fleet: Fleet) -> str:
    """Return the SHA-256 of what devices take and hold; of virtual holdings, what devices spread over the fleet hold."""
    held, some = fleet.partition, range(len(fleet.partition))
    if has_virtual_holdings(held):
        some = some[:: max(len(held) // _MOST_ASKED, 1)]
    counts = fleet.label_counts if len(some) == len(held) else fleet.label_counts[np.array(some)]
    return _digest([fleet.duration, fleet.num_samples, counts, *(held[device] for device in some)])


def data_digest(dataset: Dataset) -> str:
    """Return the SHA-256 of what a data set holds: images, labels and what bytes stand for, of all samples."""
    held = [each for each in (*dataset.train, *dataset.test, *(dataset.held_out or ())) if each is not None]
    return _digest([*held, np.array([dataset.num_labels])])


def _digest(arrays: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for each in arrays:
        array = np.ascontiguousarray(each)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _described(part: Any) -> str:
    """Name a part with its settings, in the same words in every process; a user's own settings are in the experiment."""
    if isinstance(part, checks.Guarded):
        ours = checks.is_ours(part)
        return f"{part.name} {_described(part.policy) if ours else _type_label(part.policy, is_own_file(part.name))}"
    if dataclasses.is_dataclass(part) and type(part).__module__.startswith("fedtide."):
        names = [field.name for field in dataclasses.fields(part) if field.compare]
        inside = (f"{name}={_described(getattr(part, name))}" for name in names)
        return f"{type(part).__qualname__}({', '.join(inside)})"
    if callable(part):
        return _type_label(part) + ("" if checks.is_ours(part) else _settings(part))
    return _plain(part) or repr(part)


def _settings(policy: Any) -> str:
    """Return the plain values that a policy was made with: a caller may hand over one of the same class with others."""
    if isinstance(policy, functools.partial):
        values: dict[str, Any] = {"": policy.args, **policy.keywords}
    elif isinstance(policy, types.FunctionType):
        inner = inspect.getclosurevars(policy).nonlocals
        values = {**inner, "defaults": policy.__defaults__, **(policy.__kwdefaults__ or {})}
    else:
        values = getattr(policy, "__dict__", {})
    plain = {name: text for name, value in sorted(values.items()) if (text := _plain(value))}
    return f"({', '.join(f'{name}={text}' for name, text in plain.items())})" if plain else ""


def _plain(value: Any) -> str:
    """Write a value down if it is the same text in every process; "" for what is not."""
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_plain, value))}]" if value else ""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc"):
        return repr(value.item()) if value.size == 1 else _digest([value])[:12]
    return ""


def trainer_name(trainer: Any) -> str:
    """Name a trainer: native and torch are ours; one of your own is known by its class, and by its `name` if it has one."""
    own = isinstance(trainer, checks.Guarded) and is_own_file(trainer.name)
    trainer = trainer.policy if isinstance(trainer, checks.Guarded) else trainer
    kind = type(trainer)
    if kind.__module__.startswith("fedtide."):
        return str(getattr(trainer, "name", kind.__module__.rpartition(".")[2]))
    name = getattr(trainer, "name", None)
    return _type_label(trainer, own) + (f" {name}" if isinstance(name, str) else "")


def _type_label(thing: Any, own: bool = False) -> str:
    """Return module.name of a function, or of the class of anything else; a script is the module that its file would be.

    own: it is named by its file in the experiment, whose content is in versions.json, so that the name alone is enough.
    """
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    module = str(getattr(named, "__module__", None))
    if module == "__main__":
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or module).stem
    if own or module.startswith(user_code.MODULE):  # named after where the file lies; what it holds is in versions.json
        return str(named.__qualname__)
    return f"{module}.{named.__qualname__}"
