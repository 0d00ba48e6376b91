"""The pages of the paper's runs, of its worlds, of skies and of the league, for `fedtide report` (entry points `fedtide.pages`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.errors import RunFolderError
from fedtide.pages import (
    Family,
    Forest,
    PageCurve,
    count_page_verdicts,
    cut_curve_label,
    forest_page,
    study_page_forest,
)
from fedtide.studies import Reference, RunResult, Store, pair_paths_summary
from fedtide_lab.league.methods import REFERENCE
from fedtide_lab.league.ranking import ranking_benchmark
from fedtide_lab.league.tune import LEAGUE_WORLDS, RANKING_SEEDS
from fedtide_lab.paper import reproduce
from fedtide_lab.paper.claims import Finding, Side, Verdict, decide_claim
from fedtide_lab.paper.figures import FIGURES, Figure
from fedtide_lab.paper.page import paper_values
from fedtide_lab.paper.reproduce import claims_rows, difference_words, in_words, observed_rows, plain_verdict
from fedtide_lab.prose import prose_findings
from fedtide_lab.skies.page import SKIES_SURVEY
from fedtide_lab.worlds.studies import WORLDS_SURVEY, Survey, collect_worlds

_DECIDING, _OTHER = "the measure that decides", "the other measure"


def paper_page(store: Store) -> str:
    """Return the page of the paper: a verdict per claim, its comparisons, and the figures' curves behind them.

    Claims about figures without runs, and those none of whose comparisons has its runs, are left out.
    """
    results = reproduce.collect_reproduced(list(FIGURES), store, None)
    begun = {name for name, curves in results.items() if curves}
    notes = prose_findings(store.folder, paper_values(), FIGURES)
    families = [
        _figure(figure, results[name], store, notes[f"findings {name}"])
        for name, figure in FIGURES.items()
        if name in begun
    ]
    decided, seen = (
        [
            verdict
            for verdict in found
            if begun >= {each.check.figure for each in verdict.findings}
            and any(each.difference for each in verdict.findings)
        ]
        for found in (reproduce.reproduced_verdicts(results), reproduce.reproduced_observations(results))
    )
    found = _of_claims(families, decided, seen)
    every = [run for curves in results.values() for runs in curves.values() for run in runs.values()]
    return forest_page(
        "The paper's claims, decided", f"{count_page_verdicts(found)} {pair_paths_summary(every)}", families, found
    )


def worlds_page(store: Store) -> str:
    """Return the page of the paper's main claims in other worlds."""
    lead = "each the paper's cell with its data, radio or devices replaced"
    return _survey_page(WORLDS_SURVEY, store, "The paper's main claims in other worlds", lead)


def skies_page(store: Store) -> str:
    """Return the page of the same federation under several skies."""
    lead = "the same federation over other radios"
    return _survey_page(SKIES_SURVEY, store, "Claims under several skies", lead)


def _survey_page(survey: Survey, store: Store, title: str, lead: str) -> str:
    stores = [store, *(Store(store.folder.parent / name) for name in survey.borrowed)]
    results = collect_worlds(survey.worlds, *stores, study=survey.study)
    known = [world for world in survey.worlds if world.name in results]
    place = f" --store {shlex.quote(str(store.folder))}"
    families = []
    for world in known:
        curves = survey.study(world, [0]).labels
        families.append(
            Family(
                world.name,
                world.title,
                f"{world.differs}.",
                tuple(PageCurve(name, name, "", results[world.name].get(name, {})) for name in curves),
                reference={name: survey.references.get(name, "random") for name in curves if name != "random"},
                commands=(f"fedtide {survey.name} {world.name}{place}",),
            )
        )
    decided = [[decide_claim(claim, results) for claim in survey.claims(world.name)] for world in known]
    found = _of_worlds(families, decided, survey.name)
    return forest_page(title, f"{len(found.groups)} claims in {len(known)} {survey.name}, {lead}.", families, found)


def league_page(store: Store) -> str:
    """Return the page of the league: every method's gain over the reference, world by world, by rank."""
    place = f" --store {shlex.quote(str(store.folder))}"
    families: list[Family] = []
    groups: list[dict[str, Any]] = []
    measures: tuple[str, ...] = ()
    for number, (table, runs) in enumerate(ranking_benchmark(LEAGUE_WORLDS, store)):
        names = [row.name for row in table.rows]
        family = Family(
            table.world.name,
            table.world.title,
            f"{table.world.differs}.",
            tuple(
                PageCurve(name, name, "", {seed: runs[name][seed] for seed in runs[name] if seed < RANKING_SEEDS})
                for name in names
            ),
            reference={name: REFERENCE for name in names if name != REFERENCE},
            commands=(f"fedtide league {table.world.name}{place}",),
        )
        others = {name: None if name == REFERENCE else Reference(REFERENCE, REFERENCE) for name in names}
        found = study_page_forest(family, number, others)
        families.append(family)
        measures = found.measures
        groups += [{**group, "text": f"{table.world.title}: gain over random scheduling"} for group in found.groups]
    if not families:
        raise RunFolderError(
            f"{store.folder} holds the league's tuning alone; run the ranking first: `fedtide league{place}`"
        )
    made = Forest(measures, groups, "better than random scheduling")
    lead = f"{len(families[0].curves)} methods in {len(families)} worlds at equal airtime, tuned alike. {count_page_verdicts(made)}"
    return forest_page("The league of methods", lead, families, made)


