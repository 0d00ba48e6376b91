"""fedtide.advise: what is offered, what plans rule out, what is found, files, resuming, and what is told of bad input."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import fedtide
from fedtide import config
from fedtide.cli.main import app
from fedtide.errors import FedtideError
from fedtide.studies.advice import FrontPoint, front_points
from fedtide.studies.design_space import design_space, replaced_options
from fedtide.studies.metrics import mean_accuracy
from fedtide.studies.pruning import prune_by_plans
from fedtide.studies.results import RunResult
from fedtide.studies.screening import Screening
from fedtide.studies.store import Store

BASE: dict[str, Any] = {
    "data": {"name": "synthetic", "num_train": 400, "num_test": 100, "partition": "iid"},
    "fleet": {"num_devices": 4},
    "timeline": {"horizon": 4.0},
    "policy": {"limit": 2},
    "radio": {"symbol_rate": 1e6, "joules_per_symbol": 1e-6},
    "learning": {"model": "softmax", "local_epochs": 1, "learning_rate": 0.002},
}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run take a tenth of a second, so that a budget holds as many on any machine."""
    ticks = itertools.count()
    steady = SimpleNamespace(thread_time=lambda: 0.1 * next(ticks), sleep=time.sleep)
    monkeypatch.setattr("fedtide.studies.run.time", steady)


