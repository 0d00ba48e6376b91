"""Prose with numbers: places are filled from values, and a sentence that does not follow is an error in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtide.errors import FedtideError
from fedtide.studies.statistics import paired_difference
from fedtide_lab.paper.page import paper_values
from fedtide_lab.prose import fill_prose, prose_findings, prose_sections, prose_table

GAIN = paired_difference([0.5, 0.6, 0.7], [0.4, 0.49, 0.61])
OPEN = paired_difference([0.5, 0.6, 0.7], [0.4, 0.9, 0.5])
SAME = paired_difference([0.5, 0.6, 0.7], [0.501, 0.6, 0.699], margin=0.01)
VALUES = {"a over b": GAIN, "a over c": OPEN, "a over d": SAME, "winner": "a", "target": 0.65}


def test_places_are_filled() -> None:
    text = "<!-- if: winner = a --><!-- if: a over b = higher -->\n`{winner}` gains {a over b:+.2f} at {target:g}: {a over b}"
    assert fill_prose(text, VALUES, "f") == f"`a` gains +0.10 at 0.65: +0.100 ({GAIN.low:+.3f} to {GAIN.high:+.3f})"
    assert fill_prose("{a over c}", VALUES, "f").endswith(", not resolved")
    assert fill_prose("{a over d}", VALUES, "f").endswith(", no difference above 0.01")


@pytest.mark.parametrize(
    "condition", ["winner = a", "winner != b", "a over b > 0.05", "target < 0.7", "a over c = not resolved"]
)
def test_a_condition_that_follows_is_not_written(condition: str) -> None:
    assert fill_prose(f"<!-- if: {condition} -->\nSo it is.", VALUES, "f") == "So it is."


@pytest.mark.parametrize(
    "condition", ["winner = b", "a over b = lower", "a over b < 0", "target > 0.65", "winner != a"]
)
def test_a_condition_that_does_not_follow_is_one_line(condition: str) -> None:
    with pytest.raises(FedtideError, match=rf"f\.md: '{condition}' does not follow from the runs") as told:
        fill_prose(f"<!-- if: {condition} -->So it is.", VALUES, "f.md")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("text", ["{b over a}", "<!-- if: b over a > 0 -->", "{a over b }"])
def test_a_place_without_a_value_is_one_line(text: str) -> None:
    with pytest.raises(FedtideError, match=r"f\.md: there is no value \{") as told:
        fill_prose(text, VALUES, "f.md")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("text", ["{winner:+.3f}", "<!-- if: winner > 0 -->", "<!-- if: target > much -->"])
def test_a_format_or_number_that_does_not_fit_is_one_line(text: str) -> None:
    with pytest.raises(FedtideError, match=r"f\.md: ") as told:
        fill_prose(text, VALUES, "f.md")
    assert "\n" not in str(told.value)


def test_a_store_without_findings_has_none(tmp_path: Path) -> None:
    assert prose_findings(tmp_path, VALUES, ["one"]) == {"findings one": ""}
    (tmp_path / "findings.md").write_text("# F\n\n## one\n\n{winner}\n\n## two\n\n### Head\n\nmore\n")
    assert prose_findings(tmp_path, VALUES, ["one", "two"]) == {"findings one": "a", "findings two": "### Head\n\nmore"}


def test_sections_and_tables() -> None:
    assert prose_sections("before\n## a\nb\n\nc\n## d\n") == {"a": "b\n\nc", "d": ""}
    assert prose_table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_how_many_uploads_fedasync_makes() -> None:
    values = paper_values()
    assert values["uploads on seed 0"] == 6109
    assert values["least share of the quickest"] < values["median share of the quickest"] < 100
