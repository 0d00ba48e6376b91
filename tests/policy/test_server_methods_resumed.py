"""Runs with our aggregators that remember: stopped after any aggregation, they end with the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from companions import with_companions
from fedtide.aggregate.base import as_aggregator
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from fedtide.runs import RoundRecord
from fedtide.runs.checkpoint import read_checkpoint
from helpers import FakeTrainer, small, small_dataset

REMEMBERING = [
    name
    for name in builtin_parts("aggregator")
    if as_aggregator(registry.resolve("aggregator", name, {})).init(np.zeros(4, np.float32), 2)
]
NESTED = {"aggregator": {"name": "server_yogi", "inner": "ca2fl", "inner_args": {"server_rate": 0.5}}}
POLICIES: dict[str, dict[str, Any]] = {**{name: {"aggregator": name} for name in REMEMBERING}, "nested": NESTED}


class Stop(fedtide.FedtideError):
    """Raised between two rounds."""


def simulated(policy: dict[str, Any], folder: Path | None = None, stop_after: int = 0) -> fedtide.Result:
    def stop(record: RoundRecord, _: int) -> None:
        if record.index == stop_after:
            raise Stop

    wanted = small(
        {"radio": {"num_symbols": 4000}}, with_companions("aggregator", policy["aggregator"]), {"policy": policy}
    )
    return fedtide.simulate(wanted, folder, dataset=small_dataset(), trainer=FakeTrainer(60), on_round=stop)


def test_those_that_remember() -> None:
    assert {"server_momentum", "server_adam", "server_yogi", "fadas", "ca2fl", "mifa", "fedat"} <= {*REMEMBERING}


@pytest.mark.parametrize("name", POLICIES)
def test_stopped_after_any_aggregation_it_ends_with_the_same_bytes(tmp_path: Path, name: str) -> None:
    policy = POLICIES[name]
    whole = simulated(policy, tmp_path / "whole")
    assert not (whole.model == simulated({"aggregator": "average_deltas"}).model).all()
    for after in range(1, whole.rounds[-1].index, 3):
        folder = tmp_path / str(after)
        with pytest.raises(Stop):
            simulated(policy, folder, after)
        simulated(policy, folder)
        for file in ("rounds.jsonl", "model.npy"):
            assert (folder / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_the_caches_are_as_long_as_the_fleet(tmp_path: Path) -> None:
    wanted = simulated(NESTED, tmp_path / "run").experiment
    saved = read_checkpoint(tmp_path / "run", wanted)
    assert saved is not None
    assert saved.state.memory["aggregator"]["inner_cached"].shape == (6, 60)
    assert {*saved.state.memory["aggregator"]} == {"mean", "square", "inner_cached"}
