"""tools/repeat.py: stored runs are repeated to the bit, and what does not repeat is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tools import repeat

from fedtide.studies import Store, make_study
from fedtide.studies.run import run_study

TINY = {
    "data": {"name": "synthetic", "num_train": 400, "num_test": 100, "num_shards": 40},
    "fleet": {"num_devices": 8},
    "policy": {"limit": 3},
    "learning": {"model": "softmax"},
    "timeline": {"horizon": 2},
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    kept = Store(tmp_path / "store")
    assert not run_study(make_study("tiny", {"random": TINY | {"seed": 0}}, [0, 1]), kept, workers=1, backend="here")
    return Store(tmp_path / "store")


def repeated(store: Store, *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["repeat.py", str(store.folder), "--workers", "1", *words])
    return repeat.main()


def altered(store: Store, **change: object) -> None:
    """Store the results again, each with these changes."""
    results = [(name, dataclasses.replace(store.load(name), **change)) for name in sorted(store.names())]
    store.write(results, store.studies)


def test_stored_runs_repeat(store, monkeypatch, capsys):
    assert repeated(store, monkeypatch=monkeypatch) == 0
    assert "2 of 2 runs repeat to the bit" in capsys.readouterr().out
    assert not (store.folder / ".repeated").exists()


def test_a_last_bit_is_noticed(store, monkeypatch, capsys):
    columns = {name: values.copy() for name, values in store.load(min(store.names())).columns.items()}
    columns["test_loss"][-1] *= 1 + 2**-52
    altered(store, columns=columns)
    assert repeated(store, monkeypatch=monkeypatch) == 1
    assert "test_loss" in capsys.readouterr().out


def test_runs_of_unknown_origin_are_made_anew(store, monkeypatch):
    altered(store, provenance={**(store.load(min(store.names())).provenance or {}), "commit": None})
    assert all(repeat.is_unknown(store.load(name)) for name in store.names())
    assert repeated(store, "--unknown", "--count", "1", monkeypatch=monkeypatch) == 0
    fresh = Store(store.folder)
    assert sum(not repeat.is_unknown(fresh.load(name)) for name in fresh.names()) == 1
