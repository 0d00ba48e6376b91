"""Federations begun or finished by earlier versions; see tests/test_compatibility.py."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_grid import Federation, terms

from fedtide.flower import node
from fedtide.flower.replay import replay
from fedtide.learning import native
from fedtide.records import read_run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v0.1"
pytestmark = pytest.mark.skipif("baseline" not in native.isas(), reason="written on the baseline path")


@pytest.fixture(autouse=True)
def on_the_baseline_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FEDTIDE_ISA", "baseline")
    node._trainer.cache_clear()  # a node is on one path for life
    yield
    node._trainer.cache_clear()


def test_a_federation_begun_by_version_0_1_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / "federation-half", folder)
    before = (folder / "rounds.jsonl").read_bytes()
    Federation(terms(), folder).coordinator().run()
    assert (folder / "rounds.jsonl").read_bytes().startswith(before)
    assert len(read_run(folder).rounds) == 8


def test_a_federation_of_version_0_1_is_replayed_to_the_bit(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / "federation", folder)
    again = replay(folder)
    assert again.compared == 8
    assert again.first_difference is None
