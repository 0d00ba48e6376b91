"""Scenarios: what fills in what, and every one of them planned, run, stopped and resumed, studied and found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import fedtide
from fedtide import config
from fedtide.cli.main import app
from fedtide.cli.parts import _presets
from fedtide.config import Part
from fedtide.config import presets as config_presets
from fedtide.config.presets import load_scenario
from fedtide.errors import FedtideError
from fedtide.runs import RoundRecord, read_run_header
from fedtide.studies.run import missing_runs, run_study
from fedtide.studies.spec import read_study
from fedtide.studies.store import Store
from helpers import EXAMPLES
from worlds import NAMES, PERIODS, shrunk, small_world


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the package's."""
    monkeypatch.setattr(config_presets, "_folder", lambda: tmp_path)
    return tmp_path


def write(folder: Path, text: str, name: str = "mine") -> None:
    (folder / f"{name}.yaml").write_text(f"# A world.\n{text}")


# ---- what fills in what

WORLD = """
fleet: {max_duration: 60, availability: always, duration: {name: mine.py:slow, factor: 2}}
timeline: {period: 15, horizon: 600}
radio: {snr_db: 3}
policy: {limit: 5, scheduler: random, aggregator: {name: mix, mixing: 0.9}}
learning: {local_steps: 7, proximal: 0.5}
"""


@pytest.mark.parametrize(
    ("over", "key", "expected"),
    [
        ({}, "radio.snr_db", 3.0),
        ({}, "learning.local_epochs", None),
        ({}, "fleet.duration", Part.of({"name": "mine.py:slow", "factor": 2})),
        ({"profile": "released-code"}, "radio.snr_db", 3.0),
        ({"profile": "released-code"}, "codec.element_bits", 3),
        ({"profile": "released-code"}, "policy.scheduler", Part("random")),
        ({"framework": "fedavg"}, "learning.proximal", 0.0),
        ({"framework": "fedavg"}, "policy.limit", 5),
        ({"framework": "fedasync"}, "policy.aggregator", Part.of({"name": "mix", "mixing": 0.4})),
        ({"framework": "fedasync"}, "learning.evaluate_every", 15.0),  # its times are in units of T_max
        (
            {"framework": "fedbuff"},
            "policy.aggregator",
            Part("buffered_mean"),
        ),  # those of the part whose place it takes
        ({"radio": {"snr_db": 9.0}}, "radio.snr_db", 9.0),
        ({"framework": "fedasync", "policy": {"limit": 2}}, "policy.limit", 2),
        ({"fleet": {"duration": "uniform"}}, "fleet.duration", Part("uniform")),
        ({"policy": {"aggregator": "average_deltas"}}, "policy.aggregator", Part("average_deltas")),
        ({"learning": {"local_epochs": 2}}, "learning.local_steps", None),
        ({"learning": {"local_epochs": 2}}, "learning.local_epochs", 2),
        ({"scenario": None}, "radio.snr_db", 13.0),
    ],
)
def test_profile_scenario_framework_and_given_keys(folder: Path, over: dict[str, Any], key: str, expected: Any) -> None:
    write(folder, WORLD)
    assert config.key_value(config.experiment({"scenario": "mine"}, over), key) == expected


def test_a_name_changes_no_digest(folder: Path) -> None:
    assert "scenario" not in config.experiment().model_fields_set
    write(folder, WORLD)
    by_name = config.experiment(scenario="mine")
    by_hand = config.experiment(yaml.safe_load(WORLD))
    assert (by_name.scenario, by_hand.scenario) == ("mine", None)
    assert config.digest(by_name) == config.digest(by_hand) != config.digest(config.experiment())


