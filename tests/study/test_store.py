from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fedtide.studies.stored_format import pack_result

from fedtide import config
from fedtide.core import files as core_files
from fedtide.errors import RunFolderError
from fedtide.studies.results import COLUMNS, LATER, ZERO, RunResult, same
from fedtide.studies.spec import name_of
from fedtide.studies.store import Store
from stored import TINY, name, put, result, tree, two_variants, write

NAME = name()
COMMITTED = Path(__file__).parents[2] / "results" / "paper"


def test_round_trip(tmp_path):
    store, kept = Store(tmp_path / "deep" / "store"), result(isa="avx2")
    store.save(NAME, kept)
    assert store.has(NAME)
    assert store.has(NAME, "avx2")
    assert not store.has(NAME, "avx512")
    assert store.load(NAME) == kept
    assert same(kept, kept._replace(totals={**kept.totals, "seconds": 9.0}, provenance=None))
    assert not same(kept, kept._replace(totals={**kept.totals, "uploads": 4}))


def test_every_committed_result_is_read():
    store = Store(COMMITTED)
    found = [store.load(each) for each in store.all_files()]
    assert len(found) >= 231
    assert all(len(each.columns["time"]) > 1 for each in found)


def test_every_committed_result_has_its_checksum():
    for folder in sorted(COMMITTED.parent.iterdir()):
        listed = dict(reversed(line.split("  ")) for line in (folder / SUMS).read_text().splitlines())
        files = {file.name: file for file in folder.glob("*.json.gz")}
        assert set(files) <= set(listed), folder


def edit(file: Path, accuracy: float) -> None:
    held = json.loads(gzip.decompress(file.read_bytes()))
    held["columns"]["test_accuracy"][-1] = accuracy
    file.write_bytes(pack_result(held))


def test_an_edited_result_is_noticed(tmp_path):
    store = Store(tmp_path)
    store.save(NAME, result(isa="avx2"))
    store.load(NAME)
    edit(tmp_path / f"{NAME}.json.gz", 0.99)
    for reader in (store, Store(tmp_path)):
        with pytest.raises(
            RunFolderError, match=r"damaged .it is not what SHA256SUMS says.*remove it and run the study"
        ):
            reader.load(NAME)
    (tmp_path / f"{NAME}.json.gz").unlink()
    store.save(NAME, result(isa="avx2", level=0.7))  # a file has several lines then
    assert store.load(NAME).columns["test_accuracy"] == [0.7, 0.7]


def test_an_edited_result_of_the_league_is_noticed(tmp_path):
    """One of the files in the repository, as its pages read it."""
    league = COMMITTED.parent / "league"
    file = min(league.glob("*.json.gz"))
    for each in (file, league / SUMS):
        (tmp_path / each.name).write_bytes(each.read_bytes())
    run = file.name.partition(".")[0]
    assert Store(tmp_path).load(run)
    edit(tmp_path / file.name, 0.99)
    with pytest.raises(RunFolderError, match="edited"):
        Store(tmp_path).load(run)


def test_results_of_an_older_store_are_believed_and_the_next_ones_listed(tmp_path):
    write(tmp_path)
    store, study = Store(tmp_path), two_variants()
    put(store, study.runs[0])
    assert store.load(NAME).path == "avx2"
    (tmp_path / SUMS).write_bytes(b"\xff torn line\n" + (tmp_path / SUMS).read_bytes())
    assert Store(tmp_path).load(study.runs[0].name)


def test_several_writers_lose_no_checksum(tmp_path):
    studies, stores = two_variants(20), [Store(tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda pair: put(stores[pair[0] % 4], pair[1]), enumerate(studies.runs)))
    lines = (tmp_path / SUMS).read_text().splitlines()
    assert {line.split("  ")[1] for line in lines} == {f"{run.name}.json.gz" for run in studies.runs}
    assert all(stores[0].load(run.name) for run in studies.runs)


def test_a_run_is_kept_once_per_instruction_path(tmp_path):
    store = Store(tmp_path)
    for isa, level in (("avx512", 0.1), ("avx2", 0.2), ("avx2", 0.3), ("avx512", 0.4)):
        store.save(NAME, result(isa=isa, level=level))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{NAME}.avx2.json.gz", f"{NAME}.json.gz", SUMS]
    found = store.load(NAME)
    assert found.paths == ["avx512", "avx2"]
    assert [each.columns["test_accuracy"][0] for each in (found, *found.elsewhere)] == [0.4, 0.3]
    (tmp_path / f"{NAME}.json.gz").unlink()
    assert store.has(NAME)
    assert store.load(NAME).paths == ["avx2"]


def test_torch_results_of_two_versions_are_both_kept(tmp_path):
    store, torch = Store(tmp_path), {**TINY, "learning": {"trainer": "torch"}}
    for version in ("2.13.0", "2.14.0+cpu"):
        store.save(name(torch), result(torch)._replace(provenance={"torch": version, "isa": None}))
    assert store.load(name(torch)).paths == ["torch 2.13.0", "torch 2.14.0+cpu"]
    assert (tmp_path / f"{name(torch)}.torch-2.14.0-cpu.json.gz").exists()


