"""Samples that are held out: those after the devices' own, which stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide import FedtideError, config
from fedtide.data.dataset import held_out_split
from fedtide.engine.making import load_dataset
from fedtide.runs.manifest import data_digest
from fedtide.types import Dataset
from helpers import small_dataset


def arrays(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (100, 8, 8), np.uint8), np.arange(100) % 5
    np.savez(folder / "mine.npz", x_train=images[:80], y_train=labels[:80], x_test=images[80:], y_test=labels[80:])
    return {"name": {"name": "npz", "path": str(folder / "mine.npz")}}


def loaded(data: dict[str, Any], **more: Any) -> Dataset:
    return load_dataset(config.experiment({"data": {**data, **more}}))


def test_devices_keep_theirs(tmp_path: Path) -> None:
    data = arrays(tmp_path)
    plain, held, whole = (
        loaded(data, **keys) for keys in ({"num_train": 60}, {"num_train": 60, "num_held_out": 15}, {})
    )
    assert plain.held_out is None
    assert held.held_out is not None
    assert np.array_equal(held.train.labels, plain.train.labels)
    assert np.array_equal(held.train.images, plain.train.images)
    assert np.array_equal(held.test.images, plain.test.images)
    assert np.array_equal(held.held_out.images, whole.train.images[60:75])
    assert np.array_equal(held.held_out.labels, whole.train.labels[60:75])
    assert data_digest(held) != data_digest(plain)


def test_validation_samples_are_taken_from_the_devices_alone(tmp_path: Path) -> None:
    both = loaded(arrays(tmp_path), num_train=60, num_held_out=15, validation=0.1)
    assert both.held_out is not None
    assert [len(part.labels) for part in (both.train, both.test, both.held_out)] == [54, 6, 15]


def test_lent_samples_cannot_be_written_to() -> None:
    lent = held_out_split(small_dataset(), 40, 8).lent()
    assert lent.held_out is not None
    assert not lent.held_out.images.flags.writeable


def test_too_few_samples_are_told(tmp_path: Path) -> None:
    with pytest.raises(FedtideError, match=r"data\.num_held_out=8 .* set data\.num_train"):
        held_out_split(small_dataset(), None, 8)
    with pytest.raises(FedtideError, match=r"data\.num_train=45 and data\.num_held_out=8 need 53 .* gives 48"):
        held_out_split(small_dataset(), 45, 8)
