"""Our formulas and gains beside Sionna's, whose numbers are in fixtures/sionna.json (made by fixtures/sionna_table.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from fedtide.radio import propagation
from fedtide.radio.cell import Uma, Umi
from fedtide.radio.channel import _drawn, _power_gain, _rician_gain

TABLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "fixtures" / "sionna.json").read_text(encoding="utf-8"))
STREETS = {"uma": propagation.UMA, "umi": propagation.UMI}
ROWS = [(name, row) for name in STREETS for row in TABLE[name]]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_path_loss_and_lines_of_sight(name: str, row: dict[str, Any]) -> None:
    street, distance, how = STREETS[name], np.array(row["distance"]), (row["carrier_ghz"], row["height"])
    # Sionna's light is 0.07 % slower than the 3e8 m/s of TR 38.901: that moves the breakpoint by 0.006 dB
    direct, hidden = propagation.both_path_losses(street, distance, *how)
    np.testing.assert_allclose(direct, row["los_db"], atol=0.02)
    np.testing.assert_allclose(hidden, row["nlos_db"], atol=0.02)
    np.testing.assert_allclose(propagation.line_of_sight_chance(street, distance), row["sight"], atol=1e-5)


@pytest.mark.parametrize(("name", "made"), [("uma", Uma(10)), ("umi", Umi(10))])
def test_shadowing(name: str, made: Uma | Umi) -> None:
    for row in TABLE[name]:
        assert (made.sigma_los_db, made.sigma_nlos_db) == pytest.approx((row["los_sigma_db"], row["nlos_sigma_db"]))


def test_rayleigh_and_rician_gains() -> None:
    many = np.arange(200_000)
    k_factor = 10 ** (TABLE["rician"]["k_db"] / 10)
    for found, said in (
        (_power_gain(0, 1, len(many)), TABLE["rayleigh"]),
        (_rician_gain(0, 1, many, k_factor), TABLE["rician"]),
    ):
        assert found.mean() == pytest.approx(said["mean"], rel=0.01)
        np.testing.assert_allclose(np.quantile(found, TABLE["shares"]), said["quantiles"], rtol=0.03)


def test_jakes_spectrum() -> None:
    lags, said = np.array(TABLE["jakes"]["cycles"]), np.array(TABLE["jakes"]["correlation"])
    np.testing.assert_allclose(said, special.j0(2 * np.pi * lags), atol=0.02)
    speed, phase = _drawn(0, np.arange(40_000), 8, False)
    waves = np.cos(2 * np.pi * (speed[None] * lags[:, None, None] + phase))  # [lags 2M m]
    h = (waves[:, :8].sum(1) + 1j * waves[:, 8:].sum(1)) / np.sqrt(8)
    np.testing.assert_allclose((h * h[:1].conj()).mean(1).real, said, atol=0.03)


def test_the_table_is_rayleigh_and_rician() -> None:
    np.testing.assert_allclose(TABLE["rayleigh"]["quantiles"], stats.expon.ppf(TABLE["shares"]), rtol=0.04)
