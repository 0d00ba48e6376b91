"""Every aggregator of ours in a federation: the bits of the simulator, and of a replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from memory_grid import Federation, terms

from companions import with_companions
from fedtide.deploy.replay import replay
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.parts.kinds import builtin_parts
from fedtide.runs import read_rounds


# nodes know one server: tests/test_edges.py has the refusal
@pytest.mark.parametrize(
    "name", [name for name in builtin_parts("aggregator") if name not in ("aflguard", "hierarchical")]
)
def test_the_same_bits_as_the_simulator(tmp_path: Path, name: str) -> None:
    wanted = terms(with_companions("aggregator", name))
    system = build(wanted.experiment)
    simulated = simulate(wanted.experiment, system=system)
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    model = Federation(wanted, tmp_path / "run", durations).coordinator().run()
    assert read_rounds(tmp_path / "run") == simulated.rounds
    assert np.array_equal(model, simulated.model)
    assert np.array_equal(replay(tmp_path / "run").model, model)
