"""Measured phones and the grid's CO2: formulas against numbers by hand, runs, and every table that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedtide
from fedtide import config
from fedtide.cli.main import app
from fedtide.devices.energy import Carbon, MeasuredPhone, PerUnit, energy_of_bits, read_grid_intensity
from fedtide.errors import DataError, FedtideError, TrainingError
from fedtide.parts import registry
from fedtide.runs.record import Ledger, RoundRecord

SMALL: dict[str, dict[str, Any]] = {
    "data": {"name": "synthetic", "num_train": 600, "num_test": 100, "num_shards": 24},
    "fleet": {"num_devices": 6},
    "timeline": {"horizon": 2},
    "policy": {"limit": 3},
    "learning": {"model": "softmax"},
    "radio": {"num_symbols": 30000, "symbol_rate": 1e6},
}


def phone(network: str) -> dict[str, Any]:
    return {"fleet": {"energy": {"name": "measured_5g", "network": network, "unit_seconds": 60}}}


@pytest.mark.parametrize(("network", "milliwatts"), [("mmwave", 6095.3), ("low_band", 4661.5), ("lte", 6809.5)])
def test_power_against_throughput(network: Any, milliwatts: float) -> None:
    """A second at 50 Mbit/s, phone and screen included, is what figure 11's line says at 50 Mbit/s."""
    made = MeasuredPhone(network, idle_watts=0.0, symbol_rate=1e6, unit_seconds=1.0)
    second = made(0, np.arange(1), np.zeros(1, np.int64), np.array([1e6])) + made.of_bits(
        0, np.arange(1), np.array([50e6])
    )
    assert 1000 * second == pytest.approx([milliwatts], abs=1)


