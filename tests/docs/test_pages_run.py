"""Commands and blocks of Python in the README, the tutorial and the how-tos run as they stand, on small settings.

Commands in ELSEWHERE have tests of their own.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import fedtide
from fedtide import config
from fedtide.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/howto/own-channel.md",
    "docs/howto/own-method.md",
    "docs/howto/own-metric.md",
    "docs/howto/own-trainer.md",
    "docs/howto/larger-models.md",
    "docs/howto/stop-early.md",
    "docs/howto/tune.md",
    "docs/agents.md",
    "docs/howto/sionna.md",
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"# (\w+\.(?:py|yaml))\s*$")
# What every experiment has that the page does not say.
SMALL = {
    "data": {"name": "synthetic", "num_train": 200, "num_test": 50, "num_shards": 40},
    "fleet": {"num_devices": 8},
    "policy": {"limit": 2},
    "timeline": {"horizon": 1.0},
    "learning": {"model": "softmax"},
}
# Commands that other tests run, since they need more than a small experiment.
ELSEWHERE = {
    "deploy demo": "tests/flower",
    "replay": "tests/flower/test_replay.py",
    "scenario": "tests/test_scenarios.py, in the scenario's own units",
    "paper R": "tests/paper/test_reproduce.py",
}


class Case(NamedTuple):
    """A block of a page: text to run, after the files that the page has shown."""

    page: str
    number: int
    language: str
    text: str


def cases() -> list[Case]:
    found = []
    for page in PAGES:
        blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        for number, (language, text) in enumerate(blocks):
            shown_file = FILE.fullmatch(text.partition("\n")[0])
            if language in ("sh", "python") and not shown_file:
                found.append(Case(page, number, language, text))
    return found


def commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("fedtide ")]


CASES = [each for each in cases() if each.language == "python" or commands(each.text)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that all pages show, in which experiments are small unless they say otherwise."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", symlinks=False)
    shutil.copy(ROOT / "tests" / "fixtures" / "uma.npz", tmp_path / "uma.npz")
    (tmp_path / "freshest.py").write_text(
        "def freshest_first(candidates, limit, rng):\n    return candidates.age.argsort(kind='stable')[:limit]\n"
    )
    whole = config.experiment

    def small(*trees, **keys):
        kept = [tree for tree in trees if isinstance(tree, config.Experiment)]
        return whole(*trees, **keys) if kept else whole(SMALL, *trees, **keys)

    monkeypatch.setattr(config, "experiment", small)
    monkeypatch.setattr(fedtide, "experiment", small, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(page: str, folder: Path, before: int) -> None:
    for number, (_, text) in enumerate(BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))):
        named = FILE.fullmatch(text.partition("\n")[0])
        if named and number < before:
            (folder / named[1]).write_text(text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.page}-{case.number}")
def test_a_block_runs(case: Case, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(case.page, here, case.number)
    if case.language == "python":
        exec(compile(case.text, f"{case.page}, block {case.number}", "exec"), {"__name__": "page"})
        return
    for earlier in (each for each in CASES if each.page == case.page and each.number < case.number):
        run_commands([line for line in commands(earlier.text) if " -o " in line or "study run" in line])
    run_commands(commands(case.text))


def run_commands(lines: list[str]) -> None:
    for line in lines:
        if any(word in line for word in ELSEWHERE):
            continue
        words = shlex.split(line, comments=True)[1:]
        if words[:2] == ["study", "run"]:
            words += ["--backend", "here"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"


def test_what_runs_elsewhere_is_on_a_page() -> None:
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    assert all(word in text for word in ELSEWHERE)
