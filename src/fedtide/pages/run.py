"""The page of a run, or of two beside each other on the same clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError
from fedtide.pages import run_rows
from fedtide.pages.html import Markup, html_label, html_page, html_text, join_markup, markup, payload_json
from fedtide.pages.run_rows import fit_page, rows_by_speed
from fedtide.pages.run_view import RunView, view_run
from fedtide.plot.charts import evenly_on_chart
from fedtide.plot.style import COLOURS
from fedtide.report.summary import evaluated_rounds, summarise, summary_texts

_WIDTH, _CURVE, _RASTER, _LEFT, _GAP = 900, 180, 220, 46, 30  # px of the static picture
_STATIC_POINTS: Final = 400  # of its curve, and columns of its raster
_SCRIPTS: Final = ("common.js", "run.js")
_LONGEST_TEXT: Final = 200  # characters of a user's text in a page
_NUMBERS: Final = (  # of the summary
    *("best test accuracy", "time to 80%", "time to 90%", "uploads", "updates arrived", "updates lost"),
    *("sent once more", "picked and silent", "symbols granted", "symbols sent", "symbols idle", "bits sent"),
    *("kept share r/d, mean", "age of updates, mean", "samples used", "samples wasted"),
)
_MOST_METRICS: Final = 12  # of a run, in its numbers
_FADING: Final = ("rayleigh", "rayleigh_by_device", "rician", "nakagami", "jakes")  # about an average SNR
_NO_RESULT: Final = (*config.PRESETS, "tracker", "data.folder")  # keys that change no result


def _static_svg(runs: Sequence[RunView], names: Sequence[str]) -> Markup:
    """Return a picture for readers without scripts: accuracy and uploads of the runs, one below the other."""
    height = _CURVE + _RASTER + 3 * _GAP
    drawn = [
        _static_run(run, name, number * height, COLOURS[number])
        for number, (run, name) in enumerate(zip(runs, names, strict=True))
    ]
    return markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" '
        'font-size="12" fill="currentColor">{runs}</svg>',
        width=_WIDTH,
        height=len(runs) * height,
        runs=join_markup(drawn),
    )


def _static_run(run: RunView, name: str, top: int, colour: str) -> Markup:
    """Draw the accuracy from 0 to 1 above the uploads, of which every device has a row."""
    end = max(run.experiment.timeline.horizon, run.rounds[-1].time)
    base, scored, step = top + _GAP + _CURVE, evaluated_rounds(run.rounds), _RASTER / run.num_devices
    rank = {device: place for place, device in enumerate(rows_by_speed(run).tolist())}

    def x(time: float) -> float:
        return _LEFT + (_WIDTH - _LEFT) * time / end

    points = " ".join(
        f"{x(scored[at].time):.1f},{base - _CURVE * (scored[at].test_accuracy or 0.0):.1f}"
        for at in evenly_on_chart(len(scored), _STATIC_POINTS).tolist()
    )
    marks = "".join(
        f"M{x(run.rounds[at].time):.1f} {base + _GAP + step * rank[device]:.1f}v{max(step * 0.8, 0.6):.1f}"
        for at in evenly_on_chart(len(run.rounds), _STATIC_POINTS).tolist()
        for device in run.rounds[at].picked[:40]
    )
    axis = f"M{_LEFT} {base - _CURVE}h{_WIDTH - _LEFT}M{_LEFT} {base}h{_WIDTH - _LEFT}"
    return markup(
        '<text x="{left}" y="{title}" font-size="14">{name}: test accuracy, and uploads by device (fastest above)</text>'
        '<text y="{top}">1</text><text y="{base}">0</text><path d="{axis}" stroke="#999" stroke-width=".4"/>'
        '<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        '<path d="{marks}" stroke="{colour}" stroke-width="1.6" fill="none"/>'
        '<text x="{left}" y="{bottom}">time to {end:g} {unit}</text>',
        left=_LEFT,
        title=top + 16,
        name=html_text(name, 90),
        top=base - _CURVE + 4,
        base=base + 4,
        axis=axis,
        points=points,
        colour=colour,
        marks=marks,
        bottom=base + _GAP + _RASTER + 16,
        end=end,
        unit=run.unit,
    )


def run_page(folders: Sequence[Path], tag: str | None = None) -> str:
    """Return the page of one run folder, or of two on the same clock, as one HTML file.

    tag: for runs that may be under way, what the page holds; it asks its server for data that are newer.
    """
    runs = _read(folders)
    return fit_page(lambda level: _page(runs, level, tag))


def run_page_data(folders: Sequence[Path], tag: str) -> str:
    """Return the data that such a page asks for later, as JSON."""
    runs = _read(folders)
    return fit_page(lambda level: payload_json(_payload(runs, level, tag)))


def check_run_page_count(folders: Sequence[Path]) -> None:
    """Raise unless there are one or two runs."""
    if not 1 <= len(folders) <= 2:
        raise FedtideError(f"{len(folders)} runs: a page shows one run, or two beside each other; name one or two")


def _read(folders: Sequence[Path]) -> list[RunView]:
    check_run_page_count(folders)
    runs = [view_run(folder) for folder in folders]
    if len(runs) == 2 and runs[0].name == runs[1].name:
        return [
            run._replace(name=f"{folder.resolve().parent.name}/{run.name}")
            for folder, run in zip(folders, runs, strict=True)
        ]
    return runs


def _payload(runs: Sequence[RunView], level: int, tag: str | None) -> dict[str, Any]:
    return {"runs": [_run_data(run, level, tag is not None) for run in runs], "live": tag}


def _page(runs: Sequence[RunView], level: int, tag: str | None) -> str:
    payload = _payload(runs, level, tag)
    titles = [data["title"] for data in payload["runs"]]
    body, static = _body(runs, payload["runs"]), _static_svg(runs, titles)
    return html_page(" and ".join(titles), payload, _SCRIPTS, body, static, styles=("run.css",), polls=tag is not None)


def _run_data(run: RunView, level: int, live: bool) -> dict[str, Any]:
    running = live and run.running and not run.complete  # a page that does not change would soon be wrong about it
    grid = run_rows.row_grid(run, level)
    experiment, scored = run.experiment, evaluated_rounds(run.rounds)
    labels = run_rows.run_row_labels(run, grid)
    return {
        "name": run.name[:_LONGEST_TEXT],
        "title": _title(experiment)[:_LONGEST_TEXT],
        "kind": run.kind,
        "why": run.why[: 2 * _LONGEST_TEXT],
        "thinned": _left_out(run, grid),
        "complete": run.complete,
        "going": running,
        "facts": _facts(run, running),
        "numbers": _numbers(run),
        "unit": run.unit,
        "horizon": max(experiment.timeline.horizon, run.rounds[-1].time),
        "devices": run.num_devices,
        "limit": experiment.policy.limit,
        "fine": grid.fine,
        "row_size": grid.size,
        "speed": run_rows.rows_by_speed(run) if grid.fine else None,
        "chance": 1 / labels["count"] if labels else None,
        "last_accuracy": scored[-1].test_accuracy if scored else None,
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


def _numbers(run: RunView) -> list[tuple[str, str]]:
    """Return the summary of a run, and what made it, by name."""
    measured = next((record.metrics for record in reversed(evaluated_rounds(run.rounds))), {})
    commit = str(run.versions.get("commit") or "unknown")
    texts = summary_texts(summarise(run.experiment, run.rounds, run.num_parameters))
    numbers = {
        f"{'final' if run.complete else 'latest'} test accuracy": texts["final test accuracy"],
        **{name: texts[name] for name in _NUMBERS},
        **{f"{name}, last": f"{value:.4g}" for name, value in [*measured.items()][:_MOST_METRICS]},
        "fedtide": str(run.versions.get("fedtide") or "unknown"),
        "commit": f"{commit[:12]}{commit[40:]}",  # with a + if the code was changed since
        "instruction path": str(run.versions.get("isa") or "none"),
        "trainer": run.experiment.learning.trainer.name,
        "seed": str(run.experiment.seed),
    }
    return [(name, value[:_LONGEST_TEXT]) for name, value in numbers.items()]


def _body(runs: Sequence[RunView], data: Sequence[dict[str, Any]]) -> Markup:
    sections = [
        markup(
            '<section class="run" id="run{number}" aria-labelledby="run{number}-title">'
            '<h2 id="run{number}-title">{title}</h2><p class="soft facts">{facts}</p>{notes}'
            '<p class="soft folder">{name}</p><dl class="numbers">{numbers}</dl></section>',
            number=number,
            title=html_label(tree["title"]),
            facts=join_markup(map(html_label, tree["facts"]), " · "),
            notes=join_markup(
                markup('<p class="note">{words}</p>', words=html_label(note, 400))
                for note in (tree["thinned"], run.why)
                if note
            ),
            name=html_label(run.name),
            numbers=join_markup(
                markup("<div><dt>{name}</dt><dd>{value}</dd></div>", name=name, value=html_label(value))
                for name, value in tree["numbers"]
            ),
        )
        for number, (run, tree) in enumerate(zip(runs, data, strict=True))
    ]
    return markup(
        '<header><h1>{heading}</h1><p class="lead">Who trained, who was ready, whose channel was bad, and where the '
        "airtime went.</p></header>"
        '<main id="main"><div id="scrub" class="scrub screen" role="region" aria-label="Aggregation in view"></div>'
        '<p id="now" class="now" role="status" aria-live="polite"></p>'
        '<div class="runs runs-{count}">{sections}</div>{settings}</main>',
        heading="A run, aggregation by aggregation" if len(runs) == 1 else "Two runs on the same clock",
        count=len(runs),
        sections=join_markup(sections),
        settings=_settings(runs),
    )


def _settings(runs: Sequence[RunView]) -> Markup:
    """List the keys in which the runs differ, or those of one run that are not the default."""
    trees = [config.nested_to_dotted(config.dump(run.experiment)) for run in runs]
    if len(runs) == 2:
        title, names, compared = "Settings that differ", ("first", "second"), trees
    else:
        title, names = "Settings that are not the default", ("here", "default")
        compared = [trees[0], config.nested_to_dotted(config.dump(config.experiment({})))]
    keys = [key for key in sorted({*compared[0], *compared[1]}) if not key.startswith(_NO_RESULT)]
    differ = [key for key in keys if compared[0].get(key) != compared[1].get(key)]
    rows = [
        markup(
            '<tr><td class="words"><code>{key}</code></td>{cells}</tr>',
            key=html_text(key, _LONGEST_TEXT),
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
