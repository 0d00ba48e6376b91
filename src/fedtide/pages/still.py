"""A still picture of runs, for readers without scripts: the accuracy, and who uploaded when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fedtide.pages.rows import by_speed
from fedtide.pages.seen import Seen
from fedtide.pages.shell import text
from fedtide.pages.thin import every
from fedtide.report.palette import COLOURS

WIDTH, CURVE, RASTER, LEFT, GAP = 900, 180, 220, 46, 30
MOST: Final = 400  # points of a curve, columns of a raster


def still(runs: Sequence[Seen], names: Sequence[str]) -> str:
    """Return an SVG of the runs one below the other."""
    height = len(runs) * (CURVE + RASTER + 3 * GAP)
    said = text("; ".join(f"{name}: accuracy and uploads over time" for name in names), 400)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{said}" '
        'font-family="sans-serif" font-size="12" fill="currentColor">'
    ]
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        parts.append(_one(run, name, number * (CURVE + RASTER + 3 * GAP), COLOURS[number]))
    return "".join([*parts, "</svg>"])


def _one(run: Seen, name: str, top: int, colour: str) -> str:
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
    axis = "".join(
        f'<text x="{LEFT - 6}" y="{base - CURVE * share + 4:.0f}" text-anchor="end">{share:g}</text>'
        f'<path d="M{LEFT} {base - CURVE * share:.1f}h{wide}" stroke="#999" stroke-width=".4"/>'
        for share in (0, 0.5, 1)
    )
    return (
        f'<text x="{LEFT}" y="{top + 16}" font-size="14">{text(name, 90)}: test accuracy, and uploads by device '
        f"(fastest above)</text>{axis}"
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        f'<path d="{marks}" stroke="{colour}" stroke-width="1.6" fill="none"/>'
        f'<text x="{LEFT + wide}" y="{base + GAP + RASTER + 16}" text-anchor="end">time to {end:g} {text(run.unit)}</text>'
    )
