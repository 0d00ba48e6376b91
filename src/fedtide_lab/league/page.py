"""The page docs/league.md: what to deploy in every world and how sure that is, then all ranks, costs and settings.

The text is page.md here and findings.md beside the results; this module computes what stands in their places.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.config import nested_to_dotted
from fedtide.studies import Comparison, counted_note, finite_table_value, metric_margin, pair_paths_summary
from fedtide_lab.league.methods import AGE_BASES, EVEN, GROUPS, LEAGUE_METHODS, OWN, PAPER_METHOD, RATES, REFERENCE
from fedtide_lab.league.ranking import Runs, Standing, Standings, is_analog, ranking_gain_over
from fedtide_lab.league.tune import (
    BASE,
    BEST_CODEC,
    CHANCE,
    COMBINED,
    CONFIRMING,
    LEAGUE_TUNING_SEEDS,
    PAPER_CODEC,
    RANKING_SEEDS,
    TUNING_RUNS,
    VALIDATION_SHARE,
    Entry,
)
from fedtide_lab.prose import (
    fill_prose,
    flat_prose_keys,
    folded_prose,
    gain_words,
    key_words,
    packaged_prose,
    prose_findings,
    prose_table,
    resolved_prose,
    write_prose_page,
)

_MARKS = {"higher": "+", "lower": "−", "not resolved": "·"}
_MOST_RIVALS = 8  # that are named
_UNITS = {"time": ("time", 1.0, "{:.2f}"), "bits": ("Mbit", 1e6, "{:.1f}"), "joules": ("J", 1.0, "{:.0f}")}
_FINDINGS = ("what to deploy", "what helps", "two codecs", "long runs", "attackers")
_TWO_CODECS = {"paper": "paper-codec", "macro": "macro-codec"}  # worlds that differ in the codec alone


def write_league_page(
    page: Path, figures: Sequence[Path], tables: Sequence[Standings], runs: Mapping[str, Runs], store: Path
) -> None:
    """Write the page beside its figures of gains and curves. store: the folder of the results, with findings.md if any."""
    results = [result for world in runs.values() for seeds in world.values() for result in seeds.values()]
    whole = [each for each in tables if each.world.is_whole]
    values = {
        "entries": len({row.name for each in tables for row in each.rows}),
        "worlds": len(tables),
        "paths": pair_paths_summary(results),
        "answers": _answers(whole),
        "design": _design(whole, runs),
        "codecs": _two_codecs(tables),
        "standings": "\n\n".join(map(_standings, tables)),
        "settings": _settings(tables),
        "gains figure": figures[0],
        "curves figure": figures[1],
        "first fresh": CONFIRMING[0],
        "last fresh": CONFIRMING[-1],
        "common": key_words(BASE, ", "),
        "codec": BEST_CODEC,
        "rates": _written_out(RATES),
        "even rates": _written_out(LEAGUE_METHODS[EVEN].rates),
        "age bases": _written_out(AGE_BASES),
        "candidates": len(RATES) * len(AGE_BASES),
        "tuning runs": TUNING_RUNS,
        "tuning seeds": _written_out(LEAGUE_TUNING_SEEDS),
        "held out": f"{100 * VALIDATION_SHARE:.0f}",
        "last": RANKING_SEEDS - 1,
        "chance": CHANCE,
        "margin": metric_margin("mean_accuracy"),
        "what joules count": f"{(counted_note(results) or 'airtime and joules count the symbols sent').capitalize()}.",
        **prose_findings(store, LeagueValues(tables, runs), _FINDINGS),
    }
    write_prose_page(page, fill_prose(packaged_prose("league/page.md"), values, "league/page.md"), "league")


class LeagueValues(dict[str, Any]):
    """What findings may name: `WORLD winner`, `WORLD METHOD rank`, ..., and `WORLD METHOD over METHOD [on fresh seeds]`."""

    def __init__(self, tables: Sequence[Standings], runs: Mapping[str, Runs]) -> None:
        """Compute all but the gains of one method over another."""
        self.runs = runs
        verdicts: dict[str, list[str]] = {}
        robust: dict[str, list[str]] = {}
        for each in tables:
            world = each.world.name
            single = next((row.name for row in each.rows if row.name != COMBINED and row.is_finite), "none")
            self |= {
                f"{world} winner": each.winner.name,
                f"{world} target": each.target,
                f"{world} best single": single,
            }
            self[f"{world} best with packets"] = each.digital.name if each.digital else "none"
            for group in each.world.groups:
                self[f"{world} best {group}"] = next(
                    (row.name for row in each.rows if row.entry.group == group and row.is_finite), "none"
                )
            for row in each.rows:
                name = f"{world} {row.name}"
                self |= {f"{name} title": row.entry.method.title, f"{name} rank": row.rank}
                self |= {f"{name} accuracy": row.accuracy, f"{name} end": row.final}
                self |= {f"{name} diverged": row.diverged, f"{name} diverged on fresh seeds": row.diverged_fresh}
                for what, cost in row.costs.items():
                    if cost.ratio:
                        self |= {f"{name} {what}": cost.ratio, f"{name} share of {what}": math.exp(cost.ratio.mean)}
                if row.over_reference and each.world.is_whole:
                    verdicts.setdefault(row.words, []).append(row.over_reference.verdict)
                if row.entry.group == "robust" and row.over_control and each.world.is_whole:
                    robust.setdefault(row.words, []).append(resolved_prose(row.over_control))
        whole = sum(each.world.is_whole for each in tables)
        ahead = [name for name, found in verdicts.items() if found == ["higher"] * whole]
        nowhere = [name for name, found in verdicts.items() if "higher" not in found]
        self |= {"ahead everywhere": _listed(ahead), "ahead nowhere": _listed(nowhere), "fresh seeds": len(CONFIRMING)}
        self["robust servers"] = "; ".join(f"{name} {' / '.join(gains)}" for name, gains in robust.items())
        self |= {f"{first} codecs agree": value for first, value in _agreement(tables).items()}

    def __missing__(self, key: str) -> Comparison:
        """Compare two methods seed by seed."""
        asked = re.fullmatch(r"([\w-]+) (\w+) over (\w+)( on fresh seeds)?", key)
        seeds = CONFIRMING if asked and asked[4] else range(RANKING_SEEDS)
        sides = [self.runs.get(asked[1], {}).get(asked[side], {}) for side in (2, 3)] if asked else [{}, {}]
        one, other = ({seed: run for seed, run in side.items() if seed in seeds} for side in sides)
        found = ranking_gain_over(one, other)
        if found is None:
            raise KeyError(key)
        return found


def _design(tables: Sequence[Standings], runs: Mapping[str, Runs]) -> str:
    """Return a table of the paper's schedule, codec and clock against what else there is, one thing changed at a time."""

    def best(each: Standings, group: str, without: Sequence[str]) -> Standing | None:
        rows = (row for row in each.rows if row.entry.group == group and row.is_finite and not row.entry.method.alone)
        return next((row for row in rows if row.name not in without), None)

    def place(each: Standings) -> str:
        names = [row.name for row in each.rows if row.entry.group == "schedule"]
        return f"{names.index(PAPER_METHOD) + 1} of {len(names)}" if PAPER_METHOD in names else ""

    def over(each: Standings, row: Standing | None, other: str) -> str:
        ranked = {
            name: {seed: run for seed, run in found.items() if seed in each.seeds}
            for name, found in runs[each.world.name].items()
        }
        return (
            f"{row.words}: {resolved_prose(ranking_gain_over(ranked[row.name], ranked[other]))}"
            if row and other in ranked
            else ""
        )

    def row_of(each: Standings, name: str) -> Standing | None:
        return next((row for row in each.rows if row.name == name), None)

    lines: dict[str, Callable[[Standings], str]] = {
        "its schedule among the schedules, all else as in the reference": place,
        "the best other schedule, over the paper's": lambda t: over(
            t, best(t, "schedule", (PAPER_METHOD, REFERENCE, EVEN)), PAPER_METHOD
        ),
        "the best other server, over the paper's, with random scheduling": lambda t: over(
            t, best(t, "server", ()), REFERENCE
        ),
        "the best codec, over the paper's, with random scheduling": lambda t: over(
            t, best(t, "codec", (PAPER_CODEC,)), PAPER_CODEC
        ),
        "the codec of this benchmark, over the paper's": lambda t: over(t, row_of(t, REFERENCE), PAPER_CODEC),
        "synchronous rounds (FedAvg), over its periodic clock": lambda t: over(t, row_of(t, "fedavg"), REFERENCE),
    }
    heads = ["the paper's own design", *(each.world.title for each in tables)]
    return prose_table(heads, [[name, *map(say, tables)] for name, say in lines.items()])


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) or "none"


