"""Devices that are picked in outage: they send nothing, cost nobody a symbol and do not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fedtide
from fedtide.engine.system import build, parameter_count
from fedtide.report.plan import plan_system
from helpers import FakeTrainer, small, small_dataset

DEAD = 4


def simulated(tmp_path: Path, dead: int = DEAD) -> tuple[Any, FakeTrainer, fedtide.Result]:
    """Run twelve devices, of which the first few are never heard."""
    rows = [f"{device},0,{0.0 if device < dead else 1.0 + device}" for device in range(12)]
    (tmp_path / "links.csv").write_text("\n".join(["device,time,value", *rows]))
    keys = {
        "fleet": {"num_devices": 12},
        "policy": {"limit": 6, "scheduler": "random"},
        "radio": {"channel": {"name": "trace", "path": str(tmp_path / "links.csv")}},
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