def _figure(figure: Figure, curves: Mapping[str, Mapping[int, RunResult]], store: Store, note: str) -> Family:
    place = "" if store.folder == Path("results/paper") else f" --store {shlex.quote(str(store.folder))}"
    found = []
    for label in figure.variants():
        name, _, setting = plain_verdict(label).partition(" | ")
        found.append(PageCurve(plain_verdict(label), name, setting, curves.get(label, {})))
    reference = {
        plain_verdict(name): plain_verdict(other)
        for name in figure.curves
        if (other := figure.reference(name)) is not None
    }
    commands = (f"fedtide paper {figure.name}{place}", f"fedtide paper claims{place}")
    caption = " ".join(each for each in (plain_verdict(figure.caption), note or figure.note) if each)
    return Family(figure.name, figure.title, caption, tuple(found), figure.column, figure.over, reference, commands)


def _of_claims(families: Sequence[Family], verdicts: Sequence[Verdict], observed: Sequence[Verdict] = ()) -> Forest:
    """Return the paper's claims with their comparisons, and what was observed besides."""
    places = {family.name: position for position, family in enumerate(families)}
    groups = []
    for row, verdict in zip(claims_rows(verdicts), verdicts, strict=True):
        letters = "abcdefgh" if len(verdict.groups) > 1 else ""
        of_group = [letters[number] for number, group in enumerate(verdict.groups) for _ in group] if letters else []
        rows = [
            _row(families, places, finding, each, in_words(each), of_group[number] if of_group else "")
            for number, (finding, each) in enumerate(zip(verdict.findings, row["comparisons"], strict=True))
        ]
        groups.append(
            {
                **{key: row[key] for key in ("text", "quote", "section", "reading")},
                "claim": row["claim"],
                "verdicts": {_DECIDING: row["verdict"], _OTHER: row["by_other_measure"]},
                "rows": rows,
                "note": "One of its groups is enough." if letters else "",
            }
        )
    for row, seen in zip(observed_rows(observed), observed, strict=True):
        rows = [
            _row(families, places, finding, each, difference_words(each), "")
            for finding, each in zip(seen.findings, row["comparisons"], strict=True)
        ]
        groups.append({"text": row["text"], "note": row["note"], "observed": True, "verdicts": {}, "rows": rows})
    return Forest((_DECIDING, _OTHER), groups, "as claimed")


def _of_worlds(families: Sequence[Family], decided: Sequence[Sequence[Verdict]], those: str) -> Forest:
    """Return the paper's main claims, each with its comparisons in every world. decided: by world, then by claim."""
    found = []
    for same in zip(*decided, strict=True):
        made = _of_claims(families, same).groups
        rows = [
            {
                **row,
                "words": family.title if len(group["rows"]) == 1 else f"{family.title}: {row['words']}",
                "full": f"{family.title}: {row['words']}",
            }
            for family, group in zip(families, made, strict=True)
            for row in group["rows"]
        ]
        verdicts = {
            measure: f"holds in {sum(group['verdicts'][measure] == 'holds' for group in made)} of {len(made)} {those}"
            for measure in (_DECIDING, _OTHER)
        }
        found.append({"text": made[0]["text"], "verdicts": verdicts, "rows": rows, "note": ""})
    return Forest((_DECIDING, _OTHER), found, "as claimed")


def _row(
    families: Sequence[Family],
    places: Mapping[str, int],
    finding: Finding,
    row: Mapping[str, Any],
    words: str,
    letter: str,
) -> dict[str, Any]:
    check = finding.check
    family = families[places[check.figure]]
    return {
        "words": cut_curve_label(words).rstrip(", "),
        "group": letter,
        "family": places[check.figure],
        "better": _numbers(family, check.better),
        "worse": _numbers(family, check.worse),
        "by": {_DECIDING: _short(row), _OTHER: _short(row["by_other_measure"])},
    }


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("metric", "mean", "low", "high", "num_seeds", "seeds_needed", "verdict")
    return {
        **{key: row[key] for key in keys if key in row},
        "note": "; ".join(filter(None, [row["paths_note"], row["diverged_note"]])),
    }


def _numbers(family: Family, side: Side) -> list[int]:
    return [family.position(plain_verdict(each)) for each in ((side,) if isinstance(side, str) else side)]
