from __future__ import annotations

import errno
import os

import pytest

from fedtide.errors import RunFolderError
from fedtide.study.result import COLUMNS, RunResult, Store, same

RESULT = RunResult({"seed": 1}, {name: [0.1, None] for name in COLUMNS}, {"seconds": 2.0, "uploads": 3})


def test_round_trip(tmp_path):
    store = Store(tmp_path / "deep" / "store")
    store.save("abc", RESULT)
    assert store.has("abc")
    assert store.load("abc") == RESULT
    assert same(RESULT, RESULT._replace(totals={"seconds": 9.0, "uploads": 3}))
    assert not same(RESULT, RESULT._replace(totals={"seconds": 2.0, "uploads": 4}))


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.save("abc", RESULT)

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left"):
        store.save("abc", RESULT._replace(experiment={"seed": 2}))
    with pytest.raises(RunFolderError, match="No space left"):
        store.save("new", RESULT)
    assert store.load("abc") == RESULT
    assert not store.has("new")
    assert [path.name for path in tmp_path.iterdir()] == ["abc.json.gz"]


def test_damage_is_said(tmp_path):
    store = Store(tmp_path)
    (tmp_path / "abc.json.gz").write_bytes(b"nonsense")
    with pytest.raises(RunFolderError, match="damaged"):
        store.load("abc")


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be made"):
        Store(tmp_path / "file")
