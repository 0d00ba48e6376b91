"""A study's page in a browser: what it shows is what the records say, whatever is chosen, by mouse, keys or address."""

from __future__ import annotations

import dataclasses
import re
import time
from xml.etree import ElementTree

import numpy as np
import pytest

from fedtide.pages import study
from fedtide.pages.run_rows import PAGE_BYTES
from fedtide.pages.study_curves import _spent
from fedtide.studies.metrics import Reaching, mean_accuracy
from fedtide.studies.statistics import _smoothed, aligned_seeds, difference_band, mean_band, paired_difference
from fedtide.studies.store import Store
from fedtide_lab.paper import reproduce
from fedtide_lab.paper.figures import FIGURES
from fedtide_lab.paper.reproduce import claims_rows
from grown import studied
from helpers import ROOT

# b is evaluated more often: grids differ, as those of frameworks do
LABELS = {"a": 12, "b": 30, "c": 12}
MINUS = "−"


@pytest.fixture(scope="module")
def made():
    study_, results = studied(LABELS, joules=0.5, bits_down=7)
    results["c"] = {seed: run for seed, run in results["c"].items() if seed != 1}  # one run is missing
    # one seed of b on another path, and on a's beside it
    first = results["b"][2]
    other = dataclasses.replace(
        first, provenance={"isa": "avx512"}, columns={**first.columns, "test_accuracy": np.full(30, 0.5)}
    )
    results["b"][2] = dataclasses.replace(other, elsewhere=(first,))
    return study_, results, study._results_page(study_, results)


@pytest.fixture
def page(opened, made):
    return opened(made[2])


def js(page, code, *values):
    return page.execute_script(f"return {code}", *values)


def cells(page, kind):
    """Return a column of the table of curves, by curve."""
    return {
        int(row.get_attribute("data-line")): row.find_element("class name", kind).text
        for row in page.find_elements("css selector", "#lines tbody tr")
    }


def choose(page, name, value) -> None:
    page.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}))",
        name,
        value,
    )


def at(page):
    page.execute_async_script("setTimeout(arguments[0], 150)")  # an address is written at most every 120 ms
    return page.current_url.partition("#")[2]


def as_number(text):
    return float(text.replace(MINUS, "-"))


