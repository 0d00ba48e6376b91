"""A committed run that stopped half way goes on to the committed end, so that a change of bits or of the format is noticed.

After a change that is meant, write the folder anew: python tests/test_half_run.py

Both happen in a process on the baseline path of the kernel, and without AVX-512 in NumPy, whose functions differ in their
last digit where it finds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedtide
from fedtide.learning import native
from fedtide.runs import read_run

FIXTURE = Path(__file__).parent / "fixtures" / "half_run"
ENDS = FIXTURE / "ends.json"  # digests of the files of the whole run
KEYS: dict[str, Any] = {
    "data": {"name": "synthetic", "num_train": 200, "num_test": 40, "num_shards": 20},
    "fleet": {"num_devices": 6},
    "timeline": {"horizon": 2.0},
    "policy": {"limit": 2, "scheduler": "proportional_fair"},
    "radio": {"num_symbols": 8000},
    "learning": {"model": "softmax", "batch_size": 10},
}


def digests(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("rounds.jsonl", "model.npy")}


@pytest.mark.skipif(
    platform.machine() != "x86_64" or "baseline" not in native.isas(), reason="written on x86-64's baseline path"
)
def test_the_committed_half_goes_on_to_its_end(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE, tmp_path / "run", ignore=shutil.ignore_patterns("ends.json"))
    half = read_run(tmp_path / "run")
    assert (len(half.rounds), half.complete) == (4, False)
    plainly("resume", tmp_path / "run")
    assert read_run(tmp_path / "run").rounds[:4] == half.rounds
    assert digests(tmp_path / "run") == json.loads(ENDS.read_text(encoding="utf-8"))


def plainly(*words: object) -> None:
    """Run this file in a process without AVX-512."""
    from numpy._core._multiarray_umath import __cpu_dispatch__

    late = [name for name in __cpu_dispatch__ if "AVX512" in name or name == "X86_V4"]
    env = {**os.environ, "FEDTIDE_ISA": "baseline", "NPY_DISABLE_CPU_FEATURES": " ".join(late)}
    command = [sys.executable, "-W", "ignore::ImportWarning", __file__, *map(str, words)]
    subprocess.run(command, check=True, env=env)


def write() -> None:
    """Make the folder anew."""

    def stop(record: Any, total: int) -> None:
        if record.index == 4:
            raise KeyboardInterrupt

    shutil.rmtree(FIXTURE, ignore_errors=True)
    fedtide.simulate(KEYS, FIXTURE)
    end = digests(FIXTURE)
    shutil.rmtree(FIXTURE)
    try:
        fedtide.simulate(KEYS, FIXTURE, on_round=stop)
    except KeyboardInterrupt:
        (FIXTURE / ".lock").unlink()
        ENDS.write_text(json.dumps(end, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["resume", folder]:
            fedtide.simulate(read_run(folder).experiment, folder)
        case ["write"]:
            write()
        case _:
            plainly("write")
