"""Run folders begun by earlier versions go on to the end that those versions would have reached, to the bit.

The folders were written on the instruction path `baseline` of x86-64. NumPy's own functions differ in their last digit where it
finds AVX-512, so the end is compared to the bit only on machines like the one that wrote them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedtide import config
from fedtide.drivers.simulate import simulate
from fedtide.learning import native
from fedtide.records import read_experiment, read_run
from fedtide.studies.result import Store

FIXTURES = Path(__file__).parent / "fixtures" / "v0.1"
ENDS = json.loads((FIXTURES / "ends.json").read_text(encoding="utf-8"))
RUNS = [name for name in ENDS if not name.startswith("federation")]

needs_baseline = pytest.mark.skipif(
    platform.machine() != "x86_64" or "baseline" not in native.isas(), reason="written on x86-64's baseline path"
)


def numpy_has_avx512() -> bool:
    from numpy._core._multiarray_umath import __cpu_features__

    return any(__cpu_features__.get(name) for name in ("AVX512_SKX", "X86_V4"))  # as NumPy 1 and 2 call it


@pytest.mark.parametrize("name", RUNS)
def test_identity_has_not_changed(name: str) -> None:
    assert config.digest(read_experiment(FIXTURES / name)) == ENDS[name]["digest"]


@needs_baseline
@pytest.mark.parametrize("name", RUNS)
def test_a_run_begun_by_version_0_1_goes_on_to_its_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDTIDE_ISA", "baseline")
    folder = tmp_path / name
    shutil.copytree(FIXTURES / name, folder)
    half = read_run(folder).rounds
    assert 0 < len(half) < ENDS[name]["aggregations"]
    finished = simulate(read_experiment(folder), folder)
    assert finished.rounds[: len(half)] == half
    assert len(finished.rounds) == ENDS[name]["aggregations"]
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {tuple(line) for line in lines} == {tuple(lines[0])}  # it stays in the format that it was begun in
    assert "format" not in lines[-1]
    if numpy_has_avx512():
        return
    for part, file in (("rounds", "rounds.jsonl"), ("model", "model.npy")):
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == ENDS[name][part]


def test_a_whole_run_of_version_0_1_is_shown() -> None:
    found = read_run(FIXTURES / "federation")
    assert found.complete
    assert len(found.rounds) == 8
    assert np.isfinite(found.rounds[-1].test_accuracy or np.nan)


def test_a_result_of_version_0_1_is_read_and_says_unknown() -> None:
    found = Store(FIXTURES / "results").load("e1a3f3346d4aab71")
    assert found.path == "unknown"
    assert found.provenance is None
    assert len(found.column("test_accuracy")) == 35
