"""Figures of a run. Matplotlib is imported when a figure is asked for, not before."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtide.config import Experiment
from fedtide.errors import RunFolderError
from fedtide.records import RoundRecord, machine_fault, write_atomically
from fedtide.report.summary import evaluated

# Okabe and Ito's palette: told apart by readers who do not see all colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
    "svg.hashsalt": "fedtide",
}


AXES = {
    "time": r"time (units of $T_{\max}$)",
    "index": "iteration",
    "test_accuracy": "test accuracy",
    "train_loss": "training loss",
    "bits": "bits sent",
    "samples_trained": "samples trained by the devices",
    "symbols": "symbols spent",
}
FORMATS = ("pdf", "svg", "png")


def axis_name(column: str) -> str:
    """Name a recorded column for an axis."""
    return AXES.get(column, column.replace("_", " "))


def new_figure(width: float, height: float) -> Any:
    """Return a bare Matplotlib figure with a canvas; no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, stem: Path) -> list[Path]:
    """Save as PDF, SVG and PNG, without dates, so that the same figure gives the same bytes."""
    if not stem.name:
        raise RunFolderError(f"{str(stem)!r} names no file: give a name without ending, as in figures/mine")
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in FORMATS]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(path.suffix[1:], {})
            figure.savefig(path, metadata=date, dpi=180)
    except OSError as error:
        raise RunFolderError(
            f"the figure {stem} cannot be written ({error.strerror or error}): choose a place that you may write to"
        ) from error
    return paths


def describe(experiment: Experiment) -> str:
    """Say in one line what an experiment is."""
    setting = {"shards": "non-i.i.d.", "iid": "i.i.d.", "dirichlet": "Dirichlet"}[experiment.data.partition]
    return (
        f"{experiment.data.name}, {setting}, N={experiment.fleet.num_devices}, R={experiment.policy.limit}, "
        f"n={experiment.radio.num_symbols:,.0f}, {experiment.timeline.name}, {experiment.policy.scheduler}, "
        f"$\\gamma$={experiment.policy.age_base:g}, {experiment.codec.name}, seed {experiment.seed}"
    )


def run_figure(experiment: Experiment, rounds: Sequence[RoundRecord], path: Path) -> None:
    """Draw accuracy and loss over simulated time, and below it how much of each update got through."""
    import matplotlib as mpl

    scored = evaluated(rounds)
    time = [each.time for each in scored]
    with mpl.rc_context(STYLE):
        figure = new_figure(6.4, 4.4)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        top.plot(time, [each.test_accuracy for each in scored], color=COLOURS[0])
        top.set_ylabel("test accuracy", color=COLOURS[0])
        loss = top.twinx()
        loss.plot(
            time,
            [math.nan if each.test_loss is None else each.test_loss for each in scored],
            color=COLOURS[1],
            linewidth=1,
        )
        loss.set_ylabel("test loss", color=COLOURS[1])
        loss.grid(False)
        sent = [each for each in rounds if each.picked]
        bottom.plot(
            [each.time for each in sent], [each.budget_bits[0] / 1000 for each in sent], ".", ms=3, color=COLOURS[2]
        )
        bottom.set_ylabel("kbit / upload")
        bottom.set_xlabel(
            r"simulated time (units of $T_{\max}$)" if experiment.fleet.max_duration == 1 else "simulated time"
        )
        figure.suptitle(describe(experiment), fontsize=8)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    write_atomically(path, buffer.getvalue())


def is_whole(path: Path) -> bool:
    """Say whether a PNG is there from its first byte to its last."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise machine_fault(path, "read", error) from error
    return content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82")