def advise(**more: Any) -> fedtide.Advice:
    return fedtide.advise(BASE, **{"budget": "6s", "only": ["learning_rate", "age_base"], **more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("advice") / "out"


@pytest.fixture
def found(folder: Path) -> fedtide.Advice:
    """Advice whose runs are done once."""
    return advise(out=folder)


def test_a_better_learning_rate_is_found_and_confirmed_on_fresh_seeds(found: fedtide.Advice, folder: Path) -> None:
    assert found.keys["learning.learning_rate"] > 0.004
    assert found.is_confirmed
    assert found.race.against == "base"
    assert found.race.confirmed is not None
    assert found.race.confirmed.low > 0
    assert found.headline.startswith("Gain over the base in mean accuracy: +")
    rate = next(row for row in found.worth if row.choice == "learning_rate")
    assert rate.is_sure
    assert found.experiment.learning.learning_rate == found.keys["learning.learning_rate"]
    assert found.num_runs == len(Store(folder / "results").names())  # each counts once
    assert len({point.num_runs for point in found.front}) == 1
    assert {point.setting for point in found.front} >= {"base", found.race.leader}
    assert "learning_rate: rate 0.002 -> rate" in repr(found)


def test_its_files_are_there_and_can_be_run(found: fedtide.Advice, folder: Path) -> None:
    written = config.experiment(folder / "advice.yaml")
    assert config.digest(written) == config.digest(found.experiment)
    told = json.loads((folder / "advice.json").read_text())
    assert told["confirmed"] is True
    assert told["keys"] == found.keys
    page = (folder / "advice.html").read_text()
    for text in (
        "What to set",
        "How sure is it?",
        "What would change the advice",
        found.headline,
        "<svg",
        "fedtide run",
    ):
        assert text in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert (folder / "app" / "pyproject.toml").is_file()


def test_a_stored_answer_is_read_back_and_gets_the_same_page(
    found: fedtide.Advice, folder: Path, tmp_path: Path
) -> None:
    again = fedtide.Advice.from_json(json.loads((folder / "advice.json").read_text()))
    assert again.as_json() == found.as_json()
    done = CliRunner().invoke(app, ["report", str(folder / "advice.json"), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    with_command = re.sub(r"\n<pre>.*?</pre>", "", (folder / "advice.html").read_text(), flags=re.S)
    assert (tmp_path / "page.html").read_text().split() == with_command.split()
    for content in ("[1]", '{"worth": 3}', "not JSON"):
        (tmp_path / "other.json").write_text(content)
        done = CliRunner().invoke(app, ["report", str(tmp_path / "other.json"), "-o", str(tmp_path / "page.html")])
        assert done.exit_code == 2
        assert "is no advice.json" in done.output


def test_stopped_and_called_again_it_advises_the_same(found: fedtide.Advice, tmp_path: Path) -> None:
    calls = 0

    def stop(_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        advise(store=tmp_path / "results", on_done=stop)
    done: list[Any] = []
    again = advise(store=tmp_path / "results", on_done=done.append)
    assert again._replace(seconds=0, race=again.race._replace(seconds=0)) == found._replace(
        seconds=0, race=found.race._replace(seconds=0)
    )
    assert 0 < len(done) < found.num_runs - 20


def test_a_base_that_nothing_beats_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fedtide.studies.screening.Screening.finalists", lambda *_: [("rate 0.001",)])
    kept = advise(only=["learning_rate"], out=tmp_path)
    assert (kept.keys, kept.changes, kept.is_confirmed) == ({}, False, False)
    assert kept.headline.startswith("Keep the settings of the base")
    assert kept.headline in (tmp_path / "advice.html").read_text()
    assert config.digest(config.experiment(tmp_path / "advice.yaml")) == config.digest(config.experiment(BASE))


def test_every_setting_has_the_airtime_of_the_base() -> None:
    space = design_space(config.experiment(BASE), ["period", "limit"])
    base = space.base_setting
    rates = []
    for option in space.choices[1].options:
        experiment = space.experiment(replaced_options(base, [1], [option]))
        rates.append(fedtide.plan(experiment).summary["symbols_offered"] / experiment.timeline.horizon)
    assert len(rates) > 2
    assert max(rates) <= 1.05 * rates[0]


def test_plans_rule_out_settings_and_say_why() -> None:
    few = {**BASE, "fleet": {"num_devices": 20}, "policy": {"limit": 8, "scheduler": "random"}}
    space = design_space(config.experiment(few), ["learning_rate", "limit", "codec", "schedule"])
    pruned, is_left = prune_by_plans(space)
    sizes = [len(choice.options) for choice in space.choices]
    assert pruned.considered == sizes[0] * sizes[1] * sizes[2] * sizes[3]
    assert pruned.left + sum(pruned.reasons.values()) == pruned.considered
    assert pruned.num_plans == sizes[2] * sizes[3]  # a codec and a learning rate need no plan of their own
    assert is_left(space.base_setting)
    settings = itertools.product(*(choice.options for choice in space.choices))
    assert sum(map(is_left, settings)) == pruned.left
    assert pruned.reasons


def test_devices_that_are_never_heard_rule_a_setting_out() -> None:
    many = {**BASE, "fleet": {"num_devices": 40}, "policy": {"limit": 16, "scheduler": "best_channel"}}
    many["radio"] = {"coverage": "log_distance"}
    space = design_space(config.experiment(many), ["limit"])
    pruned, is_left = prune_by_plans(space)
    assert pruned.reasons["never hear many devices"] == 1
    assert not is_left(("R 4",))
    longer = design_space(config.experiment(many, {"timeline": {"horizon": 8.0}}), ["limit"])
    assert prune_by_plans(longer)[1](("R 4",))  # 30 of 32 periods do not tell who is never heard


def left_of(more: dict[str, Any], *only: str) -> set[str]:
    """Return the options that plans leave in the place of the base's."""
    space = design_space(config.experiment(BASE, {"radio": {"joules_per_symbol": 0}}, more), only)
    is_left, options = prune_by_plans(space)[1], {choice.name: list(choice.options) for choice in space.choices}
    return {space.text(each) for each in space.neighbours(space.base_setting, options) if is_left(each)}


def test_plans_do_not_choose_between_codecs_or_schedules() -> None:
    coded = left_of({"radio": {"num_symbols": 500}}, "period", "limit", "codec")
    assert {"dead_zone", "qsgd", "top_k", "error_feedback"} <= coded
    many = {"fleet": {"num_devices": 20}, "policy": {"limit": 8}}
    assert len(left_of(many, "schedule")) == 5


def test_ticks_without_a_ready_device_do_not_rule_out_long_periods() -> None:
    assert {"period 0.5", "period 0.125"} <= left_of({"timeline": {"horizon": 4.2}}, "period")


def test_what_a_plan_does_not_know_rules_nothing_out() -> None:
    oort = {"fleet": {"num_devices": 20}, "policy": {"limit": 8, "scheduler": "oort"}}
    assert left_of(oort, "limit") == {"R 16", "R 4", "R 2"}
    assert len(left_of(oort, "schedule")) == 6


def test_epochs_are_offered_where_they_take_time() -> None:
    free = design_space(config.experiment(BASE))
    assert "local_epochs" not in [choice.name for choice in free.choices]
    assert any(note.startswith("local_epochs stays as it is: fleet.duration=uniform") for note in free.notes)
    paid = design_space(config.experiment(BASE, {"fleet": {"duration": "cycles"}}))
    assert {"E 1", "E 2"} <= {*next(choice for choice in paid.choices if choice.name == "local_epochs").options}


def test_parts_of_a_method_stay_together() -> None:
    space = design_space(config.experiment(BASE, {"method": "ef21"}))
    assert not {"codec", "server"} & {choice.name for choice in space.choices}
    assert "codec stays as it is: it belongs to ef21" in space.notes


def test_the_front_has_those_that_nobody_beats() -> None:
    def run(time: float, air: float, **totals: Any) -> RunResult:
        columns = {"time": [time], "air_time": [air], "joules": [1.0], "test_accuracy": [0.9]}
        return RunResult({}, columns, totals)  # type: ignore[arg-type]

    wild = run(1, 1, diverged=1.0)
    runs = {"fast": [run(1, 3)], "frugal": [run(3, 1)], "beaten": [run(3, 3)], "never": [], "wild": [run(1, 1), wild]}
    points: dict[str, FrontPoint] = {point.setting: point for point in front_points(runs, 0.9)}
    assert [name for name, point in points.items() if point.on_front] == ["fast", "frugal"]
    assert points["beaten"][1:4] == (3, 3, 1)
    assert "wild" not in points
    assert front_points(runs, 0.95) == ()


def screening(**more: Any) -> Screening:
    space = design_space(config.experiment(BASE), ["age_base"])
    how = {"spends": "time", "target": None, "share": 1.0, "limit": 1.0, **more}
    return Screening(SimpleNamespace(space=space), lambda _: True, on_step=lambda *_: None, **how)  # type: ignore[arg-type]


def test_whole_runs_find_the_setting_that_wins_late() -> None:
    space = design_space(config.experiment(BASE), ["age_base"])
    short = {"gamma 1": 0.2, "gamma 0.5": 0.5, "gamma 0.8": 0.4, "gamma 1.25": 0.1}
    whole = {"gamma 1": 0.5, "gamma 0.5": 0.6, "gamma 0.8": 0.9, "gamma 1.25": 0.7}

    def runs(settings: Any, seeds: Any, share: float, _: Any) -> Any:
        def run(level: float) -> RunResult:
            columns = {"time": [4 * share], "test_accuracy": [0.0]}
            return RunResult({"timeline": {"horizon": 4 * share}}, columns, {"num_labels": 1 / level})  # type: ignore[arg-type]

        levels = whole if share == 1 else short
        return {setting: {seed: run(levels[setting[0]]) for seed in seeds} for setting in settings}

    bench = SimpleNamespace(space=space, seconds=0.0, runs=runs, expected_seconds=lambda _, share: share)
    for limit, best in ((100.0, "gamma 0.8"), (5.0, "gamma 0.5")):  # the second holds no two whole runs
        search = Screening(bench, lambda _: True, "time", None, 0.1, limit, lambda *_: None)  # type: ignore[arg-type]
        assert search.finalists(1) == [(best,)]


def test_accuracy_beyond_the_target_does_not_count_for_time() -> None:
    columns = {"time": [1.0, 2.0], "test_accuracy": [0.5, 0.9]}
    run = RunResult({"timeline": {"horizon": 4.0}}, columns, {"num_labels": 10})  # type: ignore[arg-type]
    assert screening()._value(run, 0, True) == pytest.approx(mean_accuracy(run))
    assert screening(target=0.5)._value(run, 0, True) == pytest.approx((0.1 + 3 * 0.5) / 4)


def test_a_clock_that_stands_still_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtide.studies.run.time", SimpleNamespace(thread_time=lambda: 0.0, sleep=time.sleep))
    monkeypatch.setattr("fedtide.studies.screening.Screening.finalists", lambda *_: pytest.fail("comes so far"))
    with pytest.raises(pytest.fail.Exception, match="comes so far"):
        advise(only=["age_base"], budget="1s")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"goal": "time"}, "advice for time needs an accuracy to be reached: give a target"),
    ({"goal": "money"}, "advice for 'money' is not known"),
    ({"target": 3.0}, "target=3.0 must be an accuracy between 0 and 1"),
    ({"budget": "soon"}, "budget='soon' must be"),
    ({"budget": "40"}, "budget='40' must be"),
    (
        {"base": {"codec": {"name": "private"}}, "only": ["codec"]},
        "codec stays as it is: it belongs to codec.name=private",
    ),
    ({"budget": "0.5s"}, "a run of the base takes about"),
    ({"only": ["weather"]}, "'weather' is nothing that can be advised on here; there are learning_rate, server"),
    ({"only": ["local_epochs"]}, "local_epochs stays as it is: fleet.duration=uniform does not follow it"),
    ({"goal": "time", "target": 0.999}, "no setting reaches an accuracy of 0.999 on every seed"),
    (
        {"base": {"fleet": {"num_devices": 1}, "policy": {"limit": 1}}, "only": ["limit"]},
        "nothing is left to choose from, of 1 settings: there is no choice",
    ),
    ({"base": {"learning": {"learning_rate": 1e30}}}, "all settings that ran diverged"),
    ({"base": {"data": {"validation": 0.2}}}, "data.validation=0.2: advice is confirmed on the test set"),
    ({"workers": "2"}, "workers='2' must be a whole number"),
]


@pytest.mark.parametrize(("given", "line"), BAD)
def test_bad_input_is_one_line(given: dict[str, Any], line: str) -> None:
    base = config.experiment(BASE, given.get("base", {}))
    with pytest.raises(FedtideError) as told:
        fedtide.advise(
            base,
            **{
                "budget": "6s",
                "only": ["learning_rate"],
                **{key: each for key, each in given.items() if key != "base"},
            },
        )
    assert line in str(told.value)
    assert "\n" not in str(told.value)


def test_advice_for_airtime_goes_by_what_is_sent() -> None:
    found = advise(goal="airtime", target=0.3, only=["learning_rate"])
    assert found.metric == "air_time_to_0.3"
    assert found.experiment.learning.learning_rate > 0.002
    assert found.experiment.learning.target_accuracy is None
    assert found.target == 0.3
    assert found.reached is not None
    count = found.reached.num_seeds
    assert found.reached == (count, 0, count)
    told = f"The base does not reach 0.3 within the horizon; the advice does on {count} of {count} fresh seeds."
    assert found.headline == told
    assert found.is_confirmed
    assert not any("keep the base" in line for line in found.doubts)


def test_a_small_budget_holds_few_finalists_without_a_short_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtide.studies.screening.Screening.finalists", lambda _, count: pytest.fail(f"{count} race"))
    for more, count in (({"goal": "time", "target": 0.3}, 1), ({}, 6)):
        with pytest.raises(pytest.fail.Exception, match=f"{count} race"):
            advise(budget="2.5s", **more)


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(json.dumps(BASE))
    words = [
        str(tmp_path / "e.yaml"),
        "--budget",
        "6s",
        "--only",
        " learning_rate",
        "-j",
        "1",
        "-s",
        str(tmp_path / "kept"),
        "-o",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(app, ["advise", *words])
    assert done.exit_code == 0, done.output
    assert "Gain over the base in mean accuracy" in done.stdout
    assert "learning_rate" in done.stdout
    assert "short runs" in done.stderr
    again = CliRunner().invoke(app, ["advise", *words, "--json"])
    told = json.loads(again.stdout)
    assert told["headline"] in done.stdout.replace("\n", " ")
    assert told["deployment"].startswith("flwr run")
    assert f"--store={tmp_path / 'kept'} --workers=1" in (tmp_path / "out" / "advice.html").read_text()


def test_a_file_of_ones_own_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "advice.json").write_text('{"mine": 1}')
    with pytest.raises(FedtideError, match="exists and is not advice of fedtide"):
        advise(out=tmp_path, budget="6s")
    assert (tmp_path / "advice.json").read_text() == '{"mine": 1}'


def test_the_page_quotes_the_stored_advice() -> None:
    root = Path(__file__).parents[2]
    stored = json.loads((root / "results" / "advice" / "advice.json").read_text())
    text = (root / "docs" / "advise.md").read_text()
    assert f"> {stored['headline']}" in text
    for row in stored["worth"]:
        gain = row["gain"]
        assert gain is None or f"{gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})" in text, row["choice"]
    base, advice = stored["front"]
    for number in (
        f"{base['time']:.0f} s",
        f"{advice['time']:.0f} s",
        f"{advice['air_time']:.2f} instead of {base['air_time']:.2f} s",
    ):
        assert number in text
    assert f"{advice['joules']:.0f} instead of {base['joules']:.0f} J" in text


def test_the_page_has_the_stored_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    benchmark = importlib.import_module("advise")
    text = (root / "docs" / "advise.md").read_text()
    rows = [
        benchmark.compared(name, root / "results" / "advice" / "benchmark", "6m", True)
        for name in benchmark.ADVICE_WORLDS
    ]
    for row in rows:
        assert f"| {' | '.join(row)} |" in text
