"""The paper's codec against ours at equal symbols, on the paper's R figure setting: resumable, one small JSON per run.

python benchmarks/codec_study.py run --limit 8 --partition shards --seeds 3   # trains what is missing
python benchmarks/codec_study.py table                                         # what the kept runs say
python benchmarks/codec_study.py figures                                       # docs/figures/codec-*.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "results" / "codec"
FIGURES = ROOT / "docs" / "figures"
CODECS = {"sparse_quantized": "the paper's", "dead_zone": "ours"}
DATA = {"shards": "non-i.i.d.", "iid": "i.i.d."}


def path_of(codec: str, partition: str, limit: int, seed: int) -> Path:
    return KEPT / f"{codec}-{partition}-R{limit}-seed{seed}.json"


def run(codec: str, partition: str, limit: int, seed: int) -> None:
    from fedtide import config
    from fedtide.simulate import simulate

    path = path_of(codec, partition, limit, seed)
    if path.exists():
        return
    experiment = config.experiment(
        {
            "seed": seed,
            "data": {"partition": partition},
            "radio": {"num_symbols": 50_000},
            "policy": {"limit": limit},
            "codec": {"name": codec},
        }
    )
    result = simulate(experiment)
    rounds = result.rounds
    kept = {
        "digest": config.digest(experiment),
        "codec": codec,
        "partition": partition,
        "limit": limit,
        "seed": seed,
        "time": [each.time for each in rounds],
        "accuracy": [each.test_accuracy for each in rounds],
        "budget_bits": round(sum(sum(each.budget_bits) for each in rounds)),
        "sent_bits": round(sum(sum(each.sent_bits) for each in rounds)),
        "codec_share": round(result.seconds["codec"] / sum(result.seconds.values()), 4),
    }
    KEPT.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept) + "\n", encoding="utf-8")
    print(path.name, "final", kept["accuracy"][-1], "codec share", kept["codec_share"], flush=True)


def load() -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(KEPT.glob("*-seed*.json"))]


def final(each: dict[str, Any]) -> float:
    """Return the mean accuracy over the last 5 % of the horizon."""
    return float(np.mean(each["accuracy"][-7:]))


def time_to(each: dict[str, Any], level: float, held: int = 1) -> float:
    """Return when the accuracy first reaches a level (held: and the mean of so many evaluations from then on does too)."""
    accuracy = np.array(each["accuracy"])
    for at in np.flatnonzero(accuracy >= level):
        if accuracy[at : at + held].mean() >= level:
            return float(each["time"][at])
    return float("inf")


def pairs() -> dict[tuple[str, int], list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Return the runs of both codecs with equal seed, by data setting and limit."""
    by = {(each["codec"], each["partition"], each["limit"], each["seed"]): each for each in load()}
    found: dict[tuple[str, int], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for (codec, partition, limit, seed), each in sorted(by.items()):
        theirs = by.get(("sparse_quantized", partition, limit, seed))
        if codec == "dead_zone" and theirs:
            found.setdefault((partition, limit), []).append((theirs, each))
    return found


def table() -> None:
    print("| data | R | seeds | paper's at 4 T_max | ours | paper's at the end | ours | ours is there in | and stays |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (partition, limit), runs in pairs().items():
        horizon = runs[0][0]["time"][-1]
        early = np.mean([[each["accuracy"][15] for each in pair] for pair in runs], axis=0)
        ends = np.mean([[final(each) for each in pair] for pair in runs], axis=0)
        first, stays = (
            ", ".join(f"{time_to(ours, final(theirs), held) / horizon:.2f}" for theirs, ours in runs) for held in (1, 5)
        )
        print(
            f"| {DATA[partition]} | {limit} | {len(runs)} | {early[0]:.3f} | {early[1]:.3f} | {ends[0]:.3f} | {ends[1]:.3f} | "
            f"{first} | {stays} |"
        )


def figures() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    FIGURES.mkdir(parents=True, exist_ok=True)
    found = pairs()
    for partition, name in DATA.items():
        limits = [limit for each, limit in found if each == partition]
        if not limits:
            continue
        figure, axes = plt.subplots(1, len(limits), figsize=(4.2 * len(limits) + 0.6, 3.6), sharey=True, squeeze=False)
        for axis, limit in zip(axes[0], limits, strict=True):
            runs = found[partition, limit]
            for side, (codec, color) in enumerate(zip(CODECS, ("tab:orange", "tab:blue"), strict=True)):
                curves = np.array([pair[side]["accuracy"] for pair in runs])
                time = runs[0][side]["time"]
                axis.plot(time, curves.mean(axis=0), color=color, label=f"{CODECS[codec]} ({codec})")
                axis.fill_between(time, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.2, linewidth=0)
            level = np.mean([final(theirs) for theirs, _ in runs])
            axis.axhline(level, color="tab:orange", linestyle=":", linewidth=1)
            axis.axvline(runs[0][0]["time"][-1] / 5, color="gray", linestyle="--", linewidth=0.8)
            axis.set(
                title=f"{name}, R = {limit}, {len(runs)} seed{'s' * (len(runs) > 1)}",
                xlabel="time / T_max",
                ylim=(0, 1),
            )
            axis.grid(alpha=0.3)
        axes[0, 0].set_ylabel("test accuracy")
        axes[0, 0].legend(loc="lower right")
        figure.tight_layout()
        figure.savefig(FIGURES / f"codec-accuracy-{partition}.png", dpi=110)
        plt.close(figure)


def distortion_figure() -> None:
    """Draw what `benchmarks/codec.py distortion` found."""
    from matplotlib import pyplot as plt

    path = KEPT / "distortion.json"
    if not path.exists():
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    styles = {"sparse_quantized": ("tab:orange", "-"), "dead_zone": ("tab:blue", "-")}
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axis, key, title in zip(
        axes, ("one", "mean_of_eight"), ("one update", "the mean of eight updates"), strict=True
    ):
        for name, values in found[key].items():
            if name == "random mask, quarter":
                continue
            color, line = styles.get(name, (None, "--"))
            label = f"{CODECS[name]} ({name})" if name in CODECS else f"tried: {name}"
            axis.plot(found["rates"], values, line, color=color, linewidth=2 if name in CODECS else 1, label=label)
        rates = np.linspace(0, 4, 50)
        axis.plot(rates, 2 ** (-2 * rates), color="black", linewidth=1, label="Gaussian of the same variance")
        axis.set(title=title, xlabel="bits per element", yscale="log", ylim=(1e-3, 30), xlim=(0, 4))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("squared error / squared norm")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(FIGURES / "codec-distortion.png", dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "figures"])
    parser.add_argument("--limit", type=int, nargs="*", default=[8, 4, 12, 20])
    parser.add_argument("--partition", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    if args.what == "run":
        for partition in args.partition:
            for limit in args.limit:
                for seed in range(args.seeds):
                    for codec in CODECS:
                        run(codec, partition, limit, seed)
    elif args.what == "table":
        table()
    else:
        figures()
        distortion_figure()


if __name__ == "__main__":
    main()
