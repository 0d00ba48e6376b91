"""The shell: bytes that are always the same, and words that are nothing but words."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from fedtide.errors import FedtideError
from fedtide.pages import run_rows
from fedtide.pages.html import _plain_data, html_label, html_page, html_text, markup, payload_json
from fedtide.plot import charts

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "a" * 10_000,
    "\u202eabc\u2028\u2029",
    "\ud800",
    "&lt;",
]


def _page(payload: object) -> str:
    return html_page("title", payload, ("common.js",), markup('<main id="main"></main>'), markup("<svg></svg>"))


@pytest.mark.parametrize("words", HOSTILE, ids=lambda each: ascii(each)[:12])
def test_words_stay_words(words: str) -> None:
    made = _page({words: [words]})
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', made, re.S)
    assert block
    assert json.loads(block[1]) == {words: [words]}
    assert not set("<>&\u2028\u2029") & set(block[1])
    assert "<" not in html_text(words).replace("&lt;", "")
    assert len(html_label(words, 50)) < 50 * 6 + 20
    html_text(words).encode()


def test_the_policy_allows_what_is_in_the_page_and_nothing_else() -> None:
    made = _page({})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert "connect-src" not in policy[1]
    assert made.index("Content-Security-Policy") < made.index("<style")
    assert not re.search(r'(src|href)="(?!data:|#)', made), "something is fetched"


def test_equal_arguments_give_equal_bytes() -> None:
    assert _page({"b": 1, "a": [0.1 + 0.2]}) == _page({"a": [0.3], "b": 1.0})


def test_numbers() -> None:
    tree = {
        "nan": float("nan"),
        "inf": [np.inf],
        "long": np.float64(1 / 3),
        "whole": np.arange(2),
        "no": None,
        "yes": True,
    }
    assert payload_json(tree) == '{"inf":[null],"long":0.3333333,"nan":null,"no":null,"whole":[0,1],"yes":true}'
    with pytest.raises(TypeError, match="a set has no place"):
        _plain_data({1})


def test_a_page_is_thinned_until_it_fits() -> None:
    asked = []

    def make(level: int) -> str:
        asked.append(level)
        return "x" * (3 * run_rows.PAGE_BYTES >> level)

    assert len(run_rows.fit_page(make)) == 3 * run_rows.PAGE_BYTES >> 2
    assert asked == [0, 1, 2]
    with pytest.raises(FedtideError, match="however it is thinned"):
        run_rows.fit_page(lambda level: "x" * (run_rows.PAGE_BYTES + 1))


@pytest.mark.parametrize(("count", "most"), [(0, 5), (5, 5), (6, 5), (1000, 7)])
def test_every_keeps_the_ends(count: int, most: int) -> None:
    kept = charts.evenly_on_chart(count, most).tolist()
    assert len(kept) <= most
    assert kept[:1] == [0][:count]
    assert kept[-1:] == [count - 1][:count]
