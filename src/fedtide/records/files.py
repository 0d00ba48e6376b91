"""Files that are never half written, and what a result depends on besides its experiment."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedtide.config import Experiment
from fedtide.errors import RunFolderError
from fedtide.plugins import source_digest


def write_atomically(path: Path, content: bytes) -> None:
    """Write aside, sync, rename: the file is the old one or the new one, never half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RunFolderError(
            f"{path} cannot be written ({error.strerror}): free space or choose another folder"
        ) from error


def versions(experiment: Experiment) -> dict[str, Any]:
    """Return what a result may depend on besides the experiment."""
    from fedtide.learning.native import isa  # planning does without the kernel

    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("fedtide", "numpy", "scipy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    found["isa"] = isa() if experiment.learning.trainer == "native" else None
    found["files"] = policy_files(experiment)
    return found


def policy_files(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 of the user's own files that an experiment names, by name."""
    named = (
        experiment.timeline.name,
        experiment.policy.scheduler,
        experiment.policy.weighting,
        experiment.policy.combiner,
        experiment.codec.name,
        experiment.learning.model,
    )
    return {name: digest for name in named if (digest := source_digest(name))}
