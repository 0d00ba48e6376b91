"""SCAFFOLD in a federation: what a node remembers goes on with what the server has, whatever was lost, late or restarted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_grid import Federation, terms
from test_node_memory import DISTURBANCES, LONG

from fedtide.deploy import trace
from fedtide.deploy.replay import replay
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.runs import read_rounds
from remembering import OUTAGE

SCAFFOLD: dict[str, Any] = {
    "learning": {"trainer": "scaffold", "local_epochs": 2},
    "policy": {"aggregator": {"name": "scaffold", "inner": "server_momentum"}},
    "codec": {"name": "top_k"},
    "radio": {"num_symbols": 6000},
}


@pytest.mark.parametrize(
    ("disturb", "forgetful"), DISTURBANCES.items(), ids=[getattr(each, "__name__", "calm") for each in DISTURBANCES]
)
def test_a_replay_comes_to_the_same_bits(
    tmp_path: Path, disturb: Callable[[Federation], None] | None, forgetful: int
) -> None:
    federation = Federation(terms(LONG, SCAFFOLD, OUTAGE), tmp_path / "run")
    if disturb is not None:
        disturb(federation)
    model = federation.coordinator().run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert any(each.picked != each.arrived for each in periods)
    assert {kind for each in periods for kind in each.forgot or {}} == ({"trainer"} if forgetful else set())
    again = replay(tmp_path / "run")
    assert again.first_difference is None
    assert np.array_equal(again.model, model)


def test_the_same_bits_as_the_simulator_with_outages(tmp_path: Path) -> None:
    wanted = terms(LONG, SCAFFOLD, OUTAGE)
    system = build(wanted.experiment)
    simulated = simulate(wanted.experiment, system=system)
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    model = Federation(wanted, tmp_path / "run", durations).coordinator().run()
    assert any(each.lost for each in simulated.rounds)
    assert read_rounds(tmp_path / "run") == simulated.rounds
    assert np.array_equal(model, simulated.model)