def test_time_bits_and_samples_add_up() -> None:
    made = MeasuredPhone("low_band", symbol_rate=2e6, unit_seconds=60.0, joules_per_sample=0.5)
    joules = made(0, np.arange(2), np.array([4, 0]), np.array([0.0, 1e6]))
    assert joules == pytest.approx([2.0, (3.204 - 2.321) * 30])
    assert energy_of_bits(made, 0, np.arange(2), np.array([1e9, 0.0])) == pytest.approx([29.15, 0])
    assert energy_of_bits(PerUnit(1.0), 0, np.arange(2), np.array([1e9, 0.0])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"symbol_rate": 0.0}, r"radio.symbol_rate=0 does not say how long a symbol takes; set it to the bandwidth"),
        ({"idle_watts": 5.0}, r"idle_watts=5 is more than the 3.204 W of network=low_band with a transfer; lower it"),
    ],
)
def test_phones_refused_in_one_line(more: dict[str, float], says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        MeasuredPhone(**{"symbol_rate": 1e6, **more})


def grid(folder: Path, rows: list[str], header: str = "hour,g_per_kwh") -> Path:
    path = folder / "grid.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


ENERGY = registry.InnerName.of("per_unit", {"joules_per_symbol": 1.0}, registry.fill_in_nothing)


def test_grams_by_the_hour(tmp_path: Path) -> None:
    made = Carbon(grid(tmp_path, ["0,100", "1,200", "2,600"]), ENERGY, unit_seconds=1800.0)
    assert [made.co2_grams(time, 3.6e6) for time in (0, 1.9, 2, 4, 5.9, 6, 6e6)] == [100, 100, 200, 600, 600, 100, 100]
    late = Carbon(grid(tmp_path, ["0,100", "1,200", "2,600"]), ENERGY, unit_seconds=1800.0, start_hour=23)
    assert late.co2_grams(0, 3.6e6) == 600  # 23 = 7 x 3 + 2
    assert late(0, np.arange(1), np.array([9]), np.array([4.0])).tolist() == [4.0]
    assert late.of_bits(0, np.arange(1), np.array([9.0])).tolist() == [0.0]


@pytest.mark.parametrize(("unit", "grams"), [("g_per_kwh", 300), ("kg_per_mwh", 300), ("lb_per_mwh", 136.077711)])
def test_units_of_the_grid(tmp_path: Path, unit: str, grams: float) -> None:
    assert read_grid_intensity(grid(tmp_path, ["0,300"], f"hour,{unit}")).value == pytest.approx([grams])


@pytest.mark.parametrize(
    ("rows", "header", "says"),
    [
        (["0,1"], "hour,gCO2", r"needs one column of g_per_kwh, kg_per_mwh, lb_per_mwh, and has none; name its unit so"),
        (["0,1,1"], "hour,g_per_kwh,lb_per_mwh", "and has g_per_kwh and lb_per_mwh"),
        (["0,1"], "time,g_per_kwh", "has no column 'hour'"),
        (["0,1", "1,"], "hour,g_per_kwh", "line 3: g_per_kwh='' is no number"),
        (["0,1", "1,-3"], "hour,g_per_kwh", "line 3: g_per_kwh=-3 is no intensity of a grid; give 0 to 5000"),
        (["0,1", "1,300000"], "hour,g_per_kwh", r"line 3: g_per_kwh=300000 is no intensity"),
        (["0,1", "1,2", "3,2"], "hour,g_per_kwh", "line 4: hour=3 comes 2 h after the row before, and rows are 1 h apart; fill"),
        (["0,1", "2,2", "1,2"], "hour,g_per_kwh", "line 4: hour=1 comes after hour=2; sort the rows by hour"),
        (["1,1", "2,2"], "hour,g_per_kwh", "line 2: hour=1 comes first; begin at hour 0"),
        ([], "hour,g_per_kwh", "has no rows"),
    ],
)  # fmt: skip
def test_grids_refused_in_one_line(tmp_path: Path, rows: list[str], header: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as error:
        read_grid_intensity(grid(tmp_path, rows, header))
    assert "\n" not in str(error.value)


def test_carbon_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtideError, match=r"inner=per_unit counts nothing; give fleet.joules_per_sample or"):
        Carbon(grid(tmp_path, ["0,1"]))


@pytest.mark.parametrize("answer", [[1.0], [1.0, -1.0], [1.0, np.nan], "no", [[1.0, 2.0]]])
def test_a_users_bits_that_cannot_be(answer: Any) -> None:
    class Own(PerUnit):
        def of_bits(self, seed: int, device: Any, bits: Any) -> Any:
            return answer

    with pytest.raises(
        TrainingError, match=r"of_bits returned .*it must give 2 finite energies >= 0 in J, one per device"
    ):
        energy_of_bits(Own(1.0), 0, np.arange(2), np.ones(2))


# In a run.


def test_a_run_counts_time_and_bits_of_its_packets() -> None:
    made = fedtide.simulate(config.experiment(SMALL, phone("lte")))
    last = made.rounds[-1].ledger
    by_hand = (2.799 - 2.321) * 60 / 1e6 * last.symbols_sent + 80.21e-9 * last.bits
    assert last.joules == pytest.approx(by_hand)
    plan = fedtide.plan(config.experiment(SMALL, phone("lte")))
    assert plan.summary["joules"] == pytest.approx(by_hand)


def carbon(tmp_path: Path, rows: list[str]) -> dict[str, Any]:
    inner = {"name": "measured_5g", "unit_seconds": 60}
    path = str(grid(tmp_path, rows))
    return {"fleet": {"energy": {"name": "carbon", "path": path, "unit_seconds": 3600, "inner": inner}}}


def test_a_run_counts_its_co2(tmp_path: Path) -> None:
    experiment = config.experiment(SMALL, carbon(tmp_path, ["0,100", "1,700"]))
    made = fedtide.simulate(experiment)
    joules = np.diff([0.0, *(record.ledger.joules for record in made.rounds)])
    hour = np.array([record.time for record in made.rounds])
    by_hand = (joules * np.where(hour % 2 < 1, 100, 700)).sum() / 3.6e6
    assert made.rounds[-1].ledger.co2_grams == pytest.approx(by_hand)
    assert made.summary()["co2_grams"] == pytest.approx(by_hand)
    assert fedtide.plan(experiment).summary["co2_grams"] == pytest.approx(by_hand)
    assert RoundRecord.from_json(made.rounds[-1].to_json()) == made.rounds[-1]
    assert "co2_grams" not in fedtide.simulate(config.experiment(SMALL, phone("lte"))).rounds[-1].to_json()
    assert config.experiment_argument_files(experiment) == {"fleet.energy.path": str(tmp_path / "grid.csv")}


def test_co2_on_the_command_line(tmp_path: Path) -> None:
    path = grid(tmp_path, ["0,100"])
    keys = [f"{kind}.{name}={value}" for kind, tree in SMALL.items() for name, value in tree.items()]
    keys += [f"fleet.energy={{name: carbon, path: {path}, inner: measured_5g}}"]
    run = CliRunner().invoke(app, ["run", *keys, "--out", str(tmp_path / "run"), "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["co2_grams"] > 0
    base = config.experiment(SMALL, carbon(tmp_path, ["0,100"]))
    made = fedtide.study(base, axes={"policy.scheduler": ["random", "proposed"]}, seeds=1, store=tmp_path / "store")
    assert "co2_grams" in [*made.frame()]
    assert all(value[0] > 0 for value in made.values("co2_grams_to_0.05").values())


def test_old_ledgers_are_read() -> None:
    assert Ledger().co2_grams is None