@pytest.mark.parametrize("over", ["time", "index", "bits", "symbols", "joules", "samples_trained"])
@pytest.mark.parametrize("column", ["test_accuracy", "train_loss"])
@pytest.mark.parametrize("smooth", [False, True])
def test_mean_curves_are_pythons(page, made, over, column, smooth) -> None:
    _, results, _ = made
    ratio = column == "train_loss"
    for number, runs in enumerate(aligned_seeds(results).values()):
        want = mean_band(list(runs.values()), column, over, ratio, smooth)
        found = js(
            page,
            """(() => { const c = fedtide.data.families[0].curves[arguments[0]];
            const how = {ratio: arguments[3], smooth: arguments[4]};
            const b = curves.band(Object.values(c.even), arguments[1], arguments[2], how);
            return [b.x, b.mean, b.low, b.high].map(each => Array.from(each)); })()""",
            number, column, over, ratio, smooth,
        )  # fmt: skip
        for one, other in zip(found, (want.x, want.mean, want.low, want.high), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert _smoothed(results["a"][0], column).shape == (12,)


@pytest.mark.parametrize("over", ["time", "bits"])
@pytest.mark.parametrize(("one", "other"), [("b", "a"), ("a", "b"), ("c", "b")])
def test_differences_are_pythons(page, made, over, one, other) -> None:
    _, results, _ = made
    want = difference_band(results[one], results[other], "test_accuracy", over)
    found = js(
        page,
        """(() => { const all = fedtide.data.families[0].curves;
        const b = curves.differenceBand(all[arguments[0]], all[arguments[1]], "test_accuracy", arguments[2]);
        return [b.x, b.mean, b.low, b.high].map(each => Array.from(each)); })()""",
        list(LABELS).index(one), list(LABELS).index(other), over,
    )  # fmt: skip
    for mine, wanted in zip(found, (want.x, want.mean, want.low, want.high), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_the_forest_says_what_was_compared(page, made) -> None:
    _, results, _ = made
    pairs = [(results["c"][seed], results["a"][seed]) for seed in (0, 2, 3)]
    want = paired_difference(*([mean_accuracy(each) for each in side] for side in zip(*pairs, strict=True)))
    row = page.find_elements("css selector", ".forest-row")[1]
    name = row.get_attribute("aria-label")
    assert name.startswith("c: +")
    assert name.endswith("3 seeds); gains")
    assert f"+{want.mean:.4f} (95 % interval +{want.low:.4f} to +{want.high:.4f}" in name


@pytest.mark.parametrize("over", ["time", "bits", "joules"])
def test_the_target_is_reached_when_records_say(page, made, over) -> None:
    _, results, _ = made
    choose(page, "x", over)
    for target in (0.3, 0.62, 0.75, 0.99):
        choose(page, "target", str(target))
        for number, runs in enumerate(aligned_seeds(results).values()):
            reached = [_spent(run)[over][np.argmax(run.column("test_accuracy") >= target)] for run in runs.values()]
            amounts = [Reaching(over, target)(run) for run in runs.values()]
            lost = sum(map(np.isnan, amounts))
            text = cells(page, "target")[number]
            if lost == len(amounts):
                assert text == "not reached"
            elif lost:
                ends = [_spent(run)[over][-1] for run in runs.values()]
                least = np.mean([end if np.isnan(each) else each for each, end in zip(amounts, ends, strict=True)])
                assert text.endswith(f" ({len(amounts) - lost} of {len(amounts)})")
                assert text.startswith("≥ ")
                assert as_number(text.split()[1]) == pytest.approx(least, rel=1e-3)
            else:
                assert as_number(text) == pytest.approx(np.mean(amounts), rel=1e-3)
                assert amounts == pytest.approx(reached)
    assert "target=0.99" in at(page)


def test_curves_are_toggled_and_the_address_holds_it(page) -> None:
    before = js(page, "document.querySelector('#charts canvas').toDataURL()")
    page.find_element("css selector", '[data-curve="0"]').click()
    assert at(page) == "off=a"
    assert page.find_element("css selector", '[data-curve="0"]').get_attribute("aria-pressed") == "false"
    assert js(page, "document.querySelector('#charts canvas').toDataURL()") != before
    page.find_element("id", "all").click()
    assert at(page) == ""
    assert js(page, "document.querySelector('#charts canvas').toDataURL()") == before
    page.find_element("id", "only").click()
    assert at(page) == "off=c"


def test_choices_are_in_the_address_and_come_from_it(page, made, opened) -> None:
    page.find_elements("css selector", ".forest-row")[1].click()
    for name, value in (
        ("x", "bits"),
        ("show", "seeds"),
        ("diff", "n0"),
        ("measure", "final_accuracy"),
        ("scale", "root"),
    ):
        choose(page, name, value)
    there = at(page)
    assert set(there.split("&")) == {
        *("c=Gain+over+a+%7C+c", "x=bits", "show=seeds", "diff=n%3Aa", "m=final_accuracy", "scale=root")
    }
    lines = page.find_element("id", "lines").text
    assert "(reference)" in lines
    opened(made[2], f"#{there}")
    assert page.find_element("id", "lines").text == lines
    assert page.find_element("css selector", "#detail h2").text == "c: gain over a"
    chosen = {
        name: page.find_element("id", name).get_attribute("value") for name in ("x", "show", "diff", "measure", "scale")
    }
    assert chosen == {"x": "bits", "show": "seeds", "diff": "n0", "measure": "final_accuracy", "scale": "root"}


@pytest.mark.parametrize(
    "hash_", ["#c=99&x=nonsense&diff=n:nobody&target=7", "#g=x&off=nobody&off=a&in=9", "#%00", "#diff=c:&show=0"]
)
def test_a_strange_address_is_no_harm(page, made, opened, hash_) -> None:
    opened(made[2], hash_)
    assert page.find_elements("css selector", "#lines tbody tr")


def test_the_last_difference_is_the_comparison(page, made) -> None:
    _, results, _ = made
    choose(page, "diff", "n0")
    want = difference_band(results["b"], results["a"], "test_accuracy")
    assert as_number(cells(page, "end")[1].split(" ")[0]) == pytest.approx(want.mean[-1], abs=6e-5)
    assert page.find_element("id", "smooth").get_attribute("disabled")


def test_keys_walk_the_forest_and_the_chart(page, made) -> None:
    from selenium.webdriver.common.keys import Keys

    rows = page.find_elements("css selector", ".forest-row")
    rows[0].send_keys(Keys.ARROW_DOWN)
    assert js(page, "document.activeElement.dataset.row") == "1"
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert at(page) == "c=Gain+over+a+%7C+c"
    assert rows[1].get_attribute("aria-current") == "true"
    assert js(page, "document.activeElement.dataset.row") == "1"
    chart = page.find_element("css selector", ".chart")
    chart.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    want = mean_band([run for seed, run in made[1]["c"].items()], "test_accuracy")
    assert cells(page, "read")[2] == f"{want.mean[1]:.4f}"
    assert f"c {want.mean[1]:.4f}" in js(page, "document.getElementById('readout').textContent")
    chart.send_keys("?")
    assert page.find_elements("css selector", "dialog[open]")


def test_a_drag_over_the_axis_looks_closer(page) -> None:
    from selenium.webdriver import ActionChains

    over = page.find_element("css selector", "#charts .u-over")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
    wide, tall = over.size["width"], over.size["height"]
    drag = ActionChains(page).move_to_element_with_offset(over, -wide // 4, -tall // 2 + 8).click_and_hold()
    for _ in range(4):
        drag = drag.move_by_offset(wide // 10, 0)
    drag.release().perform()
    assert re.fullmatch(r"at \d[\d.]*", page.find_element("id", "at").text)
    assert "Infinity" not in page.find_element("id", "detail").text
    assert "NaN" not in page.find_element("id", "detail").text


def test_the_mouse_reads_values_and_drags_the_target(page, made) -> None:
    from selenium.webdriver import ActionChains

    over = page.find_element("css selector", ".u-over")
    ActionChains(page).move_to_element(over).perform()
    read = cells(page, "read")
    assert all(float(text) > 0 for text in read.values())
    assert page.find_element("css selector", ".tip").text.count("\n") >= 2
    before = float(page.find_element("id", "target").get_attribute("value"))
    place = target_line(page)
    ActionChains(page).move_to_element_with_offset(over, 0, place).click_and_hold().move_by_offset(
        0, 30
    ).release().perform()
    after = float(page.find_element("id", "target").get_attribute("value"))
    assert after < before
    assert f"target={after:g}" in at(page)


def target_line(page) -> int:
    """Return where the target line is, in px below the middle of the chart: looked up on the canvas by its colour."""
    return js(
        page,
        """(() => { const c = document.querySelector('#charts canvas'), o = document.querySelector('.u-over');
        const r = o.getBoundingClientRect(), k = c.getBoundingClientRect(), s = c.width / k.width;
        const wanted = fedtide.css('--focus').match(/\\w\\w/g).map(x => parseInt(x, 16));
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        let best = 0, most = 0;
        for (let y = 0; y < c.height; y++) { let n = 0; for (let x = 0; x < c.width; x++) { const i = 4 * (y * c.width + x);
        if (Math.abs(d[i]-wanted[0]) + Math.abs(d[i+1]-wanted[1]) + Math.abs(d[i+2]-wanted[2]) < 60) n++; }
        if (n > most) { most = n; best = y; } }
        return Math.round(best / s + k.top - r.top - r.height / 2); })()""",
    )


def test_ledger_settings_and_reasons(page, made) -> None:
    for part in page.find_elements("css selector", "#detail details"):
        page.execute_script("arguments[0].open = true", part)
    ledger = page.find_element("id", "ledger").text
    bits = np.mean([run.column("bits")[-1] for seed, run in made[1]["a"].items() if seed != 1])
    assert f"{bits / 1000:.3f}"[:4] in ledger
    assert "energy (J)" in ledger
    assert "curve policy.limit\na 1" in page.find_element("id", "settings").text
    assert "seconds on the air" in page.find_element("id", "absent").text


def test_hostile_labels_change_nothing(opened) -> None:
    names = ["plain", "</script><script>document.title='taken'</script>", "x" * 10_000, "שלום עולם " * 9, "<b>bold</b>"]
    content = study._results_page(*studied(dict.fromkeys(names, 6), seeds=2))
    page = opened(content)
    assert page.title == "grown"
    assert not page.find_elements("css selector", "#main bdi b")
    assert page.find_element("css selector", ".forest-row bdi").text == names[1]
    for width in (390, 1280):
        for index in range(4):
            opened(content, f"#c={index}", width)
            assert js(page, "document.documentElement.scrollWidth") <= width
            assert js(page, "Math.max(...[...document.querySelectorAll('.forest-row')].map(e => e.clientHeight))") < 90


def test_fifty_curves_open_in_two_seconds(opened) -> None:
    content = study._results_page(*studied({f"variant {number}": 140 for number in range(50)}, seeds=5))
    start = time.perf_counter()
    page = opened(content)
    assert len(page.find_elements("css selector", "#lines tbody tr")) == 50
    assert time.perf_counter() - start < 6  # with the driver's part, on a busy machine
    assert js(page, "performance.timing.loadEventEnd - performance.timing.navigationStart") < 2000
    choose(page, "x", "bits")
    choose(page, "show", "seeds")


def test_dark_is_drawn_anew_and_paper_is_light(page) -> None:
    canvas = "document.querySelector('#charts canvas').toDataURL()"
    light = js(page, canvas)
    page.find_element("id", "theme").click()
    dark = js(page, canvas)
    assert light != dark
    page.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert js(page, "fedtide.isDark()") is False
    assert (
        600 < js(page, "document.querySelector('#charts canvas').clientWidth") <= 700
    )  # a sheet, not the screen's column
    page.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert js(page, canvas) == dark
    page.find_element("id", "theme").click()
    assert js(page, canvas) == light


@pytest.fixture(scope="module")
def found():
    return reproduce.collect_reproduced(list(FIGURES), Store(ROOT / "results" / "paper"), None)


@pytest.fixture(scope="module")
def paper():
    return study._folder_page(ROOT / "results" / "paper")


def test_the_papers_page_says_its_verdicts(opened, found, paper) -> None:
    rows = [
        row
        for row in claims_rows(reproduce.reproduced_verdicts(found))
        if all(found[each["figure"]] for each in row["comparisons"])
        and any(each.get("mean") is not None for each in row["comparisons"])
    ]
    assert len(rows) > 8
    browser = opened(paper)
    groups = browser.find_elements("css selector", ".forest-group")
    assert [each.text.split("\n") for each in groups[: len(rows)]] == [[row["text"], row["verdict"]] for row in rows]
    texts = [each.get_attribute("aria-label") for each in browser.find_elements("css selector", ".forest-row")]
    compared = [each for row in rows for each in row["comparisons"]]
    for text, each in zip(texts, compared, strict=False):
        assert text.endswith(f"; {each['verdict']}")
        if each.get("mean") is not None:  # the page has its first seven digits
            mean = float(f"{each['mean']:.7g}")
            assert f"{mean:+.4f}".replace("-", MINUS) in text
    # a click on a comparison opens the curves of its figure
    number = next(i for i, each in enumerate(compared) if each["figure"] == "weights")
    browser.find_elements("css selector", ".forest-row")[number].click()
    names = {each.text for each in browser.find_elements("css selector", "#lines td:first-child")}
    assert names == {name.replace(r"$\gamma$", "γ") for name in FIGURES["weights"].curves}
    # and a click on a claim those of all its comparisons
    browser.execute_script("document.querySelector('[data-group=\"0\"]').click()")
    assert "g=With+i.i.d.+data+a+smaller+R+is+better." in at(browser)
    assert len(browser.find_elements("css selector", '[aria-current="true"]')) == 4


def test_the_papers_page_is_small_and_fits_a_phone(opened, paper) -> None:
    assert len(paper.encode()) < PAGE_BYTES
    for hash_ in ("", "#in=i.i.d.&in=non-i.i.d.", "#g=With+i.i.d.+data+a+smaller+R+is+better.&diff=n:R%3D8"):
        assert js(opened(paper, hash_, 390), "document.documentElement.scrollWidth") <= 390


def test_without_scripts_there_is_the_forest(paper) -> None:
    still = paper.partition("<noscript>")[2].partition("</noscript>")[0]
    assert still.count("<tr>") > 60
    assert "With non-i.i.d. data R is a trade-off." in still


SAVED = """
const [selector, done] = arguments, make = URL.createObjectURL;
URL.createObjectURL = (blob) => {
  blob.text().then(text => { URL.createObjectURL = make; done([blob.type, blob.size, text]); });
  return "blob:none";
};
HTMLAnchorElement.prototype.click = () => {};
document.querySelector(selector).click();"""


@pytest.mark.parametrize("selector", ["#charts .exports", ".forest-tools .exports"])
def test_pictures_of_a_study_are_files(page, selector) -> None:
    kind, _, text = page.execute_async_script(SAVED, f"{selector} button:nth-child(1)")
    assert kind == "image/svg+xml"
    drawn = list(ElementTree.fromstring(text).iter())  # our own
    assert len(drawn) > 15
    assert sum(each.tag.endswith("path") for each in drawn) >= 2
    assert "NaN" not in text
    kind, size, _ = page.execute_async_script(SAVED, f"{selector} button:nth-child(2)")
    assert (kind, size > 1000) == ("image/png", True)


def test_tables_are_sorted_by_a_click_and_saved(page) -> None:
    ends = "[...document.querySelectorAll('#lines .end')].map(cell => parseFloat(cell.textContent))"
    for way in (-1, 1):
        page.execute_script(
            "[...document.querySelectorAll('#lines th .sort')].find(e => e.textContent.startsWith('end')).click()"
        )
        found = js(page, ends)
        assert found == sorted(found, key=lambda value: way * value)
    kind, _, text = page.execute_async_script(SAVED, "#lines .exports button")
    assert kind == "text/csv"
    assert text.splitlines()[0].startswith("curve,seeds,at cursor,end ± interval,")
    assert len(text.splitlines()) == 4


def test_the_heading_says_what_was_chosen(page) -> None:
    def heading() -> str:
        return page.find_element("id", "drawn").text

    assert heading() == "Test accuracy, over time"
    choose(page, "x", "bits")
    choose(page, "y", "train_loss")
    assert heading() == "Training loss, over bits sent"
    choose(page, "diff", "n0")
    assert heading() == "Cumulative mean gain in training loss over a, over bits sent"


def test_no_infinity_and_no_empty_rows(opened) -> None:
    study_, results = studied({"a": 12, "b": 12, "c": 12})
    results["c"] = {}
    page = opened(study._results_page(study_, results), "", 390)
    assert [row.get_attribute("aria-label")[:2] for row in page.find_elements("css selector", ".forest-row")] == ["b:"]
    assert "1 comparison has no runs yet" in page.find_element("id", "forest").text
    assert len(page.find_elements("css selector", "#lines tbody tr")) == 2
    page.find_element("css selector", ".chart").send_keys("x")
    js(page, "document.querySelector('.chart .u-over').dispatchEvent(new MouseEvent('mousemove', {clientX: -1e9}))")
    assert (
        js(
            page,
            "[Infinity, -Infinity, NaN, null].map(each => fedtide.short(each) + fedtide.number(each) + fedtide.fixed(each))",
        )
        == ["–––"] * 4
    )
    assert "Infinity" not in page.find_element("tag name", "body").text


def test_more_than_ten_curves_begin_with_the_compared(opened) -> None:
    study_, results = studied({f"v{number}": 12 for number in range(12)})
    made = study._results_page(study_, results)
    page = opened(made)
    assert len(page.find_elements("css selector", "#lines tr:not(.off) td button[aria-pressed=true]")) == 2
    page.find_element("id", "all").click()
    assert at(page) == "off="
    assert len(page.find_elements("css selector", "#lines td button[aria-pressed=true]")) == 12
    assert len(opened(made, "#off=").find_elements("css selector", "#lines td button[aria-pressed=true]")) == 12


def test_every_world_has_an_axis_of_its_own_and_it_is_linear(opened) -> None:
    columns = {"low": 12, "high": 12}
    study_, results = studied(columns)
    page = opened(study._results_page(study_, results))
    assert js(page, "document.getElementById('scale').value") == "linear"
    found = study.Forest(
        ("mean_accuracy",),
        [
            {"text": "Gain", "setting": name, "verdicts": {},
             "rows": [{"words": "b", "family": 0, "better": [1], "worse": [0], "by": {"mean_accuracy": {
                 "mean": most / 2, "low": 0.0, "high": most, "num_seeds": 3, "verdict": "gains", "note": ""}}}]}
            for name, most in (("small", 0.01), ("large", 0.4))
        ],
        "better",
    )  # fmt: skip
    reach = study._reach(found, "mean_accuracy")
    assert {name: each["most"] for name, each in reach.items()} == {"small": 0.01, "large": 0.4}
