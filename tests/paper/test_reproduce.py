"""`fedtide paper` end to end, at a size of seconds: synthetic data, softmax regression, a fraction of the horizon."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fedtide.cli import app
from fedtide.errors import FedtideError
from fedtide.paper import reproduce
from fedtide.paper.figures import FIGURES

TINY = {
    "horizon_share": 0.03,
    "data": {"name": "synthetic", "num_train": 400, "num_test": 60},
    "fleet": {"min_duration": 0.2},
    "learning": {"model": "softmax", "local_epochs": 1},
}


@pytest.mark.slow
def test_every_figure_and_the_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "QUICK", TINY)
    arguments = [
        "paper",
        "--quick",
        "--store",
        str(tmp_path / "store"),
        "--out",
        str(tmp_path / "docs"),
        "-j",
        "2",
        "--json",
    ]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    claims = json.loads(found.stdout)
    assert all(each["verdict"] != "runs missing" for each in claims)
    for name in [
        *FIGURES,
        *(f"{each}-difference" for each in FIGURES),
        "timeline-frameworks",
        "timeline-ages",
        *(f"{each.name}-resources" for each in FIGURES.values() if each.resources),
    ]:
        for kind in ("pdf", "svg", "png"):
            assert (tmp_path / "docs" / "figures" / f"paper-{name}.{kind}").stat().st_size > 5000
    page = (tmp_path / "docs" / "paper.md").read_text()
    assert "figures/paper-schedulers.png" in page
    assert page.count("| ") > 100
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*.gz")}
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*.gz")} == before
    assert json.loads(again.stdout) == claims


def test_an_unknown_figure_is_said():
    with pytest.raises(FedtideError, match="no figure 'fig7'"):
        reproduce.chosen(["fig7"])


def test_the_page_shows_whole_figures_and_says_what_is_missing(tmp_path):
    found = CliRunner().invoke(
        app, ["paper", "claims", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "docs")]
    )
    assert found.exit_code == 0, found.output
    page = (tmp_path / "docs" / "paper.md").read_text()
    assert page.count("Not drawn yet") == len(FIGURES)
    assert "10 of 10 curves have no run. `fedtide paper schedulers` adds them." in page
    assert "figures/paper-timeline-ages.png" in page
    assert not (tmp_path / "docs" / "figures" / "paper-schedulers.png").exists()


def page_of(seeds: str) -> str:
    """The table of runs as the page has it."""
    return "\n".join(f"| {each.title} (`{name}`) | 10 | {seeds} | 3 min |" for name, each in FIGURES.items())


@pytest.mark.parametrize("words", [["paper", "claims"], ["paper", "claims", "--quick"], ["paper", "--draw-only"]])
def test_a_good_page_is_not_overwritten_by_one_of_missing_runs(tmp_path, monkeypatch, words):
    monkeypatch.setattr(reproduce, "draw_all", lambda names, results, folder, say: folder.mkdir() or {})
    page = tmp_path / "docs" / "paper.md"
    page.parent.mkdir()
    page.write_text(page_of("3 to 5"))
    words = [*words, "--store", str(tmp_path / "mistyped"), "--out", str(page.parent)]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 2
    assert "would lose the figures R, period" in " ".join(found.stderr.split())
    assert "--store" in found.stderr
    assert page.read_text() == page_of("3 to 5")
    assert list(page.parent.iterdir()) == [page]  # not a figure either
    assert CliRunner().invoke(app, [*words, "--force"]).exit_code == 0
    assert "Not drawn yet" in page.read_text()


def test_far_fewer_runs_than_the_page_has_are_refused(tmp_path):
    page = tmp_path / "paper.md"
    page.write_text(page_of("5"))

    def runs(seeds: int) -> dict:
        return {
            name: {label: dict.fromkeys(range(seeds)) for label in each.variants()} for name, each in FIGURES.items()
        }

    reproduce.refuse_a_poorer_page(page, runs(5), tmp_path)
    with pytest.raises(FedtideError, match="most of its runs"):
        reproduce.refuse_a_poorer_page(page, runs(1), tmp_path)
    for text in (page_of("0"), page_of("0 to 3"), "some other page", ""):
        page.write_text(text)
        reproduce.refuse_a_poorer_page(page, {}, tmp_path)
    page.write_bytes(b"\xff\xfe")
    reproduce.refuse_a_poorer_page(page, {}, tmp_path)
    reproduce.refuse_a_poorer_page(tmp_path / "no page yet.md", {}, tmp_path)
