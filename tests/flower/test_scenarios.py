"""Scenarios as federations: how long devices take and whether they are there is real, the radio is the scenario's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from memory_grid import Federation

from fedtide.deploy.replay import replay
from fedtide.deploy.settings import Deployment, Terms
from fedtide.errors import FedtideError
from fedtide.runs import read_rounds
from worlds import NAMES, small_world

# What nodes cannot do, and the key that is refused
SIMULATED = {"leo": "fleet.absent=fetch", "seven_cells": "radio.coverage=hex_grid"}


@pytest.mark.parametrize(("name", "key"), SIMULATED.items())
def test_refused_by_its_key(name: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(FedtideError, match=f"^{key}.*simulate it with `fedtide run`$"):
        Federation(
            Terms(small_world(name, **{"timeline.upload_time": 0.0}), Deployment(min_nodes=1)), tmp_path / "run"
        ).coordinator()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SIMULATED])
def test_replayed_to_the_same_bits(name: str, tmp_path: Path) -> None:
    keys = {"fleet.num_devices": 6, "policy.limit": 3, "fleet.min_duration": 0.0, "fleet.max_duration": 40.0}
    keys |= {"timeline.period": 10.0, "timeline.horizon": 80.0, "timeline.upload_time": 0.0, "data.num_train": 240}
    experiment = small_world(name, **keys)
    federation = Federation(Terms(experiment, Deployment(min_nodes=1)), tmp_path / "run")
    model = federation.coordinator().run()
    rounds = read_rounds(tmp_path / "run")
    assert len(rounds) == 8
    assert sum(len(each.picked) for each in rounds) > 8
    result = replay(tmp_path / "run")
    assert result.first_difference is None
    assert result.compared == 8
    assert np.array_equal(result.model, model)
