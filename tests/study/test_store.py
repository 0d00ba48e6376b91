"""A store: what is saved comes back to the bit, whoever writes, is killed, edits or reads meanwhile."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import errno
import gzip
import io
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedtide import config
from fedtide.errors import RunFolderError
from fedtide.studies import store as store_module
from fedtide.studies.results import COLUMNS, RunResult
from fedtide.studies.spec import spec_run_name
from fedtide.studies.store import Store
from stored import TINY, forge, name, put, result, same, tables, two_variants

NAME = name()
COMMITTED = Path(__file__).parents[2] / "results"
FILES = ["curves.csv.gz", "new", "rounds.csv.gz", "runs.csv.gz", "study.json", "uploads.csv.gz"]


def equal(one: RunResult, other: RunResult) -> bool:
    return same(one, other) and (one.experiment, one.provenance) == (other.experiment, other.provenance)


@pytest.mark.parametrize("compacted", [False, True])
def test_round_trip(tmp_path, compacted):
    store, kept = Store(tmp_path / "deep" / "store"), result(isa="avx2")
    store.save(NAME, kept)
    if compacted:
        store.compact("one")
        assert sorted(path.name for path in store.folder.iterdir()) == FILES
    for reader in (store, Store(store.folder)):
        assert reader.names() == {NAME}
        assert reader.has(NAME, "avx2")
        assert not reader.has(NAME, "avx512")
        assert equal(reader.load(NAME), kept)
        assert reader.load(NAME).totals["seconds"] == 2.0
    assert same(kept, dataclasses.replace(kept, totals={**kept.totals, "seconds": 9.0}, provenance=None))
    assert not same(kept, dataclasses.replace(kept, totals={**kept.totals, "uploads": 4}))


def test_floats_come_back_to_the_bit(tmp_path):
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.random(500), 10.0 ** rng.uniform(-300, 290, 500), [5e-324, 0.1 + 0.2, 1e16, 0.0]])
    n = len(losses)
    grows = np.arange(1, n + 1)
    columns = dict.fromkeys(COLUMNS, grows * 0.1) | dict.fromkeys(("index", "samples_used", "samples_trained"), grows)
    columns |= {"test_loss": losses, "test_accuracy": rng.random(n), "train_loss": np.where(losses > 1, np.nan, losses)}
    made = result({**TINY, "timeline": {"horizon": 1000.0}}, "avx2")
    made = dataclasses.replace(made, columns=columns, totals={**made.totals, "aggregations": n, "mean_age": 1 / 3})
    own = spec_run_name(config.experiment(made.experiment))
    store = Store(tmp_path)
    store.save(own, made)
    store.compact("one")
    found = Store(tmp_path).load(own)
    assert all(found.columns[each].tobytes() == columns[each].tobytes() for each in COLUMNS)
    assert found.totals["mean_age"] == 1 / 3
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(tmp_path / "curves.csv.gz")
    assert np.array_equal(table["test_accuracy"], columns["test_accuracy"])
    runs = pandas.read_csv(tmp_path / "runs.csv.gz")
    assert json.loads(runs["experiment"][0]) == made.experiment


def test_an_edited_result_is_noticed(tmp_path):
    store = Store(tmp_path)
    store.save(NAME, result(isa="avx2"))
    (file,) = (tmp_path / "new").iterdir()
    text = file.read_text()
    file.write_text(text.replace("0.5,0.5", "0.5,0.9"))
    for reader in (store, Store(tmp_path)):
        with pytest.raises(RunFolderError, match=r"damaged .it is not what was stored.*remove it and run the study"):
            reader.load(NAME)
    file.write_text(text)
    store.compact("one")
    for table in ("runs", "curves"):
        file = tmp_path / f"{table}.csv.gz"
        content = file.read_bytes()
        file.write_bytes(gzip.compress(gzip.decompress(content).replace(b"0.5", b"0.9")))
        with pytest.raises(RunFolderError, match=rf"{table}.*not what study\.json says was stored: edited"):
            Store(tmp_path).load(NAME)
        file.write_bytes(content)
    assert Store(tmp_path).load(NAME)


def test_tables_without_their_index_are_not_taken_for_an_empty_store(tmp_path):
    Store(tmp_path).save(NAME, result())
    Store(tmp_path).compact("one")
    (tmp_path / "study.json").unlink()
    with pytest.raises(RunFolderError, match=r"tables and no study\.json"):
        Store(tmp_path).names()


def test_several_writers_lose_nothing(tmp_path):
    """Four stores on one folder, as of four processes: each saves runs, and moves all into the tables now and then."""
    study, stores = two_variants(20), [Store(tmp_path) for _ in range(4)]

    def work(number: int) -> None:
        for place, run in enumerate(study.runs[number::4]):
            put(stores[number], run, "avx2")
            if place % 3 == number % 3:
                stores[number].compact(f"study {number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    for store in (*stores, Store(tmp_path)):
        assert store.names() == {run.name for run in study.runs}
        assert sorted(store.studies) == [f"study {number}" for number in range(4)]
    stores[0].compact("study 0")
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


@pytest.mark.parametrize("step", range(12))
def test_a_writer_that_is_killed_loses_nothing(tmp_path, monkeypatch, step):
    """Moving runs into tables is stopped before each of its writes, renames and removals in turn."""
    study, store = two_variants(2), Store(tmp_path)
    put(store, study.runs[0], "avx2")
    store.compact("two")
    for run in study.runs[1:]:
        put(store, run, "avx2")
    left = step

    class KilledError(BaseException):
        pass

    def dying(real):
        def call(*args, **kwargs):
            nonlocal left
            if left == 0:
                raise KilledError
            left -= 1
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "write_atomically", dying(store_module.write_atomically))
        patched.setattr(os, "replace", dying(os.replace))
        patched.setattr(Path, "unlink", dying(Path.unlink))
        with contextlib.suppress(KilledError):
            store.compact("two")
    for reader in (store, Store(tmp_path)):
        assert reader.names() == {run.name for run in study.runs}
    again = Store(tmp_path)
    again.compact("two")
    assert again.names() == {run.name for run in study.runs}
    assert all(run.provenance == {**result(isa="avx2").provenance} for run in map(again.load, again.names()))
    assert {path.name for path in tmp_path.iterdir()} >= set(FILES)
    assert not list((tmp_path / "new").iterdir())


def test_a_reader_goes_on_while_another_process_writes(tmp_path):
    study, store = two_variants(2), Store(tmp_path)
    put(store, study.runs[0], "avx2")
    store.compact("two")
    reader = Store(tmp_path)
    first = reader.load(study.runs[0].name)
    put(store, study.runs[1], "avx2")
    assert reader.has(study.runs[1].name)
    store.compact("two")
    assert reader.names() == {run.name for run in study.runs[:2]}
    assert first.uploads_if_stored() is None  # asked for in the tables of now


def test_a_run_is_kept_once_per_instruction_path(tmp_path):
    store = Store(tmp_path)
    for isa, level in (("avx512", 0.1), ("avx2", 0.2), ("avx2", 0.3), ("avx512", 0.4)):
        store.save(NAME, result(isa=isa, level=level))
        time.sleep(0.01)  # the first one comes first, by the clock of the file system
    for compacted in (False, True):
        found = Store(tmp_path).load(NAME)
        assert found.paths == ["avx512", "avx2"]
        assert [each.columns["test_accuracy"][0] for each in (found, *found.elsewhere)] == [0.4, 0.3], compacted
        store.compact("one")


def test_torch_results_of_two_versions_are_both_kept(tmp_path):
    store, torch = Store(tmp_path), {**TINY, "learning": {"trainer": "torch"}}
    for version in ("2.13.0", "2.14.0+cpu"):
        made = dataclasses.replace(result(torch), provenance={"torch": version, "isa": None})
        store.save(name(torch), made)
        time.sleep(0.01)
    store.compact("one")
    assert Store(tmp_path).load(name(torch)).paths == ["torch 2.13.0", "torch 2.14.0+cpu"]


def test_a_damaged_file_costs_no_new_result(tmp_path):
    store = Store(tmp_path)
    store.prepare()
    (tmp_path / "new" / f"{NAME}.0000.json").write_bytes(b"nonsense")
    store.save(NAME, result(isa="avx2"))
    with pytest.raises(RunFolderError, match="remove it"):
        store.load(NAME)
    (tmp_path / "new" / f"{NAME}.0000.json").unlink()
    assert store.load(NAME).paths == ["avx2"]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.save(NAME, result())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for act in (lambda: store.save(NAME, result(level=0.9)), lambda: store.compact("one")):
        with pytest.raises(RunFolderError, match="No space left"):
            act()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert equal(store.load(NAME), result())


def test_what_a_killed_writer_left_is_cleared_away(tmp_path):
    minute, hour = time.time() - 60, time.time() - 4000
    kept = {
        ".x.fedtide-123-0000aaaa.part": minute,  # being written
        "notes.part": 0.0,
        ".other.part": 0.0,  # a user's, as are all that follow
        ".z.json.gz.123.part": 0.0,
        ".x.fedtide-123-notes.part": 0.0,
    }
    left = {".x.fedtide-123-0000cccc.part": hour, ".x.fedtide-123-0000dddd.part": 0.0}
    store = Store(tmp_path)
    store.prepare()
    for folder in (tmp_path, tmp_path / "new"):
        for each, when in (kept | left).items():
            (folder / each).write_bytes(b"half")
            os.utime(folder / each, (when, when))
    assert store.names() == set()
    store.prepare()
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "new"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(kept)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError(errno.ESTALE, "Stale file handle"), "Stale file handle"),
    ],
)
def test_a_fault_of_the_machine_is_not_called_damage(tmp_path, monkeypatch, error, says):
    store = Store(tmp_path)
    store.save(NAME, result())
    store.compact("one")

    def fails(*_):
        raise error

    monkeypatch.setattr("fedtide.studies.store.read_bytes", fails)
    with pytest.raises(RunFolderError, match=says) as found:
        Store(tmp_path).load(NAME)
    assert "damaged" not in str(found.value)
    assert "remove" not in str(found.value)


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be made"):
        Store(tmp_path / "file").save(NAME, result())
    with pytest.raises(RunFolderError, match="cannot be read"):
        Store(tmp_path / "file").names()


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    store, study = Store(tmp_path), two_variants()
    put(store, study.runs[0], "avx2")
    for other in (tmp_path / "README.md", tmp_path / "new" / ".hidden.json", tmp_path / "new" / "notes.txt"):
        other.write_text("mine")
    assert store.names() == {study.runs[0].name}
    store.compact("two")
    assert (tmp_path / "README.md").read_text() == (tmp_path / "new" / "notes.txt").read_text() == "mine"


def test_a_store_says_whose_runs_it_holds(tmp_path):
    store = Store(tmp_path)
    assert store.studies == []
    store.save(NAME, result(isa="avx2"))
    for study in ("one", "two", "one"):
        store.compact(study)
    assert Store(tmp_path).studies == ["one", "two"]
    assert len((tmp_path / "study.json").read_text().splitlines()) == 1


def test_a_table_is_read_whatever_wrote_it(tmp_path):
    """A store that was written by hand, row by row, is read as well."""
    forge(tmp_path, tables())
    assert equal(Store(tmp_path).load(NAME), result(isa="avx2"))


def test_committed_tables_are_plain_csv():
    """Once for all stores: fedtide and the csv module read the same numbers, every name is that of its experiment."""
    for folder in sorted(place.parent for place in COMMITTED.glob("*/study.json")):
        store = Store(folder)
        assert store.studies == [folder.name.removesuffix("-first").removesuffix("-avx2")]
        text = gzip.decompress((folder / "runs.csv.gz").read_bytes()).decode()
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        assert store.names() == {row["name"] for row in rows}
        for row in rows:
            found = store.load(row["name"])
            assert json.loads(row["experiment"]) == found.experiment
            assert spec_run_name(config.experiment(found.experiment)) == row["name"]
        uploads = sum(len(sent.lost) for each in store.names() if (sent := store.load(each).uploads_if_stored()))
        assert uploads == gzip.decompress((folder / "uploads.csv.gz").read_bytes()).count(b"\n") - 1
