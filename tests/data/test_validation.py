"""data.validation: runs are scored on training samples that no device holds, and never on the test set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedtide
from fedtide import config
from fedtide.config import workload
from fedtide.data.dataset import validation_split
from fedtide.engine.making import load_dataset
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.types import Dataset, Samples

TINY = {"data": {"name": "synthetic", "num_train": 400, "num_test": 50}, "fleet": {"num_devices": 8}}


def numbered(count: int, owners: bool = False) -> Dataset:
    """Return a data set whose images say which sample they are."""
    images = np.arange(count, dtype=np.float32)[:, None, None, None]
    samples = Samples(images, np.zeros(count, np.uint8), None)
    return Dataset("own", samples, samples, 1, "here", np.arange(count) // 10 if owners else None)


@given(st.integers(20, 500), st.floats(0.05, 0.9))
def test_a_share_leaves_the_training_and_nothing_is_in_both(count: int, share: float) -> None:
    split = validation_split(numbered(count, owners=True), share)
    train, test = (part.images.ravel().astype(int) for part in (split.train, split.test))
    assert sorted([*train, *test]) == list(range(count))
    assert len(test) == int(np.floor(count * share))
    assert split.owners is not None
    assert np.array_equal(split.owners, train // 10)
    assert np.diff(test).max(initial=0) <= np.ceil(
        1 / share
    )  # evenly spread: every owner and every label gives its share


def test_devices_do_not_hold_what_is_tested_on() -> None:
    e = fedtide.experiment(TINY, {"data.validation": 0.2})
    whole, system = load_dataset(fedtide.experiment(TINY)), build(e)
    assert sum(len(system.fleet.partition[k]) for k in range(8)) <= 320 == len(system.dataset.train.labels)
    every = {image.tobytes() for image in whole.test.images}
    assert not any(image.tobytes() in every for image in system.dataset.test.images)
    assert (workload.expected_dataset_size(e, "num_train"), workload.expected_dataset_size(e, "num_test")) == (320, 80)


def test_the_default_is_as_before_and_a_share_is_another_experiment() -> None:
    plain, zero, some = (fedtide.experiment(TINY, {"data.validation": share}) for share in (0.0, 0, 0.1))
    assert config.digest(plain) == config.digest(fedtide.experiment(TINY)) == config.digest(zero)
    assert config.digest(some) != config.digest(plain)


def test_a_study_does_not_mix_up_data_sets() -> None:
    """The data set in memory is not the next experiment's if that one is scored on other samples."""
    both = fedtide.compare(
        {"test": {}, "validation": {"data.validation": 0.5}}, seeds=1, base={**TINY, "timeline.horizon": 1}
    )
    alone = fedtide.compare({"validation": {"data.validation": 0.5}}, seeds=1, base={**TINY, "timeline.horizon": 1})
    assert both.values()["validation"] == alone.values()["validation"]


@pytest.mark.parametrize("share", [0.95, -0.1, float("nan"), "x"])
def test_shares_that_are_refused(share: object) -> None:
    with pytest.raises(FedtideError, match=r"data.validation"):
        fedtide.experiment(TINY, {"data.validation": share})


def test_too_few_samples_for_a_share() -> None:
    with pytest.raises(FedtideError, match=r"data.validation=0.1 of 5 training samples leaves none"):
        validation_split(numbered(5), 0.1)
