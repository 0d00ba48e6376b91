from __future__ import annotations

import errno
import gzip
import json
import os

import pytest

from fedtide.errors import RunFolderError
from fedtide.study.result import COLUMNS, FORMAT, RunResult, Store, same

RESULT = RunResult(
    {"seed": 1, "timeline": {"horizon": 2.0}}, {name: [0.1, None] for name in COLUMNS}, {"seconds": 2.0, "uploads": 3}
)


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


@pytest.mark.parametrize("offset", [12, 20, 40])
def test_damage_inside_is_said(tmp_path, offset):
    whole = tmp_path / "abc.json.gz"
    Store(tmp_path).save("abc", RESULT)
    content = bytearray(whole.read_bytes())
    content[offset : offset + 8] = bytes(8)
    whole.write_bytes(content)
    with pytest.raises(RunFolderError, match="damaged"):
        Store(tmp_path).load("abc")


@pytest.mark.parametrize(
    "tree", [{"columns": {}}, {"experiment": {}}, {"experiment": 3}, {"totals": None}, {"columns": {"time": [1.0]}}]
)
def test_a_result_that_is_not_whole_is_said(tmp_path, tree):
    text = json.dumps({"format": FORMAT, **RESULT._asdict(), **tree})
    (tmp_path / "abc.json.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(RunFolderError, match="damaged"):
        Store(tmp_path).load("abc")


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be made"):
        Store(tmp_path / "file").save("abc", RESULT)
