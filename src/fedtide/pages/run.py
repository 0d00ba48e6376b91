"""The page of a run, or of two beside each other on the same clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError
from fedtide.pages import run_rows
from fedtide.pages.run_rows import by_speed, evenly, fit_page
from fedtide.pages.run_view import RunView, view_run
from fedtide.pages.shell import Markup, html_label, join_markup, markup, page, payload_json, text
from fedtide.plot.style import COLOURS
from fedtide.report.summary import evaluated, summarise
from fedtide.report.terminal import formatted
from fedtide.runs import in_use

_WIDTH, _CURVE, _RASTER, _LEFT, _GAP = 900, 180, 220, 46, 30  # px of the static picture
_STATIC_POINTS: Final = 400  # of its curve, and columns of its raster
_SCRIPTS: Final = ("common.js", "run.js")
_LONGEST_TEXT: Final = 200  # characters of a user's text in a page
_FADING: Final = ("rayleigh", "rayleigh_by_device", "rician", "nakagami", "jakes")  # about an average SNR
_NO_RESULT: Final = (*config.PRESETS, "tracker", "data.folder")  # keys that change no result


def _static_svg(runs: Sequence[RunView], names: Sequence[str]) -> Markup:
    """Return a picture for readers without scripts: accuracy and uploads of the runs, one below the other."""
    height = _CURVE + _RASTER + 3 * _GAP
    return markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{said}" '
        'font-family="sans-serif" font-size="12" fill="currentColor">{runs}</svg>',
        width=_WIDTH,
        height=len(runs) * height,
        said=text("; ".join(f"{name}: accuracy and uploads over time" for name in names), 400),
        runs=join_markup(
            _static_run(run, name, number * height, COLOURS[number])
            for number, (run, name) in enumerate(zip(runs, names, strict=True))
        ),
    )


def _static_run(run: RunView, name: str, top: int, colour: str) -> Markup:
    end = max(run.experiment.timeline.horizon, run.rounds[-1].time)
    wide, base = _WIDTH - _LEFT - 10, top + _GAP + _CURVE
    scored = evaluated(run.rounds)
    points = " ".join(
        f"{_LEFT + wide * scored[at].time / end:.1f},{base - _CURVE * (scored[at].test_accuracy or 0.0):.1f}"
        for at in evenly(len(scored), _STATIC_POINTS).tolist()
    )
    rank = {device: place for place, device in enumerate(by_speed(run).tolist())}
    step = _RASTER / run.num_devices
    marks = "".join(
        f"M{_LEFT + wide * run.rounds[at].time / end:.1f} {base + _GAP + step * rank[device]:.1f}v{max(step * 0.8, 0.6):.1f}"
        for at in evenly(len(run.rounds), _STATIC_POINTS).tolist()
        for device in run.rounds[at].picked[:40]
    )
    axis = join_markup(
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


def run_page(folders: Sequence[Path]) -> str:
    """Return the page of one run folder, or of two on the same clock, as one HTML file."""
    runs = _read(folders)
    return fit_page(lambda level: _page(runs, level))


def live_page(folders: Sequence[Path], tag: str) -> str:
    """Return the page of runs that may be under way: it asks its server for data that are newer than `tag`."""
    runs = _read(folders)
    return fit_page(lambda level: _page(runs, level, tag))


def live_data(folders: Sequence[Path], tag: str) -> str:
    """Return the data that such a page asks for later, as JSON."""
    runs = _read(folders)
    return fit_page(lambda level: payload_json(_payload(runs, level, tag)))


class _ShownRun(NamedTuple):
    name: str  # of its folder
    view: RunView
    running: bool  # a process works on it


def check_count(folders: Sequence[Path]) -> None:
    """Raise unless there are one or two runs."""
    if not 1 <= len(folders) <= 2:
        raise FedtideError(f"{len(folders)} runs: a page shows one run, or two beside each other; name one or two")


def _read(folders: Sequence[Path]) -> list[_ShownRun]:
    check_count(folders)
    paths = [folder.resolve() for folder in folders]
    names = [path.name for path in paths]
    if len(names) == 2 and names[0] == names[1]:
        names = [f"{path.parent.name}/{path.name}" for path in paths]
    # Asked before the folder is read: the next question finds a run that ends in between.
    running = [in_use(folder) for folder in folders]
    return [_ShownRun(*run) for run in zip(names, map(view_run, folders), running, strict=True)]


def _payload(runs: Sequence[_ShownRun], level: int, tag: str | None = None) -> dict[str, Any]:
    return {"runs": [_run_data(run, level, tag is not None) for run in runs], "live": tag}


def _page(runs: Sequence[_ShownRun], level: int, tag: str | None = None) -> str:
    payload = _payload(runs, level, tag)
    titles = [data["title"] for data in payload["runs"]]
    return page(
        " and ".join(titles),
        payload,
        _SCRIPTS,
        _body(runs, payload["runs"]),
        _static_svg([run.view for run in runs], titles),
        styles=("run.css",),
        polls=tag is not None,
    )


def _run_data(shown: _ShownRun, level: int, live: bool) -> dict[str, Any]:
    run = shown.view
    grid = run_rows.row_grid(run, level)
    experiment, scored = run.experiment, evaluated(run.rounds)
    labels = run_rows.labels(run, grid)
    return {
        "name": shown.name[:_LONGEST_TEXT],
        "title": _title(experiment)[:_LONGEST_TEXT],
        "kind": run.kind,
        "why": run.why[: 2 * _LONGEST_TEXT],
        "thinned": _left_out(run, grid),
        "complete": run.complete,
        "going": live
        and shown.running
        and not run.complete,  # a page that does not change would soon be wrong about it
        "facts": _facts(run, live and shown.running),
        "numbers": _numbers(shown),
        "unit": run.unit,
        "horizon": max(experiment.timeline.horizon, run.rounds[-1].time),
        "devices": run.num_devices,
        "limit": experiment.policy.limit,
        "fine": grid.fine,
        "row_size": grid.size,
        "speed": run_rows.by_speed(run) if grid.fine else None,
        "chance": 1 / labels["count"] if labels else None,
        "last_accuracy": scored[-1].test_accuracy if scored else None,
        "curve": run_rows.curve_columns(run, level),
        "columns": run_rows.columns(run, grid),
        "cells": run_rows.cells(run, grid),
        "jobs": run_rows.trainings(run) if grid.fine else None,
        "picks": run_rows.picks(run, grid),
        "uploads": sum(len(record.picked) for record in run.rounds),
        "lost": sum(len(record.lost) for record in run.rounds),
        "ages": run_rows.age_columns(run, grid),
        "labels": labels,
    }


def _title(experiment: Experiment) -> str:
    """Name a run by what people compare: its scheduler and its timeline."""
    timeline, scheduler = experiment.part("timeline").name, experiment.part("scheduler").name
    return f"{scheduler.rpartition('/')[2]} · {timeline.rpartition('/')[2]}"


def _left_out(run: RunView, grid: run_rows.RowGrid) -> str:
    """Say which devices and aggregations are not shown one by one; "" if all are."""
    said = []
    if not grid.fine:
        said.append(f"{run.num_devices:,} devices in {len(grid.size)} rows, the fastest first")
    if len(grid.keep) < len(run.rounds):
        said.append(f"{len(grid.keep):,} of {len(run.rounds):,} aggregations, counts between them added to the next")
    return "; ".join(said)


def _facts(run: RunView, running: bool) -> list[str]:
    """Describe a run in short phrases, and how far it came."""
    experiment = run.experiment
    where = {"deployed": "real devices", "simulated": "simulated", "recorded": "from its records"}[run.kind]
    lost, uploads = sum(len(record.lost) for record in run.rounds), sum(len(record.picked) for record in run.rounds)
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
        "complete" if run.complete else f"under way, at time {now}" if running else f"not complete, at time {now}",
    ]


def _radio(experiment: Experiment) -> str:
    """Name the channel with its average SNR, or with the coverage if the links differ."""
    channel, coverage = experiment.radio.channel, experiment.radio.coverage
    if coverage.name != "equal":
        return f"{channel}, {coverage}"
    if channel.name not in _FADING and channel.args.get("quantity") != "gain":
        return channel.name
    return f"{channel} {experiment.radio.snr_db:g} dB"


def _numbers(shown: _ShownRun) -> list[tuple[str, str]]:
    """Return the summary of a run, and what grid it, by name."""
    run, versions = shown.view, shown.view.versions
    commit = str(versions.get("commit") or "unknown")
    summary = summarise(run.experiment, run.rounds, run.num_parameters)
    reached = {f"time to {float(at):.0%}": summary["time_to_accuracy"][at] for at in ("0.8", "0.9")}
    numbers = {
        ("final" if run.complete else "latest") + " test accuracy": formatted(summary["final_accuracy"], "{:.4f}", "–"),
        "best test accuracy": formatted(summary["best_accuracy"], "{:.4f}", "–"),
        **{name: "not reached" if time is None else f"{time:g}" for name, time in reached.items()},
        "uploads": f"{summary['uploads']:,}",
        "updates lost": f"{summary['lost']:,}",
        "symbols spent": f"{summary['symbols']:,.0f}",
        "bits sent": f"{summary['bits']:,.0f}",
        "kept share r/d, mean": formatted(summary["mean_kept_share"], "{:.3f}", "–"),
        "age of updates, mean": formatted(summary["mean_age"], "{:.2f}", "–"),
        "samples used": f"{summary['samples_used']:,}",
        "samples wasted": f"{summary['samples_wasted']:,}",
        "fedtide": str(versions.get("fedtide") or "unknown"),
        "commit": f"{commit[:12]}{commit[40:]}",  # with a + if the code was changed since
        "instruction path": str(versions.get("isa") or "none"),
        "trainer": run.experiment.learning.trainer.name,
        "seed": str(run.experiment.seed),
    }
    return [(name, value[:_LONGEST_TEXT]) for name, value in numbers.items()]


def _body(runs: Sequence[_ShownRun], data: Sequence[dict[str, Any]]) -> Markup:
    sections = []
    for number, (shown, tree) in enumerate(zip(runs, data, strict=True)):
        notes = [note for note in (tree["thinned"], shown.view.why) if note]
        sections.append(
            markup(
                '<section class="run" id="run{number}" aria-labelledby="run{number}-title">'
                '<h2 id="run{number}-title">{title}</h2><p class="soft facts">{facts}</p>{notes}'
                '<p class="soft folder">{name}</p><dl class="numbers">{numbers}</dl></section>',
                number=number,
                title=html_label(tree["title"]),
                facts=join_markup(map(html_label, tree["facts"]), " · "),
                notes=join_markup(markup('<p class="note">{words}</p>', words=html_label(note, 400)) for note in notes),
                name=html_label(shown.name),
                numbers=join_markup(
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
        sections=join_markup(sections),
        settings=_settings([run.view for run in runs]),
    )


def _settings(runs: Sequence[RunView]) -> Markup:
    """List the keys in which the runs differ, or those of one run that are not the default."""
    trees = [config.dotted(config.dump(run.experiment)) for run in runs]
    if len(runs) == 2:
        title, names, compared = "Settings that differ", ("first", "second"), trees
    else:
        title, names = "Settings that are not the default", ("here", "default")
        compared = [trees[0], config.dotted(config.dump(config.experiment({})))]
    keys = [key for key in sorted({*compared[0], *compared[1]}) if not key.startswith(_NO_RESULT)]
    differ = [key for key in keys if compared[0].get(key) != compared[1].get(key)]
    rows = [
        markup(
            '<tr><td class="words"><code>{key}</code></td>{cells}</tr>',
            key=text(key, _LONGEST_TEXT),
            cells=join_markup(
                markup('<td class="words">{value}</td>', value=html_label(_setting(tree.get(key)))) for tree in compared
            ),
        )
        for key in differ
    ]
    table = markup(
        '<div class="scroll settings"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>',
        head=join_markup(markup('<th scope="col" class="words">{name}</th>', name=name) for name in ("key", *names)),
        rows=join_markup(rows),
    )
    return markup(
        '<section aria-labelledby="settings"><h2 id="settings">{title}</h2>{table}</section>',
        title=title,
        table=table if differ else markup("<p>None.</p>"),
    )


def _setting(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
