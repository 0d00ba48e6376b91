"""`fedtide report`, `fedtide explore` and `fedtide scenario`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
    "RUN [RUN] | STUDY",
    "A run folder, two to be beside each other, or a study.",
    nargs=-1,
    required=True,
    type=options.PATH,
)
_store_option = click.option("--store", type=options.PATH, help="Where the results of a study file are.")


@command("report")
@_paths_argument
@options.out_option("The file to write.", "to", default=Path("report.html"))
@_store_option
def report(paths: tuple[Path, ...], to: Path, store: Path | None) -> None:
    """Write a page to look at in a browser, one file without network: of a run, of two runs or of a study.

    fedtide report runs/mine -o report.html
    fedtide report runs/proposed runs/random -o both.html   two schedulers on the same clock
    """
    written = _written(paths, to, store)
    say(f"written: {to} ({written / 1000:,.0f} kB)")


@command("explore")
@_paths_argument
@click.option("--live", is_flag=True, help="Follow a run under way, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --live: 0 is any that is free.")
@click.option("--browser/--no-browser", default=True, help="Open the browser, or only say where.")
@_store_option
def explore(paths: tuple[Path, ...], live: bool, port: int, browser: bool, store: Path | None) -> None:
    """Open the page of a run, of two runs or of a study in the browser.

    fedtide explore runs/mine
    fedtide explore runs/mine --live   follows it while it trains; only this machine can look
    """
    if live:
        _follow(paths, port, browser)
        return
    if port:
        raise FedtideError(f"--port {port} is where a run is followed: say --live too, or leave it out")
    import tempfile

    to = Path(tempfile.mkdtemp(prefix="fedtide-")) / "report.html"
    _written(paths, to, store)
    _open(to.as_uri(), browser)


def _written(paths: tuple[Path, ...], to: Path, store: Path | None) -> int:
    """Write the page and return its size in bytes."""
    from fedtide.core.files import refuse_other_file_kind, write_output
    from fedtide.pages.html import BEGINNING
    from fedtide.pages.study import page_is_of_runs, study_or_run_page

    refuse_other_file_kind(to, BEGINNING, "a page of fedtide")  # before the work
    if to.suffix != ".html":  # not model.npy, say, which would end a run under way
        raise FedtideError(f"{to}: the name of a page ends in .html")
    if store is not None and page_is_of_runs(paths):
        raise FedtideError(f"--store {store} is where a study's results are, and {paths[0]} is a run: leave it out")
    content = study_or_run_page(paths, store).encode()
    write_output(to, content, BEGINNING, "a page of fedtide")
    return len(content)


def _follow(paths: tuple[Path, ...], port: int, browser: bool) -> None:
    import time

    from fedtide.core import signals
    from fedtide.pages.live import serve_live
    from fedtide.pages.run import check_run_page_count
    from fedtide.pages.study import page_is_of_runs
    from fedtide.runs import run_folder_in_use

    if not page_is_of_runs(paths):
        raise FedtideError(f"{paths[0]} is no run folder: --live follows runs; leave it out for a study")
    check_run_page_count(paths)
    signals.signals_raise()
    told = False
    while absent := [path for path in paths if _is_empty(path)]:
        for path in absent:
            if not run_folder_in_use(path) and _is_empty(path):  # looked at once more: it may have ended in between
                raise RunFolderError(
                    f"{path} has no finished aggregation and nobody works on it: there is nothing to follow; "
                    f"continue it with `fedtide resume {path}`"
                )
        if not told:
            say("waiting for the first aggregation; Ctrl-C ends it")
        told = True
        time.sleep(1.0)
    serve_live(paths, port, lambda address: _open(address, browser, "; Ctrl-C ends it"))


def _is_empty(folder: Path) -> bool:
    from fedtide.runs import read_run

    run = read_run(folder)
    return not run.rounds and not run.complete


def _open(address: str, browser: bool, more: str = "") -> None:
    import webbrowser

    say(f"{address}{more}")
    if browser and not webbrowser.open(address):
        say("no browser could be opened: open that address yourself")


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
    """Worlds to learn in: data, devices and radio of a paper's system section, by one name.

    fedtide run scenario=paper
    """


@scenario.command("list")
@options.as_json
def list_scenarios(as_json: bool) -> None:
    """List the scenarios: what world each one is, its data set, its devices and its radio.

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
    """Print the file of a scenario: its keys, and in its comments the papers that it follows and what differs.

    fedtide scenario show paper
    fedtide scenario show paper > mine.yaml     a world of your own to begin with: fedtide run mine.yaml
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
