"""Our formulas and gains beside Sionna's, whose numbers are in fixtures/sionna.json (made by fixtures/sionna_table.py).

And uplinks exported from Sionna: fixtures/uma.npz was made by the script of docs/howto/sionna.md, with 8 devices and 6 s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import fedtide
from fedtide import config
from fedtide.errors import FedtideError
from fedtide.parts import registry
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


# Uplinks exported from Sionna.


EXPORTED = Path(__file__).parents[1] / "fixtures" / "uma.npz"
READER = f"{Path(__file__).parents[2] / 'examples' / 'from_sionna.py'}:Exported"


def reader(path: Path, **more: Any) -> Any:
    keys = {"fleet.num_devices": 8}
    return registry.resolve("channel", READER, {"path": str(path), **more}, lambda key: keys[key])


def test_the_power_of_an_impulse_response() -> None:
    with np.load(EXPORTED) as held:
        cir, link_db, made_with = held["cir"], float(held["link_db"]), str(held["made_with"])
    assert (cir.shape, made_with[:12]) == ((8, 6, 24), "sionna 2.2.0")
    channel = reader(EXPORTED, unit_seconds=2.0)
    for time, second in ((0.0, 0), (0.49, 0), (0.5, 1), (2.75, 5), (3.0, 0), (30.5, 1)):
        by_hand = [10 ** (link_db / 10) * sum(abs(complex(a)) ** 2 for a in cir[k, second]) for k in (5, 0)]
        assert channel(0, 1, time, np.array([5, 0])) == pytest.approx(by_hand, rel=1e-5)


def test_exported_links_have_the_path_loss_of_the_model() -> None:
    """Links of a cell of 500 m: neither dead nor beyond any receiver, and neighbouring seconds alike."""
    decibels = 10 * np.log10([reader(EXPORTED)(0, 1, float(second), np.arange(8)) for second in range(6)])
    assert -30 < decibels.min() < decibels.max() < 80
    assert np.median(np.abs(np.diff(decibels, axis=0))) < np.median(np.abs(decibels[:, 1:] - decibels[:, :-1]))


def test_exported_snrs_and_what_cannot_be(tmp_path: Path) -> None:
    snr, time = np.arange(16.0).reshape(8, 2), np.array([0.0, 1.0])
    np.savez(tmp_path / "snr.npz", snr=snr, time=time)
    assert reader(tmp_path / "snr.npz")(0, 1, 1.5, np.array([2, 7])).tolist() == [5.0, 15.0]
    bad: dict[str, dict[str, Any]] = {
        r"cannot be used \(.*cir": {"time": time},
        r"has SNRs of shape \[8, 2\]; export \[8, 3\]": {"snr": snr, "time": np.arange(3.0)},
        r"has SNRs of shape \[7, 2\]; export \[8, 2\], or lower fleet.num_devices": {"snr": snr[:7], "time": time},
        r"has SNRs of shape \[\]; export \[8, 2\]": {"snr": 3.0, "time": time},
        r"negative or not finite; export them as numbers": {"snr": snr * np.nan, "time": time},
        r"SNRs that are negative": {"snr": -snr, "time": time},
        r"its times do not rise from 0; sort": {"snr": snr, "time": time[::-1]},
        r"its times do not rise from 0": {"snr": snr, "time": time + 1},
        r"times do not rise from 0": {"snr": snr, "time": time * np.nan},
        r"times do not rise": {"snr": snr[:, :0], "time": time[:0]},
    }
    for says, arrays in bad.items():
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(FedtideError, match=says):
            reader(tmp_path / "bad.npz")
    with pytest.raises(FedtideError, match=r"nowhere.npz cannot be used"):
        reader(tmp_path / "nowhere.npz")
    (tmp_path / "torn.npz").write_bytes(EXPORTED.read_bytes()[:500])
    with pytest.raises(FedtideError, match=r"torn.npz cannot be used"):
        reader(tmp_path / "torn.npz")


def test_a_run_over_exported_links() -> None:
    experiment = config.experiment(
        {
            "data": {"name": "synthetic", "num_train": 200, "num_test": 50, "num_shards": 40},
            "fleet": {"num_devices": 8},
            "policy": {"limit": 2},
            "timeline": {"horizon": 1.0},
            "learning": {"model": "softmax"},
            "radio": {"channel": {"name": READER, "path": str(EXPORTED)}},
        }
    )
    assert str(EXPORTED) in config.experiment_argument_files(experiment).values()
    assert sum(map(len, (record.picked for record in fedtide.simulate(experiment).rounds))) > 0
