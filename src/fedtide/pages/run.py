"""The page of runs on one clock: what they reached, moments worth a look, and what happened at every aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError
from fedtide.pages import run_rows
from fedtide.pages.html import (
    Markup,
    html_label,
    html_line_styles,
    html_page,
    html_text,
    join_markup,
    markup,
    payload_json,
)
from fedtide.pages.moments import find_moments
from fedtide.pages.run_rows import fit_page
from fedtide.pages.run_view import RunView, view_run
from fedtide.report.summary import TARGETS, evaluated_rounds, summarise, summary_texts

_SCRIPTS: Final = ("common.js", "run.js")
_LONGEST_TEXT: Final = 200  # characters of a user's text in a page
_NUMBERS: Final = (  # of the summary
    *("best test accuracy", "time to 80%", "time to 90%", "uploads", "updates arrived", "updates lost"),
    *("retransmitted", "stayed silent", "symbols granted", "symbols sent", "symbols unused", "bits sent"),
    *("kept share r/d, mean", "age of updates, mean", "samples used", "samples wasted"),
)
_MOST_METRICS: Final = 12  # of a run, in its numbers
_FADING: Final = ("rayleigh", "rayleigh_by_device", "rician", "nakagami", "jakes")  # about an average SNR
_NO_RESULT: Final = (*config.PRESETS, "tracker", "data.folder")  # keys that change no result
_MOST_RUNS: Final = 32  # of a page


def run_page(folders: Sequence[Path], tag: str | None = None) -> str:
    """Return the page of one or several run folders on one clock, as one HTML file.

    tag: for runs that may be under way, what the page holds; it asks its server for data that are newer.
    """
    runs = _read(folders)
    return fit_page(lambda level: _page(runs, level, tag))


def run_page_data(folders: Sequence[Path], tag: str) -> str:
    """Return the data that such a page asks for later, as JSON."""
    runs = _read(folders)
    return fit_page(lambda level: payload_json(_payload(runs, level, tag)))


def check_run_page_count(folders: Sequence[Path]) -> None:
    """Raise unless a page can show so many runs."""
    if not 1 <= len(folders) <= _MOST_RUNS:
        raise FedtideError(f"{len(folders)} runs: a page shows 1 to {_MOST_RUNS}; name fewer, or make them a study")


def _read(folders: Sequence[Path]) -> list[RunView]:
    """Read runs; those of the same name are told apart by the folder above theirs, or by their place."""
    check_run_page_count(folders)
    runs = [view_run(folder) for folder in folders]
    names = [run.name for run in runs]
    longer = [f"{folder.resolve().parent.name}/{run.name}" for folder, run in zip(folders, runs, strict=True)]
    names = [name if names.count(name) == 1 else longer[at] for at, name in enumerate(names)]
    names = [name if names.count(name) == 1 else f"{name} ({at + 1})" for at, name in enumerate(names)]
    return [run._replace(name=name[:_LONGEST_TEXT]) for run, name in zip(runs, names, strict=True)]


def _payload(runs: Sequence[RunView], level: int, tag: str | None) -> dict[str, Any]:
    summaries = [summarise(run.experiment, run.rounds, run.num_parameters) for run in runs]
    target = _shared_target(summaries)
    data = [_run_data(run, told, target, level, tag is not None) for run, told in zip(runs, summaries, strict=True)]
    titles = _titles(runs)
    schedulers = [run.experiment.part("scheduler").name.rpartition("/")[2] for run in runs]
    styles = html_line_styles(schedulers if len(set(schedulers)) == len(runs) else titles)
    for tree, title, style in zip(data, titles, styles.values(), strict=True):
        tree |= {"title": title, "line": style}
    finding, lead = _finding(runs, summaries, titles, target)
    return {"runs": data, "live": tag, "finding": finding, "lead": lead}


def _titles(runs: Sequence[RunView]) -> list[str]:
    """Name every run by its schedule and timeline; where that is not enough, by its folder, too."""
    titles = [_title(run.experiment)[:_LONGEST_TEXT] for run in runs]
    schedules = [title.partition(" · ")[0] for title in titles]
    if len(set(schedules)) == len(runs) > 1 and len({title.partition(" · ")[2] for title in titles}) == 1:
        return schedules
    return [
        title if titles.count(title) == 1 else f"{title}, {run.name}"[:_LONGEST_TEXT]
        for title, run in zip(titles, runs, strict=True)
    ]


def _shared_target(summaries: Sequence[Mapping[str, Any]]) -> float:
    """Return the highest target accuracy that all runs reach, or else the highest that any reaches, or the lowest."""
    counts = {
        target: sum(told["time_to_accuracy"][str(target)] is not None for told in summaries) for target in TARGETS
    }
    reached = [target for target in TARGETS if counts[target] == max(counts.values()) > 0]
    return max(reached, default=TARGETS[0])


def _finding(
    runs: Sequence[RunView], summaries: Sequence[Mapping[str, Any]], titles: Sequence[str], target: float
) -> tuple[str, str]:
    """Return what the runs show, as a headline and a sentence or two."""
    ends = [(told["final_accuracy"], title) for told, title in zip(summaries, titles, strict=True)]
    known = sorted((end for end in ends if end[0] is not None), key=lambda end: -end[0])
    if not known:
        return "Not scored yet", "No model has been evaluated so far."
    reached = [(told["time_to_accuracy"][str(target)], run.unit) for told, run in zip(summaries, runs, strict=True)]
    words = [f"{f'{time:g} {unit}'.strip()}" if time is not None else "not reached" for time, unit in reached]
    if len(runs) == 1:
        run, told = runs[0], summaries[0]
        when = f"{run.rounds[-1].time:g} {run.unit}".strip()
        state = "" if run.complete else " so far"
        lost = told["lost"] + told["silent"]
        fate = (
            f"{lost:,} of {told['uploads']:,} uploads did not arrive"
            if lost
            else f"all {told['uploads']:,} uploads arrived"
        )
        sooner = f"It reached {target:.0%} at time {words[0]}; " if reached[0][0] is not None else ""
        lead = f"{sooner}{fate if not sooner else fate[0] + fate[1:]}."
        return f"{known[0][0]:.1%} test accuracy after {when}{state}", lead[0].upper() + lead[1:]
    (best, winner), (second, other) = known[0], known[min(1, len(known) - 1)]
    lead = (
        f"Time to {target:.0%}: "
        + "; ".join(f"{title} {word}" for title, word in zip(titles, words, strict=True))
        + "."
    )
    seeds = {run.experiment.seed for run in runs}
    note = " One run each says nothing about chance: compare several seeds with a study."
    headline = (
        f"{winner} ends highest, {best - second:.3f} above {other}"
        if best > second
        else f"{winner} and {other} end alike"
    )
    return headline, lead[:600] + (note if len(seeds) == 1 else "")


def _page(runs: Sequence[RunView], level: int, tag: str | None) -> str:
    payload = _payload(runs, level, tag)
    titles = [data["title"] for data in payload["runs"]]
    body, polls = _body(runs, payload), tag is not None
    return html_page(" and ".join(titles), payload, _SCRIPTS, body, Markup(), styles=("run.css",), polls=polls)


def _run_data(run: RunView, summary: Mapping[str, Any], target: float, level: int, live: bool) -> dict[str, Any]:
    running = live and run.running and not run.complete  # a page that does not change would soon be wrong about it
    grid = run_rows.row_grid(run, level)
    experiment = run.experiment
    labels = run_rows.run_row_labels(run, grid)
    return {
        "name": run.name,
        "kind": run.kind,
        "why": run.why[: 2 * _LONGEST_TEXT],
        "thinned": _left_out(run, grid),
        "complete": run.complete,
        "going": running,
        "facts": _facts(run, running),
        "results": _results(run, summary, target),
        "numbers": _numbers(run, summary),
        "moments": [{"index": each.index, "time": each.time, "text": each.text} for each in find_moments(run.rounds)],
        "unit": run.unit,
        "total": run.total,
        "horizon": max(experiment.timeline.horizon, run.rounds[-1].time),
        "devices": run.num_devices,
        "limit": experiment.policy.limit,
        "fine": grid.fine,
        "row_size": grid.size,
        "speed": run_rows.rows_by_speed(run) if grid.fine else None,
        "chance": 1 / labels["count"] if labels else None,
        "curve": run_rows.run_row_curve(run, level),
        "columns": run_rows.run_row_columns(run, grid),
        "cells": run_rows.run_row_cells(run, grid),
        "jobs": run_rows.run_row_trainings(run) if grid.fine else None,
        "picks": run_rows.run_row_uploads(run, grid),
        "uploads": sum(len(record.picked) for record in run.rounds),
        "lost": sum(len(record.lost) for record in run.rounds),
        "silent": sum(len(record.silent) for record in run.rounds),
        "retransmitted": sum(len(record.retransmitted) for record in run.rounds),
        "ages": run_rows.run_row_ages(run, grid),
        "labels": labels,
        "groups": None if run.groups is None else {"name": run.groups.name, "rows": grid.group},
        "interference": run_rows.run_row_interference(run, grid),
    }


def _title(experiment: Experiment) -> str:
    """Name a run by what people compare: its scheduler and its timeline."""
    timeline, scheduler = experiment.part("timeline").name, experiment.part("scheduler").name
    return f"{scheduler.rpartition('/')[2]} · {timeline.rpartition('/')[2]}"


def _left_out(run: RunView, grid: run_rows.RowGrid) -> str:
    """Say which devices and aggregations are not shown one by one; "" if all are."""
    said = []
    if not grid.fine:
        whose = f" of one {run.groups.name} each" if run.groups else ""
        said.append(f"{run.num_devices:,} devices in {len(grid.size)} rows{whose}, the fastest first")
    if len(grid.keep) < len(run.rounds):
        said.append(f"{len(grid.keep):,} of {len(run.rounds):,} aggregations, counts between them added to the next")
    return "; ".join(said)


def _facts(run: RunView, running: bool) -> list[str]:
    """Describe a run in short phrases, and how far it came."""
    experiment = run.experiment
    where = {"deployed": "real devices", "simulated": "simulated", "recorded": "from its records"}[run.kind]
    uploads = sum(len(record.picked) for record in run.rounds)
    fates = {
        name: sum(len(getattr(record, name)) for record in run.rounds) for name in ("lost", "silent", "retransmitted")
    }
    now = f"{run.rounds[-1].time:g}{f' {run.unit}' if run.unit else ''}"
    return [
        f"N = {experiment.fleet.num_devices:,}",
        f"R = {experiment.policy.limit:,}",
        *_grouped(run),
        f"{experiment.data.name}, {experiment.data.partition}",
        _radio(experiment),
        f"seed {experiment.seed}",
        f"{len(run.rounds):,} aggregations",
        *(f"{count:,} of {uploads:,} uploads {fate}" for fate, count in fates.items() if count),
        where,
        *(f"{name}: {text}" for name, text in run.federation.items()),
        "complete" if run.complete else f"under way, at time {now}" if running else f"not complete, at time {now}",
    ]


def _grouped(run: RunView) -> list[str]:
    """Say into how many cells or edge servers the devices fall."""
    if run.groups is None:
        return []
    count = len(np.unique(run.groups.number[run.groups.number >= 0]))
    return [f"{count:,} {'cells' if run.groups.name == 'cell' else 'edge servers'}"]


def _radio(experiment: Experiment) -> str:
    """Name the channel with its average SNR, or with the coverage if the links differ."""
    channel, coverage = experiment.radio.channel, experiment.radio.coverage
    if coverage.name != "equal":
        return f"{channel}, {coverage}"
    if channel.name not in _FADING and channel.args.get("quantity") != "gain":
        return channel.name
    return f"{channel} {experiment.radio.snr_db:g} dB"


def _results(run: RunView, told: Mapping[str, Any], target: float) -> list[tuple[str, str]]:
    """Return the few numbers that a reader asks for first, by name."""
    time = told["time_to_accuracy"][str(target)]
    joules = told["joules"]
    lost = told["lost"] + told["silent"]
    return [
        ("test accuracy", "–" if told["final_accuracy"] is None else f"{told['final_accuracy']:.4f}"),
        ("test loss", "–" if told["final_loss"] is None else f"{told['final_loss']:.4f}"),
        (f"time to {target:.0%}", "not reached" if time is None else f"{time:g} {run.unit}".strip()),
        ("bits sent", f"{told['bits']:,.0f}"),
        ("energy", "not counted" if joules is None else f"{joules:,.4g} J"),
        ("uploads lost", f"{lost:,} of {told['uploads']:,}"),
    ]


def _numbers(run: RunView, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary of a run, and what made it, by name."""
    measured = next((record.metrics for record in reversed(evaluated_rounds(run.rounds))), {})
    texts = summary_texts(summary)
    numbers = {
        f"{'final' if run.complete else 'latest'} test accuracy": texts["final test accuracy"],
        **{name: texts[name] for name in _NUMBERS},
        **{f"{name}, last": f"{value:.4g}" for name, value in [*measured.items()][:_MOST_METRICS]},
        **_origin(run),
        "trainer": run.experiment.learning.trainer.name,
        "seed": str(run.experiment.seed),
    }
    return [(name, value[:_LONGEST_TEXT]) for name, value in numbers.items()]


