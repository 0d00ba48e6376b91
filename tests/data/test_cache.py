from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from fedtide.data.fetch import cache_folder, store


def test_folder_in_order_of_preference(tmp_path):
    everything = {"FEDTIDE_CACHE": str(tmp_path / "a"), "XDG_CACHE_HOME": str(tmp_path / "b")}
    assert cache_folder(everything) == tmp_path / "a"
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path / "b")}) == tmp_path / "b" / "fedtide"


@pytest.mark.parametrize(
    ("platform", "environ", "place"),
    [
        ("linux", {}, ".cache/fedtide"),
        ("linux", {"XDG_CACHE_HOME": "relative/is/ignored"}, ".cache/fedtide"),
        ("linux", {"FEDTIDE_CACHE": "~/here"}, "here"),
        ("darwin", {}, "Library/Caches/fedtide"),
        ("win32", {}, "AppData/Local/fedtide/Cache"),
    ],
)
def test_folder_of_each_platform(platform, environ, place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert cache_folder(environ, platform) == tmp_path / place


def test_a_user_without_home_has_a_cache(monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder({}, "linux").name == "fedtide"


def test_store_makes_the_folder_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "x" / "y" / "file"
    store(path, b"one")
    store(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    store(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        store(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_readers_never_see_a_part(tmp_path):
    path = tmp_path / "file"
    versions = [bytes([value]) * 200_000 for value in range(4)]
    store(path, versions[0])
    writers = [threading.Thread(target=lambda data=data: [store(path, data) for _ in range(10)]) for data in versions]
    for writer in writers:
        writer.start()
    seen = []
    while any(writer.is_alive() for writer in writers):
        seen.append(path.read_bytes())
    for writer in writers:
        writer.join()
    assert all(data in versions for data in seen)
    assert list(tmp_path.iterdir()) == [path]
