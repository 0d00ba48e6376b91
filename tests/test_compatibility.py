"""Run folders begun by earlier versions go on to the end that those versions would have reached, to the bit.

v0.1: by the first version; before-open-parts: by the last one whose radio was fixed and whose policies could not remember.
The folders were written on the instruction path `baseline` of x86-64. NumPy's own functions differ in their last digit where it
finds AVX-512, so the end is compared to the bit only on machines like the one that wrote them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide import config
from fedtide.engine.simulate import simulate
from fedtide.errors import RunFolderError
from fedtide.learning import native
from fedtide.runs import read_experiment, read_run
from machine import numpy_has_avx512

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ("v0.1", "before-open-parts")
KINDS = ("periodic", "fedavg", "fedasync", "fedbuff", "norms")
ENDS = {each: json.loads((FIXTURES / each / "ends.json").read_text(encoding="utf-8")) for each in VERSIONS}
DIGESTS = json.loads((FIXTURES / "before-open-parts" / "digests.json").read_text(encoding="utf-8"))

runs = pytest.mark.parametrize(("version", "name"), [(version, name) for version in VERSIONS for name in KINDS])

needs_baseline = pytest.mark.skipif(
    platform.machine() != "x86_64" or "baseline" not in native.isas(), reason="written on x86-64's baseline path"
)


@runs
def test_identity_has_not_changed(version: str, name: str) -> None:
    assert config.digest(read_experiment(FIXTURES / version / name)) == ENDS[version][name]["digest"]


@pytest.mark.parametrize("row", DIGESTS, ids=lambda row: json.dumps(row["experiment"])[:60])
def test_a_key_added_since_changes_no_digest(row: dict[str, Any]) -> None:
    """The digests are those of the version before; keys that it did not know are at their defaults here."""
    assert config.digest(config.experiment(row["experiment"])) == row["digest"]
    written = config.dump(config.experiment(row["experiment"]))
    assert config.digest(config.experiment(written)) == row["digest"]  # spelled out in full, it is the same


def test_the_digests_are_of_different_experiments() -> None:
    assert len({row["digest"] for row in DIGESTS}) == len(DIGESTS) >= 12


@needs_baseline
@runs
def test_a_run_begun_before_goes_on_to_its_end(
    version: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDTIDE_ISA", "baseline")
    monkeypatch.chdir(FIXTURES / version)  # where a scheduler of the user's own lies
    folder, ends = tmp_path / name, ENDS[version][name]
    shutil.copytree(FIXTURES / version / name, folder)
    half = read_run(folder).rounds
    assert 0 < len(half) < ends["aggregations"]
    finished = simulate(read_experiment(folder), folder)
    assert finished.rounds[: len(half)] == half
    assert len(finished.rounds) == ends["aggregations"]
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {tuple(line) for line in lines} == {tuple(lines[0])}  # it stays in the format that it was begun in
    assert "format" not in lines[-1]
    if numpy_has_avx512():
        return
    for part, file in (("rounds", "rounds.jsonl"), ("model", "model.npy")):
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == ends[part]


@needs_baseline
def test_a_users_scheduler_that_was_changed_since_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = FIXTURES / "before-open-parts"
    shutil.copytree(old / "periodic", tmp_path / "run")
    (tmp_path / "own.py").write_text((old / "own.py").read_text(encoding="utf-8") + "# changed\n")
    monkeypatch.setenv("FEDTIDE_ISA", "baseline")
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match=r"own\.py"):
        simulate(read_experiment(tmp_path / "run"), tmp_path / "run")
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before


@pytest.mark.parametrize("version", VERSIONS)
def test_a_whole_run_is_shown(version: str) -> None:
    found = read_run(FIXTURES / version / "federation")
    assert found.complete
    assert len(found.rounds) == 8
    assert np.isfinite(found.rounds[-1].test_accuracy or np.nan)
