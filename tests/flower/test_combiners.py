"""Every combiner of ours in a federation: the bits of the simulator, and of a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_grid import Federation, terms

from fedtide.core.kinds import table
from fedtide.drivers.simulate import simulate
from fedtide.flower.replay import replay
from fedtide.records import read_rounds
from fedtide.system import build

# What a combiner goes with.
TOGETHER: dict[str, Any] = {"ef21": {"codec": {"name": "ef21"}}, "scaffold": {"learning": {"trainer": "scaffold"}}}


@pytest.mark.parametrize("name", table("combiner"))
def test_the_same_bits_as_the_simulator(tmp_path: Path, name: str) -> None:
    wanted = terms({"policy": {"combiner": name}, **TOGETHER.get(name, {})})
    system = build(wanted.experiment)
    simulated = simulate(wanted.experiment, system=system)
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    model = Federation(wanted, tmp_path / "run", durations).coordinator().run()
    assert read_rounds(tmp_path / "run") == simulated.rounds
    assert np.array_equal(model, simulated.model)
    assert np.array_equal(replay(tmp_path / "run").model, model)
