"""The league: fair by construction, ranks as a plain loop would give them, and the committed page that of its runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
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
from fedtide.errors import FedtideError
from fedtide.parts.registry import resolve
from fedtide.studies import final_accuracy, mean_accuracy, spec
from fedtide.studies import race as races_module
from fedtide.studies.race_input import race_entries
from fedtide.studies.results import RunResult
from fedtide.studies.spec import Run, Study
from fedtide.studies.store import Store
from fedtide_lab.league import methods, page, tune
from fedtide_lab.league.draw import draw_league_curves
from fedtide_lab.league.methods import GROUPS, LEAGUE_METHODS, PAPER_METHOD, REFERENCE, LeagueMethod
from fedtide_lab.league.ranking import Runs, Standings, ranking_benchmark, ranking_studies
from fedtide_lab.league.tune import (
    COMBINED,
    CONFIRMING,
    LEAGUE_TUNING_SEEDS,
    LEAGUE_WORLDS,
    RANKING_SEEDS,
    TUNING_RUNS,
    LeagueWorld,
    combine_tuned,
    ranking_study,
    tune_methods,
    tuned_entries,
    tuning_race,
)
from fedtide_lab.pages import league_page
from stored import committed, result

ROOT = Path(__file__).parents[2]
STORE = committed("league")
FIGURES = (Path("a.png"), Path("b.png"))


def test_names_are_used_once() -> None:
    assert len(LEAGUE_METHODS) == sum(len(group.methods) for group in GROUPS)
    assert {PAPER_METHOD, REFERENCE} <= LEAGUE_METHODS.keys()


def _candidates(world: LeagueWorld, method: LeagueMethod) -> list[Run]:
    """The runs of a method's candidates on the first tuning seed."""
    asked = tuning_race(world, method)
    return list(spec.make_study("tuning", race_entries(asked["candidates"], asked["base"], "tuning"), [100]).runs)


WORLD_METHODS = [(world, method) for world in LEAGUE_WORLDS for method in world.methods]


@pytest.mark.parametrize(("world", "method"), WORLD_METHODS, ids=lambda each: each.name)
def test_every_method_has_the_same_budget_of_tuning(method: LeagueMethod, world: LeagueWorld) -> None:
    runs = _candidates(world, method)
    assert len({run.name for run in runs}) == len(runs) == 9  # all different, all of them experiments
    asked = tuning_race(world, method)
    assert (asked["budget"], asked["seeds"], asked["confirm"]) == (TUNING_RUNS, LEAGUE_TUNING_SEEDS, 0)
    assert {run.experiment.learning.learning_rate for run in runs} == set(method.rates)
    given = {run.experiment.data.num_train for run in runs}
    assert {count * (1 - asked["validation"]) for count in given} == {tune.BASE["data"]["num_train"]}


@pytest.mark.parametrize(("world", "method"), WORLD_METHODS, ids=lambda each: each.name)
def test_all_have_the_codec_of_the_world_unless_that_is_what_they_change(
    method: LeagueMethod, world: LeagueWorld
) -> None:
    used = _candidates(world, method)[0].experiment.codec.name.name
    own = methods.method_group(method) == "codec" or method.name == "over_the_air"
    given = world.tree.get("codec", tune.BASE["codec"])["name"]
    assert own or used == given


@pytest.mark.parametrize("method", LEAGUE_METHODS.values(), ids=lambda method: method.name)
def test_candidates_that_differ_in_weights_alone_do_weigh_differently(method: LeagueMethod) -> None:
    """Shards are of equal size: weights by data size are then the same as equal ones, under whatever name."""
    found = []
    for run in _candidates(LEAGUE_WORLDS[0], method):
        tree, policy = config.dump(run.experiment), run.experiment.policy
        fill = {"policy.age_base": policy.age_base}.__getitem__
        weighting = resolve("weighting", policy.weighting.name, policy.weighting.args, fill)
        for key in ("weighting", "age_base"):
            del tree["policy"][key]
        weights = weighting(np.full(3, 1500), np.array([0, 1, 3]))
        found.append((repr(tree), *np.round(weights, 12).tolist()))
    assert len({*found}) == 9


def test_seeds_that_tune_rank_and_confirm_are_others() -> None:
    assert not {*LEAGUE_TUNING_SEEDS} & {*range(RANKING_SEEDS), *CONFIRMING}
    assert not set(range(RANKING_SEEDS)) & set(CONFIRMING)


