"""Numbers in prose follow from the stored runs: the README is filled in anew, and no template holds a number of its own."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "tools" / "README.md.in"


def test_the_readme_is_filled_in_from_the_stored_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(README.parent))
    readme = importlib.import_module("readme")
    told = "README.md is not what the stored runs say: run python tools/readme.py"
    assert readme.filled(README.read_text(encoding="utf-8")) == readme.PAGE.read_text(encoding="utf-8"), told


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700


def test_templates_hold_no_number_that_is_not_computed() -> None:
    """Decimals, percentages and signed numbers in prose come from the runs, except settings."""
    for path in [*(ROOT / "results").glob("*/findings.md"), *(ROOT / "src" / "fedtide_lab").rglob("*.md"), README]:
        text = re.sub(r"^```.*?^```$|\{[^}]*\}|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for setting in (
            "95 %",
            "5 %/",
            "at 5 %",
            "CIFAR-10",
            "0.2 W",
            "0.1 mJ",
            "1e-28",
            "0.4 and 0.8",
            "Apache-2.0",
            "2212.07356",
            "2502.08206",
            "T_min = 0.1 T_max",
            "lambda = 0.02",
            "Dirichlet (0.5)",
            "rate of 0.01",
            "momentum 0.5",
            "momentum 0.9",
            "first 80 %",
            "60 % of the second",
            "62.47 and 68.2",  # published
            "Python 3.11",
        ):
            text = text.replace(setting, "")
        assert not re.findall(r".*(?:\d\.\d|\d ?%|[+-]\d).*", text), path
