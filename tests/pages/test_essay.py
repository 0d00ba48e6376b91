"""The essay: every figure and verdict of the stored runs is in it, and its figures answer to pointer and keys at every width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fedtide.errors import FedtideError
from fedtide.pages import ArticleFigure, CurvePanel, GainPanel, GainRow, article_page
from fedtide.studies import METRICS, Band, Store, paired_difference
from fedtide_lab.essay.page import essay_page
from fedtide_lab.paper import reproduce
from fedtide_lab.paper.figures import FIGURES
from helpers import ROOT

FIGURES_SHOWN = ("claims", "where", "worth", "league", "curves", "advice")
GAIN = paired_difference([0.5, 0.6, 0.7], [0.4, 0.4, 0.4])
PLACED = "(figure: one)\nTitle\nCaption"


@pytest.fixture(scope="module")
def essay() -> str:
    return essay_page(ROOT / "results")


def test_it_holds_every_figure_and_the_verdicts_of_the_stored_runs(essay: str) -> None:
    assert re.findall(r'<figure class="figure" id="figure-(\w+)"', essay) == list(FIGURES_SHOWN)
    stored = reproduce.collect_reproduced(list(FIGURES), Store(ROOT / "results" / "paper"), None)
    verdicts = reproduce.reproduced_verdicts(stored)
    counts = Counter(each.verdict for each in verdicts)
    assert f"Of {len(verdicts)} claims, {counts['holds']} hold and {counts['contradicted']} are contradicted" in essay
    claims = essay.partition('id="figure-claims"')[2].partition("</table>")[0]
    shown = re.findall(r'<td class="verdict \w+">([^<]*)</td>', claims)
    assert shown == [each.verdict for each in verdicts if each.weakest.check.metric in METRICS]
    assert "{" not in re.sub(r"<(style|script)[^>]*>.*?</\1>", "", essay, flags=re.S)  # no place is left


def test_it_is_one_small_file_that_fetches_nothing(essay: str) -> None:
    assert len(essay.encode()) < 3e6
    assert set(re.findall(r"https?://[^\"'\s<)]+", re.sub(r"<script.*?</script>", "", essay, flags=re.S))) == {
        "https://arxiv.org/abs/2212.07356"
    }
    main = re.sub(r"<figure.*?</figure>|<table.*?</table>", "", essay.partition("<main")[2], flags=re.S)
    prose = re.findall(r"<(?:h2|p|li)>(.*?)</(?:h2|p|li)>", main.partition("</main>")[0], flags=re.S)
    assert 900 <= sum(len(re.findall(r"[^\s]*[^\W\d_][^\s]*", re.sub("<.*?>", "", each))) for each in prose) <= 1500


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light"), (1920, "dark")])
def test_its_figures_answer(essay: str, opened: Callable[..., Any], width: int, theme: str) -> None:
    page = opened(essay, "", width)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
    page.refresh()
    assert page.execute_script("return document.documentElement.dataset.theme") == theme
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    seen = "return [...document.querySelectorAll('#figure-league .panel')].map(each => !each.hidden)"
    assert page.execute_script(seen) == [True, False, False]
    page.find_elements("css selector", "#figure-league .choices button")[1].click()
    assert page.execute_script(seen) == [False, True, False]
    # arrow keys read a row, in this panel and in the next one
    row = page.find_element("css selector", "#figure-league .panel:not([hidden]) tbody tr")
    page.execute_script("arguments[0].focus()", row)
    first = page.find_element("css selector", "#figure-league .readout").text
    assert row.get_attribute("data-key") in first
    assert "Phones that come and go:" in first
    row.send_keys("\ue015")  # down
    assert page.find_element("css selector", "#figure-league .readout").text != first
    page.switch_to.active_element.send_keys("\ue014")  # right
    assert page.execute_script(seen) == [False, False, True]
    # a box draws a curve, the arrow keys read values
    box = page.find_elements("css selector", "#figure-curves .panel:not([hidden]) input")[1]
    drawn = "return document.querySelector('#figure-curves canvas').toDataURL()"
    before = page.execute_script(drawn)
    box.click()
    page.execute_async_script("setTimeout(arguments[0], 100)")
    assert page.execute_script(drawn) != before
    page.find_element("css selector", "#figure-curves .panel:not([hidden]) .chart").send_keys("\ue014")
    value = page.find_element("css selector", "#figure-curves .panel:not([hidden]) td.value").text
    assert 0 < float(value) < 1
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_text_and_figures_belong_together() -> None:
    rows = [GainRow("<b>one</b>", GAIN, "holds"), GainRow("two", None, "runs missing")]
    figure = ArticleFigure("one", [GainPanel("panel", rows)])
    made = article_page(
        "title", "lead", f"## Head\n\n**bold `<i>`** text\n\n{PLACED}\n\n| a | b |\n|---|---|\n| 1 | -2 |", [figure]
    )
    assert "<h2>Head</h2>" in made
    assert "<b>bold <code>&lt;i&gt;</code></b> text" in made or "<b>bold `&lt;i&gt;`</b> text" in made
    assert '<td class="words">−2</td>' in made
    assert "&lt;b&gt;one&lt;/b&gt;" in made
    with pytest.raises(FedtideError, match="no place for one"):
        article_page("title", "lead", "text", [figure])
    with pytest.raises(FedtideError, match=r"'one'.*placed twice"):
        article_page("title", "lead", f"{PLACED}\n\n{PLACED}", [figure])


def test_curves_share_the_grid_of_the_first() -> None:
    import numpy as np

    bands = {
        name: Band(x := np.array(times), x / 10, x / 10 - 0.1, x / 10 + 0.1, 3, x[None], "")
        for name, times in {"a": [1.0, 2.0, 3.0], "b": [1.0, 3.0]}.items()
    }
    figure = ArticleFigure("one", [CurvePanel("panel", bands, ("a",))], ("time", "accuracy"))
    made = article_page("title", "lead", PLACED, [figure])
    assert made.count('"mean":[0.1,0.2,0.3]') == 2
    assert "<td>0.200</td><td>0.300</td>" in made


def test_without_stores_it_says_what_is_missing(tmp_path: Any) -> None:
    with pytest.raises(FedtideError, match=r"there is no .*paper: the essay needs the results"):
        essay_page(tmp_path)
