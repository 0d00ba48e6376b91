"""Federations begun or finished by earlier versions; see tests/test_compatibility.py."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_grid import Federation, terms

from fedtide.deploy import node
from fedtide.deploy.replay import replay
from fedtide.learning import native
from fedtide.runs import read_run
from machine import numpy_has_avx512

FIXTURES = Path(__file__).parents[1] / "fixtures"
versions = pytest.mark.parametrize("version", ["v0.1", "before-open-parts"])
pytestmark = pytest.mark.skipif("baseline" not in native.isas(), reason="written on the baseline path")


@pytest.fixture(autouse=True)
def on_the_baseline_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FEDTIDE_ISA", "baseline")
    node._trainer.cache_clear()  # a node is on one path for life
    yield
    node._trainer.cache_clear()


@versions
def test_a_federation_begun_before_goes_on(version: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / version / "federation-half", folder)
    before = (folder / "rounds.jsonl").read_bytes()
    Federation(terms(), folder).coordinator().run()
    assert (folder / "rounds.jsonl").read_bytes().startswith(before)
    assert len(read_run(folder).rounds) == 8


@versions
def test_a_federation_of_before_is_replayed_to_the_bit(version: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / version / "federation", folder)
    again = replay(folder)
    assert again.compared == 8
    assert again.first_difference is None


@pytest.mark.skipif(numpy_has_avx512(), reason="written by a NumPy without AVX-512")
@versions
def test_a_federation_begun_now_ends_with_the_same_model(version: str, tmp_path: Path) -> None:
    Federation(terms(), tmp_path / "run").coordinator().run()
    assert (tmp_path / "run" / "model.npy").read_bytes() == (
        FIXTURES / version / "federation" / "model.npy"
    ).read_bytes()