def test_an_experiment_with_every_key_does_not_ask_the_file_again(folder: Path) -> None:
    """What was stored keeps its values, whatever becomes of the scenario."""
    write(folder, WORLD)
    before = config.experiment(scenario="mine")
    (folder / "mine.yaml").unlink()
    stored = config.dump(before)
    assert config.experiment(stored) == before
    write(folder, "fleet: {energy: cmos}", "other")
    assert config.experiment({**stored, "scenario": "other"}).fleet.energy.name == "per_unit"
    with pytest.raises(FedtideError, match=r"scenario='other' fills in what is left out.*every key already"):
        config.experiment(before, scenario="other")
    assert config.experiment(before, scenario="mine", seed=3).seed == 3


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("papr", "did you mean paper? There are paper"),
        ("Paper", "did you mean paper?"),
        ("../paper", "is not known"),
        ("zzz", "see `fedtide scenario list`. There are paper"),
        ("", "is not known"),
    ],
)
def test_unknown_names(name: str, says: str) -> None:
    with pytest.raises(FedtideError) as error:
        config.experiment(scenario=name)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fleet: [", "cannot be read: line"),
        ("- a\n- b", "holds a list; it must be a mapping"),
        ("fleet: {num_device: 3}", "fleet.num_device is not a key: did you mean fleet.num_devices?"),
        ("radio: {snr_db: loud}", "radio.snr_db='loud'"),
    ],
)
def test_files_that_are_none(folder: Path, text: str, says: str) -> None:
    write(folder, text)
    with pytest.raises(FedtideError) as error:
        config.experiment(scenario="mine")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_what_world_it_is_and_nothing_else(name: str) -> None:
    found = load_scenario(name)
    assert found.text.startswith(f"# {found.about}\n")
    assert found.keys.keys() <= {"data", "fleet", "timeline", "radio", "policy", "codec", "learning"}
    assert all(isinstance(group, dict) for group in found.keys.values())


# ---- the commands


def test_the_lists() -> None:
    rows = json.loads(invoke("scenario", "list", "--json").stdout)
    assert list(rows) == NAMES
    assert rows["paper"]["num_devices"] == 40
    assert rows["paper"]["radio"] == "rayleigh"
    text = CliRunner().invoke(app, ["scenario", "list"], env={"COLUMNS": "80"}).stdout
    assert all(name in text for name in NAMES)
    assert len(text.splitlines()) <= 3 * len(NAMES) + 4  # no column of single words
    assert all(f"{row['data']}, N = {row['num_devices']}, {row['radio']}" in text for row in rows.values())
    assert _presets()["scenario"] == {name: row["about"] for name, row in rows.items()}  # in `fedtide parts`
    assert json.loads(invoke("run", "--keys", "--json").stdout)["scenario"]["choices"] == [*NAMES, None]


def test_show() -> None:
    found = invoke("scenario", "show", "paper")
    assert found.stdout == (EXAMPLES / "worlds" / "paper.yaml").read_text()
    tree = json.loads(invoke("scenario", "show", "paper", "--json").stdout)
    assert tree["keys"] == yaml.safe_load(tree["text"])
    assert config.experiment(tree["experiment"]) == config.experiment(scenario="paper")
    wrong = invoke("scenario", "show", "papre")
    assert wrong.exit_code == 2
    assert "did you mean paper?" in " ".join(wrong.stderr.split())


@pytest.mark.parametrize("name", NAMES)
def test_a_terminal_gets_the_file_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes the console take its output for a terminal
    monkeypatch.setenv("COLUMNS", "60")
    assert invoke("scenario", "show", name).stdout == (EXAMPLES / "worlds" / f"{name}.yaml").read_text()


def test_run_by_name(tmp_path: Path) -> None:
    words = ["data.name=synthetic", "data.num_train=400", "data.num_test=50", "timeline.horizon=1"]
    found = invoke("run", "scenario=paper", *words, "learning.model=softmax", "--out", str(tmp_path / "r"), "--json")
    assert found.exit_code == 0, found.stderr
    assert read_run_header(tmp_path / "r").experiment.scenario == "paper"
    file = str(EXAMPLES / "worlds" / "paper.yaml")
    again = invoke("run", file, *words, "learning.model=softmax", "--out", str(tmp_path / "r"), "--json")
    assert again.stdout == found.stdout  # by whatever name, it is the same run


def test_the_papers_cell_is_the_default() -> None:
    assert config.digest(config.experiment(scenario="paper")) == config.digest(config.experiment())


# ---- every scenario

every_scenario = pytest.mark.parametrize("name", NAMES)