def _written_out(rates: Sequence[float]) -> str:
    *some, last = (f"{rate:g}" for rate in rates)
    return f"{', '.join(some)} and {last}"


def _diverged_words(row: Standing, seeds: int) -> str:
    """Say on how many seeds a method diverged; nothing if on none."""
    counts = [(row.diverged, f"{seeds} seeds"), (row.diverged_fresh, f"{len(CONFIRMING)} fresh seeds")]
    return "".join(f", diverged on {count} of {of}" for count, of in counts if count)


def league_rows(tables: Sequence[Standings]) -> list[dict[str, Any]]:
    """Return everything as plain data, for `--json`."""
    return [
        {
            "world": each.world.name,
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
            "settings": flat_prose_keys(row.entry.tree),
        }
        for each in tables
        for row in each.rows
    ]


def _plain(found: Comparison | None) -> dict[str, Any] | None:
    return found and finite_table_value(found._asdict())


def _answers(tables: Sequence[Standings]) -> str:
    heads = ["world", "ranked first", "accuracy over the horizon, at its end", "statistically tied with", "over random"]
    rows = []
    for each in tables:
        first, paper = each.winner, next((row for row in each.rows if row.name == PAPER_METHOD), None)
        rivals = _listed([row.words for row in each.level[:_MOST_RIVALS]])
        rivals += f" and {len(each.level) - _MOST_RIVALS} more" if len(each.level) > _MOST_RIVALS else ""
        place = f"{paper.rank} ({paper.highest} to {paper.lowest}) of {len(each.rows)}" if paper else "lacks runs"
        again = each.confirmed.get(first.name, {})
        over = [_again(again.get(name)) if name != first.name else "" for name in (REFERENCE, PAPER_METHOD)]
        title = f"**{first.entry.method.title if first.name == COMBINED else first.words}**"
        rows.append([each.world.title, title, f"{first.accuracy:.3f}, {first.final:.3f}", rivals, *over, place])
    return prose_table([*heads, "over the paper's schedule", "the paper's schedule: rank (range)"], rows)


