"""What a reader meets first on a run's page: the finding, moments worth a look, runs overlaid, files to take away, addresses."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtide.pages.moments import find_moments
from fedtide.pages.run import run_page
from fedtide.runs import Ledger, RoundRecord, read_run

SAVED = """
const [selector, done] = arguments, make = URL.createObjectURL;
URL.createObjectURL = (blob) => {
  blob.text().then(text => { URL.createObjectURL = make; done([blob.type, blob.size, text]); });
  return "blob:none";
};
HTMLAnchorElement.prototype.click = () => {};
document.querySelector(selector).click();"""


def _record(index: int, **changed: Any) -> RoundRecord:
    usual: dict[str, Any] = {
        "index": index, "time": index / 4, "ready": [0, 1, 2, 3], "picked": [0, 1, 2, 3], "age": [0, 0, 1, 0],
        "capacity": [2.0] * 4, "symbols": [25.0] * 4, "budget_bits": [50.0] * 4, "sent_bits": [50] * 4,
        "overhead_bits": [0] * 4, "num_kept": [5] * 4, "label_variance": 0.0, "proved_minimal": None, "weight": [0.25] * 4,
        "test_accuracy": 0.7 + 0.001 * index, "test_loss": 1.0, "train_loss": None, "ledger": Ledger(),
    }  # fmt: skip
    return RoundRecord(**{**usual, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"symbols": [10.0, 70.0, 10.0, 10.0], "capacity": [2.0, 0.3, 2.0, 2.0]},
         "device 1's channel took 70% of this aggregation's airtime: 0.3 bit/symbol, the others' median 2"),
        ({"lost": [2, 3]}, "2 of 4 uploads did not arrive"),
        ({"num_kept": [5, 5, 5, 0], "sent_bits": [50, 50, 50, 0]}, "1 of 4 picked devices sent nothing"),
        ({"age": [0, 9, 1, 0]}, "device 1's update was 9 aggregations old; the mean age is 0.36"),
        ({"test_accuracy": 0.5}, "the test accuracy fell by 0.214, to 0.500"),
        ({"test_accuracy": 0.85}, "the test accuracy reached 80% for the first time"),
    ],
)  # fmt: skip
def test_a_moment_is_found_where_it_is(changed: dict[str, Any], words: str) -> None:
    rounds = [_record(index) for index in range(1, 21)]
    assert find_moments(rounds) == []  # nothing stands out
    rounds[14] = _record(15, **changed)
    found = find_moments(rounds)
    assert words in [each.text for each in found if each.index == 15]
    assert all(each.index in (15, 16) for each in found)


def test_who_waits_for_long_is_found_and_there_are_few_moments() -> None:
    rounds = [_record(index, ready=[0, 1, 2, 3, 7]) for index in range(1, 13)]
    assert [(each.index, each.text) for each in find_moments(rounds)] == [
        (12, "device 7 was ready and not picked for the 12th time in a row")
    ]
    wild = [_record(index, lost=[0], age=[0, 0, 30 * (index % 9 == 0), 0], test_accuracy=0.5 + 0.4 * (index % 2),
                    symbols=[97.0, 1.0, 1.0, 1.0]) for index in range(1, 60)]  # fmt: skip
    found = find_moments(wild)
    assert len(found) <= 10
    assert [each.time for each in found] == sorted(each.time for each in found)
    assert {each.kind for each in found} >= {"outage", "stale", "airtime", "target"}


def test_the_page_opens_with_the_finding(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    folder = made_run()
    last = read_run(folder).rounds[-1]
    for width in (390, 1280, 1920):
        page = opened(run_page([folder]), "", width)
        assert page.find_element("tag name", "h1").text == f"{last.test_accuracy:.1%} test accuracy after 5 T_max"
        hero = page.find_element("id", "hero")
        assert f"{last.test_accuracy:.4f}" in hero.text
        assert f"{last.ledger.bits:,.0f}" in hero.text
        assert hero.rect["y"] + hero.rect["height"] < 450  # seen without scrolling
        drawer = page.find_element("id", "settings")
        assert drawer.get_attribute("open") is None
        assert "learning.batch_size" in drawer.get_attribute("textContent")
        assert "instruction path" in page.find_element("css selector", ".origin").text
    moment = page.find_element("css selector", "#moments button")
    time = float(moment.find_element("tag name", "b").text.split()[1])
    moment.click()
    assert page.find_element("id", "place").text.startswith(f"time {time:g} T_max")


def test_many_runs_are_overlaid_and_addressed_by_name(
    made_run: Callable[..., Path], opened: Callable[..., Any], tmp_path: Path
) -> None:
    schedulers = ("proposed", "random", "age_based", "best_channel")
    folders = []
    for name in schedulers:
        (tmp_path / name).symlink_to(made_run(policy={"scheduler": name}))
        folders.append(tmp_path / name)
    named = [folder.resolve().parent.name for folder in folders]
    assert len(set(named)) == 4
    page = opened(run_page(folders), "#t=8&show=test_loss&show=bits", 1280)
    rows = page.find_elements("css selector", "#results tbody tr")
    assert [row.text.split()[0] for row in rows] == list(schedulers)
    titles = "return [...document.querySelectorAll('#curves h3')].map(each => each.textContent)"
    assert page.execute_script(titles) == ["Test loss", "Bits sent"]
    shown = "return [...document.querySelectorAll('.run')].filter(each => !each.hidden).map(each => each.id)"
    assert page.execute_script(shown) == ["run0", "run1"]
    rows[3].find_element("tag name", "button").click()
    rows[0].find_element("tag name", "button").click()
    assert page.execute_script(shown) == ["run1", "run3"]
    page.execute_async_script("setTimeout(arguments[0], 200)")
    address = page.current_url.partition("#")[2]
    names = page.execute_script("return fedtide.data.runs.map(run => run.name)")
    assert address.count("run=") == 2
    assert "t=8" in address
    # the same address on a page that lists them in another order shows the same runs
    other = opened(run_page(folders[::-1]), f"#{address}", 1280)
    seen = (
        "return [...document.querySelectorAll('.run')].filter(e => !e.hidden).map(e => fedtide.data.runs[e.id[3]].name)"
    )
    assert set(other.execute_script(seen)) == {names[1], names[3]}
    assert other.execute_script(titles) == ["Test loss", "Bits sent"]
    lines = other.execute_script("return fedtide.data.runs.map(run => run.line.light)")
    assert len(set(lines)) == 4
    assert other.execute_script("return document.documentElement.scrollWidth") <= 1280


def test_every_panel_is_a_file_and_every_table_too(made_run: Callable[..., Path], opened: Callable[..., Any]) -> None:
    folder = made_run()
    rounds = read_run(folder).rounds
    page = opened(run_page([folder]), "#t=5")
    figures = page.execute_script("return document.querySelectorAll('figure.panel:not([hidden])').length")
    assert (
        figures
        == page.execute_script("return document.querySelectorAll('figure.panel:not([hidden]) .exports').length")
        == 7
    )
    page.execute_script(
        "document.querySelectorAll('figure.panel:not([hidden])').forEach((each, i) => { each.id = `panel${i}`; })"
    )
    for number in range(figures):
        kind, _, text = page.execute_async_script(SAVED, f"#panel{number} .exports button:nth-child(1)")
        assert kind == "image/svg+xml"
        drawn = ET.fromstring(text)  # our own
        assert len(list(drawn.iter())) > 10, number
        assert "NaN" not in text
        kind, size, _ = page.execute_async_script(SAVED, f"#panel{number} .exports button:nth-child(2)")
        assert (kind, size > 1000) == ("image/png", True)
    kind, _, text = page.execute_async_script(SAVED, "#panel0 .exports button:nth-child(3)")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [float(row["test_accuracy"]) for row in rows] == pytest.approx(
        [each.test_accuracy for each in rounds], rel=1e-5
    )
    assert [float(row["bits"]) for row in rows] == pytest.approx([each.ledger.bits for each in rounds], rel=1e-5)
    kind, _, text = page.execute_async_script(SAVED, "#run0 .detail > div .exports button")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["device"]) for row in rows] == list(rounds[4].picked)
    assert [float(row["bits sent"]) for row in rows] == pytest.approx(rounds[4].sent_bits, rel=1e-6)
    column = (
        "return [...document.querySelectorAll('#run0 .detail tbody tr')].map(row => Number(row.cells[2].textContent))"
    )
    for way in (-1, 1):  # a click on a heading sorts, the next one the other way round
        page.execute_script("document.querySelectorAll('#run0 .detail th .sort')[2].click()")
        found = page.execute_script(column)
        assert found == sorted(found, key=lambda value: way * value)
