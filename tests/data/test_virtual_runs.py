"""Runs of devices that share samples: resumed, with other parts, on nodes; and what a user's own holdings may not answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.data.holdings import Flat, checked_partition, holding_label_counts
from fedtide.deploy.node import partition as loader
from fedtide.engine.system import build
from fedtide.errors import FedtideError, RunFolderError
from fedtide.pages.run_view import view_run
from fedtide.parts.checks import Guarded
from fedtide.runs.manifest import _fleet_digest
from helpers import EXAMPLES, small, small_dataset

DEVICES = {"num_devices": 700}  # of 120 samples


def experiment(*trees: Any, name: str = "virtual_dirichlet") -> fedtide.Experiment:
    data = {"partition": {"name": name, "samples_per_device": 12}, "size_spread": 0.5}
    return small({"data": data, "fleet": DEVICES, "learning": {"batch_size": 4}}, *trees)


class Stopped(fedtide.FedtideError):
    """Raised in the middle of a run."""


@pytest.mark.parametrize("name", ["virtual_iid", "virtual_labels", "virtual_dirichlet"])
def test_resumed_it_ends_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    given = experiment({"radio": {"channel": "rayleigh_by_device"}, "timeline": {"horizon": 2.0}}, name=name)

    def stop(record: Any, total: int) -> None:
        if record.index == 3:
            raise Stopped

    whole = fedtide.simulate(given, tmp_path / "whole", dataset=small_dataset())
    with pytest.raises(Stopped):
        fedtide.simulate(given, tmp_path / "part", dataset=small_dataset(), on_round=stop)
    resumed = fedtide.simulate(given, tmp_path / "part", dataset=small_dataset())
    assert np.array_equal(whole.model, resumed.model)
    assert len(whole.rounds) > 5
    for file in ("rounds.jsonl", "model.npy"):
        assert (tmp_path / "part" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_another_fleet_does_not_go_on(tmp_path: Path) -> None:
    """A system that holds something else is another fleet, although only some devices are asked."""
    given = experiment()
    one, two = (build(given, dataset=small_dataset()) for _ in range(2))
    other = build(experiment(name="virtual_iid"), dataset=small_dataset())
    assert _fleet_digest(one.fleet) == _fleet_digest(two.fleet)
    assert _fleet_digest(one.fleet) != _fleet_digest(other.fleet)
    held: Any = one.fleet.partition
    moved = replace(
        held, pools=Flat(held.pools.samples + 1, held.pools.offsets)
    )  # as many of each label, other samples
    assert _fleet_digest(one.fleet) != _fleet_digest(one.fleet._replace(partition=moved))
    fedtide.simulate(given, tmp_path / "run", system=one)
    (tmp_path / "run" / "model.npy").unlink()
    mixed = two._replace(fleet=other.fleet._replace(duration=one.fleet.duration))
    with pytest.raises(RunFolderError, match=r"begun with something else .fleet is"):
        fedtide.simulate(given, tmp_path / "run", system=mixed)


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": {"scheduler": "proposed"}, "fleet": {"num_devices": 150}},
        {"fleet": {**DEVICES, "duration": "shifted_exponential_by_size"}},
        {"fleet": {**DEVICES, "availability": "markov"}, "radio": {"downlink": "unicast"}},
        {"framework": "fedasync", "timeline": {"horizon": 0.05}},
        {"policy": {"scheduler": "max_loss"}, "fleet": {"num_devices": 150}},
    ],
    ids=str,
)
def test_with_other_parts(changes: dict[str, Any]) -> None:
    result = fedtide.simulate(experiment(changes), dataset=small_dataset())
    assert np.isfinite(result.model).all()
    assert sum(len(each.picked) for each in result.rounds) > 3


def test_updates_of_all_who_are_ready_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that looks at updates has everyone trained: what that needs is said before it is tried."""
    given = experiment({"policy": {"scheduler": "best_channel_best_norm"}})
    monkeypatch.setattr(
        "fedtide.core.memory_budget._available_bytes", lambda: 200_000
    )  # enough for 700 devices, and not for their updates
    with pytest.raises(FedtideError, match="ready devices before the schedule is made"):
        fedtide.simulate(given, dataset=small_dataset())


def test_a_node_holds_what_the_device_does() -> None:
    given = experiment({"data": {"num_train": 120, "num_test": 30}})
    system = build(given)
    for device in (0, 699):
        mine = loader(given, device).train
        assert np.array_equal(mine.labels, system.dataset.train.labels[system.fleet.partition[device]])
        held = np.bincount(mine.labels, minlength=system.dataset.num_labels)
        assert np.array_equal(held, system.fleet.label_counts[device])
    with pytest.raises(FedtideError, match="partition-id=700 is not one of the 700 parts"):
        loader(given, 700)


