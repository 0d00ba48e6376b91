"""What every data set promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import set_files
from fedtide import config
from fedtide.data import cifar, fetch, mnist, shakespeare
from fedtide.data.dataset import check_dataset, checked_dataset
from fedtide.parts.arguments import part_parameters
from fedtide.parts.kinds import builtin_parts
from fedtide.parts.registry import find_part, resolve
from fedtide.types import Dataset, Samples


def with_owners(seed: int = 0) -> Dataset:
    """A data set of a user's own, in types that are not ours."""
    rng = np.random.default_rng(seed)
    train, test = (Samples(rng.random((n, 1, 8, 8)), rng.integers(0, 3, n)) for n in (40, 10))
    return Dataset("mine", train, test, 3, "drawn", np.arange(40) % 4)


def of_bytes(seed: int = 0) -> Dataset:
    """Images as bytes, which stand for something else in the test set."""
    rng = np.random.default_rng(seed)
    train, test = (
        Samples(rng.integers(0, 256, (n, 8, 8, 3), np.uint8).transpose(0, 3, 1, 2), rng.integers(0, 3, n), values)
        for n, values in zip((40, 10), rng.random((2, 3, 256), np.float32), strict=True)
    )
    return Dataset("mine", train, test, 3, "drawn")


OTHERS: dict[str, Callable[[], Dataset]] = {
    "my own": lambda: checked_dataset(with_owners(), "data='mine'"),
    "my own bytes": lambda: checked_dataset(of_bytes(), "data='mine'"),
}
NAMES = [*builtin_parts("data"), *OTHERS]


def said(line: str) -> None:
    """Take what a data set tells of what it fetches."""
    assert "\n" not in line


@pytest.fixture(autouse=True)
def digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test of a contract downloads 60,000 images; tests/data looks at how they are found and read."""
    rng = np.random.default_rng(5)
    train, test = (Samples(rng.random((n, 1, 28, 28), np.float32), rng.integers(0, 10, n, np.uint8)) for n in (60, 20))
    whole = Dataset("mnist", train, test, 10, "made up")
    monkeypatch.setattr(mnist, "_load_idx", lambda *_: whole)
    photographs = [rng.integers(0, 256, (n, 3, 32, 32), np.uint8) for n in (60, 20)]
    raws = [bytearray(part) for part in (photographs[0], train.labels, photographs[1], test.labels)]
    monkeypatch.setattr(fetch, "fetch_files", lambda *_: (raws, "made up"))
    (tmp_path / "checked").mkdir()
    monkeypatch.setattr(cifar, "SVHN_MD5", set_files.svhn(tmp_path / "checked"))


@pytest.fixture(autouse=True)
def plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one download 37 plays."""
    acts = [f"ACT I.\n\nROMEO.\n{'But soft, what light? ' * 90}\n\nJULIET.\n{'Ay me! ' * 200}\n"]
    monkeypatch.setattr(shakespeare, "_load_plays", lambda folder, say: (acts, "made up"))


def load(name: str, folder: Path, **more: Any) -> Dataset:
    """Make one of ours, or one of others; those that are read from files have them written first."""
    if name in OTHERS:
        return OTHERS[name]()
    args: dict[str, Any] = {}
    if name in set_files.WRITERS:
        write, arguments = set_files.WRITERS[name]
        place = folder / name
        if not place.exists():
            place.mkdir()
            write(place)
        args = arguments(place)
    filled = {"run.say": said, "run.images": True, "data.folder": args.pop("folder", None), **more}
    experiment = config.experiment()
    made: Dataset = resolve(
        "data", name, args, lambda key: filled[key] if key in filled else config.key_value(experiment, key)
    )
    return made


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str, tmp_path: Path) -> None:
    found, again = load(name, tmp_path), load(name, tmp_path)
    check_dataset(found)  # shapes, labels, finite numbers
    for samples in (found.train, found.test):
        assert samples.images.dtype == (np.float32 if samples.values is None else np.uint8)
        assert samples.values is None or samples.values.shape == (samples.images.shape[1], 256)
        assert samples.images.flags.c_contiguous
        assert samples.labels.dtype == np.uint8
    for one, two in zip((*found.train, *found.test), (*again.train, *again.test), strict=True):
        assert np.array_equal(one, two)  # it depends on its arguments alone
    assert (found.name, found.source, found.num_labels) == (again.name, again.source, again.num_labels)
    assert found.name
    assert found.source


@pytest.mark.parametrize("name", builtin_parts("data"))
def test_what_it_declares_can_be_filled_in(name: str) -> None:
    declared = part_parameters(find_part("data", name, builtin_parts("data")))
    assert all(each.about.meaning for each in declared)
    keys = {each.about.key for each in declared} - {None}
    assert keys <= {"seed", "data.folder", "data.num_train", "data.num_test", "run.say", "run.images"}


@pytest.mark.parametrize("name", builtin_parts("data"))
def test_as_many_as_are_asked_for(name: str, tmp_path: Path) -> None:
    found = load(name, tmp_path, **{"data.num_train": 7, "data.num_test": 5})
    assert (len(found.train.labels), len(found.test.labels)) == (7, 5)


def test_bytes_stay_bytes() -> None:
    given, found = of_bytes(), load("my own bytes", Path())
    for ours, theirs in ((found.train, given.train), (found.test, given.test)):
        assert ours.images.dtype == np.uint8
        assert np.array_equal(ours.floats(), theirs.floats())
    assert not np.array_equal(found.train.values, found.test.values)


def test_bytes_that_lie_as_they_should_are_not_copied() -> None:
    given = load("my own bytes", Path())
    assert np.shares_memory(checked_dataset(given, "data='mine'").train.images, given.train.images)


def test_svhn_files_do_not_depend_on_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tests compare the digests of files that are written one after the other."""
    found = []
    for number in range(2):
        monkeypatch.setattr("time.asctime", lambda *_, number=number: f"Thu Jan  1 00:00:0{number} 1970")
        (tmp_path / str(number)).mkdir()
        found.append(set_files.svhn(tmp_path / str(number)))
    assert found[0] == found[1]
