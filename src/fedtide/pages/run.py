"""The page of a run, or of two beside each other on the same clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError
from fedtide.pages import run_rows
from fedtide.pages.run_rows import by_speed, every, fitting
from fedtide.pages.run_view import RunView, seen
from fedtide.pages.shell import Markup, as_json, html_label, joined, markup, page, text
from fedtide.plot.style import COLOURS
from fedtide.report.summary import evaluated, summarise
from fedtide.runs import in_use

# A still picture of runs, for readers without scripts: the accuracy, and who uploaded when.


_WIDTH, _CURVE, _RASTER, _LEFT, _GAP = 900, 180, 220, 46, 30
_MOST: Final = 400  # points of a curve, columns of a raster


def still(runs: Sequence[RunView], names: Sequence[str]) -> Markup:
    """Return an SVG of the runs one below the other."""
    height = _CURVE + _RASTER + 3 * _GAP
    return markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{said}" '
        'font-family="sans-serif" font-size="12" fill="currentColor">{runs}</svg>',
        width=_WIDTH,
        height=len(runs) * height,
        said=text("; ".join(f"{name}: accuracy and uploads over time" for name in names), 400),
        runs=joined(
            _one(run, name, number * height, COLOURS[number])
            for number, (run, name) in enumerate(zip(runs, names, strict=True))
        ),
    )


def _one(run: RunView, name: str, top: int, colour: str) -> Markup:
    end = max(run.experiment.timeline.horizon, run.rounds[-1].time)
    wide, base = _WIDTH - _LEFT - 10, top + _GAP + _CURVE
    scored = [each for each in run.rounds if each.test_accuracy is not None]
    points = " ".join(
        f"{_LEFT + wide * scored[at].time / end:.1f},{base - _CURVE * (scored[at].test_accuracy or 0.0):.1f}"
        for at in every(len(scored), _MOST).tolist()
    )
    rank = {device: place for place, device in enumerate(by_speed(run).tolist())}
    step = _RASTER / run.num_devices
    marks = "".join(
        f"M{_LEFT + wide * run.rounds[at].time / end:.1f} {base + _GAP + step * rank[device]:.1f}v{max(step * 0.8, 0.6):.1f}"
        for at in every(len(run.rounds), _MOST).tolist()
        for device in run.rounds[at].picked[:40]
    )
    axis = joined(
        markup(
            '<text x="{x}" y="{words:.0f}" text-anchor="end">{share:g}</text>'
            '<path d="M{left} {y:.1f}h{wide}" stroke="#999" stroke-width=".4"/>',
            x=_LEFT - 6,
            words=base - _CURVE * share + 4,
            share=share,
            left=_LEFT,
            y=base - _CURVE * share,
            wide=wide,
        )
        for share in (0, 0.5, 1)
    )
    return markup(
        '<text x="{left}" y="{title}" font-size="14">{name}: test accuracy, and uploads by device (fastest above)</text>{axis}'
        '<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        '<path d="{marks}" stroke="{colour}" stroke-width="1.6" fill="none"/>'
        '<text x="{right}" y="{bottom}" text-anchor="end">time to {end:g} {unit}</text>',
        left=_LEFT,
        title=top + 16,
        name=text(name, 90),
        axis=axis,
        points=points,
        colour=colour,
        marks=marks,
        right=_LEFT + wide,
        bottom=base + _GAP + _RASTER + 16,
        end=end,
        unit=run.unit,
    )


# The page of a run, or of two beside each other on the same clock.


_SCRIPTS: Final = ("common.js", "run.js")
_WIDEST: Final = 200  # characters of a user's own words in a page
_FADING: Final = ("rayleigh", "rayleigh_by_device", "rician", "nakagami", "jakes")  # about an average SNR
_NO_RESULT: Final = ("scenario", "framework", "profile", "tracker", "data.folder")  # keys that change no result


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


class _Run(NamedTuple):
    name: str  # of its folder
    seen: RunView
    going: bool  # a process is at work on it


def check_count(folders: Sequence[Path]) -> None:
    """Raise if a page does not show so many runs."""
    if not 1 <= len(folders) <= 2:
        raise FedtideError(f"{len(folders)} runs: a page shows one run, or two beside each other; name one or two")


def _read(folders: Sequence[Path]) -> list[_Run]:
    check_count(folders)
    names = [each.resolve().name for each in folders]
    if len(names) == 2 and names[0] == names[1]:  # told apart by where they lie
        names = [f"{each.resolve().parent.name}/{each.resolve().name}" for each in folders]
    # Asked before the folder is read: a run that ends in between is told of by the next question.
    going = [in_use(each) for each in folders]
    return [_Run(*each) for each in zip(names, map(seen, folders), going, strict=True)]


def _payload(runs: Sequence[_Run], level: int, tag: str | None = None) -> dict[str, Any]:
    return {"runs": [_told(each, level, tag is not None) for each in runs], "live": tag}


def _page(runs: Sequence[_Run], level: int, tag: str | None = None) -> str:
    payload = _payload(runs, level, tag)
    titles = [each["title"] for each in payload["runs"]]
    return page(
        " and ".join(titles),
        payload,
        _SCRIPTS,
        _body(runs, payload["runs"]),
        still([each.seen for each in runs], titles),
        styles=("run.css",),
        polls=tag is not None,
    )


def _told(shown: _Run, level: int, live: bool) -> dict[str, Any]:
    run = shown.seen
    made = run_rows.grid(run, level)
    experiment, scored = run.experiment, evaluated(run.rounds)
    found = run_rows.labels(run, made)
    return {
        "name": shown.name[:_WIDEST],
        "title": _title(experiment)[:_WIDEST],
        "kind": run.kind,
        "why": run.why[: 2 * _WIDEST],
        "thinned": _thinned(run, made),
        "complete": run.complete,
        "going": live and shown.going and not run.complete,  # of a page that does not change it would soon be wrong
        "facts": _facts(run, live and shown.going),
        "numbers": _numbers(shown),
        "unit": run.unit,
        "horizon": max(experiment.timeline.horizon, run.rounds[-1].time),
        "devices": run.num_devices,
        "limit": experiment.policy.limit,
        "fine": made.fine,
        "row_size": made.size,
        "speed": run_rows.by_speed(run) if made.fine else None,
        "chance": 1 / found["count"] if found else None,
        "last_accuracy": scored[-1].test_accuracy if scored else None,
        "curve": run_rows.curve_columns(run, level),
        "columns": run_rows.columns(run, made),
        "cells": run_rows.cells(run, made),
        "jobs": run_rows.trainings(run) if made.fine else None,
        "picks": run_rows.picks(run, made),
        "uploads": sum(len(each.picked) for each in run.rounds),
        "lost": sum(len(each.lost) for each in run.rounds),
        "ages": run_rows.age_columns(run, made),
        "labels": found,
    }


def _title(experiment: Experiment) -> str:
    """Name a run by what people compare: who is scheduled, and when the server acts."""
    timeline, scheduler = experiment.part("timeline").name, experiment.part("scheduler").name
    return f"{scheduler.rpartition('/')[2]} · {timeline.rpartition('/')[2]}"


def _thinned(run: RunView, made: run_rows.RowGrid) -> str:
    """Say what is not shown one by one; "" if everything is."""
    said = []
    if not made.fine:
        said.append(f"{run.num_devices:,} devices in {len(made.size)} rows, the fastest first")
    if len(made.keep) < len(run.rounds):
        said.append(f"{len(made.keep):,} of {len(run.rounds):,} aggregations, counts between them added to the next")
    return "; ".join(said)


def _facts(run: RunView, going: bool) -> list[str]:
    """Say in a few words what a run is, and how far it came."""
    experiment = run.experiment
    where = {"deployed": "real devices", "simulated": "simulated", "recorded": "from its records"}[run.kind]
    lost, uploads = (
        sum(len(of) for of in each) for each in zip(*((r.lost, r.picked) for r in run.rounds), strict=True)
    )
    now = f"{run.rounds[-1].time:g}{f' {run.unit}' if run.unit else ''}"
    return [
        f"N = {experiment.fleet.num_devices:,}",
        f"R = {experiment.policy.limit:,}",
        f"{experiment.data.name}, {experiment.data.partition}",
        _radio(experiment),
        f"seed {experiment.seed}",
        f"{len(run.rounds):,} aggregations",
        *([f"{lost:,} of {uploads:,} uploads lost"] if lost else []),
        where,
        "complete" if run.complete else f"under way, at time {now}" if going else f"not complete, at time {now}",
    ]


def _radio(experiment: Experiment) -> str:
    """Name the channel and what it fades about: an average SNR if all links have the same, else the coverage."""
    channel, coverage = experiment.radio.channel, experiment.radio.coverage
    if coverage.name != "equal":
        return f"{channel}, {coverage}"
    if channel.name not in _FADING and channel.args.get("quantity") != "gain":
        return channel.name
    return f"{channel} {experiment.radio.snr_db:g} dB"


def _numbers(shown: _Run) -> list[tuple[str, str]]:
    """Return the closing numbers of a run, and what made them, by name."""
    run, versions = shown.seen, shown.seen.versions
    commit = str(versions.get("commit") or "unknown")
    found = summarise(run.experiment, run.rounds, run.num_parameters)
    reached = {f"time to {float(at):.0%}": found["time_to_accuracy"][at] for at in ("0.8", "0.9")}
    numbers = {
        ("final" if run.complete else "latest") + " test accuracy": _number(found["final_accuracy"], "{:.4f}"),
        "best test accuracy": _number(found["best_accuracy"], "{:.4f}"),
        **{name: "not reached" if time is None else f"{time:g}" for name, time in reached.items()},
        "uploads": f"{found['uploads']:,}",
        "updates lost": f"{found['lost']:,}",
        "symbols spent": f"{found['symbols']:,.0f}",
        "bits sent": f"{found['bits']:,.0f}",
        "kept share r/d, mean": _number(found["mean_kept_share"], "{:.3f}"),
        "age of updates, mean": _number(found["mean_age"], "{:.2f}"),
        "samples used": f"{found['samples_used']:,}",
        "samples wasted": f"{found['samples_wasted']:,}",
        "fedtide": str(versions.get("fedtide") or "unknown"),
        "commit": f"{commit[:12]}{commit[40:]}",  # with a + if the code was changed since
        "instruction path": str(versions.get("isa") or "none"),
        "trainer": run.experiment.learning.trainer.name,
        "seed": str(run.experiment.seed),
    }
    return [(name, value[:_WIDEST]) for name, value in numbers.items()]


def _number(value: float | None, pattern: str) -> str:
    return "–" if value is None else pattern.format(value)


def _body(runs: Sequence[_Run], told: Sequence[dict[str, Any]]) -> Markup:
    sections = []
    for number, (shown, tree) in enumerate(zip(runs, told, strict=True)):
        notes = [each for each in (tree["thinned"], shown.seen.why) if each]
        sections.append(
            markup(
                '<section class="run" id="run{number}" aria-labelledby="run{number}-title">'
                '<h2 id="run{number}-title">{title}</h2><p class="soft facts">{facts}</p>{notes}'
                '<p class="soft folder">{name}</p><dl class="numbers">{numbers}</dl></section>',
                number=number,
                title=html_label(tree["title"]),
                facts=joined(map(html_label, tree["facts"]), " · "),
                notes=joined(markup('<p class="note">{words}</p>', words=html_label(each, 400)) for each in notes),
                name=html_label(shown.name),
                numbers=joined(
                    markup("<div><dt>{name}</dt><dd>{value}</dd></div>", name=name, value=html_label(value))
                    for name, value in tree["numbers"]
                ),
            )
        )
    return markup(
        '<header><h1>{heading}</h1><p class="lead">Who trained, who was ready, whose channel was bad, and where the '
        "airtime went.</p></header>"
        '<main id="main"><div id="scrub" class="scrub screen" role="region" aria-label="Aggregation in view"></div>'
        '<p id="now" class="now" role="status" aria-live="polite"></p>'
        '<div class="runs runs-{count}">{sections}</div>{settings}</main>',
        heading="A run, aggregation by aggregation" if len(runs) == 1 else "Two runs on the same clock",
        count=len(runs),
        sections=joined(sections),
        settings=_settings([each.seen for each in runs]),
    )


def _settings(runs: Sequence[RunView]) -> Markup:
    """List the keys in which the runs differ, or those of one run that are not the default."""
    trees = [_set(each.experiment) for each in runs]
    if len(runs) == 2:
        title, names, compared = "Settings that differ", ("first", "second"), trees
    else:
        title, names = "Settings that are not the default", ("here", "default")
        compared = [trees[0], _set(config.experiment({}))]
    keys = [key for key in sorted({*compared[0], *compared[1]}) if not key.startswith(_NO_RESULT)]
    differ = [key for key in keys if compared[0].get(key) != compared[1].get(key)]
    rows = [
        markup(
            '<tr><td class="words"><code>{key}</code></td>{cells}</tr>',
            key=text(key, _WIDEST),
            cells=joined(
                markup('<td class="words">{value}</td>', value=html_label(_shown(each.get(key)))) for each in compared
            ),
        )
        for key in differ
    ]
    table = markup(
        '<div class="scroll settings"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>',
        head=joined(markup('<th scope="col" class="words">{name}</th>', name=each) for each in ("key", *names)),
        rows=joined(rows),
    )
    return markup(
        '<section aria-labelledby="settings"><h2 id="settings">{title}</h2>{table}</section>',
        title=title,
        table=table if differ else markup("<p>None.</p>"),
    )


def _set(experiment: Experiment) -> dict[str, Any]:
    return config.dotted(config.dump(experiment))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