@pytest.mark.parametrize("method", LEAGUE_METHODS.values(), ids=lambda method: method.name)
def test_airtime_is_equal_or_less(method: LeagueMethod) -> None:
    """Symbols per unit of time, in the grants of a plan: nobody has more than the reference, with any setting."""
    horizon = 10.0 if method.name == "fedavg" else 3.0  # a synchronous round may wait long for devices that went away
    data = synthetic(0, 8000, 10)
    data = data._replace(held_out=data.test)
    for world in LEAGUE_WORLDS[:3]:
        budget = _candidates(world, LEAGUE_METHODS[REFERENCE])[0].experiment
        rate = budget.radio.num_symbols / budget.timeline.period
        for run in _candidates(world, method)[:3]:  # the others differ in the learning rate
            shorter = config.experiment(run.experiment, {"timeline": {"horizon": horizon}})
            ticks = planned(build(shorter, dataset=data))
            spent = sum(float(np.sum(each.grant.symbols)) for each in ticks if each.grant is not None)
            assert spent <= horizon * rate * (1 + 1e-9)


@pytest.mark.parametrize("method", LEAGUE_METHODS.values(), ids=lambda method: method.name)
def test_a_control_is_a_method_with_the_same_weights(method: LeagueMethod) -> None:
    control = LEAGUE_METHODS[method.control]
    assert LEAGUE_METHODS[control.control] in (control, LEAGUE_METHODS[methods.EVEN], LEAGUE_METHODS[REFERENCE])
    if control.name == REFERENCE and method.name != methods.EVEN:
        assert method.settings == LEAGUE_METHODS[REFERENCE].settings


Level = Callable[[str, Any], float]


def _fake(store: Store, level: Level, names: Mapping[str, str]) -> Callable[..., list[Any]]:
    """Do runs by making up results; names: of methods, by the name of a run."""

    def run_study(study: Study, kept: Store, **_: Any) -> list[Any]:
        for run in study.runs:
            if not kept.has(run.name):
                kept.save(run.name, result(config.dump(run.experiment), "avx2", level(names[run.name], run.experiment)))
        return []

    return run_study


def _fill_store(store: Store, world: LeagueWorld, level: Level, own: Sequence[LeagueMethod] = ()) -> None:
    """Put made-up results of all stages into a store; level: of method, settings and seed."""
    names: dict[str, str] = {}
    steps = races_module._race_steps

    def named(kept: Store, label: str, **asked: Any) -> Any:
        def watched() -> Any:
            inner = steps(kept, label, **asked)
            study = next(inner)
            while True:
                names.update({run.name: label.partition(": ")[2] for run in study.runs})
                failed = yield study
                try:
                    study = inner.send(failed)
                except StopIteration as end:
                    return end.value

        return watched()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(races_module, "run_study", _fake(store, level, names))
        patch.setattr(races_module, "_race_steps", named)
        entries = tuned_entries([world], store, own)
    for _, parts in ranking_studies([world], entries, store):
        for run in (run for part in parts for run in part.runs):
            store.save(run.name, result(config.dump(run.experiment), "avx2", level(run.label, run.experiment)))


def _benchmark(world: LeagueWorld, store: Store, own: Sequence[LeagueMethod] = ()) -> tuple[Standings, Runs]:
    [found] = ranking_benchmark([world], store, own)
    return found


def _noise(name: str, seed: int) -> float:
    return float(np.random.default_rng([seed, *name.encode()]).normal())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> LeagueWorld:
    """A league of nine."""
    names = (
        "proposed",
        "random",
        "equal_weights",
        "best_channel",
        "fedavg_updates",
        "fedbuff",
        "top_k",
        "fedprox",
        "ef21",
    )
    kept = {name: LEAGUE_METHODS[name] for name in names}
    for module in (methods, tune):
        monkeypatch.setattr(module, "LEAGUE_METHODS", kept)
    return LEAGUE_WORLDS[0]


def _level(name: str, experiment) -> float:
    base = {
        "equal_weights": 0.39,
        "proposed": 0.5,
        "random": 0.4,
        "best_channel": 0.45,
        "fedbuff": 0.42,
        "fedavg_updates": 0.35,
        "top_k": 0.38,
        "combined": 0.6,
    }.get(name, 0.3)
    bonus = 0.02 * (experiment.learning.learning_rate == methods.RATES[1])
    return base + bonus + 0.02 * _noise(name, experiment.seed) + 0.01 * _noise("shared", experiment.seed)


