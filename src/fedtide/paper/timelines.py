"""The paper's two timeline drawings, drawn from real event traces of our own timelines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.report.figure import new_figure, our_style, save
from fedtide.report.palette import COLOURS
from fedtide.report.style import SCREEN
from fedtide.types import Floats, Ints, Tick
from fedtide.world.availability import Always
from fedtide.world.clock import make_clock
from fedtide.world.duration import Uniform, first
from fedtide.world.stepping import start_times
from fedtide.world.timeline import PerArrival, Periodic, Synchronous

GREY = "#bbbbbb"


def frameworks(
    stem: Path, seed: int = 4, num_devices: int = 5, horizon: float = 2.0, style: str = SCREEN
) -> list[Path]:
    """Draw synchronous, fully asynchronous and periodic training of the same devices, one panel each."""
    uniform = Uniform(0.25, 1.0)
    duration = first(uniform, seed, num_devices)
    clock = make_clock(seed, num_devices, horizon, uniform, Always())
    drawn = (
        ("synchronous (FedAvg)", list(Synchronous(1.0)(clock))),
        ("fully asynchronous (FedAsync)", list(PerArrival()(clock))),
        (r"periodic, $\tilde T=T_{\max}/4$", list(Periodic(0.25)(clock))),
    )
    with our_style(style) as how:
        page = new_figure(how.width, 4.5)
        panels = page.subplots(3, 1, sharex=True)
        for panel, (title, ticks) in zip(panels, drawn, strict=True):
            _trace(panel, ticks, duration, horizon)
            panel.set_title(title, loc="left")
        panels[-1].set_xlabel(r"time (units of $T_{\max}$)")
        page.legend(handles=_legend(), loc="outside lower center", ncols=2, handlelength=1.6)
        return save(page, stem)


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(color=COLOURS[0], alpha=0.75, label="training"),
        Patch(facecolor="white", edgecolor=GREY, hatch="///", label="waiting"),
        Line2D([], [], color=COLOURS[1], linewidth=1, label="aggregation"),
        Line2D([], [], color=COLOURS[1], marker="o", ms=4, linewidth=0, label=r"ready, receives the new $\theta$"),
    ]


def _trace(panel: Any, ticks: Sequence[Tick], duration: Floats, horizon: float) -> None:
    """Draw every device's training and waiting as bars, and the aggregations as lines."""
    born = start_times(ticks)
    version = np.ones(len(duration), np.int64)
    for tick in ticks:
        panel.axvline(tick.time, color=COLOURS[1], linewidth=0.7, alpha=0.6)
        for device in tick.ready.tolist():
            _bar(panel, device, float(born[version[device]]), float(duration[device]), tick.time)
            version[device] = tick.index + 1
        panel.plot(
            [tick.time] * len(tick.ready), tick.ready, "o", ms=3.5, color=COLOURS[1], mec="white", mew=0.5, zorder=4
        )
    for device in range(len(duration)):  # those still at work at the end
        begun = float(born[version[device]])
        _bar(panel, device, begun, min(float(duration[device]), horizon - begun), horizon)
    panel.set_xlim(0, horizon)
    panel.set_ylim(len(duration) - 0.4, -0.6)
    panel.set_yticks(range(len(duration)), [f"device {k + 1}" for k in range(len(duration))])
    panel.grid(False)


def _bar(panel: Any, device: int, begun: float, duration: float, until: float) -> None:
    panel.barh(device, duration, left=begun, height=0.6, color=COLOURS[0], alpha=0.75, edgecolor="white", linewidth=0.8)
    if until - begun - duration > 1e-9:
        waited = until - begun - duration
        panel.barh(
            device, waited, left=begun + duration, height=0.6, color="white", edgecolor=GREY, hatch="///", linewidth=0
        )


def ages(
    stem: Path, seed: int = 1, num_devices: int = 10, at: int = 8, limit: int = 5, style: str = SCREEN
) -> list[Path]:
    """Draw ten devices up to one aggregation: who is ready, with which age, and who is scheduled (at random)."""
    from fedtide.rng import stream

    uniform = Uniform(0.1, 1.0)
    duration = first(uniform, seed, num_devices)
    ticks = list(Periodic(0.25)(make_clock(seed, num_devices, (at + 1) / 4, uniform, Always())))
    tick = ticks[at - 1]
    age: Ints = tick.index - tick.start
    picked = set(tick.ready[np.sort(stream(seed, "schedule", at).permutation(len(tick.ready))[:limit])].tolist())
    with our_style(style) as how:
        page = new_figure(how.width, 3.0)
        panel = page.subplots()
        born = start_times(ticks)
        ready = dict(zip(tick.ready.tolist(), age.tolist(), strict=True))
        for device in range(num_devices):
            held = 1
            for earlier in ticks[: at - 1]:
                if device in earlier.ready:
                    held = earlier.index + 1
            begun, colour = float(born[held]), COLOURS[ready[device] % len(COLOURS)] if device in ready else GREY
            panel.barh(device, min(float(duration[device]), tick.time - begun), left=begun, height=0.6, color=colour,
                       alpha=0.9 if device in picked else 0.35)  # fmt: skip
            text = (
                "still training"
                if device not in ready
                else f"age {ready[device]}" + (", scheduled" if device in picked else "")
            )
            panel.text(tick.time + 0.03, device, text, va="center", fontsize=how.small)
        for each in ticks[at - 5 : at]:
            panel.axvline(each.time, color=COLOURS[1], linewidth=1.6 if each.index == at else 0.6)
            panel.text(each.time, -0.85, f"t={each.index}", ha="center", fontsize=how.small)
        panel.set_xlim(float(born[at - 3]) - 0.03, tick.time + (0.62 if how.stacked else 0.47))
        panel.set_ylim(num_devices - 0.4, -0.7)
        panel.set_yticks(range(num_devices), [f"device {k + 1}" for k in range(num_devices)])
        panel.set_xlabel(r"time (units of $T_{\max}$), $\tilde T=T_{\max}/4$")
        panel.grid(False)
        return save(page, stem)
