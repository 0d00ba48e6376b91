"""What the codec studies say: the table and the figures of docs/codec.md, from the finished runs in results/paper.

fedtide study run examples/codec.yaml --store results/paper           # trains what is missing
fedtide study run examples/codec-weights.yaml --store results/paper
python benchmarks/codec_study.py                                      # prints the table, draws docs/figures/codec-*.png
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np

from fedtide.report.figure import COLOURS, STYLE, axis_name, new_figure
from fedtide.studies.pairing import on_one_path
from fedtide.studies.result import RunResult, Store
from fedtide.studies.spec import Run, read
from fedtide.studies.statistics import Comparison, band, compare

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
        for run in read(path).runs:
            each = run.experiment
            setting = Setting(each.data.partition, each.fleet.num_devices, each.policy.limit)
            runs.setdefault((setting, each.seed), {})[each.codec.name] = run
    found: dict[Setting, Pairs] = {}
    for (setting, seed), both in sorted(runs.items()):
        if all(store.has(both[codec].name) for codec in CODECS):
            theirs, ours = on_one_path(store.load(both[codec].name) for codec in CODECS)
            found.setdefault(setting, {})[seed] = (theirs, ours)
    return found


def at(result: RunResult, time: float) -> float:
    """Return the accuracy at a time."""
    return float(np.interp(time, result.column("time"), result.column("test_accuracy")))


def final(result: RunResult) -> float:
    """Return the mean accuracy over the last twentieth of the horizon."""
    time = result.column("time")
    return float(result.column("test_accuracy")[time > 0.95 * time[-1]].mean())


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
        ends = np.array([[final(each) for each in pair] for pair in runs])
        gain = compare(list(ends[:, 1]), list(ends[:, 0]))
        first, stays = (
            ", ".join(f"{share_until(ours, final(theirs), held):.2f}" for theirs, ours in runs) for held in (1, HELD)
        )
        end = ends.mean(axis=0)
        print(
            f"| {DATA[setting.partition]} | {setting.title} | {len(runs)} | {early[0]:.3f} | {early[1]:.3f} | "
            f"{end[0]:.3f} | {end[1]:.3f} | {interval(gain)} | {first} | {stays} |"
        )


def draw_accuracy(found: dict[Setting, Pairs]) -> None:
    """Draw both codecs' curves, a row per data setting and a column per R."""
    columns = sorted({setting[1:] for setting in found})
    with mpl.rc_context(STYLE):
        figure = new_figure(2.3 * len(columns), 4.6)
        panels = figure.subplots(len(DATA), len(columns), squeeze=False, sharex=True, sharey=True)
        for row, (partition, name) in zip(panels, DATA.items(), strict=True):
            for panel, column in zip(row, columns, strict=True):
                setting = Setting(partition, *column)
                runs = list(found.get(setting, {}).values())
                if not runs:
                    panel.set_axis_off()
                    continue
                for side, codec in enumerate(CODECS):
                    drawn = band([pair[side] for pair in runs], "test_accuracy")
                    colour = COLOURS[1 - side]
                    panel.plot(drawn.x, drawn.mean, color=colour, label=f"{CODECS[codec]} ({codec})")
                    panel.fill_between(drawn.x, drawn.low, drawn.high, color=colour, alpha=0.18, linewidth=0)
                panel.axhline(np.mean([final(pair[0]) for pair in runs]), color=COLOURS[1], linestyle=":", linewidth=1)
                panel.axvline(drawn.x[-1] / 5, color="gray", linestyle="--", linewidth=0.8)
                panel.set_title(f"{name}, {setting.title} ({len(runs)} seed{'s' * (len(runs) > 1)})", fontsize=8)
                panel.set_ylim(0.2, 1)
            row[0].set_ylabel(axis_name("test_accuracy"))
        for panel in panels[-1]:
            panel.set_xlabel(axis_name("time"))
        panels[0, 0].legend(fontsize=7, loc="lower right")
        figure.savefig(FIGURES / "codec-accuracy.png", dpi=150)


def draw_distortion() -> None:
    """Draw what `benchmarks/codec.py distortion` found."""
    found = json.loads(DISTORTION.read_text(encoding="utf-8"))
    colours = {"sparse_quantized": COLOURS[1], "dead_zone": COLOURS[0]}
    others = iter(("#7f7f7f", "#009E73", "#CC79A7", "#E69F00"))
    titles = {"one": "one update", "mean_of_eight": "the mean of eight updates"}
    tried = {name: next(others) for name in found["one"] if name not in CODECS and name != "random mask, quarter"}
    with mpl.rc_context(STYLE):
        figure = new_figure(9, 3.6)
        for panel, (key, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
            for name, colour in {**colours, **tried}.items():
                ours = name in CODECS
                panel.plot(found["rates"], found[key][name], "-" if ours else "--", color=colour, linewidth=2 if ours else 1,
                           label=f"{CODECS[name]} ({name})" if ours else f"tried: {name}")  # fmt: skip
            rates = np.linspace(0, 4, 50)
            panel.plot(rates, 2 ** (-2 * rates), color="black", linewidth=1, label="Gaussian of the same variance")
            panel.set(title=title, xlabel="bits per element", yscale="log", ylim=(1e-3, 30), xlim=(0, 4))
        figure.axes[0].set_ylabel("squared error / squared norm")
        figure.axes[0].legend(fontsize=7, loc="lower left")
        figure.savefig(FIGURES / "codec-distortion.png", dpi=150)


def main() -> None:
    found = pairs(Store(ROOT / "results" / "paper"))
    print_table(found)
    draw_accuracy(found)
    draw_distortion()


if __name__ == "__main__":
    main()