def test_the_best_on_the_tuning_seeds_plays_whatever_the_others_say(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)

    def level(name: str, experiment: Any) -> float:
        first = experiment.learning.learning_rate <= methods.RATES[0]
        return 0.5 if first == (experiment.seed in LEAGUE_TUNING_SEEDS) else 0.1

    _fill_store(store, small, level)
    for entry in tuned_entries([small], store, only_stored=True)[small.name]:
        assert entry.rate == min(entry.method.rates)
        assert entry.setting == entry.method.settings[0]  # the first of equals
        assert entry.tuned == pytest.approx(0.46)  # 0.5, and chance before the first evaluation, a tenth of the horizon


def test_ranks_and_their_ranges_are_those_of_a_plain_loop(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, _level)
    found, runs = _benchmark(small, store)
    # written anew: the accuracy is level on the whole horizon but for chance before the first evaluation at 0.5
    horizon = 10.0
    names = [row.name for row in found.rows]
    value = {
        name: [0.05 * 0.1 + 0.95 * runs[name][seed].columns["test_accuracy"][0] for seed in range(RANKING_SEEDS)]
        for name in names
    }
    assert horizon == runs[REFERENCE][0].experiment["timeline"]["horizon"]
    assert names == sorted(names, key=lambda name: -sum(value[name]))
    for row in found.rows:
        ahead = behind = 0
        for other in names:
            if other == row.name:
                continue
            gaps = [a - b for a, b in zip(value[row.name], value[other], strict=True)]
            mean, spread = np.mean(gaps), np.std(gaps, ddof=1)
            width = stats.t.ppf(0.975, 9) * spread / 10**0.5
            behind += mean + width < 0
            ahead += mean - width > 0
            if other == REFERENCE:
                assert row.over_reference.mean == pytest.approx(mean)
                assert row.over_reference.high == pytest.approx(mean + width)
                wide = stats.t.ppf(1 - 0.025 / (len(names) - 1), 9) * spread / 10**0.5
                assert row.surely == ("ahead" if mean > wide else "behind" if mean < -wide else "")
        assert (row.highest, row.lowest) == (1 + behind, len(names) - ahead)
        assert row.highest <= row.rank <= row.lowest
    assert found.winner.name == COMBINED
    again = {
        name: [runs[name][seed].columns["test_accuracy"][0] for seed in CONFIRMING] for name in (COMBINED, PAPER_METHOD)
    }
    gaps = 0.95 * np.subtract(again[COMBINED], again[PAPER_METHOD])
    assert found.confirmed.keys() == {COMBINED, PAPER_METHOD, REFERENCE}
    assert found.confirmed[COMBINED][PAPER_METHOD].mean == pytest.approx(gaps.mean())  # type: ignore[attr-defined]
    assert {row.name for row in found.level} == {
        name
        for name in names[1:]
        if np.mean(gap := np.subtract(value[name], value[COMBINED]))
        + stats.t.ppf(0.975, 9) * np.std(gap, ddof=1) / 10**0.5
        >= 0
    }
    assert {row["method"] for row in page.league_rows([found])} == {*methods.LEAGUE_METHODS, COMBINED}


def test_what_is_combined_are_the_best_that_beat_the_reference(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, lambda name, experiment: _level(name, experiment) + 0.5 * (name == "ef21"))
    [found] = tune_methods({"": (small, small.methods)}, store, only_stored=True).values()
    together = combine_tuned(found, small)
    assert together is not None
    assert together.title == "the paper's schedule + FedBuff"  # top_k and fedprox are behind it, and ef21 stands alone
    [tree] = together.settings  # neither codec nor training to leave out
    assert tree["policy"]["aggregator"]["name"] == "buffered_mean"
    assert tree["policy"]["scheduler"] == "proposed"