@every_scenario
def test_its_file_says_whom_it_follows_and_what_differs(name: str) -> None:
    found = load_scenario(name)
    head = [line for line in found.text.split("\n\n")[0].splitlines() if line]
    assert all(line.startswith("#") for line in head)
    assert 20 < len(found.about) < 110
    assert "# Follows" in head
    assert any(line.startswith("# Differs: ") for line in head)


@every_scenario
def test_its_file_is_an_example(name: str) -> None:
    """A relative link, so that a clone anywhere has it; the keys are the same as by name."""
    assert not (EXAMPLES / "worlds").readlink().is_absolute()
    by_file = config.experiment(EXAMPLES / "worlds" / f"{name}.yaml")
    assert config.digest(by_file) == config.digest(config.experiment(scenario=name))


@every_scenario
def test_its_numbers_fit_together(name: str) -> None:
    e = config.experiment(scenario=name)
    assert e.part("timeline").name == "periodic"
    assert e.timeline.period == e.fleet.max_duration / 4
    assert e.radio.num_symbols > 0
    if e.radio.symbol_rate:  # what is sent in a period goes through the band
        assert e.radio.num_symbols <= e.radio.symbol_rate * e.timeline.period


@every_scenario
def test_its_plan(name: str) -> None:
    rows = fedtide.plan(small_world(name)).rows
    assert PERIODS - 1 <= len(rows) <= PERIODS  # the last upload may end too late
    assert sum(len(row["ready"]) for row in rows) >= PERIODS
    assert sum(len(row["picked"]) for row in rows) >= PERIODS


def result_of(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "rounds.jsonl").read_bytes(), (folder / "model.npy").read_bytes()


@every_scenario
@pytest.mark.parametrize("stop_after", [1, 6])
def test_stopped_and_resumed_to_the_same_bytes(name: str, stop_after: int, tmp_path: Path) -> None:
    experiment = small_world(name, seed=1)

    def stop(record: RoundRecord, total: int) -> None:
        if record.index == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(experiment, tmp_path / "run", on_round=stop)
    fedtide.simulate(read_run_header(tmp_path / "run").experiment, tmp_path / "run")
    whole = fedtide.simulate(experiment, tmp_path / "whole", threads=2)
    assert result_of(tmp_path / "run") == result_of(tmp_path / "whole")
    assert any(sum(each.weight) > 0 for each in whole.rounds)


@every_scenario
def test_studied_with_two_seeds_and_found_again(name: str, tmp_path: Path) -> None:
    path, store = tmp_path / "study.yaml", Store(tmp_path / "store")
    base = shrunk(name, **{"timeline.horizon": 4 * config.experiment(scenario=name).timeline.period})
    path.write_text(json.dumps({"version": 1, "name": "worlds", "base": base, "seeds": 2}))
    assert not run_study(read_study(path), store, workers=1, backend="here")
    assert missing_runs(read_study(path), store) == []
    by_hand = {
        key: value for key, value in config.dump(config.experiment(base)).items() if key not in ("scenario", "seed")
    }
    path.write_text(json.dumps({"version": 1, "name": "by hand", "base": by_hand, "seeds": 2}))
    assert missing_runs(read_study(path), store) == []
    assert len(missing_runs(read_other(path), store)) == 2


def read_other(path: Path) -> Any:
    """The same study with another radio: it is in no store."""
    tree = json.loads(path.read_text())
    tree["base"]["radio"]["num_symbols"] *= 1.5
    path.write_text(json.dumps(tree))
    return read_study(path)


def test_as_an_axis(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    form: dict[str, Any] = {"version": 1, "name": "worlds", "axes": {"scenario": NAMES, "policy.scheduler": ["random"]}}
    path.write_text(json.dumps(form))
    assert read_study(path).labels == [f"scenario={name}, scheduler=random" for name in NAMES]
    assert [run.experiment.scenario for run in read_study(path).runs] == NAMES
    form["axes"]["scenario"] = ["paper", None]
    path.write_text(json.dumps(form))
    with pytest.raises(FedtideError, match="are the same experiment"):
        read_study(path)
