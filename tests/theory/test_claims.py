"""The section of docs/theory.md is what the stored rows say, and says something else when they do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.errors import FedtideError
from fedtide_lab.theory import claims
from fedtide_lab.theory.claims import claim_values, claims_section, read_rows, run_claims, verdict_on, write_rows
from fedtide_lab.theory.gradient_descent import TIMED_SYSTEMS, Slowdown
from fedtide_lab.theory.heterogeneity import (
    CLAIM_SEEDS,
    IID,
    NUM_SAMPLES,
    PACES,
    SETTLING_SEEDS,
    SHARDS_PER_DEVICE,
    Settled,
    Spread,
)
from helpers import ROOT

STORE = ROOT / "results" / "theory"
PAGE = ROOT / "docs" / "theory.md"
SPREADS, SETTLED, SLOWDOWNS = (
    read_rows(STORE / "spread.csv", Spread),
    read_rows(STORE / "settled.csv", Settled),
    read_rows(STORE / "slowdown.csv", Slowdown),
)


def test_every_seed_and_setting_is_stored() -> None:
    assert [row[:3] for row in SPREADS] == [
        (seed, shards, size) for seed in CLAIM_SEEDS for size in NUM_SAMPLES for shards in SHARDS_PER_DEVICE
    ]
    assert [row[:3] for row in SETTLED] == [
        (seed, shards, period) for seed in SETTLING_SEEDS for shards in SHARDS_PER_DEVICE for period in PACES
    ]
    assert [row[:5] for row in SLOWDOWNS] == [(*setting, seed) for seed in CLAIM_SEEDS for setting in TIMED_SYSTEMS]


def test_the_page_has_the_section_of_the_stored_rows() -> None:
    told = "docs/theory.md is not what results/theory says: run fedtide theory claims --page docs/theory.md"
    assert claims_section(claim_values(SPREADS, SETTLED, SLOWDOWNS)) in PAGE.read_text(encoding="utf-8"), told


def _gamma_stays(row: Spread) -> Spread:
    return row._replace(gamma=0.01) if row.shards == IID else row


def _gamma_vanishes(row: Spread) -> Spread:
    return row if row.shards == IID else row._replace(gamma=100 * row.gamma / row.samples)


@pytest.mark.parametrize("change", [_gamma_stays, _gamma_vanishes])
def test_a_sentence_that_no_longer_follows_is_refused(change: Callable[[Spread], Spread]) -> None:
    values = claim_values([change(row) for row in SPREADS], SETTLED, SLOWDOWNS)
    with pytest.raises(FedtideError, match="does not follow from the runs"):
        claims_section(values)


def test_a_system_that_asynchrony_does_not_slow_is_refused() -> None:
    changed = [row._replace(system=row.descent * (1 + row.seed / 100)) for row in SLOWDOWNS]
    with pytest.raises(FedtideError, match="does not follow from the runs"):
        claims_section(claim_values(SPREADS, SETTLED, changed))


def test_verdicts() -> None:
    noise, zero = np.array([0.1, -0.1, 0.05, -0.05, 0.02, -0.02]), np.zeros(6)
    assert verdict_on([(1 + noise, zero), (2 + noise, zero)]) == "holds"
    assert verdict_on([(1 + noise, zero), (noise, zero)]) == "not resolved"
    assert verdict_on([(1 + noise, zero), (noise - 1, zero)]) == "contradicted"
    slightly = noise - 0.09  # resolved at 5 %, not at 5 %/10
    assert verdict_on([(slightly, zero)]) == "contradicted"
    assert verdict_on([(slightly, zero)] * 10) == "not resolved"


def test_rows_are_written_and_read_back(tmp_path: Path) -> None:
    write_rows(tmp_path / "spread.csv", SPREADS)
    assert (tmp_path / "spread.csv").read_bytes() == (STORE / "spread.csv").read_bytes()
    write_rows(tmp_path / "slowdown.csv", SLOWDOWNS)
    assert read_rows(tmp_path / "slowdown.csv", Slowdown) == SLOWDOWNS
    with pytest.raises(FedtideError, match="the columns are not"):
        read_rows(tmp_path / "spread.csv", Settled)


def test_rows_of_different_seeds_are_refused() -> None:
    with pytest.raises(FedtideError, match="different seeds"):
        claim_values(SPREADS, SETTLED, [row for row in SLOWDOWNS if row.seed])


def test_what_is_missing_is_computed_and_the_page_is_written(tmp_path: Path, monkeypatch: Any) -> None:
    page = tmp_path / "theory.md"
    page.write_text(f"before\n{claims._BEGIN}old\n{claims._END}after\n")
    monkeypatch.setattr("fedtide_lab.theory.heterogeneity.spreads", lambda say: iter(SPREADS))
    monkeypatch.setattr("fedtide_lab.theory.heterogeneity.settled_errors", lambda say: iter(SETTLED))
    monkeypatch.setattr("fedtide_lab.theory.gradient_descent.slowdowns", lambda say: iter(SLOWDOWNS))
    decided = run_claims(tmp_path / "store", page)
    assert {path.name for path in (tmp_path / "store").iterdir()} == {"spread.csv", "settled.csv", "slowdown.csv"}
    section = claims_section(claim_values(SPREADS, SETTLED, SLOWDOWNS))
    assert page.read_text() == f"before\n{section}after\n"
    assert set(decided.values()) <= {"holds", "contradicted", "not resolved"}
    page.write_text("no marks\n")
    with pytest.raises(FedtideError, match="has no lines"):
        run_claims(tmp_path / "store", page)


def test_the_command_prints_a_verdict_per_statement() -> None:
    found = CliRunner().invoke(app, ["theory", "claims", "--out", str(STORE), "--json"])
    assert found.exit_code == 0
    assert {row["verdict"] for row in json.loads(found.stdout)} <= {"holds", "contradicted", "not resolved"}
    refused = CliRunner().invoke(app, ["theory", "--page", "x.md"])
    assert isinstance(refused.exception, FedtideError) or refused.exit_code == 2
