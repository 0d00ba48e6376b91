"""Over-the-air aggregation in a federation: the server adds up packets over a simulated radio, to the simulator's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_grid import Federation, terms

from fedtide.deploy.replay import replay
from fedtide.deploy.settings import check_terms
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.runs import read_rounds

AIR: dict[str, Any] = {"radio": {"access": {"name": "over_the_air", "min_snr": 8.0}}, "codec": {"name": "ideal"}}


@pytest.mark.parametrize("radio", [{}, {"csi": "noisy"}, {"csi": "packet_error"}], ids=str)
def test_the_same_bits_as_the_simulator(tmp_path: Path, radio: dict[str, Any]) -> None:
    wanted = terms(AIR, {"radio": radio, "policy": {"aggregator": "server_momentum"}})
    system = build(wanted.experiment)
    simulated = simulate(wanted.experiment, system=system)
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    model = Federation(wanted, tmp_path / "run", durations).coordinator().run()
    assert read_rounds(tmp_path / "run") == simulated.rounds
    assert any(0.0 in each.weight and any(each.weight) for each in simulated.rounds)  # some stayed silent
    assert np.array_equal(model, simulated.model)
    replayed = replay(tmp_path / "run")
    assert replayed.first_difference is None
    assert replayed.rounds == simulated.rounds
    assert np.array_equal(replayed.model, model)
    other = replay(tmp_path / "run", {"policy": {"scheduler": "random"}})
    assert [each.ledger.symbols for each in other.rounds] == [each.ledger.symbols for each in simulated.rounds]
    with pytest.raises(FedtideError, match="one by one"):
        replay(tmp_path / "run", {"policy": {"aggregator": "median"}})


@pytest.mark.parametrize("capacity", ["measured", "reported"])
def test_packets_of_a_real_network_do_not_add_up(tmp_path: Path, capacity: str) -> None:
    wanted = terms(AIR, capacity=capacity)
    with pytest.raises(
        FedtideError, match=f"radio.access=over_the_air with capacity={capacity}: .* Say capacity=simulated"
    ):
        check_terms(wanted)
    with pytest.raises(FedtideError, match="do not add up on the air"):
        Federation(wanted, tmp_path / "run", (1.0,) * 6).coordinator()
