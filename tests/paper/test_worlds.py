"""The paper's claims in other worlds: the runs that are committed are those of the worlds as the code makes them today."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from fedtide import config
from fedtide.cli.main import app
from fedtide.data.synthetic import synthetic
from fedtide.engine.system import build
from fedtide.engine.ticks import planned
from fedtide.studies.run import missing_runs
from fedtide.studies.store import Store
from fedtide_lab.paper.claims import Check
from fedtide_lab.worlds import page
from fedtide_lab.worlds.studies import (
    CURVES,
    WORLDS,
    WORLDS_SURVEY,
    World,
    collect_worlds,
    world_change,
    world_claims,
    world_study,
)
from stored import committed, result

ROOT = Path(__file__).parents[2]
STORE = committed("worlds")


def test_every_claim_names_curves_that_there_are() -> None:
    for claim in world_claims("any"):
        for check in claim.checks:
            assert {check.better, check.worse} <= CURVES.keys()
    assert set(WORLDS_SURVEY.panels) <= {claim.name for claim in world_claims("any")}


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_its_runs_are_committed(world: World) -> None:
    assert not missing_runs(world_study(world, range(3)), STORE)


def test_nothing_else_is_committed() -> None:
    assert STORE.names() <= {run.name for world in WORLDS for run in world_study(world, range(20)).runs}


@pytest.mark.parametrize(
    "world", [each for each in WORLDS if each.name not in ("fashion", "cifar")], ids=lambda w: w.name
)
def test_a_world_is_as_it_was(world: World) -> None:
    """Who is picked, how old and over which link: a plan makes it again, from the seed alone."""
    run = next(each for each in world_study(world, [0]).runs if each.label == "random")
    drawn = synthetic(0, 8000, 10)  # random scheduling does not look at labels
    kept, system = STORE.load(run.name), build(run.experiment, dataset=drawn)
    ticks = list(planned(system))
    rows = [(each.candidates, each.grant) for each in ticks if each.grant is not None]
    for name, made in (
        ("picked", [rows.device[grant.picked] for rows, grant in rows]),
        ("age", [rows.age[grant.picked] for rows, grant in rows]),
        ("capacity", [rows.capacity[grant.picked].astype(np.float32) for rows, grant in rows]),
    ):
        stored, column = getattr(kept.uploads, name), np.concatenate(made)
        # another instruction path may round another way
        assert np.allclose(stored, column, rtol=1e-5) if name == "capacity" else np.array_equal(stored, column), name


def test_the_page_is_that_of_the_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["worlds", "--draw-only", "--store", str(STORE.folder), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "worlds.md").read_text() == (ROOT / "docs" / "worlds.md").read_text()
    assert (tmp_path / "figures" / "worlds.png").stat().st_size > 10_000


def test_a_verdict_follows_from_the_seeds(tmp_path: Path) -> None:
    world, store = WORLDS[0], Store(tmp_path)
    for run in world_study(world, range(3)).runs:
        level = {"proposed": 0.6, "random": 0.5, "BC": 0.7, "T_max": 0.5}.get(run.label, 0.4)
        store.save(run.name, result(config.dump(run.experiment), "avx2", level + 1e-3 * run.experiment.seed))
    [found] = page.decided_worlds(WORLDS, collect_worlds(WORLDS, store))
    verdicts = {each.claim.name: each.verdict for each in found.verdicts}
    assert (verdicts["random"], verdicts["BC"], verdicts["T_max"]) == (
        "holds",
        "contradicted",
        "no difference above 0.01",  # the same on every seed
    )
    assert "| **≈** +0.000 (+0.000 to +0.000) |" in page._verdicts([found], world_claims(""))
    assert {row["world"] for row in page.world_rows([found])} == {"paper"}


def test_a_difference_between_worlds_is_tested_seed_by_seed(tmp_path: Path) -> None:
    store, rng = Store(tmp_path), np.random.default_rng(3)
    shared = rng.normal(0, 0.05, 5)  # what the seeds of both worlds have in common
    level: dict[tuple[str, str, int], float] = {}
    for world in (WORLDS[0], WORLDS[2]):
        for run in world_study(world, range(5)).runs:
            seed, lead = run.experiment.seed, {"paper": 0.1, "macro": 0.15}[world.name]
            gain = (lead + shared[seed]) * (run.label == "proposed")
            level[world.name, run.label, seed] = 0.4 + gain + rng.normal(0, 0.005)
            store.save(run.name, result(config.dump(run.experiment), "avx2", level[world.name, run.label, seed]))
    results = collect_worlds(WORLDS, store)
    made = world_change(Check("macro", "proposed", "random"), results)
    gains = [  # chance counts up to the first evaluation, at 0.5 of 10
        [0.95 * (level[world, "proposed", seed] - level[world, "random", seed]) for seed in range(5)]
        for world in ("macro", "paper")
    ]
    there = stats.ttest_rel(*gains).confidence_interval()
    assert (made.paired.low, made.paired.high) == (pytest.approx(there.low), pytest.approx(there.high))
    assert made.paired.verdict == "higher"
    assert not made.is_unpaired  # the spread of the seeds hides it from a test of two samples
    assert world_change(Check("phones", "proposed", "random"), results) is None


def test_a_seed_means_the_same_durations_and_fading_in_two_worlds() -> None:
    def told(world: World) -> tuple[Any, Any, Any]:
        run = next(each for each in world_study(world, [1]).runs if each.label == "random")
        system = build(run.experiment, dataset=synthetic(0, 8000, 10))
        links = [system.channel(1, tick, 0.25 * tick, np.arange(40)).capacity for tick in (1, 2)]
        return system.fleet.duration, system.fleet.label_counts, np.log(np.exp2(links) - 1)  # of the SNR

    by_name = {world.name: world for world in WORLDS}
    here, macro, walking = (told(by_name[name]) for name in ("paper", "macro", "walking"))
    for other in (macro, walking):
        assert np.array_equal(here[0], other[0])
        assert np.array_equal(here[1], other[1])
    assert np.allclose(
        here[2][1] - here[2][0], macro[2][1] - macro[2][0]
    )  # a device's mean SNR is another, its fading is not


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["moon"], "world 'moon' is not known; choose from paper, fashion"),
        (["--draw-only", "--store", "nothing-here"], "holds no run of these worlds"),
    ],
)
def test_what_cannot_be_is_one_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["worlds", *words])
    assert done.exit_code == 2
    assert re.search(says, " ".join(done.output.split()))
