"""What the codec studies say: the table and the figures of docs/codec.md, from the finished runs in results/paper.

fedtide study run examples/codec.yaml --store results/paper           # trains what is missing
fedtide study run examples/codec-weights.yaml --store results/paper
python benchmarks/codec_study.py                                      # prints the table, draws docs/figures/codec-*.png
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.plot.charts import ACCURACY, chart_dashes, draw_curve, draw_end, leave_chart_room
from fedtide.plot.figure import figure_axis_name, figure_sheet, figure_style, legend_below, write_figure
from fedtide.plot.style import LINE_STYLES, line_styles
from fedtide.studies.metrics import final_accuracy
from fedtide.studies.results import RunResult
from fedtide.studies.spec import Run, read_study
from fedtide.studies.statistics import Comparison, _on_one_path, half_width, mean_band, paired_difference
from fedtide.studies.store import Store

ROOT = Path(__file__).resolve().parent.parent
STUDIES = [ROOT / "examples" / name for name in ("codec.yaml", "codec-weights.yaml")]
DISTORTION = ROOT / "docs" / "results" / "codec" / "distortion.json"
FIGURES = ROOT / "docs" / "figures"
CODECS = {"sparse_quantized": "the paper's", "dead_zone": "ours"}
DATA = {"shards": "non-i.i.d.", "iid": "i.i.d."}
HELD = 5  # evaluations


class Setting(NamedTuple):
    """Where both codecs are compared."""

    partition: str
    num_devices: int
    limit: int

    @property
    def title(self) -> str:
        return f"R = {self.limit}" + f", N = {self.num_devices}" * (self.num_devices != 40)


Pairs = dict[int, tuple[RunResult, RunResult]]  # seed -> the paper's codec, ours


def pairs(store: Store) -> dict[Setting, Pairs]:
    """Return the finished runs of both codecs with equal seeds."""
    runs: dict[tuple[Setting, int], dict[str, Run]] = {}
    for path in STUDIES:
        for run in read_study(path).runs:
            each = run.experiment
            setting = Setting(each.data.partition.name, each.fleet.num_devices, each.policy.limit)
            runs.setdefault((setting, each.seed), {})[each.part("codec").name] = run
    found: dict[Setting, Pairs] = {}
    for (setting, seed), both in sorted(runs.items()):
        if all(store.has(both[codec].name) for codec in CODECS):
            theirs, ours = _on_one_path(store.load(both[codec].name) for codec in CODECS)
            found.setdefault(setting, {})[seed] = (theirs, ours)
    return found


def at(result: RunResult, time: float) -> float:
    """Return the accuracy at a time."""
    return float(np.interp(time, result.column("time"), result.column("test_accuracy")))


def share_until(result: RunResult, level: float, held: int = 1) -> float:
    """Return the share of the horizon until the accuracy reaches a level, on the mean of so many evaluations from then."""
    time, accuracy = result.column("time"), result.column("test_accuracy")
    for first in np.flatnonzero(accuracy >= level):
        if accuracy[first : first + held].mean() >= level:
            return float(time[first] / time[-1])
    return float("inf")


def interval(found: Comparison) -> str:
    return f"{found.mean:+.3f}" + (f" ({found.low:+.3f} to {found.high:+.3f})" if found.num_seeds > 1 else "")


def print_table(found: dict[Setting, Pairs]) -> None:
    print(
        "| data | setting | seeds | at 4 T_max: paper's | ours | at the end: paper's | ours | gain at the end (95 %) |",
        end="",
    )
    print(" ours is there in | and stays |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for setting, by_seed in found.items():
        runs = list(by_seed.values())
        early = np.mean([[at(each, 4.0) for each in pair] for pair in runs], axis=0)
        ends = np.array([[final_accuracy(each) for each in pair] for pair in runs])
        gain = paired_difference(list(ends[:, 1]), list(ends[:, 0]))
        first, stays = (
            ", ".join(f"{share_until(ours, final_accuracy(theirs), held):.2f}" for theirs, ours in runs)
            for held in (1, HELD)
        )
        end = ends.mean(axis=0)
        print(
            f"| {DATA[setting.partition]} | {setting.title} | {len(runs)} | {early[0]:.3f} | {early[1]:.3f} | "
            f"{end[0]:.3f} | {end[1]:.3f} | {interval(gain)} | {first} | {stays} |"
        )


def draw_accuracy(found: dict[Setting, Pairs]) -> None:
    """Draw both codecs at R = 8 over time, and below it where they end at every R; a column per data setting."""
    with figure_style() as style:
        figure, (above, below) = figure_sheet(style, 2, len(DATA), 2.2, sharey="row")
        for panel, ends, (partition, name) in zip(above, below, DATA.items(), strict=True):
            runs = list(found[Setting(partition, 40, 8)].values())
            step = leave_chart_room(panel, 0, 35, len(CODECS))
            for side, codec in enumerate(CODECS):
                drawn, look = mean_band([pair[side] for pair in runs], "test_accuracy", smooth=True), LINE_STYLES[codec]
                words = f"{CODECS[codec]} ({codec})"
                draw_curve(panel, drawn.x, drawn.mean, look, words, drawn.curves, side, len(CODECS), ACCURACY)
                at = drawn.x[-1] + step * (side + 1)
                draw_end(panel, at, drawn.mean[-1], drawn.low[-1], drawn.high[-1], look, ACCURACY)
            panel.axhline(
                np.mean([final_accuracy(pair[0]) for pair in runs]),
                color=LINE_STYLES["sparse_quantized"].colour,
                linewidth=0.7,
            )
            panel.axvline(35 / 5, color="gray", linestyle="--", linewidth=0.8)
            panel.set_title(f"{name}, R = 8 ({len(runs)} seeds)")
            panel.set_xlabel(figure_axis_name("time"))
            draw_ends(ends, {setting: each for setting, each in found.items() if setting.partition == partition})
            ends.set_title(f"{name}, every R")
        above[0].set_ylabel("test accuracy,\naveraged over one $T_{\\max}$")
        below[0].set_ylabel("test accuracy\nat the end")
        above[0].set_ylim(0.2, 1)
        legend_below(figure, style, [above[0]])
        write_figure(figure, FIGURES / "codec-accuracy.png", dpi=180)


def draw_ends(panel: Any, found: dict[Setting, Pairs]) -> None:
    """Draw where both codecs end, a pair of intervals per R; small dots are single seeds."""
    for place, by_seed in enumerate(found.values()):
        for side, codec in enumerate(CODECS):
            look, values = LINE_STYLES[codec], np.array([final_accuracy(pair[side]) for pair in by_seed.values()])
            at = place + 0.24 * (side - 0.5)
            width = float(half_width(values)) if len(values) > 1 else 0.0
            panel.plot([at + 0.11] * len(values), values, ".", color=look.colour, markersize=2.5, alpha=0.7)
            draw_end(panel, at, values.mean(), values.mean() - width, values.mean() + width, look, ACCURACY)
    names = [f"R={each.limit}" + f"\nN={each.num_devices}" * (each.num_devices != 40) for each in found]
    panel.set_xticks(range(len(found)), names)
    panel.grid(visible=False, axis="x")


def draw_distortion() -> None:
    """Draw what `benchmarks/codec.py distortion` found."""
    found = json.loads(DISTORTION.read_text(encoding="utf-8"))
    titles = {"one": "one update", "mean_of_eight": "the mean of eight updates"}
    names = [*CODECS, *(name for name in found["one"] if name not in CODECS and name != "random mask, quarter")]
    drawn_as = line_styles(names)
    with figure_style() as style:
        figure, rows = figure_sheet(style, 1, 2, 3.4, sharey=True)
        for panel, (key, title) in zip(rows[0], titles.items(), strict=True):
            for name in names:
                ours, look = name in CODECS, drawn_as[name]
                panel.plot(found["rates"], found[key][name], linestyle=chart_dashes(look), color=look.colour,
                           marker=look.marker, markevery=max(1, len(found["rates"]) // 6), linewidth=1.8 if ours else 0.9,
                           label=f"{CODECS[name]} ({name})" if ours else f"tried: {name}")  # fmt: skip
            rates = np.linspace(0, 4, 50)
            panel.plot(rates, 2 ** (-2 * rates), color="black", linewidth=0.8, label="Gaussian of the same variance")
            panel.set(title=title, xlabel="bits per element", yscale="log", ylim=(1e-3, 30), xlim=(0, 4))
        rows[0][0].set_ylabel("squared error / squared norm")
        legend_below(figure, style, rows[0])
        write_figure(figure, FIGURES / "codec-distortion.png", dpi=180)


def main() -> None:
    found = pairs(Store(ROOT / "results" / "paper"))
    print_table(found)
    draw_accuracy(found)
    draw_distortion()


if __name__ == "__main__":
    main()