def _origin(run: RunView) -> dict[str, str]:
    """Say what made a run."""
    commit = str(run.versions.get("commit") or "unknown")
    return {
        "fedtide": str(run.versions.get("fedtide") or "unknown"),
        "commit": f"{commit[:12]}{commit[40:]}",  # with a + if the code was changed since
        "instruction path": str(run.versions.get("isa") or "none"),
    }


def _body(runs: Sequence[RunView], payload: Mapping[str, Any]) -> Markup:
    data = payload["runs"]
    sections = [
        markup(
            '<section class="run" id="run{number}" aria-labelledby="run{number}-title">'
            '<h2 id="run{number}-title">{title}</h2><p class="soft facts">{facts}</p>{notes}'
            '<details class="drawer"><summary>All numbers</summary><dl class="numbers">{numbers}</dl></details></section>',
            number=number,
            title=html_label(tree["title"]),
            facts=join_markup(map(html_label, tree["facts"]), " · "),
            notes=join_markup(
                markup('<p class="note">{words}</p>', words=html_label(note, 400))
                for note in (tree["thinned"], run.why)
                if note
            ),
            numbers=_pairs(tree["numbers"]),
        )
        for number, (run, tree) in enumerate(zip(runs, data, strict=True))
    ]
    return markup(
        '<header><h1 id="finding">{finding}</h1><p class="lead" id="lead">{lead}</p>{results}'
        '<p class="soft origin">{origin}</p>{settings}</header>'
        '<main id="main"><div id="scrub" class="scrub screen" role="region" aria-label="Aggregation in view"></div>'
        '<p id="now" class="now" role="status" aria-live="polite"></p>'
        '<fieldset id="measures" class="screen"></fieldset><div id="curves"></div>'
        '<section id="moments" aria-labelledby="moments-title"><h2 id="moments-title">Moments worth a look</h2><ol></ol></section>'
        '<div id="runs" class="runs runs-{count}">{sections}</div></main>',
        finding=html_text(payload["finding"], 2 * _LONGEST_TEXT),
        lead=html_text(payload["lead"], 4 * _LONGEST_TEXT),
        results=_result_table(data) if len(data) > 1 else _hero(data[0]),
        origin=join_markup(map(html_label, _origins(runs)), " · "),
        count=min(2, len(runs)),
        sections=join_markup(sections),
        settings=_settings(runs),
    )