def test_before_all_are_tuned_nothing_is_combined(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    for run in _candidates(small, LEAGUE_METHODS[REFERENCE]):
        store.save(run.name, result(config.dump(run.experiment), "avx2", 0.5))
    [found] = tune_methods({"": (small, small.methods)}, store, only_stored=True).values()
    assert combine_tuned(found, small) is None
    assert ranking_benchmark([small], store) == []


def test_a_method_that_lacks_a_run_is_left_out_and_named(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, _level)
    entry = next(row.entry for row in _benchmark(small, store)[0].rows if row.name == "top_k")
    [lost] = ranking_study(small, [entry], [3]).runs
    next((tmp_path / "new").glob(f"{lost.name}.*")).unlink()
    found, runs = _benchmark(small, store)
    assert found.left_out == {"top_k": 9}
    assert "top_k" not in {row.name for row in found.rows}
    page.write_league_page(tmp_path / "league.md", FIGURES, [found], {small.name: runs}, tmp_path)
    assert "top_k (9 of 10)" in (tmp_path / "league.md").read_text()


def test_a_share_of_the_cost_is_own_over_the_references(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, lambda name, experiment: 0.52)
    for name in store.names():
        kept = store.load(name)
        if kept.experiment["policy"]["scheduler"] == "best_channel":
            columns = {**kept.columns, "bits": np.array([20.0, 38.0])}
            store.save(name, dataclasses.replace(kept, columns=columns))
    cost = _benchmark(small, store)[0].row("best_channel").costs["bits"]
    assert cost.middle == 20.0
    assert np.exp(cost.ratio.mean) == pytest.approx(4.0)


def _lose(store: Store, world: LeagueWorld, name: str, seed: int) -> None:
    """Make a run of the ranking one that diverged."""
    entry = next(row.entry for row in _benchmark(world, store)[0].rows if row.name == name)
    [lost] = ranking_study(world, [entry], [seed]).runs
    store.save(lost.name, _diverged(lost))


def _diverged(run: Run) -> RunResult:
    """Return the result of a run that diverged at its first aggregation: a guess throughout."""
    found = result(config.dump(run.experiment), "avx2", 0.1)
    return dataclasses.replace(found, totals={**found.totals, "diverged": 0.5})


def test_a_target_is_an_exact_decimal_that_an_accuracy_can_reach(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, lambda name, experiment: 0.6)  # 0.05 * 12 is more than that
    found, _ = _benchmark(small, store)
    assert found.target == 0.6
    assert found.row("proposed").costs["time"].reached == RANKING_SEEDS


def test_a_run_that_diverged_counts_as_chance_in_ranks_and_gains(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, _level)
    before = _benchmark(small, store)[0].row("proposed")
    _lose(store, small, "proposed", 2)
    found, runs = _benchmark(small, store)
    row = found.row("proposed")
    assert not found.left_out
    assert (row.diverged, row.diverged_fresh) == (1, 0)
    assert mean_accuracy(runs["proposed"][2]) == final_accuracy(runs["proposed"][2]) == 0.1
    assert row.accuracy < before.accuracy - 0.03
    assert row.over_reference.num_seeds == RANKING_SEEDS
    assert row.over_reference.verdict == "not resolved"
    page.write_league_page(tmp_path / "league.md", FIGURES, [found], {small.name: runs}, tmp_path)
    assert "**the paper's schedule**, diverged on 1 of 10 seeds |" in (tmp_path / "league.md").read_text()
    draw_league_curves([found], {small.name: runs}, tmp_path / "curves")
    assert "gain over random scheduling" in league_page(store)


def test_what_is_recommended_diverged_on_no_seed_fresh_ones_included(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, _level)
    assert _benchmark(small, store)[0].winner.name == COMBINED
    _lose(store, small, COMBINED, CONFIRMING[1])
    found, runs = _benchmark(small, store)
    assert found.rows[0].name == COMBINED
    assert found.winner.name == "proposed"
    assert COMBINED not in {row.name for row in found.level}
    lost = found.confirmed[COMBINED][REFERENCE]  # with chance on the seed on which it diverged
    level = {name: [mean_accuracy(runs[name][s]) for s in CONFIRMING] for name in (COMBINED, REFERENCE)}
    assert level[COMBINED][1] == 0.1
    assert lost.mean == pytest.approx(np.mean(np.subtract(level[COMBINED], level[REFERENCE])))
    page.write_league_page(tmp_path / "league.md", FIGURES, [found], {small.name: runs}, tmp_path)
    text = (tmp_path / "league.md").read_text()
    assert "| The paper's cell | **the paper's schedule** |" in text
    assert "**combined**, diverged on 1 of 5 fresh seeds |" in text
    values = page.LeagueValues([found], {small.name: runs})
    assert values["paper winner"] == "proposed"
    assert values["paper combined diverged on fresh seeds"] == 1
    assert values["paper combined over random on fresh seeds"] == lost


def test_the_next_in_rank_is_asked_to_play_on_fresh_seeds(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, lambda name, experiment: _level(name, experiment) - 0.05 * (name == "proposed"))
    second = _benchmark(small, store)[0].rows[1].name
    assert second not in (PAPER_METHOD, REFERENCE)
    _lose(store, small, COMBINED, CONFIRMING[0])
    stages = ranking_studies([small], tuned_entries([small], store, only_stored=True), store)
    asked = [run for stage, parts in stages if stage == "fresh seeds" for run in parts[0].runs]
    assert {run.experiment.seed for run in asked if run.label == second} == set(CONFIRMING)


def test_findings_follow_the_runs(tmp_path: Path, small: LeagueWorld) -> None:
    """The numbers of the sentences, computed anew from the runs."""
    store = Store(tmp_path)
    _fill_store(store, small, _level)
    found, runs = _benchmark(small, store)
    values = page.LeagueValues([found], {small.name: runs})
    mean = {name: np.mean([mean_accuracy(runs[name][s]) for s in range(RANKING_SEEDS)]) for name in runs}
    assert values["paper proposed over random"].mean == pytest.approx(mean["proposed"] - mean["random"])
    assert values["paper combined over top_k"].mean == pytest.approx(mean["combined"] - mean["top_k"])
    assert values["paper best single"] == "proposed"
    with pytest.raises(KeyError):
        values["paper proposed over nothing"]
    page.write_league_page(tmp_path / "league.md", FIGURES, [found], {small.name: runs}, tmp_path)
    text = (tmp_path / "league.md").read_text()
    assert "| its schedule among the schedules, all else as in the reference | 1 of 4 |" in text
    assert f"best channels (BC): {mean['best_channel'] - mean[PAPER_METHOD]:+.3f} (" in text
    (tmp_path / "findings.md").write_text("## what to deploy\n\n<!-- if: paper winner = top_k -->Deploy `top_k`.\n")
    with pytest.raises(FedtideError, match="'paper winner = top_k' does not follow from the runs"):
        page.write_league_page(tmp_path / "league.md", FIGURES, [found], {small.name: runs}, tmp_path)


def test_costs_are_medians_and_say_when_a_target_is_missed(tmp_path: Path, small: LeagueWorld) -> None:
    store = Store(tmp_path)
    _fill_store(store, small, lambda name, experiment: 0.52 if name in ("random", "proposed", "combined") else 0.2)
    found, _ = _benchmark(small, store)
    assert found.target == pytest.approx(0.5)
    assert found.row("proposed").costs["time"].middle == 0.5  # the first evaluation
    assert found.row("proposed").costs["bits"].middle == 5
    assert found.row("best_channel").costs["time"].middle == np.inf
    assert found.row("best_channel").costs["time"].reached == 0


def test_a_whole_benchmark_by_the_command_line(
    tmp_path: Path, small: LeagueWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = {
        "data": {"name": "synthetic", "num_train": 400, "num_test": 50, "num_shards": 80},
        "fleet": {"num_devices": 8},
        "policy": {"limit": 2},
        "timeline": {"horizon": 1.0},
        "learning": {"model": "softmax"},
    }
    monkeypatch.setattr(tune, "BASE", config.merge_nested(tune.BASE, tiny))
    monkeypatch.setattr(tune, "LEAGUE_WORLDS", LEAGUE_WORLDS[:1])
    wild = {
        name: method._replace(rates=(0.07, 1e30)) for name, method in methods.LEAGUE_METHODS.items()
    }  # half diverge
    groups = [group._replace(methods=tuple(wild[m.name] for m in group.methods if m.name in wild)) for group in GROUPS]
    for module in (methods, tune):
        monkeypatch.setattr(module, "LEAGUE_METHODS", wild)
    monkeypatch.setattr(methods, "GROUPS", groups)
    command = ["league", "paper", "--store", str(tmp_path / "store"), "--out", str(tmp_path), "--backend", "here"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "league.md").read_text()
    assert all(f"| {method.title} |" in text for method in methods.LEAGUE_METHODS.values())
    store = Store(tmp_path / "store")
    assert any(store.load(name).diverged is not None for name in store.names())
    assert "failed" not in CliRunner().invoke(app, command).output  # what diverged is not tried again
    again = CliRunner().invoke(app, [*command, "--draw-only", "--json"])
    assert len(json.loads(again.stdout)) - len(methods.LEAGUE_METHODS) in (0, 1)  # with or without something to combine
    assert (tmp_path / "league.md").read_text() == text


@pytest.mark.parametrize(
    ("words", "said"),
    [(["mars"], "world 'mars' is not known"), (["--draw-only"], "holds no run of the league")],
    ids=["unknown world", "empty store"],
)
def test_bad_input_gets_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["league", *words, "--store", str(tmp_path), "--out", str(tmp_path)])
    assert done.exit_code != 0
    assert said in done.output


def test_every_world_of_the_page_is_committed_whole() -> None:
    shown = [table.world for table, _ in ranking_benchmark(LEAGUE_WORLDS, STORE)]
    assert {world.name for world in shown} >= {world.name for world in LEAGUE_WORLDS if world.is_whole}
    entries = tuned_entries(shown, STORE, only_stored=True)
    page_text = (ROOT / "docs" / "league.md").read_text()
    for world in shown:
        assert {each.method.name for each in entries[world.name]} >= {each.name for each in world.methods}
    for _, parts in ranking_studies(shown, entries, STORE):
        for run in (run for part in parts for run in part.runs):
            lost = STORE.load(run.name).diverged is not None
            words = COMBINED if run.label == COMBINED else LEAGUE_METHODS[run.label].words
            assert not lost or f"{words}, diverged on" in page_text or f"{words}**, diverged on" in page_text


def test_the_page_is_that_of_the_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["league", "--draw-only", "--store", str(STORE.folder), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "league.md").read_text() == (ROOT / "docs" / "league.md").read_text()


def test_a_method_that_cannot_be_tuned_is_left_out_and_told(tmp_path: Path, small: LeagueWorld) -> None:
    nowhere = small._replace(tree=config.merge_nested(small.tree, {"data": {"folder": str(tmp_path / "nowhere")}}))
    told: dict[str, str] = {}
    [found] = tune_methods(
        {"small": (nowhere, [LEAGUE_METHODS[REFERENCE]])},
        Store(tmp_path),
        workers=1,
        backend="here",
        on_fault=lambda name, error: told.update({name: str(error)}),
    ).values()
    assert found == []
    assert "nowhere" in told["small: random"]


# Methods of a user's own.


def test_a_row_of_ones_own_is_tuned_and_ranked_with_the_others(
    tmp_path: Path, small: LeagueWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parts.py").write_text("def half(model, starts, updates, weights, age, by: float = 0.5):\n    return model\n")
    Path("mine.yaml").write_text(
        "mine:\n  title: a half of the mean\n  changes: {policy: {aggregator: {name: server_adam, inner: 'parts.py:half'}}}\n"
        "  settings: [{policy: {aggregator: {rate: 0.1}}}, {policy: {aggregator: {rate: 0.3}}}]\n"
    )
    own = methods.own_league_methods(Path("mine.yaml"))
    assert [(each.name, each.control, len(each.settings)) for each in own] == [("mine", "equal_weights", 2)]
    trees = [run.experiment.policy.aggregator.args for run in _candidates(small, own[0])]
    assert [each["rate"] for each in trees] == [0.1, 0.3] * 3
    assert all(each["inner"] == "parts.py:half" for each in trees)
    store = Store(tmp_path / "store")
    _fill_store(store, small, lambda name, experiment: 0.9 if name == "mine" else _level(name, experiment), own)
    found, _ = _benchmark(small, store, own)
    assert found.rows[0].name == "mine"
    assert found.rows[0].entry.group == methods.OWN
    assert "| a half of the mean |" in page._settings([found])
    others, _ = _benchmark(small, store)
    assert "mine" not in {row.name for row in others.rows}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("random: {title: x}", "is a method of the league already"),
        ("mine: 3", "is not a row of the league: give a title"),
        ("mine: {title: x, change: {}}", "give a title, and any of changes, grid, settings"),
        ("mine: {title: x, grid: {policy.limit: 3}}", "grid is one key with a list of values"),
        ("mine: {title: x, control: nobody}", "control=nobody is not a method of the league"),
        ("mine: {title: x, rates: 3}", "rates are a list of learning rates"),
        ("mine: {title: x, rates: [fast]}", "rates are a list of learning rates"),
        ("mine: {title: x, settings: [3]}", "settings are a list of keys"),
        ("mine: {title: x, changes: [3]}", "changes are keys with values"),
        ("mine: {title: x, changes: {policy: {agregator: mix}}}", "did you mean policy.aggregator"),
        ("{}", "holds no row of the league"),
        ("[1]", "it must be a mapping"),
    ],
)
def test_a_file_of_rows_that_cannot_be_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    done = CliRunner().invoke(app, ["league", "--rows", str(tmp_path / "mine.yaml"), "--store", str(tmp_path / "s")])
    assert done.exit_code == 2
    assert says in done.output
