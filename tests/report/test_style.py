"""Figures for print: their widths, their letters, fonts that are embedded, and nothing where nothing can be."""

from __future__ import annotations

import dataclasses
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.config import dump, experiment
from fedtide.errors import FedtideError
from fedtide.plot import figure as figures
from fedtide.plot.charts import CURVE_POINTS, ForestRow, draw_forest, evenly_on_chart
from fedtide.plot.figure import figure_style, new_figure, save_figure
from fedtide.plot.style import LINE_STYLES, STYLES, style_named
from fedtide.studies.results import RunResult
from fedtide.studies.statistics import _smoothed, curves_zigzag, paired_difference
from fedtide.studies.store import Store
from fedtide_lab.paper import draw
from fedtide_lab.paper.claims import decide_claim
from fedtide_lab.paper.figures import FIGURES, Figure, curve_label
from fedtide_lab.paper.reproduce import collect_reproduced
from fedtide_lab.paper.sentences import CLAIMS
from fedtide_lab.worlds import page as worlds_page
from fedtide_lab.worlds.studies import WORLDS, collect_worlds

ROOT = Path(__file__).parents[2]
STREAM = re.compile(rb"stream\r?\n(.*?)endstream", re.DOTALL)
INCHES = {"ieee": 3.5, "ieee-wide": 7.16, "nature": 3.504, "nature-wide": 7.205}


def fonts(pdf: Path) -> set[str]:
    """Return the kinds of the fonts in a PDF file, those in compressed streams too."""
    content = pdf.read_bytes()
    for stream in STREAM.findall(content):
        try:
            content += zlib.decompress(stream.strip(b"\r\n"))
        except zlib.error:
            continue
    return {kind.decode() for kind in re.findall(rb"/Subtype\s*/(Type3|Type0|TrueType|Type1|CIDFontType2)\b", content)}


def jagged(level: float, seed: int) -> RunResult:
    """A run whose accuracy goes up and down between 0 and 1."""
    time = np.arange(1, 41) / 4
    accuracy = np.clip(level + 0.4 * np.sin(7 * time + seed) * (time > 1), 0, 1)
    columns = {"time": time, "index": np.arange(1, 41), "test_accuracy": accuracy, "train_loss": 2 / (1 + time)}
    columns |= dict.fromkeys(("bits", "samples_trained", "samples_used", "symbols"), time * 1000)
    tree = dump(experiment({"timeline": {"horizon": 10.0}, "seed": seed}))
    return RunResult(tree, {name: list(map(float, values)) for name, values in columns.items()}, {})


