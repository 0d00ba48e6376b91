"""The essay: one page over the stored runs of the paper, the worlds, the skies, the league, the oracle and advice.

The text is page.md here. Values are those of the other pages, under the name of their store: `league paper winner`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.errors import FedtideError
from fedtide.pages import ArticleFigure, CurvePanel, GainPanel, GainRow, article_page
from fedtide.studies import CONFIDENCE, EQUIVALENT, METRICS, Store, mean_band
from fedtide_lab.advice import ADVICE_WORLDS, AdviceGains, advice_gains
from fedtide_lab.league.methods import PAPER_METHOD, REFERENCE
from fedtide_lab.league.page import LeagueValues
from fedtide_lab.league.ranking import Runs, Standing, Standings, ranking_benchmark
from fedtide_lab.league.tune import LEAGUE_WORLDS, PAPER_CODEC
from fedtide_lab.oracle.brackets import ORACLE, ORACLE_WORLDS, Bracket, world_bracket
from fedtide_lab.oracle.page import oracle_values
from fedtide_lab.paper import reproduce
from fedtide_lab.paper.claims import Verdict
from fedtide_lab.paper.figures import FIGURES
from fedtide_lab.prose import fill_prose, packaged_prose, prose_table, resolved_prose
from fedtide_lab.skies.page import SKIES_SURVEY
from fedtide_lab.worlds.page import Decided, decided_worlds, survey_values
from fedtide_lab.worlds.studies import WORLDS_SURVEY, collect_worlds

_TEMPLATE = "essay/page.md"
_COMPARED = {  # claims about worlds and skies, as a gain of one over the other
    "random": "the paper's schedule over random",
    "BC": "the paper's schedule over best channels",
    "age-based": "the paper's schedule over age-based",
    "random over BC": "random over best channels",
    "FedAvg": "periodic over FedAvg",
    "T_max/2": "period T_max/4 over T_max/2",
    "fresh": "fresh updates favoured over all alike",
    "dead_zone": "the dead_zone codec over the paper's",
}
_MOST_ROWS = 12  # of the league in the figure, beside the best of every group
_ADVISED_OVER = {"paper": "over the paper's design", "league": "over the league's best", "optuna": "over Optuna's best"}


class Essay(NamedTuple):
    """Everything that the page is made of."""

    claims: Sequence[Verdict]
    places: Sequence[Decided]  # worlds, and skies that are not among them
    tables: Sequence[Standings]
    runs: Mapping[str, Runs]
    brackets: Sequence[Bracket]
    advice: Sequence[AdviceGains]
    values: Mapping[str, Any]


class _Values(dict[str, Any]):
    """Values by the name of their store, a space and their own name."""

    def __missing__(self, key: str) -> Any:
        store, _, name = key.partition(" ")
        found = self.get(store)
        if not name or not isinstance(found, Mapping):
            raise KeyError(key)
        return found[name]


def essay_page(results: Path) -> str:
    """Return the page as one HTML file. results: the folder with the stores paper, worlds, skies, league, oracle and advice."""
    essay = collect_essay(results)
    text = fill_prose(packaged_prose(_TEMPLATE), essay.values, _TEMPLATE)
    title, lead, rest = text.split("\n\n", 2)
    return article_page(title.removeprefix("# "), lead, rest, essay_figures(essay))


def collect_essay(results: Path) -> Essay:
    """Read the stored runs and compute all values."""
    for name in ("paper", "worlds", "skies", "league", "oracle", "advice"):
        if not (results / name).is_dir():
            raise FedtideError(
                f"there is no {results / name}: the essay needs the results of a clone; name their folder"
            )
    stores = {name: Store(results / name) for name in ("paper", "worlds", "skies", "league", "league-first", "oracle")}
    claims = reproduce.reproduced_verdicts(reproduce.collect_reproduced(list(FIGURES), stores["paper"], None))
    values: dict[str, Any] = _Values(paper=_claim_values(claims))
    places: dict[str, Decided] = {}
    for survey in (WORLDS_SURVEY, SKIES_SURVEY):
        every = (*survey.worlds, *survey.arms)
        runs = collect_worlds(every, *(stores[name] for name in (survey.name, *survey.borrowed)), study=survey.study)
        decided, arms = (decided_worlds(worlds, runs, survey.claims) for worlds in (survey.worlds, survey.arms))
        values[survey.name] = survey_values(arms, runs, survey) | survey_values(decided, runs, survey)
        places = {each.world.name: each for each in decided} | places
    ranked = ranking_benchmark(LEAGUE_WORLDS, stores["league"])
    tables, by_world = [table for table, _ in ranked], {table.world.name: runs for table, runs in ranked}
    values["league"] = LeagueValues(tables, by_world)
    values["league"]["entries"] = len({row.name for each in tables for row in each.rows})
    found = [each for world in ORACLE_WORLDS if (each := world_bracket(world, stores["oracle"], stores["league"]))]
    values["oracle"] = oracle_values(found)
    asked = (advice_gains(world, results / "advice" / "benchmark") for world in ADVICE_WORLDS.values())
    advice = [gains for gains in asked if gains is not None]
    values["advice"] = _advice_values(advice, json.loads((results / "advice" / "advice.json").read_text("utf-8")))
    values["deploy"] = _deploy_table(tables)
    return Essay(claims, tuple(places.values()), tables, by_world, found, advice, values)


def _claim_values(claims: Sequence[Verdict]) -> dict[str, Any]:
    rows = reproduce.claims_rows(claims)
    kind = [EQUIVALENT if row["verdict"].startswith(EQUIVALENT) else row["verdict"] for row in rows]
    counts = Counter(kind)
    contradicted = [f"“{row['text'].rstrip('.')}”" for row in rows if row["verdict"] == "contradicted"]
    return {
        "claims": len(claims),
        **{name: counts[name] for name in ("holds", "contradicted", "not resolved", EQUIVALENT, "runs missing")},
        "list contradicted": "; ".join(contradicted) or "nothing",
        **{
            f"decided, {method}": sum(row["p_adjusted"][method] <= 1 - CONFIDENCE for row in rows)
            for method in rows[0]["p_adjusted"]
        },
        **{f"verdict {row['claim']}": f"**{row['verdict']}**" for row in rows},
    }


def _advice_values(advice: Sequence[AdviceGains], longest: Mapping[str, Any]) -> dict[str, Any]:
    """longest: advice.json of the search for the macro cell."""
    resolved = (row for row in longest["worth"] if row["gain"] and row["gain"]["low"] > 0)
    best = max(resolved, key=lambda row: row["gain"]["mean"])
    gain = best["gain"]
    told: dict[str, Any] = {}
    for label in _ADVISED_OVER:
        verdicts = [each.over[label].verdict for each in advice]
        told |= {f"over {label} {word}": verdicts.count(word) for word in ("higher", "lower")}
        told[f"over {label} neither"] = sum(verdict not in ("higher", "lower") for verdict in verdicts)
    return {
        **told,
        "worlds": len(advice),
        "best choice": best["choice"].replace("_", " "),
        "best worth": f"{gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})",
    }


def _deploy_table(tables: Sequence[Standings]) -> str:
    rows = []
    for each in tables:
        first, again = each.winner, each.confirmed.get(each.winner.name, {})
        over = [resolved_prose(again.get(name)) or "not run" for name in (REFERENCE, PAPER_METHOD)]
        rows.append([each.world.title, f"**{first.words}**", str(len(each.level)), *over])
    heads = [
        "world",
        "first in the league",
        "tied with it",
        "its gain over random scheduling",
        "over the paper's schedule",
    ]
    return prose_table(heads, rows)


# ---- figures


def essay_figures(essay: Essay) -> list[ArticleFigure]:
    """Return the figures of the page; their titles and captions stand in its text."""
    whole = [each for each in essay.tables if each.world.is_whole]
    learning = [each for each in essay.claims if each.weakest.check.metric in METRICS]  # not those on counts of uploads
    claims = {"by the deciding measure": learning, "by the other measure": [each.other for each in learning]}
    panels = {
        "claims": {title: [_claim_row(each) for each in found] for title, found in claims.items()},
        "where": _places(essay),
        "worth": {each.world.title: _worth_rows(each, essay) for each in whole},
        "league": {each.world.title: [_league_row(row) for row in _shown(each)] for each in whole},
        "advice": {
            title: [_advice_row(each, label) for each in essay.advice] for label, title in _ADVISED_OVER.items()
        },
    }
    curves = [_curve_panel(each, essay.runs[each.world.name]) for each in whole]
    return [
        *(ArticleFigure(name, [GainPanel(*panel) for panel in found.items()]) for name, found in panels.items()),
        ArticleFigure("curves", curves, ("time (T_max)", "test accuracy")),
    ]


def _claim_row(verdict: Verdict) -> GainRow:
    return _verdict_row(verdict.claim.text, verdict, f"“{verdict.claim.quote}” ({verdict.claim.section})")


def _verdict_row(words: str, verdict: Verdict, note: str) -> GainRow:
    return GainRow(words, verdict.weakest.at(CONFIDENCE), verdict.verdict, note)


def _places(essay: Essay) -> dict[str, list[GainRow]]:
    """Return the comparisons, each with a row for every world and sky."""
    found: dict[str, list[GainRow]] = {title: [] for title in _COMPARED.values()}
    for each in essay.places:
        for verdict in each.verdicts:
            if title := _COMPARED.get(verdict.claim.name):
                found[title].append(_verdict_row(each.world.title, verdict, f"Differs by: {each.world.differs}."))
    return found


def _worth_rows(each: Standings, essay: Essay) -> list[GainRow]:
    bracket = next(found for found in essay.brackets if found.world.name == each.world.name)
    server = next(row for row in each.rows if row.entry.group == "server" and row.is_finite)
    rows = {
        f"server: {server.words}": server.over_reference,
        "schedule: the paper's": each.row(PAPER_METHOD).over_reference,
        "schedule: the oracle": bracket.gain[ORACLE],
        "codec: back to the paper's": each.row(PAPER_CODEC).over_reference,
        "codec: uncoded updates": bracket.gain.get("ideal codec"),
        "radio: everybody uploads": bracket.gain.get("everybody"),
        "codec and radio": bracket.gain.get("everybody, ideal codec"),
    }
    return [GainRow(words, gain, gain.verdict if gain else "runs missing") for words, gain in rows.items()]


def _shown(each: Standings) -> list[Standing]:
    """Return the first rows of a world, the best of every group, and the paper's choices."""
    best: dict[str, str] = {}
    for row in each.rows:
        best.setdefault(row.entry.group, row.name)
    kept = {*best.values(), PAPER_METHOD, PAPER_CODEC, "fedavg", "best_channel"}
    return [row for row in each.rows if (row.rank <= _MOST_ROWS or row.name in kept) and row.name != REFERENCE]


