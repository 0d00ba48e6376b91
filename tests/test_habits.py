"""What the project promises about itself: workflows that call the Makefile, one version, notes of every release."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import fedtide
from fedtide.cli.main import _version_line
from fedtide.extension import native

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def steps(path: Path) -> list[dict[str, str]]:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_parses_and_calls_what_the_makefile_has(path):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [step["run"] for step in steps(path) if "run" in step]
    called = {word for line in lines for word in re.findall(r"make ([\w-]+)", line)}
    assert called <= targets
    assert all(re.fullmatch(r"[\w./-]+@[\w.]+", step["uses"]) for step in steps(path) if "uses" in step)
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}


def test_every_python_and_machine_is_tested():
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    wheels = PROJECT["tool"]["cibuildwheel"]["build"].split()
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    told = [each.split(" :: ")[-1] for each in PROJECT["project"]["classifiers"] if "Python :: 3." in each]
    assert told == matrix["python"]
    assert wheels == ["cp311-*", "cp312-*"]  # from 3.12 on, one wheel with the stable ABI
    assert PROJECT["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"
    machines = {*matrix["os"], *(each["os"] for each in matrix["include"])}
    assert {re.split("-", each)[0] for each in machines} == {"ubuntu", "macos"}
    assert any(each.endswith("-arm") for each in machines)


def test_the_version_stands_in_one_place():
    project = PROJECT["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    assert PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"] == "src/fedtide/__init__.py"
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == fedtide.__version__
    assert f'version = "{fedtide.__version__}"' in (ROOT / "packaging" / "conda" / "meta.yaml").read_text()
    assert cited["references"][0]["url"] == project["urls"]["Paper"]
    notes = re.findall(
        r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert notes[0][0] == fedtide.__version__
    assert all(date != "unreleased" for _, date in notes[1:])


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (None, f"fedtide {fedtide.__version__}, native kernel, instruction path one (of one, two)"),
        ("two", "instruction path two"),
        ("three", "FEDTIDE_ISA=three is not among its paths one, two"),
    ],
)
def test_the_version_tells_kernel_and_path(monkeypatch, wanted, words):
    monkeypatch.setattr(native, "isas", lambda: ["one", "two"])
    monkeypatch.delenv("FEDTIDE_ISA", raising=False)
    if wanted:
        monkeypatch.setenv("FEDTIDE_ISA", wanted)
    assert words in _version_line()


def test_the_papers_references_and_figures_are_there():
    text, known = (ROOT / "paper" / "paper.md").read_text(), (ROOT / "paper" / "paper.bib").read_text()
    assert set(re.findall(r"@(\w+)", text.partition("# Summary")[2])) == set(re.findall(r"^@\w+\{(\w+),", known, re.M))
    assert all((ROOT / "paper" / path).exists() for path in re.findall(r"\]\(([^)]+\.png)\)", text))
    gain = re.search(
        r"\*\*\+(\d\.\d+) \(95 % interval \+(\d\.\d+) to \+(\d\.\d+), \d+ seeds\)", (ROOT / "README.md").read_text()
    )
    assert gain is not None
    assert all(number in text for number in gain.groups())
