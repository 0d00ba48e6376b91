"""Devices that are picked in outage: they send nothing, cost nobody a symbol and do not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.engine.system import build, parameter_count
from fedtide.report.plan import plan_system
from helpers import FakeTrainer, small, small_dataset

DEAD = 4
DECIDES = """
import numpy as np
from fedtide.types import Decision

def decide(candidates, limit, rng):
    picked = np.arange(min(limit, len(candidates.device)))
    return Decision(picked, np.full(len(picked), candidates.uplink.symbols / max(len(picked), 1)))
"""


def simulated(tmp_path: Path, dead: int = DEAD, **radio: Any) -> tuple[Any, FakeTrainer, fedtide.Result]:
    """Run twelve devices, of which the first few are never heard."""
    scheduler = radio.pop("scheduler", "random")
    rows = [f"{device},0,{0.0 if device < dead else 1.0 + device}" for device in range(12)]
    (tmp_path / "links.csv").write_text("\n".join(["device,time,value", *rows]))
    keys = {
        "fleet": {"num_devices": 12},
        "policy": {"limit": 6, "scheduler": scheduler},
        "radio": {"channel": {"name": "trace", "path": str(tmp_path / "links.csv")}, **radio},
        "codec": {"name": "ideal"} if "allocation" in radio else {},
    }
    system = build(small(keys), dataset=small_dataset())
    trainer = FakeTrainer(parameter_count(system))
    return system, trainer, fedtide.simulate(system.experiment, system=system, trainer=trainer)


def test_who_is_picked_in_outage_sends_nothing_and_starves_nobody(tmp_path: Path) -> None:
    system, _, result = simulated(tmp_path)
    assert any(record.silent for record in result.rounds)
    for record in result.rounds:
        assert record.silent == [device for device in record.picked if device < DEAD]
        assert record.num_arrived == len(record.picked) - len(record.silent)
        assert not record.lost
        heard = np.array(record.picked, np.int64) >= DEAD
        symbols, bits = np.array(record.symbols), np.array(record.sent_bits)
        assert symbols[~heard].sum() == bits[~heard].sum() == 0
        assert (bits[heard] > 0).all()
        if heard.any():
            np.testing.assert_allclose(symbols.sum(), system.num_symbols)


def test_a_plan_says_so_too(tmp_path: Path) -> None:
    system, _, result = simulated(tmp_path)
    assert [row["silent"] for row in plan_system(system).rows] == [record.silent for record in result.rounds]


def test_all_in_outage_leave_the_model_as_it_is(tmp_path: Path) -> None:
    system, trainer, result = simulated(tmp_path, 12)
    np.testing.assert_array_equal(result.model, trainer.initial_model(system.experiment.seed))


@pytest.mark.parametrize("allocation", ["equal_symbols", "max_sum_rate", "alpha_fair"])
def test_symbols_do_not_help_a_link_that_carries_nothing(tmp_path: Path, allocation: str) -> None:
    # a codec that ignores its budget would have its whole update there
    system, _, result = simulated(tmp_path, allocation={"name": allocation})
    plan = plan_system(system).rows
    assert any(device < DEAD for record in result.rounds for device in record.picked)
    for record, row in zip(result.rounds, plan, strict=True):
        dead = [device for device in record.picked if device < DEAD]
        assert record.silent == dead
        assert {*dead} <= {*row["silent"]}
        assert all(not weight for device, weight in zip(record.picked, record.weight, strict=True) if device < DEAD)


def test_nor_does_a_decision(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(DECIDES)
    system, _, result = simulated(tmp_path, scheduler=f"{tmp_path / 'own.py'}:decide")
    assert any(device < DEAD for record in result.rounds for device in record.picked)
    assert [row["silent"] for row in plan_system(system).rows] == [record.silent for record in result.rounds]
    for record in result.rounds:
        assert [weight > 0 for weight in record.weight] == [device >= DEAD for device in record.picked]
