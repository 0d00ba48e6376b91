"""Curves that are drawn together are told apart: by readers who do not see red and green, and on a grey printer."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from fedtide.plot.charts import _MARKS, TINTS, ForestRow, draw_forest
from fedtide.plot.style import (
    ALIASES,
    COLOURS,
    LINE_STYLES,
    NUM_SPARE,
    LineStyle,
    _known_style,
    _spare_style,
    line_styles,
)
from fedtide.studies.statistics import EQUIVALENT, paired_difference
from fedtide_lab.paper.figures import FIGURES
from fedtide_lab.worlds.studies import CURVES

# Machado, Oliveira and Fernandes (2009), deuteranopia, severity 1.0, on linear RGB
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
GREY = np.array([[0.2126, 0.7152, 0.0722]] * 3)
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
CLEAR, CLOSE = 20.0, 9.0  # distances in CIELAB: told apart at a glance; told apart with the help of dash and marker
TOGETHER = {
    **{f"paper, {name}": list(figure.curves) for name, figure in FIGURES.items()},
    "worlds": ["proposed", "random", "BC", "age-based", "FedAvg"],
    "codecs": ["sparse_quantized", "dead_zone"],
    "bounds": ["Theorem 1", "tight", "sharp", "measured"],
    "unknown": [f"variant {number}" for number in range(7)],
    "half known": ["mine", "random", "theirs", "proposed"],
}


def linear(colour: str) -> np.ndarray:
    part = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """Return the colour in CIELAB (D65) as it is seen: a matrix on linear RGB."""
    xyz = TO_XYZ @ np.clip(seen @ linear(colour), 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one: LineStyle, other: LineStyle, seen: np.ndarray) -> float:
    return float(np.linalg.norm(lab(one.colour, seen) - lab(other.colour, seen)))


def test_the_distance_is_that_of_cielab() -> None:
    assert distance(LineStyle("#000000"), LineStyle("#ffffff"), np.eye(3)) == pytest.approx(100, abs=0.01)
    assert lab("#D55E00", np.eye(3)) == pytest.approx([53.7, 43.3, 63.6], abs=1)
    assert np.ptp(GREY @ linear("#D55E00")) == 0


@pytest.mark.parametrize("names", TOGETHER.values(), ids=TOGETHER)
def test_curves_of_a_figure_are_told_apart(names: list[str]) -> None:
    for one, other in combinations(line_styles(names).values(), 2):
        helped = one.dash != other.dash and one.marker != other.marker
        assert helped
        assert distance(one, other, np.eye(3)) >= CLEAR
        assert distance(one, other, DEUTERANOPIA) >= CLOSE
        assert distance(one, other, GREY) >= CLEAR or helped


def test_every_name_has_a_look_of_its_own() -> None:
    assert len(set(LINE_STYLES.values())) == len(LINE_STYLES)
    assert set(ALIASES.values()) <= LINE_STYLES.keys()
    for look in LINE_STYLES.values():  # on white paper
        assert 1.05 / (float((GREY @ linear(look.colour))[0]) + 0.05) >= 3, look  # WCAG 2.2, 1.4.11
        assert len(look.dash) % 2 == 0


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("proposed | i.i.d.", "proposed"),
        ("periodic, random | non-i.i.d.", "random"),
        (r"$T_{\max}/4$", "random"),
        (r"proposed, $\gamma$=0.846", "proposed, fresh"),
        ("scheduler=best_channel", "BC"),
        ("policy.scheduler=random", "random"),
        ("FedAvg", "FedAvg"),
    ],
)
def test_a_policy_looks_the_same_under_all_its_names(label: str, name: str) -> None:
    assert _known_style(label) == LINE_STYLES[name]
    assert line_styles(["another", label])[label] == LINE_STYLES[name]


def test_what_has_no_name_gets_a_line_style_by_its_place() -> None:
    found = line_styles(["mine", "random", "yours"])
    assert found == {
        "mine": _spare_style(0),
        "random": LINE_STYLES["random"],
        "yours": _spare_style(2),
    }
    assert _known_style("limit=8, scheduler=random") is None
    many = line_styles([f"v{number}" for number in range(NUM_SPARE)])
    assert len(set(many.values())) == NUM_SPARE
    assert len(line_styles([f"v{number}" for number in range(3 * NUM_SPARE)])) == 3 * NUM_SPARE
    twice = line_styles(["scheduler=random", "random"])
    assert twice["scheduler=random"] != twice["random"]


def test_the_curves_of_the_worlds_are_known() -> None:
    assert all(_known_style(name) for name in CURVES)


def test_it_is_pure_data() -> None:
    code = "import sys, fedtide.plot.style; sys.exit('matplotlib' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert len(COLOURS) == len(set(COLOURS))


def test_verdicts_are_told_apart_by_colour_and_by_shape(tmp_path: Path) -> None:
    assert set(_MARKS) <= set(TINTS)
    assert EQUIVALENT in _MARKS
    assert len(set(_MARKS.values())) == len({TINTS[kind] for kind in _MARKS}) == 4
    for one, other in combinations([LineStyle(TINTS[kind]) for kind in _MARKS], 2):
        assert distance(one, other, np.eye(3)) >= CLEAR
        assert distance(one, other, DEUTERANOPIA) >= CLOSE
    for kind in _MARKS:
        luminance = float((GREY @ linear(TINTS[kind]))[0])
        assert 1.05 / (luminance + 0.05) >= 3, kind  # on white paper
    verdicts = ("not resolved", f"{EQUIVALENT} 0.01", "holds")
    rows = [ForestRow(verdict, paired_difference([0.1, 0.2], [0.1, 0.1]), verdict) for verdict in verdicts]
    draw_forest({"difference": rows}, tmp_path / "forest")
    drawn = (tmp_path / "forest.svg").read_text().lower()
    assert all(TINTS[kind].lower() in drawn for kind in ("holds", EQUIVALENT, "not resolved"))
    assert TINTS["contradicted"].lower() not in drawn
