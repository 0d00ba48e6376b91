"""`fedtide race`: candidates from words and from study files; stopped and called again; errors in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import fedtide
from fedtide.cli.main import app
from fedtide.studies import race as races

ROOT = Path(__file__).parents[2]
BASE: dict[str, Any] = {
    "data": {"name": "synthetic", "num_train": 400, "num_test": 100, "partition": "iid"},
    "fleet": {"num_devices": 4},
    "timeline": {"horizon": 1.0},
    "policy": {"limit": 2},
    "learning": {"model": "softmax", "local_epochs": 1, "learning_rate": 0.1},
}
SMALL = [f"{group}.{key}={value}" for group, keys in BASE.items() for key, value in keys.items()]
RATES = "learning.learning_rate=0.0001,0.1,1e300"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(*words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["race", *words, "--backend", "here"], env={"COLUMNS": "80"})
    assert done.exit_code == code, done.output
    return done


def test_it_says_what_python_says_and_runs_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*SMALL, RATES, "--seeds", "3", "--confirm", "2", "--fidelity", "timeline.horizon=0.5, seeds=2"]
    words += ["--store", "kept", "--against", "learning_rate=0.0001", "--budget", "30", "--margin", "0.02"]
    shown = invoke(*words)
    assert "race: learning_rate=0.1 leads in mean_accuracy" in shown.stdout
    assert "diverged on seed 0" in " ".join(shown.stdout.split())
    assert "gain of learning_rate=0.1 over learning_rate=0.0001 on fresh seeds: +0." in " ".join(shown.stdout.split())
    steps = [line for line in shown.stderr.splitlines() if " leads" in line]
    assert len(steps) == 2 + 3  # a line after every seed
    standing = r"learning_rate=0\.1 leads, learning_rate=0\.0001 is behind by \+0\.\d+.*; 2 of 3 left, after 11 runs"
    assert re.fullmatch(standing, steps[-1])
    python = fedtide.race(
        {"learning.learning_rate": [0.0001, 0.1, 1e300]},
        base=BASE,
        seeds=3,
        confirm=2,
        fidelities=[{"timeline.horizon": 0.5, "seeds": 2}],
        budget=30,
        margin=0.02,
    )
    seen: list[Any] = []
    whole = races.run_study
    monkeypatch.setattr(races, "run_study", lambda *args, **how: whole(*args, **{**how, "on_done": seen.append}))
    again = json.loads(invoke(*words, "--json").stdout)
    assert not seen
    assert {**again, "seconds": 0} == {**json.loads(json.dumps(python.as_json())), "seconds": 0}


def test_the_candidates_of_a_study_file_may_name_parts_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine.py").write_text(
        "def oldest(candidates, limit, rng):\n    return (-candidates.age).argsort()[:limit]\n"
    )
    tree = {"version": 1, "name": "who", "base": BASE, "seeds": 4}
    tree["variants"] = {"random": {"policy.scheduler": "random"}, "oldest": {"policy.scheduler": "mine.py:oldest"}}
    (folder / "study.yaml").write_text(json.dumps(tree))
    found = json.loads(
        invoke(str(folder / "study.yaml"), "--seeds", "1", "--confirm", "1", "--json", "--margin", "0").stdout
    )
    assert (found["name"], [row["candidate"] for row in found["rows"]]) == ("who", ["random", "oldest"])
    assert [row["num_seeds"] for row in found["rows"]] == [1, 1]
    assert found["confirmed"]["num_seeds"] == 1


def test_what_is_interrupted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*SMALL, "learning.learning_rate=0.05,0.1", "--seeds", "2", "--confirm", "0", "--margin", "0"]
    whole, calls = races.run_study, list[str]()

    def stopped(study: Any, store: Any, **how: Any) -> Any:
        calls.append(study.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(study, store, **how)

    monkeypatch.setattr(races, "run_study", stopped)
    told = invoke(*words, code=130)
    assert "Finished runs are kept" in told.stderr
    assert not told.stdout
    assert "2 seeds are used; 4 runs" in invoke(*words).stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "Missing argument"),
        (SMALL, "a race needs two candidates or more"),
        (["seed=1,2"], "use --seeds 20"),
        (["nosuch.yaml"], "experiment file not found: nosuch.yaml"),
        ([str(ROOT / "examples" / "study.yaml"), "policy.limit=2,4"], "is a study file with axes"),
        ([*SMALL, RATES, "--budget", "soon"], "budget='soon' must be a number of runs"),
        ([*SMALL, RATES, "--against", "nobody"], "against='nobody' is not a candidate"),
        ([*SMALL, RATES, "--fidelity", "short"], "'short' is not key=value"),
        ([*SMALL, RATES, "--fidelity", "seeds=x"], "seeds='x' of a fidelity must be"),
        ([*SMALL, RATES, "--metric", "speed"], "metric 'speed' is not known"),
    ],
)
def test_bad_input_is_one_line(words: list[str], reason: str) -> None:
    done = invoke(*words, code=2)
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_the_commands_of_its_page_can_be_read() -> None:
    """They run for minutes; what is read of them is tested above."""
    lines = [line for line in (ROOT / "docs" / "race.md").read_text().splitlines() if line.startswith("fedtide race ")]
    known = {option for param in app.commands["race"].params for option in param.opts}
    assert len(lines) == 2
    assert {word for line in lines for word in line.split() if word.startswith("-")} <= known
