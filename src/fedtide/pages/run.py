"""The page of a run, or of two beside each other on the same clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError
from fedtide.pages import rows
from fedtide.pages.costs import leaves
from fedtide.pages.rebuilt import seen
from fedtide.pages.seen import Seen
from fedtide.pages.shell import as_json, label, page, text
from fedtide.pages.still import still
from fedtide.pages.thin import fitting
from fedtide.report.summary import evaluated

SCRIPTS: Final = ("common.js", "run.js")
WIDEST: Final = 200  # characters of a user's own words in a page
NO_RESULT: Final = ("scenario", "framework", "profile", "tracker", "data.folder")  # keys that change no result


def run_page(folders: Sequence[Path]) -> str:
    """Return the page of one run folder, or of two on the same clock, as one HTML file."""
    runs = _read(folders)
    return fitting(lambda level: _page(runs, level))


def live_page(folders: Sequence[Path], tag: str) -> str:
    """Return the page of runs that may be under way: it asks the server that it came from for what came after `tag`."""
    runs = _read(folders)
    return fitting(lambda level: _page(runs, level, tag))


def live_data(folders: Sequence[Path], tag: str) -> str:
    """Return what such a page is told later, as JSON."""
    runs = _read(folders)
    return fitting(lambda level: as_json(_payload(runs, level, tag)))


def _read(folders: Sequence[Path]) -> list[tuple[str, Seen]]:
    if not 1 <= len(folders) <= 2:
        raise FedtideError(f"{len(folders)} runs: a page shows one run, or two beside each other; name one or two")
    names = [each.resolve().name for each in folders]
    if len(names) == 2 and names[0] == names[1]:  # told apart by where they lie
        names = [f"{each.resolve().parent.name}/{each.resolve().name}" for each in folders]
    return [(name, seen(each)) for name, each in zip(names, folders, strict=True)]


def _payload(runs: Sequence[tuple[str, Seen]], level: int, tag: str | None = None) -> dict[str, Any]:
    return {"runs": [_told(name, each, level) for name, each in runs], "live": tag}


def _page(runs: Sequence[tuple[str, Seen]], level: int, tag: str | None = None) -> str:
    payload = _payload(runs, level, tag)
    title = " and ".join(each["title"] for each in payload["runs"])
    return page(
        title,
        payload,
        SCRIPTS,
        _body(runs, payload["runs"]),
        still([each for _, each in runs], [each["title"] for each in payload["runs"]]),
        styles=("run.css",),
        polls=tag is not None,
    )


def _told(name: str, run: Seen, level: int) -> dict[str, Any]:
    made = rows.grid(run, level)
    experiment, scored = run.experiment, evaluated(run.rounds)
    found = rows.labels(run, made)
    return {
        "name": name[:WIDEST],
        "title": _title(experiment)[:WIDEST],
        "kind": run.kind,
        "why": run.why[: 2 * WIDEST],
        "thinned": _thinned(run, made),
        "complete": run.complete,
        "unit": run.unit,
        "horizon": max(experiment.timeline.horizon, run.rounds[-1].time),
        "devices": run.num_devices,
        "limit": experiment.policy.limit,
        "fine": made.fine,
        "row_size": made.size,
        "speed": rows.by_speed(run) if made.fine else None,
        "chance": 1 / found["count"] if found else None,
        "last_accuracy": scored[-1].test_accuracy if scored else None,
        "curve": rows.curve(run, level),
        "columns": rows.columns(run, made),
        "cells": rows.cells(run, made),
        "jobs": rows.trainings(run) if made.fine else None,
        "picks": rows.picks(run, made),
        "uploads": sum(len(each.picked) for each in run.rounds),
        "lost": sum(len(each.lost) for each in run.rounds),
        "ages": rows.ages(run, made),
        "labels": found,
    }


def _title(experiment: Experiment) -> str:
    """Name a run by what people compare: who is scheduled, and when the server acts."""
    timeline, scheduler = experiment.timeline.name, experiment.policy.scheduler
    return f"{scheduler.rpartition('/')[2]} · {timeline.rpartition('/')[2]}"


def _thinned(run: Seen, made: rows.Grid) -> str:
    """Say what is not shown one by one; "" if everything is."""
    said = []
    if not made.fine:
        said.append(f"{run.num_devices:,} devices in {len(made.size)} rows, the fastest first")
    if len(made.keep) < len(run.rounds):
        said.append(f"{len(made.keep):,} of {len(run.rounds):,} aggregations, counts between them added to the next")
    return "; ".join(said)


def _facts(run: Seen) -> str:
    experiment = run.experiment
    fleet, radio, data = experiment.fleet, experiment.radio, experiment.data
    where = {"deployed": "real devices", "simulated": "simulated", "recorded": "from its records"}[run.kind]
    lost, uploads = (
        sum(len(of) for of in each) for each in zip(*((r.lost, r.picked) for r in run.rounds), strict=True)
    )
    done = "complete" if run.complete else f"under way or stopped at time {run.rounds[-1].time:g}"
    words = (
        f"N = {fleet.num_devices:,}",
        f"R = {experiment.policy.limit:,}",
        f"{data.name}, {data.partition}",
        f"{radio.channel} {radio.snr_db:g} dB",
        f"seed {experiment.seed}",
        f"{len(run.rounds):,} aggregations",
        *([f"{lost:,} of {uploads:,} uploads lost"] if lost else []),
        where,
        done,
    )
    return " · ".join(label(each) for each in words)


def _body(runs: Sequence[tuple[str, Seen]], told: Sequence[dict[str, Any]]) -> str:
    sections = []
    for number, ((name, run), tree) in enumerate(zip(runs, told, strict=True)):
        notes = [each for each in (tree["thinned"], run.why) if each]
        sections.append(
            f'<section class="run" id="run{number}" aria-labelledby="run{number}-title">'
            f'<h2 id="run{number}-title">{label(tree["title"])}</h2>'
            f'<p class="soft facts">{_facts(run)}</p>'
            + "".join(f'<p class="note">{label(each, 400)}</p>' for each in notes)
            + f'<p class="soft folder">{label(name)}</p></section>'
        )
    heading = "A run, aggregation by aggregation" if len(runs) == 1 else "Two runs on the same clock"
    return (
        f'<header><h1>{heading}</h1><p class="lead">Who trained, who was ready, whose channel was bad, and where the '
        "airtime went.</p></header>"
        '<main id="main"><div id="scrub" class="scrub screen" role="region" aria-label="Aggregation in view"></div>'
        '<p id="now" class="now" role="status" aria-live="polite"></p>'
        f'<div class="runs runs-{len(runs)}">{"".join(sections)}</div>{_settings([each for _, each in runs])}</main>'
    )


def _settings(runs: Sequence[Seen]) -> str:
    """List the keys in which the runs differ, or those of one run that are not the default."""
    trees = [_set(each.experiment) for each in runs]
    if len(runs) == 2:
        title, names, compared = "Settings that differ", ("first", "second"), trees
    else:
        title, names = "Settings that are not the default", ("here", "default")
        compared = [trees[0], _set(config.experiment({}))]
    keys = [key for key in sorted({*compared[0], *compared[1]}) if not key.startswith(NO_RESULT)]
    differ = [key for key in keys if compared[0].get(key) != compared[1].get(key)]
    body = "".join(
        f'<tr><td class="words"><code>{text(key, WIDEST)}</code></td>'
        + "".join(f'<td class="words">{label(_shown(each.get(key)))}</td>' for each in compared)
        + "</tr>"
        for key in differ
    )
    head = "".join(f'<th scope="col" class="words">{each}</th>' for each in ("key", *names))
    table = f'<div class="scroll settings"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return f'<section aria-labelledby="settings"><h2 id="settings">{title}</h2>{table if differ else "<p>None.</p>"}</section>'


def _set(experiment: Experiment) -> dict[str, Any]:
    return {key: value for key, value in leaves(config.dump(experiment)) if value != {}}


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
