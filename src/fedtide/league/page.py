"""The page docs/league.md: what to deploy in every world and how sure that is, then all ranks, costs and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.core.files import write_output
from fedtide.league.methods import GROUPS, PAPER, RATES, REFERENCE
from fedtide.league.playing import BASE, CHANCE, CONFIRMING, JOINED, SEEDS, TUNING_SEED
from fedtide.league.ranking import Row, Runs, Table, effect, is_analog
from fedtide.league.words import CAVEATS, CHANGED, RULES, diverged_words, findings
from fedtide.paper.worlds import plain
from fedtide.studies.pairing import summary
from fedtide.studies.statistics import Comparison

MARKS = {"higher": "+", "lower": "−"}
MOST_RIVALS = 8  # that are named
UNITS = {"time": ("time", 1.0, "{:.2f}"), "bits": ("Mbit", 1e6, "{:.1f}"), "joules": ("J", 1.0, "{:.0f}")}


def write(page: Path, gains: Path, curves: Path, tables: Sequence[Table], runs: Mapping[str, Runs]) -> None:
    """Write the page beside its figures."""
    lines = ["# A league of methods: same clock, same radio, same airtime", "", *_opening(tables, runs), ""]
    lines += [*CAVEATS.strip().splitlines(), ""]
    lines += ["## What to deploy, and how sure we are", "", *_answers(tables), "", *findings(tables, runs), ""]
    lines += [*CHANGED.strip().splitlines(), "", f"![Gains over random scheduling in every world]({gains})", ""]
    lines += [
        "The entries whose worst rank in the three worlds is best, with 95 % intervals of differences seed by seed. Green: "
        "ahead of random scheduling; orange: behind; grey: not resolved. Note the scales.",
        "",
    ]
    for each in tables:
        lines += [f"## {each.arena.title}", "", f"{each.arena.differs}.", "", *_standings(each), ""]
    lines += ["## Over time, bits and joules", "", f"![Accuracy of the leaders]({curves})", ""]
    lines += ["Mean over the seeds; dotted: the target of the tables.", "", "## Rules", "", *_rules(), ""]
    lines += ["## Settings as tuned", "", *_settings(tables)]
    page.parent.mkdir(parents=True, exist_ok=True)
    content = ("\n".join(lines).rstrip() + "\n").encode()
    write_output(page, content, rb"# .*fedtide league", "a page of `fedtide league`")


def rows(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return everything as plain data, for `--json`."""
    return [
        {
            "world": each.arena.name,
            "method": row.name,
            "group": row.entry.group,
            "rank": row.rank,
            "rank_range": [row.highest, row.lowest],
            "diverged": row.diverged,
            "diverged_fresh": row.diverged_fresh,
            "mean_accuracy": row.accuracy,
            "final_accuracy": row.final,
            "gain_over_random": _plain(row.over_reference),
            "control": row.entry.method.control,
            "gain_over_control": _plain(row.over_control or row.over_reference),
            "gain_over_proposed": _plain(row.over_paper),
            "target": each.target,
            **{
                f"{what}_to_target": cost.middle if math.isfinite(cost.middle) else None
                for what, cost in row.costs.items()
            },
            "settings": plain(row.entry.tree),
        }
        for each in tables
        for row in each.rows
    ]


def _plain(found: Comparison | None) -> dict[str, Any] | None:
    """Return a gain as plain data, without what JSON cannot say."""
    return found and {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in found._asdict().items()
    }


def _opening(tables: Sequence[Table], runs: Mapping[str, Runs]) -> list[str]:
    results = [result for world in runs.values() for seeds in world.values() for result in seeds.values()]
    methods = max(len(each.rows) for each in tables)
    return [
        f"{methods} entries in {len(tables)} worlds: the same devices, data, fading and symbols for all, each method tuned "
        "with the same number of runs on a seed that does not rank, differences taken seed by seed. `fedtide league` runs "
        "what is missing and writes this page; the runs are in `results/league`, and `fedtide report results/league` is a "
        "page to click through. What the methods are: [methods](methods.md), [schedulers](schedulers.md), "
        "[codecs](codec.md).",
        "",
        summary(results),
    ]