def _again(found: Comparison | None) -> str:
    """Write a gain on fresh seeds, and on how many of them, if some are missing."""
    if found is None:
        return "not run yet"
    missing = found.num_seeds < len(CONFIRMING)
    return gain_words(found) + (f", {found.num_seeds} of {len(CONFIRMING)} seeds" if missing else "")


def _standings(each: Standings) -> str:
    heads = ["rank (range)", "method", "changes", "gain over random", "over its control", "accuracy: mean, at the end"]
    rows = []
    for row in each.rows:
        name = f"**{row.words}**" if row.name in (PAPER_METHOD, REFERENCE, COMBINED) else row.words
        mark = _MARKS.get(row.over_reference.verdict, "=") if row.over_reference else ""
        mark = f"**{mark}{mark}**" if row.surely else mark
        rows.append(
            [
                f"{row.rank} ({row.highest} to {row.lowest})",
                name + _diverged_words(row, len(each.seeds)),
                row.entry.group,
                f"{mark} {gain_words(row.over_reference)}",
                gain_words(row.over_control),
                f"{row.accuracy:.3f}, {row.final:.3f}",
                *(_cost(row, what) for what in _UNITS),
            ]
        )
    missing = ", ".join(f"{name} ({count} of {len(each.seeds)})" for name, count in each.left_out.items())
    told = f"\n\nLeft out, since runs are missing: {missing}." if missing else ""
    ranks = prose_table([*heads, *(f"{unit} to {each.target:.2f}" for unit, _, _ in _UNITS.values())], rows)
    first, paper = each.winner, next((row for row in each.rows if row.name == PAPER_METHOD), None)
    short = f"First: **{first.words}**, {gain_words(first.over_reference)} over random scheduling."
    short += f" The paper's schedule has rank {paper.rank} ({paper.highest} to {paper.lowest})." if paper else ""
    table = folded_prose(f"All {len(rows)} ranks, gains and costs", ranks + told)
    return f"## {each.world.title}\n\n{each.world.differs}.\n\n{short}\n\n{table}"