def test_a_damaged_file_costs_no_new_result(tmp_path):
    store = Store(tmp_path)
    (tmp_path / f"{NAME}.json.gz").write_bytes(b"nonsense")
    store.save(NAME, result(isa="avx2"))
    (tmp_path / f"{NAME}.json.gz").unlink()
    assert store.load(NAME).paths == ["avx2"]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.save(NAME, result())

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left"):
        store.save(NAME, result(level=0.9))
    with pytest.raises(RunFolderError, match="No space left"):
        store.save("new", result())
    assert store.load(NAME) == result()
    assert not store.has("new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{NAME}.json.gz", SUMS]


@pytest.mark.parametrize("links", [True, False])
def test_writers_at_the_same_moment_lose_nothing(tmp_path, monkeypatch, links):
    """Another process stores the run on its path just before ours is put in place."""
    store = Store(tmp_path)

    def meanwhile(source, target):
        Store(tmp_path).write(tmp_path / f"{NAME}.json.gz", pack_result(tree(provenance={"isa": "avx512"})))
        if not links:
            raise PermissionError(errno.EPERM, "no hard links here")
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", meanwhile)
    store.save(NAME, result(isa="avx2"))
    assert store.load(NAME).paths == ["avx512", "avx2"]
    assert not list(tmp_path.glob(".*"))


def test_a_file_system_without_links_is_good_enough(tmp_path, monkeypatch):
    def none(source, target):
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", none)
    Store(tmp_path).save(NAME, result(isa="avx2"))
    assert Store(tmp_path).load(NAME).paths == ["avx2"]


def test_what_a_killed_writer_left_is_cleared_away(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    old = time.time() - 60
    kept = {
        f".x.fedtide-{os.getpid()}-0000aaaa.part": old,  # being written
        f".x.fedtide-{gone.pid}-0000bbbb.part": time.time(),  # perhaps of another host
        "notes.part": 0.0,
        ".other.part": 0.0,  # a user's, as are all that follow
        f".z.json.gz.{gone.pid}.part": 0.0,
        f".x.fedtide-{gone.pid}-notes.part": 0.0,
    }
    left = {f".x.fedtide-{gone.pid}-0000cccc.part": old, f".x.fedtide-{os.getpid()}-0000dddd.part": 0.0}
    for each, when in (kept | left).items():
        (tmp_path / each).write_bytes(b"half")
        os.utime(tmp_path / each, (when, when))
    store = Store(tmp_path)
    assert store.all_files() == {}
    store.prepare()
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    assert core_files._runs(os.getpid())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError(errno.ESTALE, "Stale file handle"), "Stale file handle"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "No such file"),
    ],
)
def test_a_fault_of_the_machine_is_not_called_damage(tmp_path, monkeypatch, error, says):
    store = Store(tmp_path)
    store.save(NAME, result())

    def fails(*_):
        raise error

    monkeypatch.setattr("fedtide.studies.store._without_waiting", fails)
    with pytest.raises(RunFolderError, match=says) as found:
        store.load(NAME)
    assert "damaged" not in str(found.value)
    assert "remove" not in str(found.value)


def test_newer_additions_are_read_and_kept_apart(tmp_path):
    write(
        tmp_path, colour="red", columns__energy=[1, 2], totals__energy=-3.0, totals__words=["a"], provenance__host="h"
    )
    assert Store(tmp_path).load(NAME).totals["energy"] == -3.0


def test_results_of_a_users_policy_are_compared_with_the_files_they_name(tmp_path):
    mine, store = {**TINY, "policy": {"limit": 2, "scheduler": "gone.py:mine"}}, Store(tmp_path)
    then = name_of(config.experiment(mine), {"gone.py:mine": "0" * 64})
    made = result(mine)
    store.save(then, made._replace(provenance={"isa": "avx2", "files": {"gone.py:mine": "0" * 64}}))
    assert store.load(then).path == "avx2"
    store.save("ffff", made)  # of format 1: it does not say which file that was
    assert store.load("ffff") == made
    store.save("eeee", made._replace(provenance={"isa": "avx2", "files": {"gone.py:mine": "1" * 64}}))
    with pytest.raises(RunFolderError, match="not the one that its name says"):
        store.load("eeee")


def test_format_1_says_nothing_of_its_path(tmp_path):
    old = tree(format=1, provenance=...)
    (tmp_path / f"{NAME}.json.gz").write_bytes(gzip.compress(json.dumps(old).encode()))
    assert Store(tmp_path).load(NAME).path == "unknown"
    assert isinstance(Store(tmp_path).load(NAME), RunResult)
    assert set(COLUMNS) - {*ZERO, *LATER} <= set(old["columns"])


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be made"):
        Store(tmp_path / "file").save(NAME, result())
    with pytest.raises(RunFolderError, match="cannot be read"):
        Store(tmp_path / "file").all_files()


def test_runs_are_found_by_one_look(tmp_path):
    store, study = Store(tmp_path), two_variants()
    put(store, study.runs[0], "avx2")
    (tmp_path / "README.md").write_text("results")
    (tmp_path / ".hidden.json.gz").write_text("")
    assert list(store.all_files()) == [study.runs[0].name]