def _answers(tables: Sequence[Table]) -> list[str]:
    lines = [
        "| world | deploy | accuracy over the horizon, at its end | statistically tied with | over random "
        "| over the paper's schedule | the paper's schedule: rank (range) |",
        f"|{'---|' * 7}",
    ]
    for each in tables:
        first, paper = each.winner, next((row for row in each.rows if row.name == PAPER), None)
        rivals = ", ".join(f"`{row.name}`" for row in each.level[:MOST_RIVALS]) or "none"
        rivals += f" and {len(each.level) - MOST_RIVALS} more" if len(each.level) > MOST_RIVALS else ""
        place = f"{paper.rank} ({paper.highest} to {paper.lowest}) of {len(each.rows)}" if paper else "lacks runs"
        again = each.confirmed.get(first.name, {})
        over = [_again(again.get(name)) if name != first.name else "" for name in (REFERENCE, PAPER)]
        lines.append(
            f"| {each.arena.title} | **{_named(first)}** | {first.accuracy:.3f}, {first.final:.3f} | {rivals} "
            f"| {over[0]} | {over[1]} | {place} |"
        )
    return [
        *lines,
        "",
        f"Ranked on seeds 0 to {SEEDS - 1}. The winner is the best entry of which no run diverged, on these or on fresh seeds. "
        f"The gains in this table are from the fresh seeds {CONFIRMING[0]} to {CONFIRMING[-1]}: the best of many entries is "
        "partly lucky, and fresh seeds remove that bias. Only the winner (also of those that send packets), entries ranked "
        "before it, the paper's schedule and random scheduling ran on them, so they confirm a gain over these two, not the "
        f"first rank. A run that diverged counts as chance ({CHANCE:g}) from then on, in tuning, ranks and gains.",
    ]


def _again(found: Comparison | None) -> str:
    """Write a gain on fresh seeds, and on how many of them, if some are missing."""
    if found is None:
        return "not run yet"
    missing = found.num_seeds < len(CONFIRMING)
    return effect(found) + (f", {found.num_seeds} of {len(CONFIRMING)} seeds" if missing else "")


def _named(row: Row) -> str:
    return f"`{row.name}`: {row.entry.method.title}" if row.name == JOINED else f"`{row.name}`"


def _standings(each: Table) -> list[str]:
    heads = " | ".join(f"{unit} to {each.target:.2f}" for unit, _, _ in UNITS.values())
    lines = [
        f"| rank (range) | method | changes | gain over random | over its control | accuracy: mean, at the end | {heads} |",
        f"|{'---|' * 9}",
    ]
    for row in each.rows:
        name = f"**`{row.name}`**" if row.name in (PAPER, REFERENCE, JOINED) else f"`{row.name}`"
        name += diverged_words(row, len(each.seeds))
        mark = MARKS.get(row.over_reference.verdict, "·") if row.over_reference else ""
        mark = f"**{mark}{mark}**" if row.surely else mark
        costs = " | ".join(_cost(row, what) for what in UNITS)
        lines.append(
            f"| {row.rank} ({row.highest} to {row.lowest}) | {name} | {row.entry.group} "
            f"| {mark} {effect(row.over_reference)} | {effect(row.over_control)} | {row.accuracy:.3f}, {row.final:.3f}"
            f" | {costs} |"
        )
    if each.left_out:
        missing = ", ".join(f"`{name}` ({count} of {len(each.seeds)})" for name, count in each.left_out.items())
        lines += ["", f"Left out, since runs are missing: {missing}."]
    return lines


def _cost(row: Row, what: str) -> str:
    """Write what the target costs, in brackets as a share of the reference's."""
    cost, (_, unit, form) = row.costs[what], UNITS[what]
    if what == "bits" and is_analog(row):
        return "analog"
    some = f", {cost.reached} of {cost.seeds}" if cost.reached < cost.seeds else ""
    if not math.isfinite(cost.middle):
        return f"not reached{some}"
    words = form.format(cost.middle / unit)
    if cost.ratio is None or cost.ratio.verdict == "no difference":
        return words + some
    star = "" if cost.ratio.verdict == "not resolved" else "*"
    return f"{words} (×{math.exp(cost.ratio.mean):.2f}{star}{some})"


def _rules() -> list[str]:
    common = ", ".join(f"`{word}`" for word in plain(BASE))
    rates = " and ".join(f"{rate:g}" for rate in RATES)
    return [
        RULES.strip().format(
            common=common, rates=rates, candidates=2 * len(RATES), seed=TUNING_SEED, last=SEEDS - 1, chance=CHANCE
        )
    ]


def _settings(tables: Sequence[Table]) -> list[str]:
    heads = " | ".join(each.arena.title for each in tables)
    lines = ["| method | what it is | the same in all worlds | " + heads + " |", f"|---|---|---|{'---|' * len(tables)}"]
    for group in GROUPS:
        for method in group.methods:
            entries = [next((row.entry for row in each.rows if row.name == method.name), None) for each in tables]
            cells = [
                " ".join(f"`{word}`" for word in plain({**entry.setting, "rate": entry.rate})) if entry else ""
                for entry in entries
            ]
            same = " ".join(f"`{word}`" for word in plain(method.tree)) or "the reference"
            lines.append(f"| `{method.name}` | {method.title} | {same} | {' | '.join(cells)} |")
    for each in tables:
        for row in each.rows:
            if row.name == JOINED:
                words = " ".join(f"`{word}`" for word in plain(row.entry.tree))
                lines.append(
                    f"| `{JOINED}` | in {each.arena.title}: {row.entry.method.title} | {words} |{' |' * len(tables)}"
                )
    return ["<details><summary>All of them</summary>", "", *lines, "", "</details>"]
