"""Modems against closed forms: the SNR gap, and 5G NR's transport blocks, curves, link adaptation and HARQ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import exp1

from fedtide.errors import FedtideError
from fedtide.radio.modem import Gap, achieved_capacity, shannon_capacity
from fedtide.radio.nr import (
    MCS_ORDERS,
    MCS_RATES,
    NewRadio,
    block_error_curve,
    mcs_ladder,
    transport_block,
)
from fedtide.types import Floats

GAINS = -np.log1p(-(np.arange(200_000) + 0.5) / 200_000)  # quantiles of |h|^2 ~ Exp(1), at equal shares
SNR = 10**1.3  # 13 dB


@pytest.mark.parametrize("gap_db", [0.0, 3.0, 8.0])
def test_mean_rate_of_the_gap_over_rayleigh_fading(gap_db: float) -> None:
    """E log2(1 + x |h|^2) = e^(1/x) E1(1/x) / ln 2, x = SNR/Gamma."""
    x = SNR / 10 ** (gap_db / 10)
    wanted = math.exp(1 / x) * exp1(1 / x) / math.log(2)
    assert Gap(gap_db, cap=100.0)(SNR * GAINS).mean() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(("rate", "cap"), [(0.5, 5.5547), (2.0, 5.5547), (5.0, 5.5547), (3.0, 3.0)])
def test_outage_and_cap_of_the_gap(rate: float, cap: float) -> None:
    """P(C < R) = 1 - exp(-(2^R - 1) Gamma/SNR) below the cap, and 1 above it."""
    found = Gap(3.0, cap)(SNR * GAINS)
    wanted = -math.expm1(-(2**rate - 1) * 10**0.3 / SNR)
    assert np.mean(found < rate) == pytest.approx(wanted, abs=1e-5)
    assert found.max() == cap
    assert not np.any(found > cap)


def test_a_gap_of_0_db_without_a_cap_is_shannon_to_the_bit() -> None:
    assert np.array_equal(Gap(0.0, 1e9)(SNR * GAINS), shannon_capacity(SNR * GAINS))


def test_the_mean_of_a_capped_rate_is_its_integral() -> None:
    wanted = quad(lambda g: min(4.0, math.log2(1 + SNR / 10**0.3 * g)) * math.exp(-g), 0, 50, limit=200)[0]
    assert Gap(3.0, 4.0)(SNR * GAINS).mean() == pytest.approx(wanted, rel=1e-4)


# TS 38.214 and 38.212


@pytest.mark.parametrize(("table", "count", "highest"), [(1, 29, 5.5547), (2, 28, 7.4063)])
def test_mcs_tables(table: int, count: int, highest: float) -> None:
    """Spectral efficiencies as printed in tables 5.1.3.1-1 and -2."""
    efficiency = np.array(MCS_ORDERS[table]) * np.array(MCS_RATES[table]) / 1024
    assert len(efficiency) == count
    assert efficiency[0] == pytest.approx(0.2344, abs=5e-5)
    assert efficiency[-1] == pytest.approx(highest, abs=5e-5)
    falls = np.flatnonzero(np.diff(efficiency) < 0)
    assert falls.tolist() == ([16] if table == 1 else [])  # MCS 17 of table 1 carries a little less than 16


@given(st.integers(1, 42_900), st.sampled_from([1, 2]), st.integers(0, 27))
def test_transport_blocks(num_symbols: int, table: int, mcs: int) -> None:
    """Quantised within a few percent of what the symbols carry, in code blocks that fit their base graph."""
    order, rate = MCS_ORDERS[table][mcs], MCS_RATES[table][mcs] / 1024
    block, bits = transport_block(num_symbols, order, rate), num_symbols * order * rate
    assert block.size % 8 == 0
    assert block.size >= 24
    if bits > 200:
        assert block.size == pytest.approx(bits, rel=0.05)
    assert block.code_block_bits <= (3840 if rate <= 0.25 and block.size > 3824 else 8448)
    parts = block.num_code_blocks
    crc = 16 if block.size <= 3824 else 24
    assert parts * (block.code_block_bits - (24 if parts > 1 else 0)) == block.size + crc


@given(st.sampled_from([1, 2]), st.integers(0, 27), st.floats(24, 2000))
def test_longer_code_blocks_have_steeper_curves(table: int, mcs: int, bits: float) -> None:
    order, rate = MCS_ORDERS[table][mcs], MCS_RATES[table][mcs]
    short, long = block_error_curve(order, rate, bits), block_error_curve(order, rate, 1.5 * bits)
    assert long.width_db <= short.width_db
    assert long.width_db < short.width_db or bits > 1999
    limit_db = 10 * math.log10(2 ** (order * rate / 1024) - 1)  # Shannon's
    if bits >= 500:
        assert limit_db < short.middle_db < limit_db + 3.2


def test_rates_below_one_fifth_repeat_coded_bits() -> None:
    """The same energy per bit, so the same curve at a lower SNR."""
    known, repeated = block_error_curve(2, 251, 2000), block_error_curve(2, 120, 2000)
    assert repeated.width_db == known.width_db
    assert known.middle_db - repeated.middle_db == pytest.approx(10 * math.log10(251 / 120))


# Link adaptation and HARQ, one link at a time


def block_error(modem: NewRadio, mcs: int, snr: float) -> float:
    """Return the error of a transport block from its definition."""
    order, rate = MCS_ORDERS[modem.table][mcs], MCS_RATES[modem.table][mcs]
    block = transport_block(int(168 * (1 - modem.overhead)) * modem.num_prbs, order, rate / 1024)
    curve = block_error_curve(order, rate, block.code_block_bits)
    p = 1 / (1 + math.exp(min((10 * math.log10(snr) - curve.middle_db) / curve.width_db, 700)))
    return 1 - (1 - p) ** block.num_code_blocks


def capacity_of(modem: NewRadio, mcs: int) -> float:
    order, rate = MCS_ORDERS[modem.table][mcs], MCS_RATES[modem.table][mcs]
    symbols = int(168 * (1 - modem.overhead)) * modem.num_prbs
    return transport_block(symbols, order, rate / 1024).size / (168 * modem.num_prbs)


def heard(modem: NewRadio, snr: float, k: int) -> float:
    return {"none": snr, "chase": k * snr, "ir": (1 + snr) ** k - 1}[modem.harq]


def goodput(modem: NewRadio, mcs: int, snr: float) -> tuple[float, float]:
    """Return bits delivered and rounds of a block of this MCS, in bit/symbol and rounds."""
    rounds = 1 if modem.harq == "none" else modem.rounds
    failed = [block_error(modem, mcs, heard(modem, snr, k)) for k in range(1, rounds + 1)]
    return capacity_of(modem, mcs) * (1 - failed[-1]), 1 + sum(failed[:-1])


MODEMS = [
    NewRadio(harq="none", overhead=0.0),
    NewRadio(table=2, harq="chase"),
    NewRadio(harq="ir", rounds=2, num_prbs=4, bler_target=0.3),
    NewRadio(table=2, min_mcs=3, max_mcs=20, num_prbs=270),
]
LINKS = st.floats(-12, 32)  # dB


@pytest.mark.parametrize("modem", MODEMS)
@given(LINKS, LINKS)
def test_the_inner_loop(modem: NewRadio, snr_db: float, estimate_db: float) -> None:
    """The highest MCS within the target at the estimate, and what it delivers at the SNR."""
    snr, estimate = 10 ** (snr_db / 10), 10 ** (estimate_db / 10)
    last = len(MCS_RATES[modem.table]) - 1 if modem.max_mcs is None else modem.max_mcs
    errors = {mcs: block_error(modem, mcs, estimate) for mcs in range(modem.min_mcs, last + 1)}
    if any(abs(each - modem.bler_target) < 1e-9 for each in errors.values()):
        return
    within = [mcs for mcs, each in errors.items() if each <= modem.bler_target]
    found = modem.achieved(np.array([snr]), np.array([estimate]))[0]
    if not within:
        assert found == 0
        return
    bits, rounds = goodput(modem, max(within), snr)
    assert found == pytest.approx(bits / rounds, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("modem", MODEMS)
@given(LINKS, LINKS)
def test_the_outer_loop(modem: NewRadio, snr_db: float, estimate_db: float) -> None:
    """A mixture of two neighbouring MCS of which first rounds fail as often as the target says, whatever the estimate."""
    outer = NewRadio(**{**vars(modem), "adaptation": "outer"})
    snr, estimate = (np.array([10 ** (each / 10)]) for each in (snr_db, estimate_db))
    found, ladder = outer.blocks(snr, estimate), mcs_ladder(outer)
    at = int(np.searchsorted(ladder.threshold, snr[0], side="right")) - 1
    if at < 0:
        assert outer.achieved(snr, estimate)[0] == 0
        return
    if at < len(ladder.mcs) - 1:
        assert found.first[0] == pytest.approx(modem.bler_target)
        low, high = int(ladder.mcs[at]), int(ladder.mcs[at + 1])
        first = [block_error(outer, mcs, float(snr[0])) for mcs in (low, high)]
        share = (modem.bler_target - first[0]) / (first[1] - first[0])
        blocks = [goodput(outer, mcs, float(snr[0])) for mcs in (low, high)]
        rounds = (1 - share) * blocks[0][1] + share * blocks[1][1]
        assert found.rounds[0] == pytest.approx(rounds)
        wanted = ((1 - share) * blocks[0][0] + share * blocks[1][0]) / rounds
        assert outer.achieved(snr, estimate)[0] == pytest.approx(wanted)
    assert outer.achieved(snr, estimate) == pytest.approx(outer(snr))


@pytest.mark.parametrize("modem", [NewRadio(adaptation="outer", harq="none"), NewRadio(adaptation="outer", table=2)])
def test_more_power_never_carries_less_with_an_outer_loop(modem: NewRadio) -> None:
    found = modem(10 ** np.linspace(-2, 4, 20_001))
    assert np.all(np.diff(found) >= -1e-12)


@given(LINKS, st.sampled_from([1, 2]), st.integers(2, 8))
def test_harq_in_order(snr_db: float, table: Any, rounds: int) -> None:
    """New parity delivers no less than the same again, which delivers no less than none; the first round is the same."""
    snr, estimate = np.array([10 ** (snr_db / 10)]), np.array([10 ** (snr_db / 10 + 0.15)])  # 1.5 dB too high
    made = {harq: NewRadio(table=table, harq=harq, rounds=rounds) for harq in ("none", "chase", "ir")}
    blocks = {harq: modem.blocks(snr, estimate) for harq, modem in made.items()}
    carried = [made[harq].achieved(snr, estimate)[0] for harq in ("none", "chase", "ir")]
    assert np.all(np.diff(carried) >= -1e-9)
    assert blocks["ir"].residual <= blocks["chase"].residual <= blocks["none"].residual
    assert len({float(each.first[0]) for each in blocks.values()}) == 1
    assert made["none"].achieved(snr, estimate) == NewRadio(table=table, rounds=1).achieved(snr, estimate)


def test_unacknowledged_blocks_are_lost_with_their_packet() -> None:
    """1 - (1 - p)^blocks, and rounds alone cost symbols."""
    modem = NewRadio(harq="chase", rounds=2, acknowledged=False)
    snr, estimate = 10 ** np.array([0.6, 1.05, 1.7]), 10 ** np.array([0.75, 1.2, 1.85])
    blocks = modem.blocks(snr, estimate)
    count = np.array([1, 7, 40])
    bits = count * blocks.size - 1
    assert modem.error(snr, estimate, bits) == pytest.approx(1 - (1 - blocks.residual) ** count)
    assert modem.error(snr, estimate) == pytest.approx(blocks.residual)
    assert np.all(blocks.residual > 1e-9)
    assert modem.achieved(snr, estimate) == pytest.approx(blocks.capacity / blocks.rounds)
    assert not NewRadio().error(snr, estimate, bits).any()
    hopeless = np.array([1e-9])
    assert modem.error(hopeless, estimate[:1], np.array([0.0])).tolist() == [0.0]  # nothing is sent
    assert modem.error(hopeless, estimate[:1], np.array([1.0])).tolist() == [1.0]


def test_rayleigh_fading_at_13_db() -> None:
    """The first estimate of issue 25: about 2.7 bit/symbol, and 3.5 % of links without any."""

    def mean_and_outage(**options: Any) -> tuple[float, float]:
        found: Floats = NewRadio(**options)(SNR * GAINS)
        return float(found.mean()), float(np.mean(found == 0))

    lowest = mcs_ladder(NewRadio(harq="none", overhead=0.0, min_mcs=3)).threshold[0]
    mean, outage = mean_and_outage(harq="none", overhead=0.0, min_mcs=3)
    assert outage == pytest.approx(-math.expm1(-lowest / SNR), abs=1e-5) == pytest.approx(0.026, abs=5e-4)
    assert mean == pytest.approx(2.96, abs=0.01)  # Sionna SYS, which interpolates between its points: 2.99 and 2.6 %
    assert mean_and_outage(harq="none")[0] == pytest.approx(2.71, abs=0.01)
    assert mean_and_outage()[1] == pytest.approx(0.0128, abs=5e-4)  # MCS 0 to 2 reach a little further
    assert achieved_capacity(NewRadio(), SNR * GAINS, SNR * GAINS).max() < 5.5547


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_mcs": 29}, r"max_mcs=29: table 1 has MCS 0 to 28; choose"),
        ({"table": 2, "max_mcs": 28}, r"max_mcs=28: table 2 has MCS 0 to 27; choose"),
        ({"min_mcs": 9, "max_mcs": 8}, r"min_mcs=9 and max_mcs=8.*choose 0 <= min_mcs <= max_mcs <= 28"),
        ({"overhead": 0.999}, r"overhead=0.999 leaves no symbol for data; choose at most"),
    ],
)
def test_what_cannot_be(options: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        NewRadio(**options)
