"""The same federation under several skies: which runs they are, where they are read from, and what the page says of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedtide import config
from fedtide.cli.main import app
from fedtide.data.synthetic import synthetic
from fedtide.engine.system import build
from fedtide.engine.ticks import planned
from fedtide.radio.modem import Gap
from fedtide.radio.nr import NewRadio
from fedtide.studies.run import missing_runs
from fedtide.studies.store import Store
from fedtide_lab.skies.page import SKIES_SURVEY, sky_signals, sky_values
from fedtide_lab.skies.studies import ARMS, LEAGUE_CURVES, SKIES, sky_claims, sky_study
from fedtide_lab.worlds import page
from fedtide_lab.worlds.studies import World, collect_worlds
from stored import committed, result

ROOT = Path(__file__).parents[2]
STORE = committed("skies")
STORES = (STORE, committed("worlds"), committed("league-first"))
EVERY = (*SKIES, *ARMS)


def test_every_claim_names_curves_that_there_are() -> None:
    for sky in SKIES:
        curves = sky_study(sky, [0]).labels
        assert all({check.better, check.worse} <= {*curves} for claim in sky_claims(sky.name) for check in claim.checks)
    assert {*SKIES_SURVEY.panels} <= {claim.name for claim in sky_claims("")}


def test_names_are_of_one_sky_and_what_it_is_compared_with_is_one() -> None:
    names = [sky.name for sky in EVERY]
    assert len({*names}) == len(names)
    assert {sky.against for sky in EVERY} <= {*names}
    assert all(arm.against != arm.name for arm in ARMS)


@pytest.mark.parametrize("sky", EVERY, ids=lambda sky: sky.name)
def test_a_sky_differs_from_what_it_is_compared_with(sky: World) -> None:
    """A misspelt key would be refused; one that says nothing would make the same run."""
    other = next(each for each in EVERY if each.name == sky.against)
    same = {run.name for run in sky_study(sky, [0]).runs} & {run.name for run in sky_study(other, [0]).runs}
    assert bool(same) == (sky is other)


@pytest.mark.parametrize("sky", EVERY, ids=lambda sky: sky.name)
def test_all_its_runs_begin(sky: World) -> None:
    drawn = synthetic(0, 8000, 10)
    for run in sky_study(sky, [0]).runs:
        ticks = list(itertools.islice(planned(build(run.experiment, dataset=drawn)), 8))
        assert any(tick.candidates is not None and len(tick.candidates.device) for tick in ticks), run.label


def test_the_arm_with_outage_alone_loses_the_links_that_the_modem_loses() -> None:
    snr = 10 ** (np.linspace(-20, 30, 2001) / 10)
    arm = next(each for each in ARMS if each.name == "macro-outage")
    args = {name: value for name, value in arm.tree["radio"]["modem"].items() if name != "name"}
    carried, modem = Gap(**args)(snr), NewRadio()(snr)
    assert np.mean((carried > 0) == (modem > 0)) > 0.999
    assert np.array_equal(carried, np.where(snr < 10**-0.59, 0.0, np.log2(1 + snr)))


def test_shannons_runs_are_read_and_not_made_again() -> None:
    paper, macro = (next(sky for sky in SKIES if sky.name == name) for name in ("paper", "macro"))
    found = collect_worlds((paper, macro), *STORES[1:], study=sky_study)
    assert {*found["paper"]} == {*sky_study(paper).labels}
    assert all({*runs} >= {*range(5)} for curves in found.values() for runs in curves.values())
    assert {*found["macro"]} == {*sky_study(macro).labels} - {*LEAGUE_CURVES}


def test_signals_are_those_of_the_stored_runs() -> None:
    """What a plan says of links is what the runs met: log2(1 + SNR) of every upload."""
    runs = collect_worlds(SKIES[:1], *STORES, study=sky_study)["paper"]["random"]
    stored = np.concatenate([runs[seed].uploads.capacity for seed in range(5)])
    found = sky_signals(SKIES[0])
    assert np.allclose(np.log2(1 + found["SNR"]), stored, rtol=1e-5)
    assert not found["I/N"].any()
    cells = sky_signals(next(sky for sky in SKIES if sky.name == "cells"))
    assert np.allclose(cells["SINR"] * (1 + cells["I/N"]), cells["SNR"])
    assert np.mean(cells["I/N"] > 0) > 0.9


def test_nothing_else_is_committed() -> None:
    known = {run.name for sky in EVERY for run in sky_study(sky, range(20)).runs}
    assert STORE.names() <= known - STORES[1].names() - STORES[2].names()


def test_the_page_is_that_of_the_runs(tmp_path: Path) -> None:
    words = ["skies", "--draw-only", "--store", str(ROOT / "results" / "skies"), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "skies.md").read_text() == (ROOT / "docs" / "skies.md").read_text()
    assert (tmp_path / "figures" / "skies.png").stat().st_size > 10_000


def test_a_run_that_another_store_holds_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(name: str, parts: Any, store: Store, **work: Any) -> list[Any]:
        asked.extend(len(missing_runs(part, store)) for part in parts)
        return []

    monkeypatch.setattr("fedtide_lab.commands.do_study_runs", counted)
    run = sky_study(SKIES[0], [0]).runs[0]
    Store(tmp_path / "worlds").save(run.name, result(config.dump(run.experiment), "avx2", 0.5))
    CliRunner().invoke(
        app, ["skies", "paper", "-n", "1", "--store", str(tmp_path / "skies"), "--out", str(tmp_path / "docs")]
    )
    assert asked == [len(sky_study(SKIES[0], [0]).runs) - 1]


def test_changes_are_counted_over_skies_and_arms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two skies and an arm, made up: the arm takes away what the sky had changed."""
    here = World("here", "Here", "", {"radio": {"snr_db": 3.0}}, against="paper")
    arm = World("arm", "Arm", "", {"radio": {"snr_db": 4.0}}, against="here")
    for module in ("studies", "page"):
        monkeypatch.setattr(f"fedtide_lab.skies.{module}.SKIES", (SKIES[0], here))
        monkeypatch.setattr(f"fedtide_lab.skies.{module}.ARMS", (arm,))
    store, rng = Store(tmp_path), np.random.default_rng(1)
    for sky in (SKIES[0], here, arm):
        for run in sky_study(sky, range(3)).runs:
            gain = {"here": 0.2}.get(sky.name, 0.1) * (run.label == "proposed")
            store.save(run.name, result(config.dump(run.experiment), "avx2", 0.4 + gain + rng.normal(0, 1e-4)))
    results = collect_worlds((SKIES[0], here, arm), store, study=sky_study)
    assert {*results["arm"]} == {"proposed", "random", "BC"}
    values = sky_values(results)
    there = page.world_changes(here, sky_claims, results)["proposed over random"]
    assert there is not None
    assert there.paired.verdict == "higher"
    assert values["arm change proposed over random"].verdict == "lower"
    assert values["all changes"] == len(sky_claims("")) + 1 + 3  # one claim has two comparisons
    assert 4 <= values["resolved"] <= 6  # those of `proposed` over two schedules and two weights, and over chance
    assert "| Arm | Here | **-0.0" in values["explanations"]
    assert values["here level proposed"].mean == pytest.approx(
        0.095, abs=1e-3
    )  # chance counts up to the first evaluation
    assert values["here level random"].verdict == "no difference above 0.01"
    assert "| claim | holds | no difference above 0.01 | not resolved | contradicted |" in values["where"]
    assert "paper level random" not in values


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["moon"], "sky 'moon' is not known; choose from paper, paper-nr"),
        (["--draw-only", "--store", "nothing-here"], "holds no run of these skies"),
    ],
)
def test_what_cannot_be_is_one_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["skies", *words])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
