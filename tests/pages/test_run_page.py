"""The run page in a browser: driven by keys, hash and pointer, and read back against the records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtide import config
from fedtide.pages import run as run_module
from fedtide.pages.run import run_page
from fedtide.runs import RoundRecord, read_run

FULL = {"timeline": {"horizon": 35.0}}  # 140 aggregations of 40 devices
MANY = {"data": {"partition": "iid"}, "fleet": {"num_devices": 400}, "timeline": {"horizon": 1.0}}
HOSTILE = [
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "x" * 10_000,
    "\u202egnihtemos\u05d0\u05d1",
]


def _rounds(folder: Path) -> list[RoundRecord]:
    return read_run(folder).rounds


def _press(browser: Any, key: str, times: int = 1) -> None:
    from selenium.webdriver.common.keys import Keys

    body = browser.find_element("tag name", "body")
    for _ in range(times):
        body.send_keys(getattr(Keys, key))


def _now(browser: Any) -> str:
    return str(browser.find_element("id", "now").text)


def _table(browser: Any, run: int = 0) -> list[list[str]]:
    rows = "[...document.querySelectorAll(`#run${arguments[0]} .detail tbody tr`)]"
    script = f"return {rows}.map(row => [...row.cells].map(cell => cell.textContent))"
    found: list[list[str]] = browser.execute_script(script, run)
    return found


def _check(browser: Any, each: RoundRecord, run: int = 0) -> None:
    """Compare what the page says of an aggregation with its record."""
    said = _now(browser).splitlines()[run]
    assert f"aggregation {each.index}, time {each.time:g}" in said
    arrived = [device for device in each.picked if device not in each.lost]
    if arrived:
        assert f"{', '.join(map(str, arrived))} uploaded" in said
    waiting = len(each.ready) - len(each.picked)
    assert not waiting or f"{waiting} ready and not picked" in said
    if each.test_accuracy is not None:
        assert f"test accuracy {each.test_accuracy:.3f}" in said
    rows = _table(browser, run)
    assert [int(row[0]) for row in rows] == list(each.picked)
    assert [int(row[1]) for row in rows] == list(each.age)
    assert [float(row[2]) for row in rows] == pytest.approx(each.capacity, abs=0.0051)
    assert [float(row[3].replace(",", "")) for row in rows] == pytest.approx(each.symbols, rel=1e-4)
    assert [float(row[5].replace(",", "")) for row in rows] == pytest.approx(each.sent_bits, rel=1e-6)
    assert [row[8] for row in rows] == ["lost" if device in each.lost else "arrived" for device in each.picked]


def test_scrub_by_keys_hash_and_slider(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    folder = made_run(**FULL)
    rounds = _rounds(folder)
    page = opened(run_page([folder]), "#t=33")
    _check(page, rounds[32])
    _press(page, "ARROW_RIGHT", 2)
    _check(page, rounds[34])
    page.execute_async_script("setTimeout(arguments[0], 200)")
    assert page.current_url.endswith("#t=35")
    _press(page, "ARROW_LEFT")
    _check(page, rounds[33])
    _press(page, "END")
    _check(page, rounds[-1])
    _press(page, "ARROW_RIGHT")
    _check(page, rounds[-1])
    _press(page, "HOME")
    _check(page, rounds[0])
    page.execute_script("location.hash = '#t=77'")
    page.execute_script("return new Promise(done => setTimeout(done, 50))")
    _check(page, rounds[76])
    slider = page.find_element("id", "step")
    assert slider.get_attribute("value") == "77"
    assert slider.get_attribute("aria-valuetext") == f"aggregation 77 of 140, time {rounds[76].time:g}"
    from selenium.webdriver.common.keys import Keys

    slider.send_keys(Keys.ARROW_RIGHT)  # once, not once by us and once by the browser
    _check(page, rounds[77])


def test_play_and_pause_by_the_space_bar(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    page = opened(run_page([made_run()]), "#t=2")
    _press(page, "SPACE")
    page.execute_async_script("setTimeout(arguments[0], 700)")
    _press(page, "SPACE")
    at = page.execute_script("return Number(document.getElementById('step').value)")
    assert at > 2
    page.execute_async_script("setTimeout(arguments[0], 400)")
    assert page.execute_script("return Number(document.getElementById('step').value)") == at


def test_a_step_takes_less_than_50_ms(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    page = opened(run_page([made_run(**FULL)]), "#t=1")
    script = """
    const [wanted, done] = arguments, span = document.getElementById("span"), spent = [];
    span.value = wanted; span.dispatchEvent(new Event("change"));
    function step() {  // with the painting that follows it, which is over before the frame after the next
      const begin = performance.now();
      document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
      const drawn = performance.now();
      requestAnimationFrame(() => setTimeout(() => {
        spent.push([drawn - begin, performance.now() - begin]);
        if (spent.length < 100) step(); else done([0, 1].map(k => spent.map(each => each[k]).sort((a, b) => a - b)[10]));
      }));
    }
    step();
    """
    for span in ("24", "0"):  # a tenth of the steps suffices: others may have waited for a busy machine
        drawn, painted = page.execute_async_script(script, span)
        assert drawn < 50, f"nine of ten steps take {drawn:.1f} ms or more"
        assert painted < 100, f"nine of ten steps are seen after {painted:.1f} ms or more"
        _press(page, "HOME")
    assert "aggregation 1," in _now(page)


def test_two_runs_on_the_same_clock(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    one, other = made_run(), made_run(policy={"scheduler": "random"})
    page = opened(run_page([one, other]), "#t=7")
    _check(page, _rounds(one)[6], 0)
    _check(page, _rounds(other)[6], 1)
    assert "policy.scheduler" in page.find_element("id", "settings").text


def test_two_timelines_on_the_same_clock(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    often, seldom = _rounds(made_run()), _rounds(made_run(framework="fedavg"))
    page = opened(run_page([made_run(), made_run(framework="fedavg")]), "#t=1")
    assert "before the first aggregation" in _now(page).splitlines()[1]
    times = sorted({each.time for each in (*often, *seldom)})
    _press(page, "ARROW_RIGHT", 5)
    for run, rounds in enumerate((often, seldom)):
        _check(page, [each for each in rounds if each.time <= times[5]][-1], run)


@pytest.mark.parametrize("whole", [True, False])
def test_a_deployment(whole: bool, deployed_run: Callable[[bool], Path], opened: Callable[..., Any]) -> None:
    folder = deployed_run(whole)
    page = opened(run_page([folder]), "#t=2")
    text = page.find_element("id", "run0").text
    assert "real devices" in text
    assert "replies refused" in text
    assert "nodes with a seat" in text
    said = _now(page)
    each = _rounds(folder)[1]
    assert said.startswith(f"aggregation 2, time {each.time:g} s: ")
    assert [int(row[0]) for row in _table(page)] == list(each.picked)


def test_outages_and_absences(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    world = {
        "fleet": {"num_devices": 12, "availability": "markov"},
        "radio": {"csi": "pilots", "num_symbols": 3000},
        "policy": {"limit": 4},
    }
    folder = made_run(**world)
    rounds = _rounds(folder)
    first = next(each for each in rounds if each.lost)
    page = opened(run_page([folder]), f"#t={first.index}")
    _check(page, first)
    assert "did not arrive" in _now(page)
    legend = page.find_element("css selector", ".legend").text
    assert "away" in legend
    assert "lost" in legend


def test_many_devices_are_grouped(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    folder = made_run(**MANY)
    page = opened(run_page([folder]), "#t=3")
    each = _rounds(folder)[2]
    _check(page, each)
    assert "400 devices in 100 rows" in page.find_element("id", "run0").text


def test_a_thinned_run_knows_every_score(
    made_run: Callable[..., Path], opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedtide.pages.run_rows.NUM_COLUMNS", 8)
    rounds = _rounds(made_run(learning={"evaluate_every": 0.5}))
    page = opened(run_page([made_run(learning={"evaluate_every": 0.5})]), "#t=1")
    assert "8 of 20 aggregations" in page.find_element("id", "run0").text
    for _ in range(8):
        at = int(_now(page).split(",")[0].split()[-1])
        score = next((each.test_accuracy for each in rounds[at - 1 :: -1] if each.test_accuracy is not None), None)
        assert score is None or f"test accuracy {score:.3f}" in _now(page)
        _press(page, "ARROW_RIGHT")
    assert at == 20


@pytest.mark.parametrize("words", HOSTILE, ids=["markup", "long", "right-to-left"])
def test_a_hostile_label_changes_nothing(
    words: str,
    made_run: Callable[..., Path],
    opened: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    folder = tmp_path / words[:80].replace("/", "\u2044")
    shutil.copytree(made_run(), folder)
    usual = opened(run_page([folder]), "#t=5", 390)
    height = usual.execute_script("return document.documentElement.scrollHeight")
    monkeypatch.setattr(run_module, "_title", lambda experiment: words)
    page = opened(run_page([folder]), "#t=5", 390)
    _check(page, _rounds(folder)[4])
    assert page.execute_script("return document.querySelectorAll('script').length") == 3
    assert page.execute_script("return document.querySelectorAll('img').length") == 0
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    assert page.execute_script("return document.documentElement.scrollHeight") < height + 400
    assert words[:50] in page.find_element("id", "run0-title").get_attribute("textContent")


@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_sticks_out_and_everything_has_a_name(
    width: int, theme: str, made_run: Callable[..., Path], opened: Callable[..., Any]
) -> None:
    page = opened(run_page([made_run()]), "#t=5", width)
    if page.execute_script("return fedtide.isDark() ? 'dark' : 'light'") != theme:
        page.find_element("id", "theme").click()
    assert page.execute_script("return fedtide.isDark() ? 'dark' : 'light'") == theme
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    nameless = """return [...document.querySelectorAll("canvas:not([aria-hidden]), button, select, input")].filter(
      e => !(e.getAttribute("aria-label") || e.textContent.trim() && e.tagName === "BUTTON" || e.closest("label"))).length"""
    assert page.execute_script(nameless) == 0
    blank = """return [...document.querySelectorAll("figure:not([hidden]) canvas")].filter(
      c => !c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(v => v)).length"""
    assert page.execute_script(blank) == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read(theme: str, made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    page = opened(run_page([made_run()]))
    page.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    marks = ["up", "drop", "lost", "noise", "mark"]  # what a colour means is one thing: no two are alike
    names = ["paper", "panel", "ink", "soft", "accent", "good", "bad", "train", "wait", "away", *marks]
    shades = {name: page.execute_script("return fedtide.css(`--${arguments[0]}`)", name) for name in names}
    for name in set(names) - {"paper", "panel", "train", "wait", "away"}:
        assert _contrast(shades[name], shades["paper"]) >= (3.0 if name in marks else 4.5), name
    runs = page.execute_script("return fedtide.data.runs.map(run => run.line[arguments[0]])", theme)
    assert all(_contrast(shade, shades["paper"]) >= 3.0 for shade in runs)
    meanings = [shades[name] for name in ("up", "drop", "lost", "noise", "train", "wait", "away")] + runs
    assert len(set(meanings)) == len(meanings)


def _contrast(one: str, other: str) -> float:
    def light(shade: str) -> float:
        parts = [int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        r, g, b = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_without_scripts_there_are_the_finding_the_numbers_and_the_settings(made_run: Callable[..., Path]) -> None:
    made = run_page([made_run()])
    body = made[made.index("<body>") : made.index("<script")]
    for words in ("test accuracy after 5 T_max", "bits sent", "All settings", "learning.local_epochs"):
        assert words in body
    assert "style=" not in made.split('id="data"')[0].split("</style>")[-1]  # the policy would refuse it


def test_paper_is_light_and_nothing_on_it_is_squeezed(
    made_run: Callable[..., Path], opened: Callable[..., Any]
) -> None:
    one, other = made_run(), made_run(policy={"scheduler": "random"})
    page = opened(run_page([one, other]), "#t=7", 1920)
    page.execute_script(
        "document.getElementById('theme').click(); if (!fedtide.isDark()) document.getElementById('theme').click()"
    )
    page.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert page.execute_script("return fedtide.isDark()") is False
    sizes = """return [...document.querySelectorAll("figure:not([hidden]) > canvas")].map(
      c => [parseFloat(c.style.width), c.clientWidth, c.getBoundingClientRect().right])"""
    for drawn, shown, right in page.execute_script(sizes):
        assert drawn == pytest.approx(shown, abs=1)
        assert right <= 700
    page.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert page.execute_script("return fedtide.isDark()") is True
    assert max(right for _, _, right in page.execute_script(sizes)) > 1500
    page.find_element("id", "theme").click()


def test_settings_are_listed_key_by_key(made_run: Callable[..., Path]) -> None:
    made = run_page([made_run(radio={"channel": {"name": "rician", "k_factor": 8.0}})])
    assert "<code>radio.channel.k_factor</code></td>" in made
    assert '<code>radio.channel</code></td><td class="words"><bdi>rician</bdi></td>' in made
    both = run_page([made_run(), made_run(policy={"scheduler": "random"})])
    told = both[both.index('id="settings"') : both.index("</details>", both.index('id="settings"'))]
    assert told.count("<code>") == 1
    assert "<code>policy.scheduler</code>" in told


def _facts(page: Any) -> dict[str, str]:
    rows = "[...document.querySelectorAll('#run0 .numbers > div')]"
    return dict(page.execute_script(f"return {rows}.map(row => [...row.children].map(each => each.textContent))"))


def test_the_page_ends_with_numbers_and_says_what_made_them(
    made_run: Callable[..., Path], opened: Callable[..., Any]
) -> None:
    folder = made_run()
    rounds, versions = _rounds(folder), json.loads((folder / "versions.json").read_text())
    found = _facts(opened(run_page([folder])))
    assert found["final test accuracy"] == f"{rounds[-1].test_accuracy:.4f}"
    assert found["best test accuracy"] == f"{max(each.test_accuracy or 0.0 for each in rounds):.4f}"
    assert found["uploads"] == f"{sum(len(each.num_kept) for each in rounds):,}"
    assert found["bits sent"] == f"{rounds[-1].ledger.bits:,.0f}"
    assert found["fedtide"] == versions["fedtide"]
    assert found["instruction path"] == versions["isa"]
    assert found["commit"].rstrip("+") == str(versions["commit"] or "unknown").rstrip("+")[:12]
    assert found["seed"] == "0"


@pytest.mark.parametrize(
    ("radio", "named"),
    [
        ({}, "rayleigh 13 dB"),
        ({"snr_db": 5.0, "channel": "rician"}, "rician 5 dB"),
        ({"coverage": "umi"}, "rayleigh, umi"),
        ({"channel": "jakes", "coverage": "log_distance"}, "jakes, log_distance"),
        ({"channel": "trace"}, "trace"),
        ({"channel": {"name": "trace", "quantity": "gain"}}, "trace 13 dB"),
        ({"channel": "mine.py:links"}, "mine.py:links"),
    ],
)
def test_only_what_the_channel_uses_is_named(radio: dict[str, Any], named: str) -> None:
    assert run_module._radio(config.experiment({"radio": radio})) == named


def test_all_panels_have_the_same_clock(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    """The line of the aggregation in view is at the same place in each of them, whatever part of the run is shown."""
    page = opened(run_page([made_run(**FULL)]), "#t=50")
    assert page.find_element("id", "place").text == "time 12.5 T_max · aggregation 50 of 140"
    line = """
    const [span] = arguments, chosen = document.getElementById("span"), dark = fedtide.css("--mark");
    chosen.value = span; chosen.dispatchEvent(new Event("change"));
    const wanted = [1, 3, 5].map(at => parseInt(dark.slice(at, at + 2), 16));
    return [...document.querySelectorAll("#curves canvas, #run0 > .panel canvas:not(.gradient)")].map(canvas => {
      const copy = new OffscreenCanvas(canvas.width - 250, 90).getContext("2d", {willReadFrequently: true});
      copy.drawImage(canvas, 0, 0);
      const {data, width} = copy.getImageData(0, 0, canvas.width - 250, 90), counts = [];
      for (let x = 30; x < width; x++) {
        let count = 0;
        for (let y = 0; y < 90; y++) if (wanted.every((each, k) => data[4 * (y * width + x) + k] === each)) count++;
        counts.push(count);
      }
      return 30 + counts.indexOf(Math.max(...counts));
    })"""
    for span in ("24", "0"):
        places = page.execute_script(line, span)
        assert len(places) == 4
        assert max(places) - min(places) <= 1, (span, places)
