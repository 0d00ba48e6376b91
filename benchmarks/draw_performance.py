"""Draws docs/figures/scale.png from docs/results/performance/scale.json: nothing is measured. `make figures` calls it.

The file is what `benchmarks/scale.py` wrote, a list with one mapping for every size of every curve:

    what                     str    name of the curve, such as "periodic, random, R = 1,000" or "per arrival"
    num_devices              int    N
    build_seconds            float  until the first aggregation can begin: data, devices, timeline
    seconds_per_aggregation  float  besides training
    peak_mb                  float  resident memory of the process at its largest, in 10^6 bytes
    bytes_per_aggregation    float  by which the run folder grows, besides the model

A number may be null where it was not measured; other fields are ignored. Without the file it says so and draws nothing.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fedtide.plot.charts import chart_dashes
from fedtide.plot.figure import figure_sheet, figure_style, legend_below, name_panel, write_figure
from fedtide.plot.style import COLOURS, DASH_DOT, DASHED, DOTTED, LONG_DASH, SHORT_DASH, SOLID, LineStyle

ROOT = Path(__file__).resolve().parent.parent
STORED, FIGURE = ROOT / "docs" / "results" / "performance" / "scale.json", ROOT / "docs" / "figures" / "scale.png"
PANELS = (  # field, name of the panel, axis, what one unit of the axis is
    ("build_seconds", "building", "seconds", 1.0),
    ("seconds_per_aggregation", "an aggregation", "ms without training", 1e-3),
    ("peak_mb", "memory at its largest", "MB", 1.0),
    ("bytes_per_aggregation", "run folder", "kB per aggregation", 1e3),
)
LINE_STYLES = [
    LineStyle(colour, dash, marker)
    for colour, dash, marker in zip(
        COLOURS, (SOLID, DASHED, DASH_DOT, DOTTED, LONG_DASH, SHORT_DASH), "os^DvP", strict=False
    )
]


def curves(rows: list[dict[str, Any]], field: str) -> dict[str, list[tuple[float, float]]]:
    """Return (devices, number) by curve, ascending; what was not measured is left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda each: each["num_devices"]):
        points = found.setdefault(row["what"], [])
        if row.get(field):  # axes are logarithmic: no room for nothing either
            points.append((float(row["num_devices"]), float(row[field])))
    return found


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw a panel for each field that was measured, on logarithmic axes."""
    measured = [panel for panel in PANELS if any(curves(rows, panel[0]).values())]
    with figure_style() as style:
        figure, panels = figure_sheet(style, -(-len(measured) // 2), 2)
        for unused in panels.flat[len(measured) :]:
            unused.set_axis_off()
        for position, (panel, (field, name, axis, unit)) in enumerate(zip(panels.flat, measured, strict=False)):
            for number, (what, points) in enumerate(curves(rows, field).items()):
                look = LINE_STYLES[number % len(LINE_STYLES)]
                panel.plot(
                    [devices for devices, _ in points],
                    [value / unit for _, value in points],
                    color=look.colour,
                    linestyle=chart_dashes(look),
                    marker=look.marker,
                    label=what,
                )
            panel.set_xscale("log")
            panel.set_yscale("log")
            low, high = (math.log10(each) for each in panel.get_ylim())
            panel.set_ylim(10 ** math.floor(low), 10 ** math.ceil(high))  # whole decades: small differences look small
            panel.set_xlabel("devices")
            panel.set_ylabel(axis)
            name_panel(panel, style, position, name)
        legend_below(figure, style, panels.flat)
        write_figure(figure, path, dpi=180)


def main(stored: Path = STORED, path: Path = FIGURE) -> None:
    if not stored.exists():
        print(f"{stored.name} is not there: {path.name} stays as it is (python benchmarks/scale.py measures)")
        return
    draw(json.loads(stored.read_text()), path)


if __name__ == "__main__":
    main()
