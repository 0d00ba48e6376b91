"""5G NR beside Sionna SYS: transport blocks, block errors, link adaptation and throughput (tests/fixtures/sionna_nr.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide.radio.nr import MCS_ORDERS, MCS_RATES, NewRadio, block_error_curve, mcs_ladder, transport_block
from fedtide.types import Floats

TABLE: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "fixtures" / "sionna_nr.json").read_text(encoding="utf-8")
)
LINKS = pytest.mark.parametrize("link", TABLE["links"], ids=lambda link: f"table {link['table']}, {link['symbols']}")
LOWEST = {1: 3, 2: 2}  # MCS that Sionna has
WITHIN = 0.02


def modem(link: Any, adaptation: Any = "inner", **options: Any) -> tuple[NewRadio, Floats]:
    """Return what Sionna was asked about: neither HARQ nor overhead, and the SNRs."""
    options = {"min_mcs": LOWEST[link["table"]], **options}
    prbs = link["symbols"] // 168
    made = NewRadio(link["table"], TABLE["target"], adaptation, "none", overhead=0.0, num_prbs=prbs, **options)
    return made, 10 ** (np.array(link["snr_db"]) / 10)


def test_transport_blocks() -> None:
    for symbols, order, rate, *wanted in TABLE["sizes"]:
        assert [*transport_block(symbols, order, rate / 1024)] == wanted


@LINKS
def test_block_errors_of_every_mcs(link: Any) -> None:
    """At all SNRs that Sionna simulated."""
    misses = []
    for mcs, wanted in link["inner"]["bler_of_mcs"].items():
        alone, snr = modem(link, min_mcs=int(mcs), max_mcs=int(mcs))
        misses.append(alone.blocks(snr, np.full(len(snr), 1e9)).first - wanted)
    assert np.sqrt(np.mean(np.square(misses))) < 0.003
    assert np.mean(np.abs(misses) > WITHIN) < 0.006
    assert np.abs(misses).max() < 0.04  # where Sionna's own points have a standard error of 0.015


@LINKS
def test_inner_loop(link: Any) -> None:
    """The same MCS, block error and throughput, unless Sionna's block error of another one is close to the target."""
    found, snr = modem(link)
    ladder, wanted = mcs_ladder(found), link["inner"]
    chosen = np.searchsorted(ladder.threshold, snr, side="right") - 1
    bler, throughput, differ = found.blocks(snr, snr).first, found(snr), 0
    for at, position in enumerate(chosen.tolist()):
        if position < 0:
            assert wanted["bler"][at] > TABLE["target"]  # Sionna goes on with the lowest one
            assert throughput[at] == 0
            continue
        mcs = int(ladder.mcs[position])
        if mcs != wanted["mcs"][at]:
            assert wanted["bler_of_mcs"][str(max(mcs, wanted["mcs"][at]))][at] == pytest.approx(0.1, abs=WITHIN)
            differ += 1
            continue
        assert bler[at] == pytest.approx(wanted["bler"][at], abs=WITHIN)
        assert throughput[at] == pytest.approx(wanted["throughput"][at], rel=WITHIN)
    assert differ <= 1


@LINKS
def test_outer_loop(link: Any) -> None:
    """Long runs of Sionna's loop, whose estimates are too high, against the closed form.

    It is 2.1 and 2.7 % off at the two SNRs at which the inner loops differ. At the last SNR of table 2, where Sionna's grid ends,
    its loop cannot try the last MCS.
    """
    found, snr = modem(link, "outer")
    works = (snr >= mcs_ladder(found).threshold[0]) & (snr < 10**2.49)
    assert works.sum() >= 13
    bler, throughput = (np.array(link["outer"][name])[works] for name in ("bler", "throughput"))
    assert found.blocks(snr, snr).first[works] == pytest.approx(bler, abs=0.01)
    miss = np.abs(found(snr)[works] / throughput - 1)
    assert np.sum(miss > WITHIN) <= 1
    assert miss.max() < 0.03
    assert np.median(miss) < 0.001


@pytest.mark.parametrize("code", TABLE["fresh"], ids=lambda code: f"MCS {code['mcs']}, {code['bits']} bit")
def test_between_sionnas_points(code: Any) -> None:
    """Codes simulated anew, within three standard errors and 2 points."""
    order, rate = MCS_ORDERS[1][code["mcs"]], MCS_RATES[1][code["mcs"]]
    curve = block_error_curve(order, rate, code["bits"])
    wanted = np.array(code["bler"])
    found = 1 / (1 + np.exp((np.array(code["snr_db"]) - curve.middle_db) / curve.width_db))
    error = np.sqrt(np.maximum(wanted * (1 - wanted), 0.01) / code["blocks"])
    assert np.all(np.abs(found - wanted) < WITHIN + 3 * error)
