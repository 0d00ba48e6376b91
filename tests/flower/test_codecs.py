"""Codecs and the aggregators that go with them, on nodes: the bits of the simulator and of a replay, with outages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_grid import Federation, terms

from fedtide.deploy.replay import replay
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.runs import read_rounds
from remembering import OUTAGE

METHODS: dict[str, dict[str, Any]] = {
    "error_feedback": {
        "codec": {"name": {"name": "error_feedback", "inner": "top_k", "inner_args": {"value_bits": 32}}}
    },
    "ef21": {"codec": {"name": "ef21"}, "policy": {"aggregator": "ef21"}},
    "sign": {"codec": {"name": {"name": "sign", "scaled": False}}, "policy": {"aggregator": "majority_vote"}},
    "qsgd": {"codec": {"name": "qsgd"}},
}


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_as_the_simulator_and_in_a_replay(tmp_path: Path, method: str) -> None:
    wanted = terms(METHODS[method], OUTAGE)
    system = build(wanted.experiment)
    simulated = simulate(wanted.experiment, system=system)
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    model = Federation(wanted, tmp_path / "run", durations).coordinator().run()
    assert read_rounds(tmp_path / "run") == simulated.rounds
    assert np.array_equal(model, simulated.model)
    assert any(each.lost for each in simulated.rounds)
    again = replay(tmp_path / "run")
    assert again.first_difference is None
    assert np.array_equal(again.model, model)
