"""Runs over several cells or edge servers: rows in groups, interference below the channels."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide.pages.run import run_page
from fedtide.pages.run_rows import row_grid, run_row_interference
from fedtide.pages.run_view import RunView, view_run
from fedtide.runs import read_run

CELLS: dict[str, Any] = {"radio": {"coverage": {"name": "hex_grid", "spacing": 866.0}}}
EDGES: dict[str, Any] = {"policy": {"aggregator": {"name": "hierarchical", "edges": 4}}}
MANY: dict[str, Any] = {
    **CELLS,
    "data": {"partition": "iid"},
    "fleet": {"num_devices": 400},
    "timeline": {"horizon": 1.0},
}


def sent_to(view: RunView, name: str) -> dict[int, int]:
    """The last cell or edge server of each device that uploaded."""
    return {k: int(c) for each in view.rounds for k, c in zip(each.picked, getattr(each, name), strict=True)}


@pytest.mark.parametrize(("keys", "name", "count"), [(CELLS, "cell", 7), (EDGES, "edge", 4)], ids=["cells", "edges"])
def test_every_device_is_in_a_group(made_run: Callable[..., Path], keys: dict[str, Any], name: str, count: int) -> None:
    view = view_run(made_run(**keys))
    assert view.groups is not None
    assert view.groups.name == name
    told = sent_to(view, name)
    assert len(told) < view.num_devices, "some never uploaded: the plan says where they are"
    assert all(view.groups.number[device] == cell for device, cell in told.items())
    assert {*view.groups.number.tolist()} <= {*range(count)}
    grid = row_grid(view, 0)
    assert grid.group is not None
    assert np.array_equal(grid.group, view.groups.number)


def test_of_one_cell_there_are_no_groups(made_run: Callable[..., Path]) -> None:
    view = view_run(made_run())
    grid = row_grid(view, 0)
    assert view.groups is None
    assert grid.group is None
    assert run_row_interference(view, grid) is None


def test_rows_of_many_devices_are_of_one_cell_each(made_run: Callable[..., Path]) -> None:
    view = view_run(made_run(**MANY))
    for level in (0, 3, 8):
        grid = row_grid(view, level)
        assert view.groups is not None
        assert grid.group is not None
        assert not grid.fine
        assert np.array_equal(grid.group[grid.row], view.groups.number)
        assert grid.size.sum() == 400
        assert (grid.size > 0).all()


def test_interference_is_that_of_the_records(made_run: Callable[..., Path]) -> None:
    view = view_run(made_run(**CELLS))
    found = run_row_interference(view, row_grid(view, 0))
    assert found is not None
    level = np.frombuffer(b64decode(found["level"]["packed"]), np.uint8).reshape(-1, found["count"])
    for row, each in zip(level, view.rounds, strict=True):
        met = dict(zip(each.cell, each.interference, strict=True))  # all of a cell meet the same
        assert {int(c) for c in np.flatnonzero(row)} == {*met}
        for cell, ratio in met.items():
            decibels = found["low"] + (row[cell] - 1) / 254 * (found["high"] - found["low"])
            assert decibels == pytest.approx(max(10 * np.log10(max(ratio, 1e-9)), -30), abs=0.3)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_shows_cells_and_interference(
    made_run: Callable[..., Path], opened: Callable[..., Any], width: int
) -> None:
    folder = made_run(**CELLS)
    page = opened(run_page([folder]), "#t=7", width)
    each = read_run(folder).rounds[6]
    orders = page.execute_script("return [...document.querySelectorAll('#order option')].map(each => each.textContent)")
    assert orders[0] == "by cell"
    assert "7 cells" in page.find_element("css selector", ".facts").text
    heads, *rows = page.execute_script(
        "return [...document.querySelectorAll('#run0 .detail table tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert heads[-2:] == ["cell", "I/N, dB"]
    assert [int(row[-2]) for row in rows] == list(each.cell)
    met = [f"{10 * np.log10(value):.1f}" if value > 0 else "none" for value in each.interference]
    assert [row[-1].replace("−", "-") for row in rows] == met
    legend = page.execute_script("return document.querySelector('#run0').textContent")
    assert "interference over noise" in legend
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    tall = "return [...document.querySelectorAll('#run0 figure > canvas')].map(each => each.clientHeight)"
    grouped = page.execute_script(tall)
    page.execute_script(
        "const s = document.querySelector('#order'); s.value = 'speed'; s.dispatchEvent(new Event('change'))"
    )
    assert page.execute_script(tall)[1] < grouped[1], "names of cells take room"
