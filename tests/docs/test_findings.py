"""Numbers in hand-written sentences follow from the stored runs: each is computed anew, and none is without a computation."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from fedtide.studies.metrics import Reaching, final_accuracy, mean_accuracy, variation
from fedtide.studies.results import RunResult
from fedtide.studies.spec import read_study
from fedtide.studies.statistics import Comparison, paired_difference, paired_results
from fedtide_lab.paper.claims import Check
from fedtide_lab.paper.figures import FIGURES, FRESH, OLD, OLDER, curve_label, figure_study, stored_runs
from fedtide_lab.skies.studies import ARMS, SKIES, sky_claims, sky_study
from fedtide_lab.worlds.page import decided_worlds
from fedtide_lab.worlds.studies import NO_CLAIMS, WORLDS, collect_worlds, world_change, world_claims
from stored import committed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAPER = committed("paper")


def section(title: str) -> str:
    """A section of the README on one line, without commands and figures."""
    text = README.split(f"## {title}\n")[1].split("\n## ")[0]
    return " ".join(re.sub(r"```.*?```|!\[.*?\]\(.*?\)", "", text, flags=re.S).split())


def unexplained(text: str, said: list[str]) -> list[str]:
    """Check that a text says all this; return the decimals that are in none of it."""
    for each in said:
        assert each in text, f"the runs say: {each}"
        text = text.replace(each, "")
    return re.findall(r"[+-]?\d+\.\d\d+", text)


def figure(name: str) -> dict[str, dict[int, RunResult]]:
    return stored_runs(figure_study(FIGURES[name], range(10)), PAPER)


def gain(one: dict[int, RunResult], other: dict[int, RunResult], metric=mean_accuracy, most: int = 99) -> Comparison:
    pairs = [pair for seed, pair in paired_results(one, other).items() if seed < most]
    return paired_difference([metric(a) for a, _ in pairs], [metric(b) for _, b in pairs])


def interval(found: Comparison, form: str = "+.3f") -> str:
    return f"{found.low:{form}} to {found.high:{form}}"


def test_does_the_proposed_schedule_help() -> None:
    runs = figure("schedulers")
    one, other = (runs[curve_label(name, "non-i.i.d.")] for name in ("proposed", "random"))
    iid = [runs[curve_label(name, "i.i.d.")] for name in ("proposed", "random")]
    whole, first, late, even = gain(one, other), gain(one, other, most=3), gain(one, other, final_accuracy), gain(*iid)
    seeds = [gain({s: one[s]}, {s: other[s]}).mean for s in range(3)]
    level = [np.mean([mean_accuracy(pair[side]) for pair in paired_results(one, other).values()]) for side in (0, 1)]
    said = [
        f"{level[0]:.3f} against {level[1]:.3f}",
        f"**{whole.mean:+.3f} (95 % interval {interval(whole)})**",
        f"{seeds[0]:+.3f}, {seeds[1]:+.3f} and {seeds[2]:+.3f}",
        f"(interval {interval(first)})",
        f"the gain is {late.mean:+.3f} ({interval(late)})",
        f"{even.mean:+.3f} ({interval(even)};",
    ]
    assert whole.num_seeds == 5
    assert even.num_seeds == 6
    assert not unexplained(section("Does the proposed schedule help?"), said)


def test_what_of_the_paper_holds() -> None:
    slow, weights, period = figure("slow_labels"), figure("weights"), figure("period")
    half, whole = (period[curve_label(name, "non-i.i.d.")] for name in (r"$T_{\max}/2$", r"$T_{\max}$"))
    smooth = gain(half, whole, variation)

    def gamma(of: dict[str, dict[int, RunResult]], who: str, base: float, setting: str) -> dict[int, RunResult]:
        return of[curve_label(f"{who}, $\\gamma$={base:g}", setting)]

    def against(base: float) -> Comparison:
        return gain(gamma(slow, "random", base, "slow labels"), gamma(slow, "random", 1.0, "slow labels"))

    old, older = against(OLD), against(OLDER)
    costs = [
        -gain(gamma(weights, who, OLD, "i.i.d."), gamma(weights, who, 1.0, "i.i.d.")).mean
        for who in ("random", "proposed")
    ]
    four = [gamma(weights, who, base, "i.i.d.") for who in ("proposed", "random") for base in (FRESH, 1.0)]
    values = np.array([[mean_accuracy(run) for run in each] for each in paired_results(*four).values()])
    less = paired_difference(values[:, 0] - values[:, 1], values[:, 2] - values[:, 3])
    said = [
        f"gamma = {OLD} costs {-old.mean:.3f} (95 % interval {-old.high:.3f} to {-old.low:.3f}, five seeds",
        f"gamma = 2 costs {-older.mean:.3f}",
        f"costs {min(costs):.2f} to {max(costs):.2f} with i.i.d. data",
        f"({less.mean:+.3f}, 95 % {interval(less)})",
        f"(by {-smooth.mean:.3f} per T_max, 95 % interval {-smooth.high:.3f} to {-smooth.low:.3f}, three seeds",
    ]
    assert smooth.num_seeds == 3
    assert old.num_seeds == 5
    assert not unexplained(section("What of the paper holds?"), said)


def test_more_learning_per_bit() -> None:
    runs = [
        {
            each.experiment["seed"]: each
            for each in (
                run
                for kept in stored_runs(read_study(ROOT / "examples" / "codec.yaml"), PAPER).values()
                for run in kept.values()
            )
            if each.experiment["codec"]["name"] == codec
            and each.experiment["data"]["partition"] == "shards"
            and (each.experiment["radio"]["num_symbols"], each.experiment["policy"]["limit"]) == (50_000, 8)
        }
        for codec in ("dead_zone", "sparse_quantized")
    ]
    found = gain(*runs, final_accuracy)  # type: ignore[call-arg]
    level = [np.mean([final_accuracy(run) for run in each.values()]) for each in runs]
    said = [
        f"it ends at {level[0]:.3f} where",
        f"ends at {level[1]:.3f} (three seeds, paired: {found.mean:+.3f}, 95 % interval {interval(found)})",
    ]
    shares = []
    for seed, (one, other) in paired_results(*runs).items():
        until = Reaching("time", final_accuracy(other))
        shares.append(until(one) / float(other.column("time")[-1]))
        assert seed < 3
    said.append(f"in {min(shares):.2f} to {max(shares):.2f} of the time")
    assert not unexplained(section("More learning per bit"), said)


def test_worlds() -> None:
    results = collect_worlds(WORLDS, committed("worlds"))
    fresh, macro = (
        world_change(Check(*names), results)
        for names in (("phones", "random, fresh", "random"), ("macro", "proposed", "random"))
    )
    assert (fresh.is_unpaired, macro.is_unpaired) == (True, False)
    said = [
        f"gains {fresh.paired.mean:.3f} more than in the paper's cell (95 % interval {interval(fresh.paired, '.3f')})",
        f"gains {macro.paired.mean:.3f} more over random scheduling ({interval(macro.paired, '.3f')}, with seeds paired",
        "No claim of the paper is contradicted",
    ]
    names = [claim.name for claim in world_claims("")]
    verdicts = [
        v.verdict for each in decided_worlds(WORLDS, results) for v in each.verdicts if v.claim.name not in NO_CLAIMS
    ]
    assert set(NO_CLAIMS) < set(names)
    assert "contradicted" not in verdicts
    assert not unexplained(section("Worlds"), said)


def test_skies() -> None:
    stores = [committed(name) for name in ("skies", "worlds", "league")]
    results = collect_worlds((*SKIES, *ARMS), *stores, study=sky_study)
    outage, cap = (world_change(Check(arm, "random", "BC"), results, "macro") for arm in ("macro-outage", "macro-cap"))
    assert outage.is_unpaired
    assert cap.paired.verdict == "not resolved"
    found = f"{outage.paired.mean:.3f} closer to the best channels (95 % interval {interval(outage.paired, '.3f')})"
    verdicts = [v.verdict for each in decided_worlds(SKIES, results, sky_claims) for v in each.verdicts]
    names = [claim.name for _ in decided_worlds(SKIES, results, sky_claims) for claim in sky_claims("")]
    pairs = zip(names, verdicts, strict=True)
    assert not [name for name, verdict in pairs if verdict == "contradicted" and name not in NO_CLAIMS]
    assert not unexplained(section("Which conclusions need Shannon's links?"), [found, "no claim is contradicted"])


def test_the_readme_says_no_number_of_the_league() -> None:
    assert not re.findall(r"\d\.\d", section("Which method would you deploy?"))


def test_templates_hold_no_number_that_is_not_computed() -> None:
    """Decimals, percentages and signed numbers in prose come from the runs, except settings."""
    for path in [*(ROOT / "results").glob("*/findings.md"), *(ROOT / "src" / "fedtide_lab").rglob("*.md")]:
        text = re.sub(r"\{[^}]*\}|<!--.*?-->", "", path.read_text(encoding="utf-8"))
        for setting in ("95 %", "5 %/", "CIFAR-10", "0.2 W", "0.1 mJ", "1e-28", "0.4 and 0.8"):
            text = text.replace(setting, "")
        assert not re.findall(r".*(?:\d\.\d|\d ?%|[+-]\d).*", text), path