def _league_row(row: Standing) -> GainRow:
    gain = row.over_reference
    note = (
        f"Rank {row.rank} (the intervals leave {row.highest} to {row.lowest} open); mean accuracy {row.accuracy:.3f}."
    )
    return GainRow(row.words, gain, gain.verdict if gain else "", note + " A run of it diverged." * (not row.is_finite))


def _curve_panel(each: Standings, runs: Runs) -> CurvePanel:
    """Show the first five, the best of every group and the paper's choices; at first the winner and what it is compared with."""
    few = {row.name for row in each.rows if row.rank <= 5} | {row.name for row in _shown(each) if row.rank > _MOST_ROWS}
    rows = [row for row in each.rows if row.name in {*few, PAPER_METHOD, REFERENCE, each.winner.name}]
    bands = {row.words: mean_band([runs[row.name][seed] for seed in each.seeds], "test_accuracy") for row in rows}
    first = (each.winner.name, PAPER_METHOD, REFERENCE, "fedavg")
    return CurvePanel(each.world.title, bands, tuple(row.words for row in rows if row.name in first))


def _advice_row(each: AdviceGains, label: str) -> GainRow:
    keys = ", ".join(f"{key}={value['name'] if isinstance(value, dict) else value}" for key, value in each.keys.items())
    note = f"The advice: {keys}." + f" The league's best single method: {each.method}." * (label == "league")
    return GainRow(each.world.title, each.over[label], each.over[label].verdict, note)
