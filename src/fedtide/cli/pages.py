"""`fedtide report`, `fedtide explore` and `fedtide scenario`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedtide.cli import options
from fedtide.cli.command import Group, command
from fedtide.cli.console import out, print_json, print_text, say
from fedtide.errors import FedtideError, RunFolderError

if TYPE_CHECKING:
    from fedtide.config import Experiment

# ---- `fedtide report` and `fedtide explore`: pages for a browser

_paths_argument = options.cli_argument(
    "paths",
    "RUN... | STUDY | ADVICE",
    "A run folder, several to overlay and compare, a study, or an advice.json.",
    nargs=-1,
    required=True,
    type=options.PATH,
)
_store_option = click.option("--store", type=options.PATH, help="Folder of a study's results.")


@command("report")
@_paths_argument
@options.out_option("The file to write.", "to", default=Path("report.html"))
@_store_option
def report(paths: tuple[Path, ...], to: Path, store: Path | None) -> None:
    """Write an interactive HTML page of one or more runs, of a study or of advice: a single file that works offline.

    fedtide report runs/mine -o report.html
    fedtide report runs/proposed runs/random -o both.html   compare two runs on the same clock
    """
    written = _written(paths, to, store)
    say(f"written: {to} ({written / 1000:,.0f} kB)")


@command("explore")
@_paths_argument
@click.option("--live", is_flag=True, help="Follow runs or a study in progress until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port for --live; 0 picks a free one.")
@click.option("--browser/--no-browser", default=True, help="Open the browser, or only print the address.")
@_store_option
def explore(paths: tuple[Path, ...], live: bool, port: int, browser: bool, store: Path | None) -> None:
    """Open the interactive page of runs or of a study in the browser.

    fedtide explore runs/mine
    fedtide explore runs/mine --live   follow a run in progress; visible on this machine only
    """
    if live:
        _follow(paths, port, browser, store)
        return
    if port:
        raise FedtideError(f"--port {port} is where a run is followed: say --live too, or leave it out")
    import tempfile

    to = Path(tempfile.mkdtemp(prefix="fedtide-")) / "report.html"
    _written(paths, to, store)
    _open(to.as_uri(), browser)


def _written(paths: tuple[Path, ...], to: Path, store: Path | None) -> int:
    """Write the page and return its size in bytes."""
    from fedtide.pages.html import check_page_output, write_page_output
    from fedtide.pages.study import page_is_of_runs, study_or_run_page

    check_page_output(to)
    if store is not None and page_is_of_runs(paths):
        raise FedtideError(f"--store {store} is where a study's results are, and {paths[0]} is a run: leave it out")
    return write_page_output(to, study_or_run_page(paths, store))


def _follow(paths: tuple[Path, ...], port: int, browser: bool, store: Path | None) -> None:
    import time

    from fedtide.core import signals
    from fedtide.pages.live import LivePages, serve_live
    from fedtide.pages.run import check_run_page_count
    from fedtide.pages.study import page_is_of_runs
    from fedtide.runs import run_folder_in_use

    tell: Any = lambda address: _open(address, browser, " (Ctrl-C stops it)")  # noqa: E731
    if not page_is_of_runs(paths):
        from fedtide.pages.study import follow_study
        from fedtide.studies.spec import read_study

        if len(paths) > 1 or paths[0].is_dir():
            raise FedtideError(
                f"{paths[0]} is neither a run folder nor a study file: --live follows runs, or one study file"
            )
        signals.signals_raise()
        serve_live(paths, port, tell, LivePages(*follow_study(read_study(paths[0]), store or Path("results"))))
        return
    check_run_page_count(paths)
    signals.signals_raise()
    told = False
    while absent := [path for path in paths if _is_empty(path)]:
        for path in absent:
            if not run_folder_in_use(path) and _is_empty(path):  # looked at once more: it may have ended in between
                raise RunFolderError(
                    f"{path} has no finished aggregation and no process is working on it; "
                    f"continue it with `fedtide resume {path}`"
                )
        if not told:
            say("waiting for the first aggregation (Ctrl-C stops it)")
        told = True
        time.sleep(1.0)
    serve_live(paths, port, tell)


def _is_empty(folder: Path) -> bool:
    from fedtide.runs import read_run

    run = read_run(folder)
    return not run.rounds and not run.complete


def _open(address: str, browser: bool, more: str = "") -> None:
    import webbrowser

    say(f"{address}{more}")
    if browser and not webbrowser.open(address):
        say("no browser could be opened: open this address yourself")


# ---- `fedtide scenario`: the worlds that the package brings along

# What a radio is made of, each with the name that is not worth a word.
_RADIO = {
    "coverage": "equal",
    "channel": "",
    "csi": "perfect",
    "modem": "shannon",
    "allocation": "equal_bits",
    "downlink": "instant",
}


@click.group("scenario", cls=Group)
def scenario() -> None:
    """Named presets for data, devices and radio, each taken from the system model of papers.

    fedtide run scenario=paper
    """


@scenario.command("list")
@options.as_json
def list_scenarios(as_json: bool) -> None:
    """List the scenarios with their data sets, devices and radio.

    fedtide scenario list
    """
    from fedtide import config
    from fedtide.cli.parts import part_cell, print_part_pairs
    from fedtide.config import presets

    rows = {}
    for name in presets.scenario_names():
        experiment = config.experiment(scenario=name)
        rows[name] = {
            "about": presets.load_scenario(name).about,
            "data": experiment.part("data").name,
            "num_devices": experiment.fleet.num_devices,
            "radio": _radio(experiment),
        }
    if as_json:
        print_json(rows)
        return
    told = {
        name: part_cell(str(row["about"]), f"{row['data']}, N = {row['num_devices']}, {row['radio']}")
        for name, row in rows.items()
    }
    print_part_pairs(told, "")
    out.print(
        "\nfedtide run scenario=NAME [KEY=VALUE]... runs one; keys that you give override it. `fedtide scenario show NAME` "
        "prints its file.",
        highlight=False,
        markup=False,
        style="dim",
    )


@scenario.command("show")
@options.cli_argument("name", "NAME", "One of `fedtide scenario list`.")
@options.as_json
def show_scenario(name: str, as_json: bool) -> None:
    """Print the file of a scenario; its comments name the papers it follows and what differs.

    fedtide scenario show paper
    fedtide scenario show paper > mine.yaml     a starting point for your own: fedtide run mine.yaml
    """
    from fedtide import config
    from fedtide.config import presets

    found = presets.load_scenario(name)
    if as_json:
        resolved = config.dump(config.experiment(scenario=name))
        print_json({"name": name, "about": found.about, "keys": found.keys, "text": found.text, "experiment": resolved})
    else:  # as it is: no line of a file may be broken or padded
        print_text(found.text)


def _radio(experiment: Experiment) -> str:
    """Say in a few words what a radio is made of."""
    chosen = {key: str(getattr(experiment.radio, key)) for key in _RADIO}
    return ", ".join(name for key, name in chosen.items() if name != _RADIO[key])
