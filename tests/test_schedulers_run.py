"""Our schedulers in whole runs: resumed to the same bytes, and on nodes the simulator's bits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.engine.step import REPORT_BITS, Policy
from fedtide.parts import checks, registry
from fedtide.parts.kinds import builtin_parts
from fedtide.runs import RoundRecord
from helpers import FakeTrainer, small, small_dataset
from remembering import OUTAGE

MEMORY = [name for name in builtin_parts("scheduler") if checks.part_remembers(registry.resolve("scheduler", name, {}))]
ASKING = [
    name
    for name in builtin_parts("scheduler")
    if {*Policy(registry.resolve("scheduler", name, {}), 1, None, None).needs} & {*REPORT_BITS}
]


def simulated(name: str, folder: Path | None = None, **more: Any) -> fedtide.Result:
    wanted = small(OUTAGE, {"policy": {"scheduler": name, "limit": 2}, "timeline": {"horizon": 2.5}})
    return fedtide.simulate(wanted, folder, dataset=small_dataset(), trainer=FakeTrainer(num_parameters=300), **more)


def test_who_remembers_and_who_asks() -> None:
    assert {*MEMORY} == {"round_robin", "proportional_fair", "whittle_age", "drift_plus_penalty", "oort", "pisces"}
    assert {*ASKING} == {"best_channel_best_norm", "max_loss", "oort", "pisces"}


class Stop(fedtide.FedtideError):
    """Raised between two rounds."""


@pytest.mark.parametrize("name", [*MEMORY, "max_loss", "soft_rate_label", "threshold"])
def test_stopped_after_any_round_it_ends_with_the_same_bytes(tmp_path: Path, name: str) -> None:
    whole = simulated(name, tmp_path / "whole").rounds
    assert any(each.lost for each in whole)
    assert (whole[-1].ledger.control_bits > 0) == (name in ASKING)
    for after in range(1, whole[-1].index, 2):

        def stop(record: RoundRecord, _: int, after: int = after) -> None:
            if record.index == after:
                raise Stop

        folder = tmp_path / str(after)
        with pytest.raises(Stop):
            simulated(name, folder, on_round=stop)
        simulated(name, folder)
        for file in ("rounds.jsonl", "model.npy"):
            assert (folder / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize("name", ["proportional_fair", "whittle_age", "max_loss", "oort", "drift_plus_penalty"])
def test_on_nodes_the_same_bits_as_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("flwr")
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent / "flower"), *sys.path])
    from memory_grid import Federation, terms

    from fedtide.deploy.replay import replay
    from fedtide.engine.simulate import simulate
    from fedtide.engine.system import build
    from fedtide.runs import read_rounds

    wanted = terms({"policy": {"scheduler": name, "limit": 2}}, OUTAGE)
    system = build(wanted.experiment)
    expected = simulate(wanted.experiment, system=system)
    # a little early: the models leave half a second after the tick, when the uploads are in
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    model = Federation(wanted, tmp_path / "run", durations).coordinator().run()
    assert read_rounds(tmp_path / "run") == expected.rounds
    assert np.array_equal(model, expected.model)
    assert any(each.lost for each in expected.rounds)
    again = replay(tmp_path / "run")
    assert again.first_difference is None
    assert np.array_equal(again.model, model)
