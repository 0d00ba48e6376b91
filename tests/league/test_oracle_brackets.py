"""Brackets around the league: what follows from runs of known levels, and that its stored runs are the league's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedtide import FedtideError, config
from fedtide.cli.main import app
from fedtide.studies.run import missing_runs
from fedtide.studies.store import Store
from fedtide_lab.oracle.brackets import ORACLE_WORLDS, SCHEDULES, oracle_study, schedule_regrets, world_bracket
from fedtide_lab.oracle.page import oracle_rows, scheduling_verdict, write_oracle_page
from fedtide_lab.worlds.studies import World
from stored import committed, put, result

PAPER = ORACLE_WORLDS[0]
LEVELS = {"oracle": 0.7, "proposed": 0.6, "ideal codec": 0.55, "everybody": 0.65, "everybody, ideal codec": 0.8}
SHARE = 0.95  # of the horizon: chance counts up to the first evaluation, at 0.5 of 10


def fill(folder: Path, levels: dict[str, float], seeds: int = 3, only: frozenset[str] = frozenset()) -> Store:
    """Store runs of the paper's world at these levels, 0.5 for the others, with a little noise by seed."""
    store = Store(folder, "oracle")
    for run in oracle_study(PAPER, range(seeds)).runs:
        noise = 1e-4 * ((run.experiment.seed * 7 + len(run.label)) % 3)
        if not only or run.label in only:
            put(store, run, "avx2", levels.get(run.label, 0.5) + noise)
    return store


def test_what_each_part_is_worth_follows_from_the_runs(tmp_path: Path) -> None:
    found = world_bracket(PAPER, fill(tmp_path, LEVELS))
    assert found is not None
    assert found.scheduling.mean == pytest.approx(SHARE * 0.2, abs=1e-3)
    assert found.paper_share == pytest.approx(0.5, abs=1e-2)
    assert found.gain["everybody"].mean == pytest.approx(SHARE * 0.15, abs=1e-3)
    assert found.regret["proposed"].mean == pytest.approx(SHARE * 0.1, abs=1e-3)
    assert found.regret["random"].mean == pytest.approx(found.scheduling.mean)
    assert {*found.regret} == {*SCHEDULES}
    assert scheduling_verdict(found) == "a schedule can gain"
    assert oracle_rows([found])[0]["random_is_enough"] is False


def test_random_is_enough_where_two_one_sided_tests_show_it(tmp_path: Path) -> None:
    found = world_bracket(PAPER, fill(tmp_path / "near", {"oracle": 0.504}))
    assert found is not None
    assert scheduling_verdict(found) == "random is within 0.01 of the oracle"
    far = world_bracket(PAPER, fill(tmp_path / "far", {"oracle": 0.4}))
    assert far is not None
    assert scheduling_verdict(far) == "the oracle is behind random"
    assert far.paper_share is None


def test_without_the_oracle_or_its_reference_there_is_no_bracket(tmp_path: Path) -> None:
    assert world_bracket(PAPER, fill(tmp_path / "one", LEVELS, only=frozenset({"oracle"}))) is None
    assert world_bracket(PAPER, fill(tmp_path / "two", LEVELS, only=frozenset({"random"}))) is None
    both = [Store(tmp_path / "one"), Store(tmp_path / "two")]
    assert world_bracket(PAPER, *both) is not None  # the league's runs are in a store of their own


def test_a_regret_counts_the_seeds_that_both_have() -> None:
    tree = config.dump(oracle_study(PAPER, [0]).runs[0].experiment)
    oracle = {seed: result(tree, "avx2", 0.6 + 0.01 * seed) for seed in range(4)}
    mine = {seed: result(tree, "avx2", 0.5 + 0.02 * seed) for seed in (1, 2, 9)}
    found = schedule_regrets(oracle, {"mine": mine, "none": {}})
    assert {*found} == {"mine"}
    assert found["mine"].num_seeds == 2
    assert found["mine"].mean == pytest.approx(SHARE * 0.085)


def test_the_page_fills_its_findings_or_is_not_written(tmp_path: Path) -> None:
    store = fill(tmp_path / "oracle", LEVELS)
    found = world_bracket(PAPER, store)
    assert found is not None
    write_oracle_page(tmp_path / "oracle.md", [found], "paths", store.folder)
    text = (tmp_path / "oracle.md").read_text()
    assert "| The paper's cell | +0.190" in text
    assert "| proposed | +0.095" in text
    assert "missing**: The paper's cell (3 of 5 seeds), A crowded macro cell (0 of 5 seeds)" in text
    (store.folder / "findings.md").write_text("## in short\n\n<!-- if: random is enough > 0 -->\nNothing to gain.\n")
    with pytest.raises(FedtideError, match="does not follow from the runs"):
        write_oracle_page(tmp_path / "oracle.md", [found], "paths", store.folder)
    assert (tmp_path / "oracle.md").read_text() == text


def test_the_command_draws_what_is_there(tmp_path: Path) -> None:
    fill(tmp_path / "oracle", LEVELS)
    words = ["oracle", "--draw-only", "--store", str(tmp_path / "oracle"), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert [row["world"] for row in json.loads(done.stdout)] == ["paper"]
    assert "everybody, ideal codec" in CliRunner().invoke(app, words).output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mars"], "world 'mars' is not known"),
        (["--draw-only", "--store", "nothing-here"], "holds no run of the oracle"),
    ],
)
def test_what_is_not_there_is_told(words: list[str], says: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["oracle", *words, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert says in done.output


@pytest.mark.parametrize("world", ORACLE_WORLDS, ids=lambda world: world.name)
def test_random_scheduling_is_the_leagues_own(world: World) -> None:
    """The oracle's held-out samples leave the devices theirs, so that the league's runs stand beside the oracle's."""
    study = oracle_study(world, range(5))
    random = study._replace(runs=tuple(run for run in study.runs if run.label == "random"))
    assert not missing_runs(random, committed("league"))
