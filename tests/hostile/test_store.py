"""Damaged stores and impossible results: each gets one line, and nothing in the store is changed."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from judge import Wrong, contents, refused

from fedtide import config
from fedtide.cli.main import app
from fedtide.core import files as core_files
from fedtide.errors import RunFolderError
from fedtide.studies.store import Store
from stored import TINY, forge, forge_cell, name, put, result, tables, two_variants


@pytest.fixture
def study(tmp_path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "name": "one", "base": TINY}))
    return path


def show(study: Path, store: str = "store", says: str = "", code: int = 4) -> str:
    return refused(Wrong(("study", "show", str(study), "--store", store), says, code))


def load(folder: Path, says: str) -> str:
    """Read a store that cannot be; it stays as it is, and the line names it."""
    before = contents(folder)
    with pytest.raises(RunFolderError, match=says) as caught:
        Store(folder).load(name())
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 800
    assert str(folder) in line
    assert contents(folder) == before
    return line


def test_the_result_that_all_rows_begin_with_is_good(study, tmp_path):
    forge(tmp_path / "store", tables())
    assert CliRunner().invoke(app, ["study", "show", str(study), "--store", "store"]).exit_code == 0


TREE = config.dump(config.experiment(TINY))
# A cell of a good result's tables, its new value, and what the line must say.
CELLS = [
    ("curves", "time", "-0.5", r"time of run 0 is -0\.5"),
    ("curves", "time", "", "could not convert"),
    ("curves", "time", "'1'", "could not convert"),
    ("curves", "time", "x" * 5000, "could not convert"),
    ("curves", "time", "1e999", "time of run 0 is inf"),
    ("curves", "index", "-1", "index of run 0 is -1"),
    ("curves", "index", "1.5", r"index of run 0 is 1\.5, and should be a whole number"),
    ("curves", "test_accuracy", "5.0", "test_accuracy of run 0 is 5, and should be from 0 to 1"),
    ("curves", "test_accuracy", "-0.1", r"test_accuracy of run 0 is -0\.1"),
    ("curves", "test_accuracy", "1.0001", r"test_accuracy of run 0 is 1\.0001"),
    ("curves", "test_accuracy", "high", "could not convert string 'high'"),
    ("curves", "test_loss", "inf", "test_loss of run 0 is inf"),
    ("curves", "test_loss", "-1.0", "test_loss of run 0 is -1"),
    ("curves", "train_loss", "?", "could not convert"),
    ("curves", "bits", "-5", "bits of run 0 is -5"),
    ("curves", "samples_used", "2.5", r"samples_used of run 0 is 2\.5"),
    ("curves", "samples_trained", "-3", "samples_trained of run 0 is -3"),
    ("curves", "run", "1", "not those of 1 runs"),
    ("curves", "run", "0.5", "not those of 1 runs"),
    ("curves", "run", "NaN", "not those of 1 runs"),
    ("runs", "run", "1", "not numbered from 0 on"),
    ("runs", "run", "first", "run is 'first'"),
    ("runs", "name", "../../x", "name is"),
    ("runs", "name", "", "name is None"),
    ("runs", "aggregations", "", "aggregations is None"),
    ("runs", "uploads", "", "uploads is None"),
    ("runs", "uploads", "-1", "uploads is '-1'"),
    ("runs", "uploads", "2.5", r"uploads is '2\.5'"),
    ("runs", "uploads", "9" * 400, "uploads is"),
    ("runs", "mean_kept_share", "1.5", r"mean_kept_share is '1\.5'"),
    ("runs", "mean_kept_share", "NaN", "mean_kept_share is 'NaN'"),
    ("runs", "seconds", "-2", "seconds is '-2'"),
    ("runs", "seconds", "2 s", "seconds is '2 s'"),
    ("runs", "proved_minimal_share", "7", "proved_minimal_share is '7'"),
    ("runs", "overhead_bits", "many", "overhead_bits is 'many'"),
    ("runs", "num_labels", "0", "num_labels is '0'"),
    ("runs", "experiment", "", "experiment is None"),
    ("runs", "experiment", "{", "experiment is '{'"),
    ("runs", "experiment", "[]", "experiment is"),
    ("runs", "experiment", "[" * 200_000, "experiment is"),
    ("runs", "experiment", "{}", "experiment of run 0 is none .*seed"),
    ("runs", "experiment", json.dumps({**TREE, "timeline": 3}), "experiment of run 0 is none"),
    ("runs", "experiment", json.dumps({**TREE, "seed": "x"}), "experiment of run 0 is none"),
    ("runs", "experiment", json.dumps({**TREE, "learning": 3}), "experiment of run 0 is none"),
    ("runs", "experiment", json.dumps({**TREE, "learning": {"trainer": 3}}), "experiment of run 0 is none"),
    ("runs", "provenance", '"here"', "provenance is"),
    ("runs", "provenance", '["avx2"]', "provenance is"),
    ("runs", "provenance", '{"isa": 2}', "isa"),
    ("runs", "provenance", '{"isa": ""}', "isa"),
    ("runs", "provenance", '{"isa": "avx2\\nfake row"}', "isa"),
    ("runs", "provenance", json.dumps({"isa": "a" * 5000}), "isa"),
    ("runs", "provenance", '{"fedtide": "a\\u001b[31m"}', "fedtide"),
    ("runs", "provenance", '{"date": 20261117}', "date"),
    ("runs", "provenance", '{"files": {"f.py": 3}}', "files"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column", "value", "says"), CELLS, ids=lambda word: word[:24])
def test_a_result_that_cannot_be(tmp_path, table, column, value, says):
    forge_cell(tmp_path / "store", table, column, value)
    load(tmp_path / "store", says)


def test_a_run_without_evaluations_or_with_a_column_too_few_is_none(tmp_path):
    for change, says in (
        (lambda found: found["curves"].__delitem__(slice(1, None)), "has no evaluation"),
        (lambda found: found["curves"].clear(), "its columns are"),
        (lambda found: [row.pop() for row in found["curves"]], "its columns are"),
        (lambda found: found["curves"][1].pop(), "number of columns"),
        (lambda found: found["runs"].clear(), "its columns are"),
        (lambda found: found["runs"][1].pop(), "zip"),
        (lambda found: [row.append("x") for row in found["runs"]], "its columns are"),
    ):
        found = tables()
        change(found)
        forge(tmp_path, found)
        load(tmp_path, says)


INDEX = {
    "another format": ({"format": 4}, r"format 4.*reads 1: use the fedtide that made it"),
    "no format": ({"format": None}, "format None"),
    "a truth": ({"format": True}, "format True"),
    "a fraction": ({"format": 1.0}, r"format 1\.0"),
    "a text": ({"format": "1"}, "format '1'"),
    "no studies": ({"studies": None}, "studies is None"),
    "numbers": ({"studies": [3]}, "studies.0 is 3"),
    "no files": ({"files": {}}, "not what study.json says"),
    "other sums": ({"files": {"runs.csv.gz": "0"}}, "files"),
    "more": ({"colour": "red"}, "colour"),
}


@pytest.mark.parametrize("case", INDEX)
def test_an_index_that_is_none(tmp_path, case):
    changes, says = INDEX[case]
    forge(tmp_path, tables(), **changes)
    load(tmp_path, says)


@pytest.mark.parametrize("text", [b"", b"nonsense", b"[]", b"3", b"null", b"\xff\xfe", b"[" * 200_000, b'{"format":' * 100_000,
                                  b'{"format": 1, "format": 1}', b'{"format": ' + b"9" * 5000 + b"}"])  # fmt: skip
def test_an_index_or_a_new_run_that_is_no_json(tmp_path, text):
    forge(tmp_path / "tables", tables())
    (tmp_path / "tables" / "study.json").write_bytes(text)
    load(tmp_path / "tables", "damaged|format")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / f"{name()}.0.json").write_bytes(text)
    assert "remove it and run the study again" in load(tmp_path, "damaged")


GOOD = gzip.compress(b"run\n", mtime=0)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", GOOD[:-1], GOOD[:10], GOOD[:-8] + bytes(4) + GOOD[-4:], GOOD + b"x"]
)
def test_a_table_that_is_not_what_was_stored(tmp_path, content):
    forge(tmp_path, tables())
    (tmp_path / "curves.csv.gz").write_bytes(content)
    load(tmp_path, "damaged .curves.csv.gz is not what study.json says was stored")
    (tmp_path / "curves.csv.gz").unlink()
    load(tmp_path, "not what study.json says")


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.skipif(os.name != "posix", reason="kinds of files that POSIX has")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (folder, "cannot be read .Is a directory"),
        (pipe, "nobody wrote to this pipe"),
        (device, "a device, not a file"),
        (loop, "cannot be read .Too many levels"),
    ],
)
@pytest.mark.parametrize("file", ["study.json", "runs.csv.gz", "new/0.json"])
def test_something_else_in_place_of_a_file(tmp_path, monkeypatch, make, says, file):
    monkeypatch.setattr(core_files, "PIPE_SECONDS", 0.01)
    forge(tmp_path, tables())
    (tmp_path / "new").mkdir()
    (tmp_path / file).unlink(missing_ok=True)
    make(tmp_path / file)
    with pytest.raises(RunFolderError, match=says):
        Store(tmp_path).load(name())
    assert os.path.lexists(tmp_path / file)


def test_a_result_under_another_name_is_noticed(tmp_path):
    """As after a careless rename or copy: the numbers are good, but of another run."""
    other = {**TINY, "seed": 9}
    store = Store(tmp_path)
    store.save(name(other), result(other))
    (file,) = (tmp_path / "new").iterdir()
    file.rename(tmp_path / "new" / file.name.replace(name(other), name()))
    load(tmp_path, f"holds the run {name(other)}")
    run = two_variants().runs[0]
    put(Store(tmp_path / "another"), run)
    (file,) = (tmp_path / "another" / "new").iterdir()
    file.rename(file.with_name(f"{run.name}.0123456789abcdef.json"))
    with pytest.raises(RunFolderError, match="edited, or renamed"):
        Store(tmp_path / "another").names()


@pytest.mark.parametrize(
    "words",
    [
        ("show", "one.yaml", "--json"),
        ("show", "one.yaml", "--metric", "variation"),
        ("plot", "one.yaml"),
        ("export", "one.yaml", "-o", "x.csv"),
        ("run", "one.yaml"),
        ("run", "one.yaml", "--isa-strict"),
        ("run", "one.yaml", "--isa-redo"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("study")
def test_every_command_that_reads_it_says_so(tmp_path, words):
    forge_cell(tmp_path / "store", "curves", "test_accuracy", "5.0")
    before = contents(tmp_path / "store")
    refused(Wrong(("study", *words, "--store", "store"), "test_accuracy of run 0 is 5", 4))
    assert contents(tmp_path / "store") == before
    assert not (tmp_path / "x.csv").exists()


STORES = [
    (("study", "paths", "nowhere"), "holds no results", 2),
    (("study", "paths", "one.yaml"), "cannot be read .Not a directory", 4),
    (("study", "paths", "empty"), "holds no results", 2),
    (("study", "paths", "store"), "test_accuracy of run 0 is 5", 4),
    (("study", "paths", "store", "--json"), "test_accuracy of run 0 is 5", 4),
    (("study", "show", "one.yaml", "--store", "nowhere"), "no finished run", 2),
    (("study", "show", "one.yaml", "--store", "one.yaml"), "cannot be read .Not a directory", 4),
    (("study", "run", "one.yaml", "--store", "one.yaml"), "cannot be read .Not a directory", 4),
    (("study", "plot", "one.yaml", "--store", "empty"), "no finished run", 2),
    (("study", "export", "one.yaml", "-o", "x.csv", "--store", "empty"), "no finished run", 2),
    (("study", "show", "one.yaml", "--store", "x" * 300), "too long", 4),
    (("paper", "claims", "--store", "one.yaml", "--out", "new"), "cannot be read .Not a directory", 4),
]


@pytest.mark.parametrize("case", STORES, ids=[" ".join(words)[:60] for words, _, _ in STORES])
@pytest.mark.usefixtures("study")
def test_stores_that_are_none(tmp_path, case):
    forge_cell(tmp_path / "store", "curves", "test_accuracy", "5.0")
    (tmp_path / "empty").mkdir()
    before = contents(tmp_path)
    refused(Wrong(*case))
    assert contents(tmp_path) == before
    assert not (tmp_path / "nowhere").exists()