@pytest.fixture
def curves() -> dict[str, dict[int, RunResult]]:
    figure = FIGURES["schedulers"]
    return {
        curve_label(name, setting): {seed: jagged(0.7 + 0.05 * place, seed) for seed in range(3)}
        for setting in figure.settings
        for place, name in enumerate(figure.curves)
    }


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Figures in place of files."""
    found: list[Any] = []
    monkeypatch.setattr(draw, "save_figure", lambda figure, stem: found.append(figure) or [])
    return found


def test_the_check_sees_a_type_3_font(tmp_path: Path) -> None:
    with figures._load_matplotlib().rc_context({"pdf.fonttype": 3}):
        page = new_figure(2, 2)
        page.text(0.5, 0.5, "letters")
        save_figure(page, tmp_path / "bad")
    assert "Type3" in fonts(tmp_path / "bad.pdf")


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "figures").glob("*.pdf")), ids=lambda path: path.stem)
def test_no_figure_of_the_docs_embeds_a_type_3_font(file: Path) -> None:
    assert fonts(file)
    assert "Type3" not in fonts(file)


@pytest.mark.parametrize("name", STYLES)
def test_a_figure_has_its_width_its_letters_and_embedded_fonts(name: str, curves: Any, tmp_path: Path) -> None:
    style = style_named(name)
    for path in draw.draw_figure(FIGURES["schedulers"], curves, tmp_path / "f", name):
        assert path.stat().st_size > 5000
    assert "Type3" not in fonts(tmp_path / "f.pdf")
    width, _ = map(float, re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", (tmp_path / "f.pdf").read_bytes())[0])
    assert width / 72 == pytest.approx(INCHES.get(name, style.width), abs=0.01)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".png"}
    draw.draw_figure(FIGURES["schedulers"], curves, tmp_path / "f", name)
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("name", INCHES)
def test_print_has_no_titles_and_letters_as_journals_want_them(name: str, curves: Any, drawn: list[Any]) -> None:
    draw.draw_figure(FIGURES["schedulers"], curves, Path("f"), name)
    draw.draw_difference(FIGURES["schedulers"], curves, Path("f"), name)
    least, most = (8, 9) if name.startswith("ieee") else (5, 7)
    for page in drawn:
        assert all(panel.get_title() == "" for panel in page.axes)
        assert "(a) i.i.d. data" in page.axes[0].get_xlabel()
        texts = [*page.legends[0].get_texts(), page.axes[0].xaxis.label, page.axes[0].yaxis.label]
        texts += page.axes[0].get_xticklabels()
        assert {least <= text.get_fontsize() <= most for text in texts} == {True}


def test_screen_is_the_default_and_others_are_named() -> None:
    with figure_style() as style:
        assert style.name == "screen"
    with pytest.raises(FedtideError, match="style 'acm' is not known; use one of screen, ieee"):
        style_named("acm")
    for words in (["paper", "--style", "acm"], ["worlds", "--draw-only", "--style", "acm"]):
        done = CliRunner().invoke(app, words)
        assert (done.exit_code, "style 'acm' is not known" in done.output) == (2, True)


def values(page: Any) -> np.ndarray:
    return np.concatenate([np.asarray(line.get_ydata(), float) for panel in page.axes for line in panel.get_lines()])


def test_nothing_is_drawn_outside_0_to_1(curves: Any, drawn: list[Any]) -> None:
    figure = FIGURES["schedulers"]
    wild = {name: {seed: jagged(0.5 + 0.45 * (seed % 2), seed) for seed in runs} for name, runs in curves.items()}
    draw.draw_figure(figure, wild, Path("f"))
    draw.draw_resources(figure, wild, Path("f"))
    for page in drawn:
        assert values(page).min() >= 0
        assert values(page).max() <= 1
        assert all(0 <= panel.get_ylim()[0] < panel.get_ylim()[1] <= 1 for panel in page.axes)


def test_the_committed_results_stay_within_0_and_1(drawn: list[Any]) -> None:
    found = collect_reproduced(["period"], Store(ROOT / "results" / "paper"), None, 0)["period"]
    draw.draw_figure(FIGURES["period"], found, Path("f"))
    assert (values(drawn[0]).min() >= 0, values(drawn[0]).max() <= 1) == (True, True)


def test_curves_are_means_seeds_and_an_interval_at_the_end(curves: Any, drawn: list[Any]) -> None:
    draw.draw_figure(FIGURES["schedulers"], curves, Path("f"))
    panel = drawn[0].axes[0]
    count = {kind: [line.get_label() for line in panel.get_lines()].count(kind) for kind in ("_seeds", "_end")}
    # three seeds of five curves (Matplotlib numbers lines of one call), a bar and a marker each
    assert sum(line.get_label().startswith("_seeds") for line in panel.get_lines()) in (15, count["_seeds"])
    assert count["_end"] == 10
    assert not panel.collections  # no bands
    bars = [line for line in panel.get_lines() if line.get_label() == "_end" and len(line.get_xdata()) == 2]
    assert min(bar.get_xdata()[0] for bar in bars) > 10  # right of the curves


@pytest.mark.parametrize(("figure", "first"), [("schedulers", "proposed"), ("period", r"$T_{\max}/4$"), ("R", "R=4")])
def test_gains_have_the_sign_of_the_verdicts(figure: str, first: str) -> None:
    for curve in FIGURES[figure].curves:
        pair = FIGURES[figure].pair(curve)
        assert pair is None or pair == (first, curve)


def test_no_gain_is_drawn_against_a_claim() -> None:
    """Where claims compare a curve with its reference directly, most of them say that the first is better."""
    for figure in FIGURES.values():
        pairs = [figure.pair(curve) for curve in figure.curves]
        agree = against = 0
        for claim in CLAIMS:
            for check in claim.checks:
                if check.figure == figure.name and isinstance(check.better, str) and isinstance(check.worse, str):
                    sides = check.better.partition(" | ")[0], check.worse.partition(" | ")[0]
                    agree, against = agree + (sides in pairs), against + (sides[::-1] in pairs)
        assert agree >= against, figure.name


def test_a_loss_is_gained_where_it_falls(drawn: list[Any]) -> None:
    tree = Figure("x", "t", "c", {}, {"a": {}, "b": {}}, ("i.i.d.",), "train_loss", against={"": "b"})
    high = jagged(0.5, 0)
    low = dataclasses.replace(high, columns={**high.columns, "train_loss": np.array(high.columns["train_loss"]) / 2})
    draw.draw_difference(tree, {"a | i.i.d.": {0: low}, "b | i.i.d.": {0: high}}, Path("f"))
    assert drawn[0].axes[0].get_lines()[0].get_label().startswith("a over b")
    assert drawn[0].axes[0].get_lines()[0].get_ydata()[-1] > 0


def test_smoothing_is_over_one_t_max() -> None:
    run = jagged(0.5, 0)
    accuracy, found = run.column("test_accuracy"), _smoothed(run, "test_accuracy")
    assert found[10] == pytest.approx(accuracy[8:13].mean())  # both ends of [t - 1/2, t + 1/2]
    assert found[0] == pytest.approx(accuracy[:3].mean())
    assert curves_zigzag([run], "test_accuracy")
    assert not curves_zigzag([run], "train_loss")


def test_many_points_are_thinned_and_keep_their_ends() -> None:
    kept = evenly_on_chart(10_000, CURVE_POINTS)
    assert (len(kept), kept[0], kept[-1]) == (CURVE_POINTS, 0, 9_999)
    assert evenly_on_chart(5, CURVE_POINTS).tolist() == [0, 1, 2, 3, 4]


def test_other_drawings_for_print(tmp_path: Path) -> None:
    found = worlds_page.decided_worlds(WORLDS[:2], collect_worlds(WORLDS[:2], Store(ROOT / "results" / "worlds")))
    results = collect_reproduced(["schedulers"], Store(ROOT / "results" / "paper"), None, 0)
    worlds_page.draw_worlds(found, tmp_path / "worlds", "ieee")
    draw.draw_ages(tmp_path / "ages", style="ieee")
    draw.draw_frameworks(tmp_path / "frameworks", style="nature")
    draw.draw_verdicts([decide_claim(claim, results) for claim in CLAIMS], tmp_path / "verdicts", "ieee")
    draw._draw_effects(FIGURES["schedulers"], results["schedulers"], tmp_path / "effects", "ieee")
    made = sorted(tmp_path.glob("*.pdf"))
    assert len(made) == 6  # the verdicts take two pages
    assert all("Type3" not in fonts(path) for path in made)


@pytest.mark.parametrize("style", ["screen", "ieee", "nature"])
def test_no_curve_leaves_its_axis_and_intervals_stand_apart(style: str, curves: Any, drawn: list[Any]) -> None:
    draw.draw_figure(FIGURES["schedulers"], curves, Path("none"), style)
    draw.draw_difference(FIGURES["schedulers"], curves, Path("none"), style)
    for page in drawn:
        for panel in page.axes:
            low, high = panel.get_ylim()
            ends = [line for line in panel.lines if line.get_label() == "_end"]
            lines = [line for line in panel.lines if len(line.get_xdata()) > 2]
            assert lines
            assert ends
            for line in lines:
                assert low <= np.min(line.get_ydata()) <= np.max(line.get_ydata()) <= high
            strip = next(patch for patch in panel.patches if patch.get_label() == "_strip")
            left = strip.get_extents().transformed(panel.transData.inverted()).x0
            assert max(np.max(line.get_xdata()) for line in lines) <= left  # no curve in the strip,
            assert min(np.min(line.get_xdata()) for line in ends) >= left  # and no interval among the curves
            assert "95 %" in [text.get_text() for text in panel.texts]


@pytest.mark.parametrize("style", ["ieee", "nature"])
def test_letters_can_be_read_in_a_column_and_figures_fit_a_page(style: str, curves: Any, drawn: list[Any]) -> None:
    draw.draw_figure(FIGURES["schedulers"], curves, Path("none"), style)
    draw.draw_resources(FIGURES["schedulers"], curves, Path("none"), style)
    for page in drawn:
        page.canvas.draw()
        width, height = page.get_size_inches()
        assert height <= figures.PAGE_INCHES
        for text in page.findobj(lambda each: hasattr(each, "get_fontsize") and each.get_text().strip()):
            assert text.get_fontsize() * 8.5 / 2.54 / width >= 6.5, text.get_text()


def test_a_forest_goes_on_on_a_second_page(tmp_path: Path) -> None:
    row = ForestRow(
        "a claim whose text takes more than one line of the figure", paired_difference([0.2, 0.3], [0.1, 0.1])
    )
    paths = draw_forest({"difference": [row] * 60}, tmp_path / "many", "ieee")
    assert {path.stem for path in paths} >= {"many", "many-2"}
    assert len(draw_forest({"difference": [row] * 3}, tmp_path / "few", "ieee")) == 3


def test_a_study_has_a_panel_for_each_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedtide.studies import plot
    from fedtide.studies.spec import cross_study

    axes = {"policy.scheduler": ["proposed", "random"], "data.partition": ["iid", "shards"], "policy.limit": [2, 8]}
    made = cross_study("s", {}, axes, {}, [0, 1])
    results = {label: {seed: jagged(0.5, seed) for seed in range(2)} for label in made.labels}
    found: list[Any] = []
    monkeypatch.setattr(plot, "save_figure", lambda figure, stem: found.append(figure) or [])
    plot.draw_study(made, results, tmp_path / "s", "test_accuracy", "time")
    panels = found[0].axes
    assert [panel.get_title() for panel in panels] == [
        "i.i.d., R=2",
        "i.i.d., R=8",
        "non-i.i.d., R=2",
        "non-i.i.d., R=8",
    ]
    names = [text.get_text() for text in found[0].legends[0].get_texts()]
    assert names == ["proposed (2)", "random (2)"]
    assert {line.get_color() for line in panels[0].lines if line.get_label() in names} == {
        LINE_STYLES["proposed"].colour, LINE_STYLES["random"].colour
    }  # fmt: skip
    plot.draw_study(made, results, tmp_path / "s", "test_accuracy", "time", "scheduler=random", "ieee")
    figure = found[1]
    assert figure.get_supylabel() == "cumulative mean gain in test accuracy over random"
    figure.draw_without_rendering()
    label = figure._supylabel.get_window_extent()
    assert label.y0 >= 0  # one label for all panels: none is cut
    assert label.y1 <= figure.bbox.height
