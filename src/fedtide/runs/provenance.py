"""Where numbers come from: everything besides the experiment that a result may depend on, and when it was made."""

from __future__ import annotations

import functools
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedtide import config
from fedtide.config import Experiment
from fedtide.data.fetch import folder_digest
from fedtide.errors import RunFolderError
from fedtide.learning.trainer import backend
from fedtide.parts.user_code import file_digest, source_digest
from fedtide.runs.reading import read_versions

UNKNOWN_PATH = "unknown"


def versions(experiment: Experiment) -> dict[str, Any]:
    """Return what a result may depend on besides the experiment: packages, instruction path, the user's own files."""
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("fedtide", "numpy", "scipy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    found["isa"] = instruction_path(experiment)
    # The kernel's expf and log are the platform's.
    found["libm"] = " ".join(platform.libc_ver()).strip() or f"{platform.system()} {platform.release()}"
    found["files"] = policy_files(experiment)
    return found


def instruction_path(experiment: Experiment) -> str | None:
    """Return the path on which this machine would train an experiment; None if another package trains."""
    from fedtide.learning.native import isa  # planning does without the kernel

    return isa() if backend(experiment) == "native" else None


def provenance(experiment: Experiment) -> dict[str, Any]:
    """Return the versions, the commit if this is a checkout, and the date (UTC): what a stored result carries."""
    return {**versions(experiment), "commit": commit(), "date": datetime.now(UTC).isoformat(timespec="seconds")}


def made_on(folder: Path) -> str | None:
    """Return the instruction path on which a run was made, as its folder says; None without one (torch) or if it is lost.

    Of a federation it says nothing: there the devices train, each on its own path, which its trace has.
    """
    if (folder / "trace.jsonl").exists():
        return None
    found: str | None = _begun_with(folder).get("isa")
    return found


def policy_files(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 of the user's own files that an experiment names, by name: parts, and what their arguments name.

    So of a data folder, if what it holds is known by no checksum of ours.
    """
    own = {name: digest for name in config.own_files(experiment).values() if (digest := source_digest(name))}
    own |= {place: file_digest(place) for place in config.experiment_argument_files(experiment).values()}
    held = folder_digest(experiment.data.name, experiment.data.args.get("folder", experiment.data.folder))
    return own if held is None else {**own, "data.folder": held}


def names_files(experiment: Experiment) -> bool:
    """Say whether an experiment names a file of the user's own, there or not."""
    return bool(config.own_files(experiment))


def part_files_folder(folder: Path) -> Path | None:
    """Return the folder from which a run's own policy files were named when it was begun; None if it has none, or before."""
    found = _begun_with(folder).get("beside")
    return Path(found) if isinstance(found, str) else None


def begun_with(folder: Path) -> dict[str, str]:
    """Return what a run in this folder was made of when it was begun; nothing if there is none, or it did not write it down."""
    found: dict[str, str] = _begun_with(folder).get("identity") or {}
    return found


def _begun_with(folder: Path) -> dict[str, Any]:
    """Return what versions.json says; nothing if it cannot be had, which whoever opens the run tells of."""
    try:
        return read_versions(folder)
    except RunFolderError:
        return {}


@functools.cache
def commit() -> str | None:
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
