"""CIFAR-100 in its official files, the binary version or Python's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from fedtide.core.arguments import arg
from fedtide.data.batches import from_pickle, from_records
from fedtide.data.cut import cut
from fedtide.data.folder import read_whole
from fedtide.data.idx import Bytes, Raw
from fedtide.data.official import check_md5, named_folder
from fedtide.data.packages import members
from fedtide.data.pictures import byte_values
from fedtide.errors import DataError
from fedtide.types import Dataset, Samples

Labels: TypeAlias = Literal["fine", "coarse"]

NUM_LABELS: Final = {"fine": 100, "coarse": 20}
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)  # of the training pixels by channel, as shares of 255
LIMIT: Final = 256 << 20  # bytes of one file; the largest has 155,249,918
HOLDS: Final = "cifar-100-binary.tar.gz or cifar-100-python.tar.gz, or the files train and test of either"
GET: Final = "one of its archives from https://www.cs.toronto.edu/~kriz/cifar.html"


class Form(NamedTuple):
    """One of the official ways to write it down."""

    archive: str
    md5: str
    folder: str
    end: str  # of a file's name


FORMS: Final = (
    Form("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary", ".bin"),
    Form("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python", ""),
)


def cifar100(
    labels: Annotated[Labels, arg("fine: 100 of them; coarse: 20 groups of five")] = "fine",
    folder: Annotated[Path | None, arg("where an official archive or its files lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train", le=50_000)] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test", le=10_000)] = None,
) -> Dataset:
    """Small photographs of 100 kinds of things: 50,000 for training and 10,000 for the test, 32 x 32 in colour.

    From the official files; archives are checked by their MD5, loose files by their structure. Images uint8 [n 3 32 32].
    """
    place = named_folder("CIFAR-100", folder, HOLDS, GET)
    form, files = _found(place)
    values = byte_values(MEAN, STD)
    made = []
    for part in ("train", "test"):
        try:
            pixels, answers = _read(files[part], form, labels)
        except DataError as error:
            raise DataError(f"CIFAR-100 in {place}: {part}: {error}; expected {HOLDS}") from error
        if answers.max() >= NUM_LABELS[labels]:
            raise DataError(
                f"CIFAR-100 in {place}: {part} has a label {answers.max()}, expected 0 to {NUM_LABELS[labels] - 1}"
            )
        made.append(Samples(pixels.copy(), answers.copy(), values))  # not over the records that they come from
    return cut(Dataset("cifar100", made[0], made[1], NUM_LABELS[labels], str(place)), num_train, num_test)


def _read(data: Raw, form: Form, labels: Labels) -> tuple[Bytes, Bytes]:
    if form.end:
        return from_records(data, 2, 1 if labels == "fine" else 0)  # the coarse label comes first
    return from_pickle(data, f"{labels}_labels")


def _found(folder: Path) -> tuple[Form, Mapping[str, Raw]]:
    """Return the content of train and test, and how it is written down."""
    for form in FORMS:
        for inner in (folder, folder / form.folder):
            paths = {part: inner / f"{part}{form.end}" for part in ("train", "test")}
            if all(path.is_file() for path in paths.values()):
                return form, {part: read_whole(path, min(path.stat().st_size, LIMIT)) for part, path in paths.items()}
        archive = folder / form.archive
        if archive.is_file():
            check_md5(archive, form.md5)
            wanted = {f"{part}{form.end}": LIMIT for part in ("train", "test")}
            with archive.open("rb") as file:
                found = {name.removesuffix(".bin"): data for name, data in members(file, archive.name, wanted)}
            if len(found) < 2:
                raise DataError(f"{archive} holds no train and test: get it anew")
            return form, found
    raise DataError(f"CIFAR-100: {folder} holds none of its files, expected {HOLDS}")
