"""Published systems (docs/systems.md) on small instances: what each paper found, measured and drawn in seconds.

    python benchmarks/systems.py [NAME ...]        writes docs/figures/system-NAME.svg; no name: all of them

A system is one entry of SYSTEMS: a function of the seeds that plans or runs examples/systems/NAME.yaml and returns the panels
of its figure. tests/test_systems.py checks the direction of the same numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedtide
from fedtide.engine.system import build
from fedtide.plot import draw_curve, figure_sheet, figure_style, legend_below, line_styles, name_panel, save_figure

ROOT = Path(__file__).resolve().parents[1]
FILES, FIGURES = ROOT / "examples" / "systems", ROOT / "docs" / "figures"


class Panel(NamedTuple):
    """One panel of a figure."""

    title: str
    x: str  # label of the axis
    y: str
    lines: Mapping[str, tuple[Any, Any]]  # x [p] and y [p], by name
    scale: str = "linear"  # of the x axis


def system(name: str, *words: str, seed: int = 0) -> fedtide.Experiment:
    """Return the experiment of a system with some keys changed, given as `key=value`."""
    return fedtide.experiment(FILES / f"{name}.yaml", *words, {"seed": seed})


def mean_over(seeds: Sequence[int], measured: Callable[[int], Any]) -> Any:
    """Return the mean of what is measured with each seed."""
    return np.mean([measured(seed) for seed in seeds], axis=0)


def swept(
    seeds: Sequence[int],
    name: str,
    measure: Callable[[fedtide.Experiment], float],
    lines: Mapping[str, Sequence[str]],
    points: Mapping[float, Sequence[str]],
) -> dict[str, tuple[Any, Any]]:
    """Return the mean over seeds of what is measured of a system, for every line and point; each gives `key=value` words."""

    def mean(words: Sequence[str]) -> float:
        return float(np.mean([measure(system(name, *words, seed=seed)) for seed in seeds]))

    return {line: ([*points], [mean([*words, *more]) for more in points.values()]) for line, words in lines.items()}


def curves(
    seeds: Sequence[int], systems: Mapping[str, Sequence[str]], measure: Callable[[Any], float]
) -> dict[str, tuple[Any, Any]]:
    """Return the mean over seeds of what is measured of every record. systems: the name and `key=value` words, by line."""
    found = {}
    for line, (name, *words) in systems.items():
        runs = [
            [measure(record) for record in fedtide.simulate(system(name, *words, seed=seed)).rounds] for seed in seeds
        ]
        count = min(map(len, runs))
        found[line] = (np.arange(1, count + 1), np.mean([run[:count] for run in runs], axis=0))
    return found


def accuracy_over(seeds: Sequence[int], name: str, arms: Mapping[str, Sequence[str]], x: Any, column: str) -> Any:
    """Return the mean test accuracy at each x, by arm: of the newest model at a `time`, or after so many `uploads`."""

    def scores(words: Sequence[str], seed: int) -> Any:
        rounds = fedtide.simulate(system(name, *words, seed=seed)).rounds
        uploads = np.cumsum([len(each.picked) for each in rounds])
        scored = [at for at, each in enumerate(rounds) if each.test_accuracy is not None]
        reached = uploads[scored] if column == "uploads" else np.array([rounds[at].time for at in scored])
        known = np.array([0.1, *(rounds[at].test_accuracy for at in scored)])  # a guess among ten before the first
        return known[np.searchsorted(reached, x, side="right")]

    return {line: (x, mean_over(seeds, lambda seed, w=words: scores(w, seed))) for line, words in arms.items()}


# One function per system, in the order of docs/systems.md.


def alsa(seeds: Sequence[int]) -> list[Panel]:
    """The effectivity score and the accuracy of three schedulers."""
    arms = {
        "ALSA": [],
        "random": ["policy.scheduler=random"],
        "best channels": ["policy.scheduler=best_channel"],
    }
    costs = np.array([0.0, 0.05, 0.1])

    def effectivity(words: Sequence[str], seed: int) -> Any:
        """Samples per aggregation that the server learns from, less what waiting costs, over those that arrive [costs]."""
        experiment = system("alsa", *words, seed=seed)
        held, rows = build(experiment).fleet.num_samples, fedtide.plan(experiment).rows
        heard, waiting = 0.0, 0.0
        for row in rows:
            samples = held[row["ready"]] * (1 + np.array(row["ready_age"]))
            is_heard = np.isin(row["ready"], list({*row["picked"]} - {*row["lost"]}))
            heard, waiting = heard + samples[is_heard].sum(), waiting + samples[~is_heard].sum()
        return (heard - costs * waiting) / (len(rows) * held.sum())

    score = {
        line: (costs, mean_over(seeds, lambda seed, w=words: effectivity(w, seed))) for line, words in arms.items()
    }
    learnt = accuracy_over(seeds, "alsa", arms, np.linspace(0, 20, 21), "time")
    return [
        Panel("effectivity score", r"delay cost $\gamma$", "score / samples that arrive", score),
        Panel("what is learned", "time", "test accuracy", learnt),
    ]


def amiri_analog(seeds: Sequence[int]) -> list[Panel]:
    """Send at once, analog, or one by one, digital, with more or fewer channel uses."""
    uses = (0.1, 0.2, 0.3, 0.5)
    analog = {s: [f"radio.access.uses={s}", f"learning.trainer.share={s / 2}"] for s in uses}
    digital = {s: [f"radio.num_symbols={s / 2 * 7850}"] for s in uses}
    short = {"": ["timeline.horizon=25"]}
    lines = {
        "analog (A-DSGD)": swept(seeds, "amiri_analog", _final_accuracy, short, analog)[""],
        "digital (D-DSGD)": swept(seeds, "amiri_digital", _final_accuracy, short, digital)[""],
    }
    return [Panel("after 25 aggregations", "channel uses per parameter, s/d", "test accuracy", lines)]


def amiri_digital(seeds: Sequence[int]) -> list[Panel]:
    """Send at once, analog, or one by one, digital, in equally many channel uses."""
    how = {"analog (A-DSGD)": ["amiri_analog"], "digital (D-DSGD)": ["amiri_digital"]}
    lines = curves(seeds, how, lambda record: record.test_accuracy)
    return [Panel("s = d/2 channel uses per aggregation", "aggregation", "test accuracy", lines)]


def _final_accuracy(experiment: fedtide.Experiment) -> float:
    return float(fedtide.simulate(experiment).rounds[-1].test_accuracy or 0.0)


def chen(seeds: Sequence[int]) -> list[Panel]:
    """Assign resource blocks jointly, or at random."""
    joint, drawn = "policy.scheduler.joint=true", "policy.scheduler.joint=false"
    blocks = {b: [f"radio.num_blocks={b}", f"policy.limit={b}"] for b in (3, 6, 9, 12)}

    def arriving(experiment: fedtide.Experiment) -> float:
        samples, rows = build(experiment).fleet.num_samples, fedtide.plan(experiment).rows
        arrived = [samples[[*({*row["picked"]} - {*row["lost"]})]].sum() for row in rows]
        return float(np.mean(arrived) / samples.sum())

    lines = swept(seeds, "chen", arriving, {"joint assignment": [joint], "random assignment": [drawn]}, blocks)
    how = {"joint assignment": ["chen", joint], "random assignment": ["chen", drawn]}
    return [
        Panel("what arrives", "resource blocks", "share of samples that arrive", lines),
        Panel("what is learned", "aggregation", "test loss", curves(seeds, how, lambda record: record.test_loss)),
    ]


def dinh(seeds: Sequence[int]) -> list[Panel]:
    """Weigh the global gradient more or less, and work more or less between two uploads."""
    eta = {f"η = {eta:g}": ["dinh", f"learning.trainer.eta={eta}", "timeline.horizon=20"] for eta in (0.3, 1, 3)}
    epochs = {count: [f"learning.local_epochs={count}"] for count in (1, 2, 4, 8, 16)}
    until = ["learning.target_accuracy=0.8", "timeline.horizon=1000"]

    def cost(experiment: fedtide.Experiment) -> float:
        last = fedtide.simulate(experiment).rounds[-1]
        return last.ledger.joules + experiment.policy.scheduler.args["kappa"] * last.time

    spent = swept(seeds, "dinh", cost, {"energy + κ time": until}, epochs)
    return [
        Panel("weight of the global gradient", "aggregation", "test loss", curves(seeds, eta, lambda r: r.test_loss)),
        Panel("cost of 80 % accuracy", "local rounds per upload", "J", spent, "log"),
    ]


def fedasync(seeds: Sequence[int]) -> list[Panel]:
    """Accuracy over the largest staleness, for three ways of mixing."""
    arms = {
        "polynomial": [],
        "hinge": ["policy.aggregator={name: mix_hinge, mixing: 0.9, slope: 10, window: 4}"],
        "constant": ["policy.aggregator.staleness=0"],
    }
    largest = np.array([0, 4, 16])

    def accuracy(words: Sequence[str], most: int, seed: int) -> float:
        rounds = fedtide.simulate(system("fedasync", *words, f"timeline.name.max_staleness={most}", seed=seed)).rounds
        found = [each.test_accuracy for each in rounds if each.test_accuracy is not None]
        return float(np.mean(found[len(found) // 2 :]))

    lines = {
        line: (largest, mean_over(seeds, lambda seed, w=words: [accuracy(w, most, seed) for most in largest]))
        for line, words in arms.items()
    }
    return [Panel("mean over the second half of the run", "largest staleness", "test accuracy", lines)]


def fedbuff(seeds: Sequence[int]) -> list[Panel]:
    """Mean staleness over K, measured in plans and by its closed form; accuracy over uploads."""
    sizes, places = np.array([2, 5, 10, 20]), 40

    def staleness(release: str, size: int, seed: int) -> float:
        words = (f"fleet.release={release}", f"fleet.concurrency={places}", f"timeline.buffer_size={size}")
        rows = fedtide.plan(system("fedbuff", *words, f"policy.limit={size}", seed=seed)).rows
        return float(np.mean([age for row in rows[len(rows) // 4 :] for age in row["age"]]))  # settled

    measured = {
        f"free at {release}": (
            sizes,
            mean_over(seeds, lambda seed, r=release: [staleness(r, size, seed) for size in sizes]),
        )
        for release in ("finish", "aggregation")
    }
    closed = {"(M-1)/K": (sizes, (places - 1) / sizes), "M/K - 1": (sizes, places / sizes - 1)}
    arms = {
        "FedBuff": [],
        "rounds of M": ["timeline.name=all", "fleet.release=aggregation", "policy.limit=20"],
    }
    learnt = accuracy_over(seeds, "fedbuff", arms, np.arange(0, 161, 10), "uploads")
    return [
        Panel(f"staleness, M = {places}", "buffer size K", "mean staleness", measured | closed),
        Panel("M = 20, K = 5", "uploads", "test accuracy", learnt),
    ]


def fedcs(seeds: Sequence[int]) -> list[Panel]:
    """Clients per round over the deadline, and accuracy over time."""
    arms = {"FedCS": [], "FedLim": ["fleet.selector.greedy=false"]}
    deadlines = np.array([0.6, 1.0, 1.5, 2.0])

    def clients(words: Sequence[str], deadline: float, seed: int) -> float:
        rows = fedtide.plan(system("fedcs", *words, f"timeline.period={deadline}", seed=seed)).rows
        return float(np.mean([len(row["picked"]) for row in rows]))

    heard = {
        line: (deadlines, mean_over(seeds, lambda seed, w=words: [clients(w, each, seed) for each in deadlines]))
        for line, words in arms.items()
    }
    arms = arms | {"no deadline": ["fleet.selector=uniform", "timeline.name=all"]}
    return [
        Panel("clients in time", r"deadline $T_{\mathrm{round}}$", "clients per round", heard),
        Panel(
            "what is learned",
            "time",
            "test accuracy",
            accuracy_over(seeds, "fedcs", arms, np.linspace(0, 15, 31), "time"),
        ),
    ]


def tifl(seeds: Sequence[int]) -> list[Panel]:
    """Round length over the clients of a round, and accuracy over time."""
    arms = {
        "TiFL uniform": [],
        "TiFL fast": ["fleet.selector.chances=[0.7, 0.1, 0.1, 0.05, 0.05]"],
        "no tiers": ["fleet.selector=uniform"],
    }
    numbers = np.array([2, 5, 10])

    def length(words: Sequence[str], number: int, seed: int) -> float:
        rows = fedtide.plan(
            system("tifl", *words, f"fleet.concurrency={number}", f"policy.limit={number}", seed=seed)
        ).rows
        return float(rows[-1]["time"] / len(rows))

    rounds = {
        line: (numbers, mean_over(seeds, lambda seed, w=words: [length(w, number, seed) for number in numbers]))
        for line, words in arms.items()
    }
    return [
        Panel("rounds", "clients per round", "mean length of a round", rounds),
        Panel(
            "what is learned",
            "time",
            "test accuracy",
            accuracy_over(seeds, "tifl", arms, np.linspace(0, 40, 41), "time"),
        ),
    ]


def tran(seeds: Sequence[int]) -> list[Panel]:
    """Let a second be worth more and more energy."""
    worth = {
        kappa: [f"policy.scheduler.kappa={kappa}", "timeline.horizon=200"] for kappa in (0.01, 0.03, 0.1, 0.3, 1, 3, 10)
    }

    def per_round(column: str) -> Any:
        def measure(experiment: fedtide.Experiment) -> float:  # after the first training, whose speed nobody decided
            rows = fedtide.plan(experiment).rows
            return float(
                np.mean(
                    np.diff([row["time"] for row in rows]) if column == "time" else [row["joules"] for row in rows[1:]]
                )
            )

        return swept(seeds, "tran", measure, {"jointly decided": []}, worth)

    return [
        Panel("time", "κ in J/s", "s per round", per_round("time"), "log"),
        Panel("energy", "κ in J/s", "J per round", per_round("joules"), "log"),
    ]


def yang(seeds: Sequence[int]) -> list[Panel]:
    """Schedule by age of update, or the best channels alone."""
    how = {"age of update": ["yang"], "best channels": ["yang", "policy.scheduler.exponent=0"]}
    return [
        Panel(
            "age of update", "aggregation", "mean age", curves(seeds, how, lambda record: record.metrics["mean_age"])
        ),
        Panel(
            "what is learned", "aggregation", "test accuracy", curves(seeds, how, lambda record: record.test_accuracy)
        ),
    ]


SYSTEMS: dict[str, Callable[[Sequence[int]], list[Panel]]] = {
    "alsa": alsa,
    "amiri_analog": amiri_analog,
    "amiri_digital": amiri_digital,
    "chen": chen,
    "dinh": dinh,
    "fedasync": fedasync,
    "fedbuff": fedbuff,
    "fedcs": fedcs,
    "tifl": tifl,
    "tran": tran,
    "yang": yang,
}


def draw(name: str, panels: Sequence[Panel]) -> None:
    """Draw the figure of a system."""
    names = list(dict.fromkeys(line for panel in panels for line in panel.lines))
    styles = line_styles(names)
    with figure_style() as style:
        figure, axes = figure_sheet(style, 1, len(panels))
        for at, (axis, panel) in enumerate(zip(axes.flat, panels, strict=True)):
            for place, (line, (x, y)) in enumerate(panel.lines.items()):
                draw_curve(axis, np.asarray(x), np.asarray(y), styles[line], line, place=place, among=len(panel.lines))
            axis.set(xlabel=panel.x, ylabel=panel.y, xscale=panel.scale)
            name_panel(axis, style, at, panel.title)
        if len(names) > 1:
            legend_below(figure, style, axes.flat)
        save_figure(figure, FIGURES / f"system-{name}", ["svg"])


if __name__ == "__main__":
    for each in sys.argv[1:] or SYSTEMS:
        draw(each, SYSTEMS[each](range(5)))
