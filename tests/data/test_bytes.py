"""Images as bytes, through everything that handles samples: what comes out is what their values would give as float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from companions import with_companions
from fedtide.config import experiment
from fedtide.data.dataset import first_samples
from fedtide.deploy import node
from fedtide.engine.making import make_fleet
from fedtide.errors import RunFolderError
from fedtide.learning.trainer import TRAINERS
from fedtide.runs.manifest import data_digest
from fedtide.types import Dataset, Samples
from helpers import small, small_dataset

BYTES = """
import numpy as np
from fedtide import Dataset, Samples


def bytes_(scale: float = 1.0):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((3, 256)) * scale).astype(np.float32)
    train, test = (
        Samples(rng.integers(0, 256, (n, 3, 8, 8), np.uint8), rng.integers(0, 3, n, np.uint8), values) for n in (48, 20)
    )
    return Dataset("bytes", train, test, 3, "drawn")


def floats():
    made = bytes_()
    train, test = (Samples(each.floats(), each.labels) for each in (made.train, made.test))
    return made._replace(train=train, test=test)


def worst(candidates, limit, rng):
    return np.argsort(-candidates.loss)[:limit]


worst.needs = ("loss", "update_sq_norm")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(BYTES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_own(name: str, *trees: dict[str, Any]) -> fedtide.Experiment:
    return small({"data": {"name": f"own.py:{name}"}, "policy": {"scheduler": "own.py:worst"}}, *trees)


def made(name: str, **args: Any) -> Dataset:
    space: dict[str, Any] = {}
    exec(BYTES, space)
    found: Dataset = space[name](**args)
    return found


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_run_on_bytes_is_the_run_on_what_they_stand_for(own: Path, trainer: str) -> None:
    if trainer == "dask":
        pytest.importorskip("distributed")
    bytes_, floats = (
        fedtide.simulate(of_own(name, with_companions("trainer", trainer))) for name in ("bytes_", "floats")
    )
    assert np.array_equal(bytes_.model, floats.model)
    assert repr(bytes_.rounds) == repr(floats.rounds)


def test_a_run_goes_on_with_the_same_values_only(own: Path) -> None:
    one, given = of_own("floats"), made("bytes_")

    def leave(record: Any, total: int) -> None:
        if record.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(one, own / "run", dataset=given, on_round=leave)
    with pytest.raises(RunFolderError, match=r"data is .* there and"):
        fedtide.simulate(one, own / "run", dataset=made("bytes_", scale=2.0))
    assert np.array_equal(fedtide.simulate(one, own / "run", dataset=given).model, fedtide.simulate(one).model)


def test_a_node_keeps_its_own_bytes(own: Path) -> None:
    one = of_own("bytes_")
    whole = node.partition(one, None)
    for device, mine in enumerate(make_fleet(one, whole).partition):
        found = node.partition(one, device)
        assert found.train.images.dtype == np.uint8
        assert np.array_equal(found.train.floats(), whole.train.floats()[mine])
        assert np.array_equal(found.train.labels, whole.train.labels[mine])


def test_the_fingerprint_is_of_the_values_too() -> None:
    bytes_ = made("bytes_")
    twice = bytes_._replace(test=bytes_.test._replace(values=bytes_.test.values * 2))
    found = {data_digest(each) for each in (bytes_, twice, made("bytes_", scale=2.0), made("floats"))}
    assert len(found) == 4
    assert data_digest(made("bytes_")) in found


def test_the_fingerprint_of_float32_is_as_it_was_before_there_were_bytes() -> None:
    assert data_digest(small_dataset()) == "dbe3263664ed92aaf714b049ca9da9ead818a03e7947f6d4f2154662ecfef0e6"


def test_the_first_of_them_mean_the_same() -> None:
    whole = made("bytes_")
    train, first = whole.train, first_samples(whole, 7, None).train
    assert np.array_equal(first.floats(), train.floats()[:7])
    assert np.shares_memory(first.images, train.images)
    some = train.taken(np.array([3, 1]))
    assert isinstance(some, Samples)
    assert np.array_equal(some.floats(), train.floats()[[3, 1]])


def test_a_plan_of_bytes(own: Path) -> None:
    assert fedtide.plan(experiment(of_own("bytes_"), {"policy": {"scheduler": "random"}}))