def _pairs(pairs: Sequence[tuple[str, str]]) -> Markup:
    return join_markup(
        markup("<div><dt>{name}</dt><dd>{value}</dd></div>", name=name, value=html_label(value))
        for name, value in pairs
    )


def _hero(tree: Mapping[str, Any]) -> Markup:
    return markup('<dl id="hero" class="hero">{pairs}</dl>', pairs=_pairs(tree["results"]))


def _result_table(data: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a row for every run: what it reached and what that took."""
    heading = [markup('<th scope="col">{name}</th>', name=name) for name in ("run", *dict(data[0]["results"]))]
    rows = [
        markup(
            '<tr data-run="{number}"><td class="words">{title}</td>{cells}</tr>',
            number=number,
            title=html_label(tree["title"]),
            cells=join_markup(markup("<td>{value}</td>", value=value) for _, value in tree["results"]),
        )
        for number, tree in enumerate(data)
    ]
    return markup(
        '<div id="results" class="scroll"><table><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table></div>',
        heading=join_markup(heading),
        rows=join_markup(rows),
    )


def _origins(runs: Sequence[RunView]) -> list[str]:
    """Say which runs these are and what made them: once if it was the same for all."""
    found = list(dict.fromkeys(", ".join(f"{name} {value}" for name, value in _origin(run).items()) for run in runs))
    names = [run.name for run in runs]
    return [", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else ""), *found[:3]]


def _settings(runs: Sequence[RunView]) -> Markup:
    """List every setting in a drawer: of one run beside the default, of several beside one another; what differs comes first."""
    trees = [config.nested_to_dotted(config.dump(run.experiment)) for run in runs]
    usual = config.nested_to_dotted(config.dump(config.experiment({})))
    names, compared = (["here", "default"], [trees[0], usual]) if len(runs) == 1 else (_titles(runs), trees)
    keys = [key for key in sorted(set().union(*compared)) if not key.startswith(_NO_RESULT)]
    differing = [key for key in keys if any(tree.get(key) != compared[0].get(key) for tree in compared[1:])]
    head = join_markup(markup('<th scope="col" class="words">{name}</th>', name=name) for name in ("key", *names))
    different, same = (
        markup(
            '<div class="scroll settings"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>',
            head=head,
            rows=join_markup(_setting_row(key, compared) for key in chosen),
        )
        for chosen in (differing, [key for key in keys if key not in differing])
    )
    if len(runs) == 1:
        title = f"All settings ({len(differing)} not the default)"
        return _drawer("settings", title, join_markup([different, same]))
    title = f"Settings that differ ({len(differing)})" if differing else "No setting differs"
    return join_markup([_drawer("settings", title, different, " open"), _drawer("same", "All other settings", same)])


def _drawer(name: str, title: str, content: Markup, state: str = "") -> Markup:
    form = '<details class="drawer" id="{name}"{state}><summary>{title}</summary>{content}</details>'
    return markup(form, name=name, state=html_text(state), title=title, content=content)


def _setting_row(key: str, trees: Sequence[Mapping[str, Any]]) -> Markup:
    cells = join_markup(
        markup('<td class="words">{value}</td>', value=html_label(_setting(tree.get(key)))) for tree in trees
    )
    return markup(
        '<tr><td class="words"><code>{key}</code></td>{cells}</tr>', key=html_text(key, _LONGEST_TEXT), cells=cells
    )


def _setting(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