def test_a_page_knows_the_labels(tmp_path: Path) -> None:
    given = experiment({"data": {"num_train": 120, "num_test": 30}})
    fedtide.simulate(given, tmp_path / "run")
    shown = view_run(tmp_path / "run")
    assert not shown.why
    assert shown.label_counts is not None
    assert shown.label_counts.shape == (700, 10)


def test_the_table_of_counts_is_an_array_where_one_is_needed() -> None:
    fleet = build(experiment(), dataset=small_dataset()).fleet
    table = np.asarray(fleet.label_counts)
    assert table.shape == fleet.label_counts.shape == (700, 3)
    assert np.array_equal(fleet.label_counts[10:14], table[10:14])
    assert np.array_equal(fleet.label_counts[[5, 3]], table[[5, 3]])
    assert np.array_equal(fleet.label_counts[5], table[5])
    assert np.array_equal(table.sum(axis=1), fleet.num_samples)
    held = [fleet.partition[k] for k in range(700)]
    assert np.array_equal(holding_label_counts(small_dataset().train.labels, held, 3), table)


def test_a_million_devices() -> None:
    system = build(config.experiment(EXAMPLES / "million.yaml"))
    assert [len(tick.ready) > 200_000 for tick in system.ticks[:3]] == [True] * 3
    tiny = {"fleet.num_devices": 20_000, "policy.limit": 20, "timeline.horizon": 0.5, "radio.num_symbols": 480_000}
    result = fedtide.simulate(fedtide.experiment(EXAMPLES / "million.yaml", **tiny))
    assert [len(each.picked) for each in result.rounds] == [20, 20]


class Wrong:
    """Holdings of a user's own, one answer of which is wrong."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {"len": 4, "item": [0, 3], "sizes": np.full(4, 2), "counts": [[1, 1]] * 4}
        self.answers |= answers

    def answer(self, name: str) -> Any:
        found = self.answers[name]
        if isinstance(found, Exception):
            raise found
        return found

    def __len__(self) -> int:
        return self.answer("len")  # type: ignore[no-any-return]

    def __getitem__(self, device: int) -> Any:
        return self.answer("item")

    def num_samples(self, device: Any) -> Any:
        return self.answer("sizes")[: len(device)]

    def label_counts(self, device: Any) -> Any:
        return np.array(self.answer("counts"))[: len(device)]


LABELS = np.array([0, 0, 1, 1], np.uint8)


def ask(**answers: Any) -> None:
    dealer = Guarded("partition", "mine.py:mine", ask)
    held: Any = checked_partition(Wrong(**answers), LABELS, 2, 4, dealer, "partition='mine.py:mine'")
    held.num_samples(np.arange(4))
    held.label_counts(np.arange(4))
    held[1]


def test_right_answers_are_taken() -> None:
    ask()
    ask(item=np.array([3, 0], np.uint8))


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"len": 3}, "dealt to 3 devices: there are fleet.num_devices=4"),
        ({"len": ValueError("no")}, "mine.py:mine' raised ValueError: no"),
        ({"sizes": np.full(4, 2.0)}, r"num_samples answered float64\[4\]; it needs whole numbers \[4\] of at least 1"),
        (
            {"sizes": np.array([2, 0, 2, 2])},
            r"num_samples answered int64\[4\]; it needs whole numbers \[4\] of at least 1",
        ),
        ({"sizes": [None] * 4}, "num_samples answered object"),
        ({"counts": [[1, 1]] * 3}, r"label_counts answered int64\[3, 2\]; it needs whole numbers \[4, 2\]"),
        ({"counts": [[1, 1], [1, 1], [2, 1], [1, 1]]}, "num_samples and label_counts are not those of the samples"),
        (
            {"counts": [[1, 1], [3, -1], [1, 1], [1, 1]]},
            r"answered int64\[4, 2\]; .*\[4, 2\] of at least 0",
        ),
        ({"counts": [[2, 0]] * 4}, "num_samples and label_counts are not those of the samples"),
        ({"item": [0, 4]}, "device 0 sample numbers from 0 to 4; there are 4 samples"),
        ({"item": [3, 3]}, "device 0 some samples twice"),
        ({"item": []}, "needs a vector of at least one sample number"),
        ({"item": KeyError("gone")}, "mine.py:mine' raised KeyError"),
    ],
)
def test_wrong_answers_are_refused(answers: dict[str, Any], says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        ask(**answers)
