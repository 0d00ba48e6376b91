"""Throw-away environments: one per requirements file, under build/ (not in git), made anew when the file changes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / "build" / "peers"
# First, and with what it needs: which build it is (CPU) is pip's configuration, and nothing later may replace it.
TORCH = "torch==2.13.0"


def requirements(name: str) -> Path:
    return HERE / f"requirements-{name}.txt"


def pinned(name: str, package: str) -> str:
    """Return the version of a package in an environment's requirements."""
    lines = requirements(name).read_text().splitlines()
    return next(line.partition("==")[2] for line in lines if line.partition("==")[0].lower() == package)


def python_of(name: str) -> Path:
    """Return an environment's interpreter; make the environment if it is not there. Raises CalledProcessError."""
    folder, wanted = CACHE / name, hashlib.sha256(requirements(name).read_bytes()).hexdigest()
    python, stamp = folder / "bin" / "python", folder / "made-of"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"{name}: making its environment", flush=True)
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    _run(str(python), "-m", "pip", "install", "--quiet", TORCH)
    _run(str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(requirements(name)))
    stamp.write_text(wanted)
    return python


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
