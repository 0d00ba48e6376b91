"""Advice for people: the search with its files (an experiment, a deployment, JSON) and one page for a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fedtide import config
from fedtide.core.files import read_bytes, refuse_other_file_kind, require_writable, write_atomically, write_output
from fedtide.core.yaml12 import to_yaml
from fedtide.deploy.settings import Deployment, Terms, check_terms, deployment_doubts, write_app
from fedtide.errors import FedtideError
from fedtide.pages.html import BEGINNING, Markup, html_label, html_page, html_text, join_markup, markup
from fedtide.studies.advice import Advice, FrontPoint, gain_text
from fedtide.studies.advise import AdviceProgress, search_advice
from fedtide.studies.run import Outcome
from fedtide.studies.spec import Given, given_base

_YAML: Final = rb"# Advice of fedtide"
_JSON: Final = rb'\{\s*"base"'
_PANELS: Final = {"air_time": "airtime", "joules": "joules"}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 360, 240, 56, 34  # of a panel, in px


def advise(
    base: Given = {},  # noqa: B006  # read only
    target: float | None = None,
    goal: str = "accuracy",
    budget: str = "20m",
    *,
    only: Sequence[str] | None = None,
    store: Path | str | None = None,
    out: Path | str | None = None,
    workers: int = 1,
    backend: str | None = None,
    command: str = "",
    say: Callable[[str], None] = lambda _: None,
    on_step: Callable[[AdviceProgress], None] = lambda _: None,
    on_done: Callable[[Outcome], None] = lambda _: None,
) -> Advice:
    """Find good settings for a network: period, limit, schedule, codec, server, age weights, learning rate, local epochs.

    Plans rule settings out, short runs find good ones, a race decides, and fresh seeds confirm the gain over the base. All
    settings use the airtime of the base.

    base: the experiment that the advice is compared with: an Experiment, a mapping or a file.
    target: a test accuracy from 0 to 1; needed for the goals `time`, `airtime` and `joules`.
    goal: what to optimise: `accuracy` (the mean over the horizon), or the `time`, `airtime` or `joules` needed to reach the
        target.
    budget: wall-clock time of the search with all workers busy, such as `90s`, `20m` or `2h`.
    only: names of the settings to advise on; None: all.
    store: folder of the results; the same call continues an interrupted search.
    out: folder for advice.yaml, advice.json, advice.html and, if real devices can run the advice, app; None writes nothing.
    workers: number of parallel runs.
    backend: local, dask or here, as in `fedtide.race`.
    command: the command to show on the page.
    say: a function that is called with a line of text about each download.
    on_step: a function that is called with the progress.
    on_done: a function that is called with every finished run.

    Returns: The advised experiment, its gain on fresh seeds, and what each choice is worth.

    Raises: FedtideError if the budget is too small, or the goal needs a target or a key that is missing.
    """
    folder = None if out is None else Path(out)
    if folder is not None:
        require_writable(folder)
        refuse_other_file_kind(folder / "advice.yaml", _YAML, "advice of fedtide")
        refuse_other_file_kind(folder / "advice.html", BEGINNING, "a page of fedtide")
        refuse_other_file_kind(folder / "advice.json", _JSON, "advice of fedtide")
        store = folder / "results" if store is None else store
    found = search_advice(
        base, target=target, goal=goal, budget=budget, only=only, store=store, workers=workers, backend=backend, say=say,
        on_step=on_step, on_done=on_done,
    )  # fmt: skip
    if folder is not None:
        _write_advice(found, given_base(base), folder, command)
    return found


def _write_advice(found: Advice, given: Any, folder: Path, command: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_output(folder / "advice.yaml", _experiment_file(found, given).encode(), _YAML, "advice of fedtide")
    deployed = _write_deployment(found, folder / "app")
    told = {**found.as_json(), "deployment": deployed}
    write_atomically(folder / "advice.json", (json.dumps(told, indent=2, default=str) + "\n").encode())
    content = advice_page(found, deployed, command, folder).encode()
    write_output(folder / "advice.html", content, BEGINNING, "a page of fedtide")


def _experiment_file(found: Advice, given: Any) -> str:
    """Return the advised experiment as a file: the keys that were given with those of the advice, or every key."""
    lines = [f"{_YAML.decode()} for {found.goal}. {found.headline}"]
    if isinstance(given, Mapping):
        short = config.merge_nested(given, config.nest(found.keys))
        if config.digest(config.experiment(short)) == config.digest(found.experiment):
            return "\n".join([*lines, to_yaml(short)])
    return "\n".join([*lines, to_yaml(config.dump(found.experiment))])


def _write_deployment(found: Advice, app: Path) -> str:
    """Write the Flower app of the advised experiment, and say how to run it; or why nodes cannot."""
    terms = Terms(found.experiment, Deployment())
    try:
        check_terms(terms)
        write_app(app, terms, Path("run").absolute())
    except FedtideError as error:
        return f"Nodes cannot run it as it is: {error}"
    doubts = deployment_doubts(terms)
    return f"flwr run {app}" + (f" (but {doubts[0]})" if doubts else "")


# The page.


def stored_advice_page(file: Path) -> str:
    """Return the page of an advice.json."""
    try:
        told = json.loads(read_bytes(file))
        return advice_page(Advice.from_json(told), str(told["deployment"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FedtideError(
            f"{file} is no advice.json of `fedtide advise`; name a run, a study or an advice.json"
        ) from None


def advice_page(found: Advice, deployed: str, command: str = "", folder: Path | None = None) -> str:
    """Return the page of advice, as one HTML file. command, folder: what made it and where it is, if that is known."""
    share = "" if found.worth_share == 1 else f", over the first {found.worth_share:.0%} of the horizon"
    sections = [
        _section(
            "What to set",
            _table(
                ["setting", "key", "base", "advice", f"worth{share}"],
                [[row.choice, row.key, row.base, _advised(row.base, row.advice), _worth(row)] for row in found.worth],
            ),
            "Worth: the gain over the advice with the base's value in its place, and its 95 % interval. Positive is better.",
        ),
        _section("How sure is it?", _list(_certainty(found))),
        _section("What would change the advice", _list(found.doubts or ("Nothing that was measured.",))),
        _section("Time, airtime and energy to the target", _front(found)),
        _section("What was not run, and why", _list(_left_out(found))),
        _section("How it was made", _list(_made(found, deployed)), code=_commands(command, folder)),
    ]
    body = markup(
        '<header><h1>{title}</h1><p class="lead">{lead}</p></header><main id="main">{sections}</main>',
        title=f"Advice for {found.goal}",
        lead=found.headline,
        sections=join_markup(sections, "\n"),
    )
    return html_page("fedtide: advice", {}, ("common.js",), body, Markup(), styles=("study.css",))


def _section(title: str, *parts: object, code: str = "") -> Markup:
    made = [each if isinstance(each, Markup) else markup('<p class="note">{text}</p>', text=each) for each in parts]
    made += [markup("<pre>{code}</pre>", code=code)] if code else []
    return markup("<section><h2>{title}</h2>{made}</section>", title=title, made=join_markup(made, "\n"))


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    heading = join_markup(markup('<th scope="col" class="words">{cell}</th>', cell=cell) for cell in head)
    lines = [
        join_markup(
            markup('<td class="words">{cell}</td>', cell=cell if isinstance(cell, Markup) else html_label(cell))
            for cell in row
        )
        for row in rows
    ]
    body = join_markup(markup("<tr>{cells}</tr>", cells=cells) for cells in lines)
    return markup(
        '<div class="scroll"><table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table></div>',
        heading=heading,
        body=body,
    )


def _list(lines: Sequence[str]) -> Markup:
    return markup("<ul>{lines}</ul>", lines=join_markup(markup("<li>{line}</li>", line=line) for line in lines))


def _advised(base: str, advice: str) -> object:
    return "as it is" if base == advice else markup("<b>{advice}</b>", advice=advice)


def _worth(row: Any) -> object:
    if row.gain is None:
        return row.note if row.base != row.advice else ""
    kind = "good" if row.is_sure else "bad" if row.gain.high < 0 else ""
    return markup('<span class="{kind}">{text}</span>', kind=kind, text=gain_text(row.gain))


def _certainty(found: Advice) -> list[str]:
    race = found.race
    lines = [found.headline, f"Seeds: {found.seeds}. Only the last ones are scored on the test set."]
    lines.append(f"The race: {race.stopped}, after {race.num_runs} runs with those that confirm.")
    lines += [f"Tied with the advice: {', '.join(race.tied)}."] if race.tied else []
    return lines + ([f"Note: {race.note}."] if race.note else [])


def _left_out(found: Advice) -> list[str]:
    pruned = found.pruned
    lines = [
        f"{pruned.considered:,} settings were considered; {pruned.num_plans:,} plans left {pruned.left:,} of them."
    ]
    lines += [f"{count:,} {reason}." for reason, count in pruned.reasons.items()]
    lines.append(
        f"Of those left, {found.screened:,} had a short run over {found.screened_share:.0%} of the horizon, and the best "
        f"{len(found.race.rows) - 1} raced with the base."
    )
    lines += [f"{row.candidate}: {row.reason}." for row in found.race.eliminated]
    return [*lines, *(f"{note}." for note in found.notes)]


def _made(found: Advice, deployed: str) -> list[str]:
    made = found.provenance
    return [
        f"fedtide {made.get('fedtide')}, commit {(made.get('commit') or 'unknown')[:12]}, "
        f"instruction path {made.get('isa') or 'of another trainer'}.",
        f"{found.num_runs} runs, {found.seconds / 60:.1f} minutes of one core.",
        f"On devices: {deployed}",
    ]


def _commands(command: str, folder: Path | None) -> str:
    return "\n".join(filter(None, [command, "" if folder is None else f"fedtide run {folder / 'advice.yaml'}"]))


def _front(found: Advice) -> Markup:
    if not found.front or found.target is None:
        return markup('<p class="note">{text}</p>', text="No setting reaches the target on all fresh seeds.")
    panels = [
        _panel(found, what, title)
        for what, title in _PANELS.items()
        if all(getattr(point, what) is not None for point in found.front)
    ]
    rows = [
        [
            str(number),
            point.setting,
            f"{point.time:.4g}",
            *("not counted" if (each := getattr(point, what)) is None else f"{each:.4g}" for what in _PANELS),
            str(point.num_runs),
            "yes" if point.on_front else "",
        ]
        for number, point in enumerate(found.front, 1)
    ]
    note = f"Means up to an accuracy of {found.target:g}, over the fresh seeds that all of these ran. Filled: on the Pareto front."
    return join_markup(
        [
            markup('<p class="note">{note}</p>', note=note),
            join_markup(panels, "\n"),
            _table(["", "setting", "time", "airtime", "joules", "runs", "on the front"], rows),
        ]
    )


def _panel(found: Advice, what: str, title: str) -> Markup:
    """Draw what every setting spends against its time, as a small SVG."""
    value: Callable[[FrontPoint], float] = lambda point: float(getattr(point, what))  # noqa: E731
    most_x, most_y = 1.1 * max(point.time for point in found.front), 1.1 * max(map(value, found.front))
    points = []
    for number, point in enumerate(found.front, 1):
        x = _LEFT + (_WIDTH - _LEFT - 10) * point.time / (most_x or 1.0)
        y = _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 10) * value(point) / (most_y or 1.0)
        mark = '<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{name}</title></circle>'
        label = '<text x="{x:.1f}" y="{y:.1f}">{number}</text>'
        kind = "mark full" if point.on_front else "mark"
        points.append(markup(mark, kind=html_text(kind), x=x, y=y, name=point.setting))
        points.append(markup(label, x=x + 8, y=y + 4, number=number))
    ticks = [
        markup(
            '<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{bottom}"/><text x="{x:.1f}" y="{low}" '
            'text-anchor="middle">{time:.3g}</text><line class="tick" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            '<text x="{text}" y="{ytext:.1f}" text-anchor="end">{amount:.3g}</text>',
            x=_LEFT + (_WIDTH - _LEFT - 10) * part, y=_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 10) * part,
            ytext=_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 10) * part + 4, bottom=_HEIGHT - _BOTTOM, low=_HEIGHT - 18,
            left=_LEFT, right=_WIDTH - 10, text=_LEFT - 6, time=most_x * part, amount=most_y * part,
        )
        for part in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]  # fmt: skip
    return markup(
        '<svg role="img" aria-label="{title} against time" width="{width}" height="{height}">{ticks}{points}'
        '<text x="{middle}" y="{low}" text-anchor="middle">time to {target:g}</text><text x="{left}" y="9">{title}</text></svg>',
        title=title, width=_WIDTH, height=_HEIGHT, ticks=join_markup(ticks), points=join_markup(points),
        middle=(_LEFT + _WIDTH) / 2, low=_HEIGHT - 4, left=_LEFT, target=found.target or 0.0,
    )  # fmt: skip
