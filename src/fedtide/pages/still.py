"""A still picture of runs, for readers without scripts: the accuracy, and who uploaded when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fedtide.pages.rows import by_speed
from fedtide.pages.seen import Seen
from fedtide.pages.shell import Markup, joined, markup, text
from fedtide.pages.thin import every
from fedtide.report.palette import COLOURS

WIDTH, CURVE, RASTER, LEFT, GAP = 900, 180, 220, 46, 30
MOST: Final = 400  # points of a curve, columns of a raster


def still(runs: Sequence[Seen], names: Sequence[str]) -> Markup:
    """Return an SVG of the runs one below the other."""
    height = CURVE + RASTER + 3 * GAP
    return markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{said}" '
        'font-family="sans-serif" font-size="12" fill="currentColor">{runs}</svg>',
        width=WIDTH,
        height=len(runs) * height,
        said=text("; ".join(f"{name}: accuracy and uploads over time" for name in names), 400),
        runs=joined(
            _one(run, name, number * height, COLOURS[number])
            for number, (run, name) in enumerate(zip(runs, names, strict=True))
        ),
    )


def _one(run: Seen, name: str, top: int, colour: str) -> Markup:
    end = max(run.experiment.timeline.horizon, run.rounds[-1].time)
    wide, base = WIDTH - LEFT - 10, top + GAP + CURVE
    scored = [each for each in run.rounds if each.test_accuracy is not None]
    points = " ".join(
        f"{LEFT + wide * scored[at].time / end:.1f},{base - CURVE * (scored[at].test_accuracy or 0.0):.1f}"
        for at in every(len(scored), MOST).tolist()
    )
    rank = {device: place for place, device in enumerate(by_speed(run).tolist())}
    step = RASTER / run.num_devices
    marks = "".join(
        f"M{LEFT + wide * run.rounds[at].time / end:.1f} {base + GAP + step * rank[device]:.1f}v{max(step * 0.8, 0.6):.1f}"
        for at in every(len(run.rounds), MOST).tolist()
        for device in run.rounds[at].picked[:40]
    )
    axis = joined(
        markup(
            '<text x="{x}" y="{words:.0f}" text-anchor="end">{share:g}</text>'
            '<path d="M{left} {y:.1f}h{wide}" stroke="#999" stroke-width=".4"/>',
            x=LEFT - 6,
            words=base - CURVE * share + 4,
            share=share,
            left=LEFT,
            y=base - CURVE * share,
            wide=wide,
        )
        for share in (0, 0.5, 1)
    )
    return markup(
        '<text x="{left}" y="{title}" font-size="14">{name}: test accuracy, and uploads by device (fastest above)</text>{axis}'
        '<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        '<path d="{marks}" stroke="{colour}" stroke-width="1.6" fill="none"/>'
        '<text x="{right}" y="{bottom}" text-anchor="end">time to {end:g} {unit}</text>',
        left=LEFT,
        title=top + 16,
        name=text(name, 90),
        axis=axis,
        points=points,
        colour=colour,
        marks=marks,
        right=LEFT + wide,
        bottom=base + GAP + RASTER + 16,
        end=end,
        unit=run.unit,
    )
