"""SVHN: house numbers seen from the street, in the official MATLAB files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import numpy as np

from fedtide.data.adapters import RawSplit, dataset
from fedtide.data.dataset import first_samples
from fedtide.data.fetch import check_md5, named_folder
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset

SVHN_MD5: Final = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
_HOLDS: Final = "train_32x32.mat and test_32x32.mat"
_GET: Final = f"{_HOLDS} from http://ufldl.stanford.edu/housenumbers"


def svhn(
    folder: Annotated[Path | None, arg("where train_32x32.mat and test_32x32.mat lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train", le=73_257)] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test", le=26_032)] = None,
) -> Dataset:
    """Digits of house numbers: 73,257 for training and 26,032 for the test, 32 x 32 in colour.

    From the official files (format 2), checked by their MD5. Images uint8 [n 3 32 32], normalised by mean and deviation of
    the training images; the label 10, which the files have for zero, is 0.
    """
    place = named_folder("SVHN", folder, _HOLDS, _GET)
    train, test = (_part(place / name, md5) for name, md5 in SVHN_MD5.items())
    return first_samples(dataset("svhn", str(place), train, test, channels="first", num_labels=10), num_train, num_test)


def _part(path: Path, md5: str) -> RawSplit:
    if not path.is_file():
        raise DataError(f"SVHN: {path} is not there; get {_GET}")
    check_md5(path, md5)
    from scipy.io import loadmat  # here, since scipy is imported when it is used

    try:
        found = loadmat(path, variable_names=["X", "y"])
        images, labels = np.asarray(found["X"]), np.asarray(found["y"]).ravel()
    except Exception as error:  # a damaged file can raise nearly anything
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {' '.join(str(error).split())}); get it anew"
        ) from error
    right = images.dtype == np.uint8 and images.shape == (32, 32, 3, len(labels)) and labels.dtype.kind in "iu"
    if not right or not len(labels) or labels.min() < 1 or labels.max() > 10:
        raise DataError(
            f"{path} has X {images.dtype}{list(images.shape)} and {len(labels)} labels, expected uint8 [32 32 3 n] and n "
            "labels from 1 to 10: get it anew"
        )
    return RawSplit(images.transpose(3, 2, 0, 1), labels.astype(np.int64) % 10)