def _cost(row: Standing, what: str) -> str:
    """Write what the target costs, in brackets as a share of the reference's."""
    cost, (_, unit, form) = row.costs[what], _UNITS[what]
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


def _settings(tables: Sequence[Standings]) -> str:
    rows = []
    own = {row.name: row.entry.method for each in tables for row in each.rows if row.entry.group == OWN}
    for method in (*(method for group in GROUPS for method in group.methods), *own.values()):
        entries = [next((row.entry for row in each.rows if row.name == method.name), None) for each in tables]
        cells = [_short_setting(entry) if entry else "" for entry in entries]
        rows.append([method.title, key_words(method.tree) or "the reference", *cells])
    for each in tables:
        for row in each.rows:
            if row.name == COMBINED:
                words = f"combined in {each.world.name}: {row.entry.method.title}"
                rows.append([words, key_words(row.entry.tree), *[""] * len(tables)])
    heads = ["method", "the same in all worlds", *(each.world.name for each in tables)]
    return folded_prose("All of them", prose_table(heads, rows))


def _short_setting(entry: Entry) -> str:
    """Write what was chosen, each key by its last word, with a star at an end of its grid; the devices' learning rate as lr."""
    method = entry.method
    chosen = {key.rpartition(".")[2]: value for key, value in nested_to_dotted(entry.setting).items()}
    ends = len(method.settings) > 2 and entry.setting in (method.settings[0], method.settings[-1])
    words = ", ".join(f"{key} {value:g}" for key, value in chosen.items()) + "*" * (ends and bool(chosen))
    rate = f"lr {entry.rate:g}" + "*" * (entry.rate in (min(method.rates), max(method.rates)))
    return f"{words}, {rate}" if words else rate


def _agreement(tables: Sequence[Standings]) -> dict[str, float]:
    """Return, by world, Spearman's correlation of the methods' accuracies under its codec and under the paper's."""
    by_name = {each.world.name: each for each in tables}
    found = {}
    for first, second in _TWO_CODECS.items():
        if first in by_name and second in by_name:
            shared = [
                row.name for row in by_name[second].rows if row.name in {each.name for each in by_name[first].rows}
            ]
            places = [
                np.argsort(np.argsort([by_name[world].row(name).accuracy for name in shared]))
                for world in (first, second)
            ]
            found[first] = float(np.corrcoef(places[0], places[1])[0, 1])
    return found


def _two_codecs(tables: Sequence[Standings]) -> str:
    """Return a table of servers and local methods under this benchmark's codec and under the paper's: accuracy and gain."""
    by_name = {each.world.name: each for each in tables}
    pairs = [(first, second) for first, second in _TWO_CODECS.items() if first in by_name and second in by_name]
    if not pairs:
        return ""
    names = [row.name for row in by_name[pairs[0][0]].rows if row.entry.group in ("server", "local")]

    def cell(world: str, name: str) -> str:
        row = next((row for row in by_name[world].rows if row.name == name), None)
        return f"{row.accuracy:.3f}, {gain_words(row.over_reference)}" if row else ""

    heads = ["method", *(by_name[world].world.title for pair in pairs for world in pair)]
    rows = [[LEAGUE_METHODS[name].words, *(cell(world, name) for pair in pairs for world in pair)] for name in names]
    lead = (
        f"All servers and local methods run under one codec, `{BEST_CODEC}`, and a second time under the paper's codec, tuned anew. "
        "Mean accuracy, and the gain over random scheduling under the same codec:"
    )
    return f"## Does the codec decide which server is best?\n\n{lead}\n\n{prose_table(heads, rows)}\n"
