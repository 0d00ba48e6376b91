"""The documentation as a site: built with warnings as errors, notebooks run, every page within reach."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.slow
def test_the_site(tmp_path: Path) -> None:
    """Without a warning: links and anchors hold, every page is in the table of contents, notebooks run to their end.

    One test, so that it is built once.
    """
    pytest.importorskip("myst_nb")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    hosted = {"FEDTIDE_NOTEBOOKS": "https://notebooks.example/"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ | hosted)
    assert done.returncode == 0, done.stderr[-3000:]
    for page in DOCS.rglob("*.md"):
        if not {"site", "results"} & set(page.relative_to(DOCS).parts):
            assert (tmp_path / page.relative_to(DOCS)).with_suffix(".html").exists(), page
    text = {name: (tmp_path / "reference" / f"{name}.html").read_text() for name in ("cli", "keys", "parts", "python")}
    assert all(word in text["cli"] for word in ("fedtide study run", "fedtide league", "--draw-only"))
    assert all(word in text["keys"] for word in ("radio.num_symbols", "policy.scheduler"))
    assert all(word in text["parts"] for word in ("aggregator: fadas", "whittle_age", "k_factor"))
    assert all(word in text["python"] for word in ("fedtide.simulate", "Candidates"))
    assert "Alias for field number" not in text["python"]
    assert "Parameters" in text["python"]
    theory = (tmp_path / "theory.html").read_text()
    assert "<math" in theory
    assert "mathjax.js" not in theory.lower()
    links = re.findall(r'href="(examples/[^"]+)"', (tmp_path / "examples.html").read_text())
    assert [(tmp_path / link).is_file() for link in links] == [True] * 5
    assert 'href="examples.html"' in (tmp_path / "index.html").read_text()
    for path in DOCS.glob("notebooks/*.ipynb"):
        shown = (tmp_path / "notebooks" / path.name).with_suffix(".html").read_text()
        assert "Traceback" not in shown
        assert f'href="https://notebooks.example/{path.name}"' in shown
        assert (tmp_path / "_sources" / "notebooks" / path.name).exists()


@pytest.mark.parametrize("path", sorted(DOCS.glob("notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_outputs(path: Path) -> None:
    """Code hosts show it as it is stored; the site runs it anew."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert {"execute_result", "stream"} & {output["output_type"] for output in outputs}
    assert "error" not in [output["output_type"] for output in outputs]
    drawn = [cell for cell in cells if ".plot(" in cell["source"][-1]]  # a second figure is shown, too
    assert all("image/png" in str(cell["outputs"]) for cell in drawn)
    assert any("%pip install" in line for line in cells[0]["source"])


def test_links_of_the_readme_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert "://" in target or (ROOT / target).exists(), f"{page.name}: {target}"


def test_the_extra_brings_what_the_pages_need() -> None:
    """The notebooks show frames as pandas does."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(each.startswith("pandas") for each in extras["docs"])
    assert any("docs" in each for each in extras["test-all"])
