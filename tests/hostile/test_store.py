"""Damaged stores and impossible results: each gets one line, and nothing in the store is changed."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from judge import Wrong, contents, refused

from fedtide import config
from fedtide.cli.main import app
from fedtide.studies.store import Store
from fedtide.studies.stored_format import pack_result
from stored import TINY, name, result, tree, write

NAN, BIG = "@NaN@", 10**400
FILE = f"{name()}.json.gz"


@pytest.fixture
def study(tmp_path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "name": "one", "base": TINY}))
    return path


def show(study: Path, store: str = "store", says: str = "", code: int = 4) -> str:
    return refused(Wrong(("study", "show", str(study), "--store", store), says, code))


def test_the_result_that_all_rows_begin_with_is_good(study, tmp_path):
    write(tmp_path / "store")
    assert CliRunner().invoke(app, ["study", "show", str(study), "--store", "store"]).exit_code == 0


# Changes to what a good result holds (`...` takes a key away), and what the line must say.
VALUES: list[tuple[dict, str]] = [
    ({"format": 4}, "format 4.*reads 1, 2, 3: use the fedtide that made it"),
    ({"format": 0}, "format 0"),
    ({"format": -1}, "format -1"),
    ({"format": True}, "format True"),
    ({"format": 2.0}, r"format 2\.0"),
    ({"format": "2"}, "format '2'"),
    ({"format": None}, "format null"),
    ({"format": [2]}, "format a list"),
    ({"format": BIG}, "format a very large number"),
    ({"format": ...}, "says no format"),
    ({"experiment": ...}, "experiment is null.*mapping"),
    ({"experiment": 3}, "experiment is 3"),
    ({"experiment": []}, "experiment is a list"),
    ({"experiment": {}}, "not the one that its name says"),
    ({"experiment__seed": 7}, "not the one that its name says"),
    ({"experiment__seed": "x"}, "experiment is none"),
    ({"experiment__policy__limit": 1}, "not the one that its name says"),
    ({"experiment__policy__scheduler": "random"}, "not the one that its name says"),
    ({"experiment__timeline": None}, "experiment is none"),
    ({"experiment__timeline__horizon": -1}, "experiment is none"),
    ({"experiment__timeline__horizon": 2}, "not the one that its name says"),
    ({"experiment__colour": "red"}, "colour is not a key"),
    ({"experiment__learning__trainer": "magic"}, "experiment is none"),
    ({"columns": ...}, "columns is null"),
    ({"columns": []}, "columns is a list"),
    ({"columns": {}}, "column index is null"),
    ({"columns__time": ...}, "column time is null"),
    ({"columns__time": 0.5}, r"column time is 0\.5"),
    ({"columns__time": "0.5, 1"}, "column time is '0.5, 1'"),
    ({"columns__time": {}}, "column time is a dict"),
    ({"columns__time": []}, "column time is a list"),
    ({"columns__time": [0.5]}, "equal length"),
    ({"columns__bits": [1, 2, 3]}, "equal length"),
    ({"columns__time": [1.0, 0.5]}, "time falls"),
    ({"columns__time": [-0.5, 1.0]}, r"time is -0\.5"),
    ({"columns__time": [0.5, None]}, "time is null"),
    ({"columns__time": [0.5, "1"]}, "time is '1'"),
    ({"columns__time": [0.5, [1]]}, "time is a list"),
    ({"columns__time": [0.5, True]}, "time is True"),
    ({"columns__time": [0.5, 35.0]}, "beyond the horizon"),
    ({"columns__time": [0.5, BIG]}, "time is a very large number"),
    ({"columns__index": [4, 2]}, "does not count upwards"),
    ({"columns__index": [2, 2]}, "does not count upwards"),
    ({"columns__index": [0, 1]}, "does not count upwards"),
    ({"columns__index": [-1, 1]}, "index is -1"),
    ({"columns__index": [1.5, 2.5]}, r"index is 1\.5"),
    ({"columns__index": [2, 400]}, "do not end with the last that was evaluated, 400"),
    ({"columns__index": [2, 3]}, "do not end with the last that was evaluated, 3"),
    ({"columns__test_accuracy": [5.0, 0.5]}, r"test_accuracy is 5\.0.*from 0 to 1"),
    ({"columns__test_accuracy": [0.5, -0.1]}, r"test_accuracy is -0\.1"),
    ({"columns__test_accuracy": [0.5, 1.0000001]}, "test_accuracy is 1"),
    ({"columns__test_accuracy": [0.5, None]}, "test_accuracy is null"),
    ({"columns__test_accuracy": ["high", 0.5]}, "test_accuracy is 'high'"),
    ({"columns__test_accuracy": [NAN, 0.5]}, "NaN is no number"),
    ({"columns__test_loss": ["@Infinity@", 0.5]}, "Infinity is no number"),
    ({"columns__test_loss": ["@1e999@", 0.5]}, "test_loss is inf"),
    ({"columns__test_loss": [-1.0, 0.5]}, r"test_loss is -1\.0"),
    ({"columns__train_loss": [1.0, "?"]}, "train_loss is '?"),
    ({"columns__symbols": [20.0, 10.0]}, "symbols falls"),
    ({"columns__bits": [9, 5]}, "bits falls"),
    ({"columns__bits": [-5, 5]}, "bits is -5"),
    ({"columns__samples_used": [6, 3]}, "samples_used falls"),
    ({"columns__samples_used": [3.5, 6.5]}, r"samples_used is 3\.5"),
    ({"columns__samples_used": [3, 9]}, "more samples are used than were trained on"),
    ({"columns__samples_trained": [8, 7]}, "samples_trained falls"),
    ({"columns__samples_trained": [-3, 8]}, "samples_trained is -3"),
    ({"totals": ...}, "totals is null"),
    ({"totals": None}, "totals is null"),
    ({"totals": {}}, "aggregations is missing"),
    ({"totals__uploads": ...}, "uploads is missing"),
    ({"totals__uploads": -1}, "uploads is -1"),
    ({"totals__uploads": 2.5}, r"uploads is 2\.5"),
    ({"totals__mean_kept_share": 1.5}, r"mean_kept_share is 1\.5"),
    ({"totals__mean_kept_share": NAN}, "NaN"),
    ({"totals__seconds": -2}, "seconds is -2"),
    ({"totals__seconds": "2 s"}, "seconds is '2 s'"),
    ({"totals__proved_minimal_share": 7}, "proved_minimal_share is 7"),
    ({"totals__overhead_bits": "many"}, "overhead_bits is 'many'"),
    ({"totals__aggregations": None}, "aggregations is null"),
    ({"provenance": "here"}, "provenance is 'here'"),
    ({"provenance": ["avx2"]}, "provenance is a list"),
    ({"provenance__isa": 2}, "isa=2"),
    ({"provenance__isa": ""}, "isa=''"),
    ({"provenance__isa": "../../x"}, "no instruction path"),
    ({"provenance__isa": "avx2\nfake row"}, "isa="),
    ({"provenance__isa": "a" * 5000}, "isa="),
    ({"provenance__date": 20261117}, "date=20261117"),
    ({"provenance__commit": {}}, "commit=a dict"),
    ({"provenance__files": "f.py"}, "files='f.py'"),
    ({"provenance__files": {"f.py": 3}}, "files=a dict"),
]


@pytest.mark.parametrize(("changes", "says"), VALUES, ids=[f"{next(iter(each))}-{says[:30]}" for each, says in VALUES])
def test_a_result_that_cannot_be(study, tmp_path, changes, says):
    text = json.dumps(tree(**changes))
    for word in ("NaN", "Infinity", "1e999"):
        text = text.replace(f'"@{word}@"', word)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / FILE).write_bytes(gzip.compress(text.encode()))
    before = contents(tmp_path)
    line = show(study, says=says)
    assert FILE in line
    assert contents(tmp_path) == before


GOOD = pack_result(tree())
TEXT = gzip.decompress(GOOD)
BOMB = zlib.compressobj(9, wbits=31)
BYTES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ends too early"),
    "nonsense": (b"nonsense", "header"),
    "not zipped": (TEXT, "header"),
    "cut by a byte": (GOOD[:-1], "ends too early"),
    "cut in half": (GOOD[: len(GOOD) // 2], "ends too early"),
    "only the header": (GOOD[:10], "ends too early"),
    "zeros in it": (GOOD[:40] + bytes(8) + GOOD[48:], "damaged"),
    "another sum": (GOOD[:-8] + bytes(4) + GOOD[-4:], "check"),
    "twice": (GOOD + GOOD, "after its end"),
    "a tail": (GOOD + b"\n", "after its end"),
    "no JSON": (gzip.compress(b"{"), "Expecting"),
    "JSON of nothing": (gzip.compress(b""), "Expecting"),
    "a list": (gzip.compress(b"[]"), "no format"),
    "a number": (gzip.compress(b"3"), "no format"),
    "null": (gzip.compress(b"null"), "no format"),
    "no text": (gzip.compress(b"\xff\xfe\x00"), "damaged"),
    "nested": (gzip.compress(b"[" * 200_000), "nested too deeply"),
    "nested mappings": (gzip.compress(b'{"format":' * 100_000), "nested too deeply"),
    "a key twice": (gzip.compress(TEXT[:-1] + b',"totals":{}}'), "twice"),
    "an endless number": (gzip.compress(b'{"format": ' + b"9" * 5000 + b"}"), "damaged"),
    "gigabytes of zeros": (BOMB.compress(bytes(2**28)) + BOMB.flush(), "more than"),
}


@pytest.mark.parametrize("case", BYTES)
def test_a_file_that_is_none(study, tmp_path, case):
    content, says = BYTES[case]
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / FILE).write_bytes(content)
    assert "damaged" in show(study, says=says)
    assert (tmp_path / "store" / FILE).read_bytes() == content


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path)


def nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "gone")


@pytest.mark.skipif(os.name != "posix", reason="kinds of files that POSIX has")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (folder, "damaged .it is a folder"),
        (pipe, "no regular file"),
        (device, "no regular file"),
        (loop, "cannot be read .Too many levels"),
        (nowhere, "cannot be read .No such file"),
    ],
)
def test_something_else_in_place_of_a_file(study, tmp_path, make, says):
    (tmp_path / "store").mkdir()
    make(tmp_path / "store" / FILE)
    show(study, says=says)
    assert os.path.lexists(tmp_path / "store" / FILE)


def test_a_result_under_another_name_is_noticed(study, tmp_path):
    """As after a careless rename or copy: the numbers are good, but of another run."""
    other = {**TINY, "seed": 9}
    store = Store(tmp_path / "store")
    store.save(name(other), result(other))
    (tmp_path / "store" / f"{name(other)}.json.gz").rename(tmp_path / "store" / FILE)
    show(study, says=f"holds the run {name(other)}")


def test_a_result_beside_another_must_be_of_the_path_in_its_name(study, tmp_path):
    write(tmp_path / "store")
    (tmp_path / "store" / FILE).rename(tmp_path / "store" / f"{name()}.avx512.json.gz")
    show(study, says="made on avx2, not on the path that its name says")


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
    write(tmp_path / "store", columns__test_accuracy=[5.0, 0.5])
    before = contents(tmp_path / "store")
    refused(Wrong(("study", *words, "--store", "store"), "test_accuracy is 5.0", 4))
    assert contents(tmp_path / "store") == before
    assert not (tmp_path / "x.csv").exists()


STORES = [
    (("study", "paths", "nowhere"), "holds no results", 2),
    (("study", "paths", "one.yaml"), "cannot be read .Not a directory", 4),
    (("study", "paths", "empty"), "holds no results", 2),
    (("study", "paths", "store"), "test_accuracy is 5.0", 4),
    (("study", "paths", "store", "--identify"), "test_accuracy is 5.0", 4),
    (("study", "paths", "store", "--json"), "test_accuracy is 5.0", 4),
    (("study", "show", "one.yaml", "--store", "nowhere"), "holds no run", 2),
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
    write(tmp_path / "store", columns__test_accuracy=[5.0, 0.5])
    (tmp_path / "empty").mkdir()
    before = contents(tmp_path)
    refused(Wrong(*case))
    assert contents(tmp_path) == before
    assert not (tmp_path / "nowhere").exists()


def test_the_same_experiment_written_in_another_order_is_the_same(study, tmp_path):
    """What does not count for the name does not count here: the order of keys, the preset, where the data lies."""
    mixed = dict(reversed(list(config.dump(config.experiment(TINY)).items())))
    write(tmp_path / "store", experiment={**mixed, "profile": "paper"})
    assert CliRunner().invoke(app, ["study", "show", str(study), "--store", "store"]).exit_code == 0
