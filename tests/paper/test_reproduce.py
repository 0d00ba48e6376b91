"""`fedtide paper` end to end, at a size of seconds: synthetic data, softmax regression, a fraction of the horizon."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.config import Experiment, TimelineConfig
from fedtide.errors import FedtideError
from fedtide_lab.paper import page as paper_page
from fedtide_lab.paper import reproduce
from fedtide_lab.paper.figures import FIGURES, _shrink
from fedtide_lab.paper.page import _anchor
from fedtide_lab.paper.sentences import CLAIMS, OBSERVATIONS

TINY = {
    "horizon_share": 0.03,
    "data": {"name": "synthetic", "num_train": 400, "num_test": 60},
    "fleet": {"min_duration": 0.2},
    "learning": {"model": "softmax", "local_epochs": 1},
}


@pytest.mark.slow
def test_every_figure_and_the_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "QUICK_SHARE", TINY)
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
    assert {each["kind"] for each in claims} == {"claim", "finding of ours"}
    assert all(each["verdict"] != "runs missing" and each["quote"] for each in claims if each["kind"] == "claim")
    assert all(row["mean"] is not None for each in claims for row in each["comparisons"] if "finding" in each)
    for name in [
        *FIGURES,
        *(f"{each}-difference" for each in FIGURES),
        "timeline-frameworks",
        "timeline-ages",
        *(f"{each.name}-resources" for each in FIGURES.values() if each.resources),
    ]:
        for kind in ("pdf", "svg", "png"):
            assert (tmp_path / "docs" / "figures" / f"paper-{name}.{kind}").stat().st_size > 5000
    written = (tmp_path / "docs" / "paper.md").read_text()
    assert "figures/paper-schedulers.png" in written
    assert written.count("| ") > 100
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*.gz")}
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)  # drawn once is enough
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*.gz")} == before
    assert json.loads(again.stdout) == claims


def test_an_unknown_figure_is_said():
    with pytest.raises(FedtideError, match="no figure 'fig7'"):
        reproduce.reproduced_figures(["fig7"])


def test_the_page_shows_whole_figures_and_says_what_is_missing(tmp_path):
    found = CliRunner().invoke(
        app, ["paper", "claims", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "docs")]
    )
    assert found.exit_code == 0, found.output
    written = (tmp_path / "docs" / "paper.md").read_text()
    assert written.count("Not drawn yet") == len(FIGURES)
    assert "10 of 10 curves have no run. `fedtide paper schedulers` adds them." in written
    assert "figures/paper-timeline-ages.png" in written
    assert "eq:Omega" not in written
    for each in CLAIMS:  # a row of the table that leads to a section with the words of the paper
        assert written.count(f"\n#### {each.text}\n") == 1
        assert written.count(f"[{each.text}](#{_anchor(each.text)})") == 1
        assert f'> "{each.quote}" ({each.section})' in written
        assert each.reading in written
    for ours in OBSERVATIONS:
        assert written.count(f"**{ours.text}.** {ours.reading}") == 1
    assert f"{len(CLAIMS)} claims of the paper" in found.stdout
    assert len(found.stdout.splitlines()) < 60  # a summary, which says where the rest is
    assert "paper.md,or--details" in "".join(found.stdout.split())  # wherever the long path was broken
    words = ["paper", "claims", "--details", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "docs")]
    shown = " ".join(CliRunner().invoke(app, words).stdout.split())
    assert all(f'"{each.quote}" ({each.section})' in shown and each.reading in shown for each in CLAIMS)
    assert all(ours.text in shown and ours.reading in shown for ours in OBSERVATIONS)
    assert not (tmp_path / "docs" / "figures" / "paper-schedulers.png").exists()


@pytest.mark.parametrize(
    ("tree", "horizon"), [({}, None), ({"timeline": {"horizon": 140}}, 140.0), ({"timeline": {}}, None)]
)
def test_a_quick_look_cuts_the_horizon_that_a_run_would_have(tree, horizon):
    whole = horizon or TimelineConfig().horizon
    assert _shrink(tree, {"horizon_share": 0.1})["timeline"]["horizon"] == pytest.approx(whole / 10)


def test_the_page_takes_its_numbers_from_the_defaults(monkeypatch):
    usual = Experiment()
    assert paper_page._common()["horizon"] == usual.timeline.horizon
    changed = usual.model_copy(update={"timeline": usual.timeline.model_copy(update={"horizon": 12.0})})
    monkeypatch.setattr(paper_page, "Experiment", lambda: changed)
    assert paper_page._common()["horizon"] == 12.0


def test_the_page_says_which_seeds_were_skipped():
    whole, none = {0: 1, 1: 1, 2: 1}, {}
    assert paper_page._left_out({"a | i.i.d.": whole, "b | i.i.d.": none, "c | i.i.d.": {0: 1}}) == []
    said = paper_page._left_out(
        {"a | i.i.d.": whole, "b | i.i.d.": {0: 1, 3: 1}, "$\\gamma$=1 | i.i.d.": {0: 1, 3: 1}, "c": {1: 1}}
    )
    assert said == [
        "Missing, although later seeds have run: seed 1, 2 of b, i.i.d.; γ=1, i.i.d.",
        "Missing, although later seeds have run: seed 0 of c",
    ]


def page_of(seeds: str) -> str:
    """The table of runs as the page has it, under a heading."""
    rows = [f"| {each.title} (`{name}`) | 10 | {seeds} | 3 min |" for name, each in FIGURES.items()]
    return "\n".join(["# The paper, by `fedtide paper`", *rows])


@pytest.mark.parametrize("words", [["paper", "claims"], ["paper", "claims", "--quick"], ["paper", "--draw-only"]])
def test_a_good_page_is_not_overwritten_by_one_of_missing_runs(tmp_path, monkeypatch, words):
    monkeypatch.setattr(reproduce, "draw_reproduced", lambda names, results, folder, *_: folder.mkdir() or {})
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
