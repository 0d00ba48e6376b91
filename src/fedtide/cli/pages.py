"""`fedtide report` and `fedtide explore`: pages for a browser."""

from __future__ import annotations

import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.command import friendly, say
from fedtide.core import stop
from fedtide.errors import FedtideError

Paths = Annotated[
    list[Path],
    typer.Argument(metavar="RUN [RUN] | STUDY", help="A run folder, two to be beside each other, or a study."),
]
StoreOf = Annotated[Path | None, typer.Option("--store", help="Where the results of a study file are.")]


@friendly
def report(
    paths: Paths,
    to: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    store: StoreOf = None,
) -> None:
    """Write a page to look at in a browser, one file without network: of a run, of two runs or of a study.

    [dim]fedtide report runs/mine -o report.html[/]
    [dim]fedtide report runs/proposed runs/random -o both.html[/]   two schedulers on the same clock
    """
    written = _written(paths, to, store)
    say(f"written: {to} ({written / 1000:,.0f} kB)")


@friendly
def explore(
    paths: Paths,
    live: Annotated[bool, typer.Option("--live", help="Follow a run under way, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="With --live: 0 is any that is free.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser, or only say where.")
    ] = True,
    store: StoreOf = None,
) -> None:
    """Open the page of a run, of two runs or of a study in the browser.

    [dim]fedtide explore runs/mine[/]
    [dim]fedtide explore runs/mine --live[/]   follows it while it trains; only this machine can look
    """
    if live:
        _follow(paths, port, browser)
        return
    if port:
        raise FedtideError(f"--port {port} is where a run is followed: say --live too, or leave it out")
    to = Path(tempfile.mkdtemp(prefix="fedtide-")) / "report.html"
    _written(paths, to, store)
    _open(to.as_uri(), browser)


def _written(paths: list[Path], to: Path, store: Path | None) -> int:
    """Write the page and return its size in bytes."""
    from fedtide.core.files import write_atomically
    from fedtide.pages.which import are_runs, page_of

    if to.is_dir():
        raise FedtideError(f"{to} is a folder: name the file to write, such as -o {to / 'report.html'}")
    if to.is_file() and to.suffix.lower() not in (".html", ".htm"):
        raise FedtideError(
            f"{to} is there already and is no page: name another file, such as -o {to.with_suffix('.html')}"
        )
    if store is not None and are_runs(paths):
        raise FedtideError(f"--store {store} is where a study's results are, and {paths[0]} is a run: leave it out")
    content = page_of(paths, store).encode()
    write_atomically(to, content)
    return len(content)


def _follow(paths: list[Path], port: int, browser: bool) -> None:
    from fedtide.pages.live import serve
    from fedtide.pages.which import are_runs
    from fedtide.records import read_run

    if not are_runs(paths):
        raise FedtideError(f"{paths[0]} is no run folder: --live follows runs; leave it out for a study")
    stop.ready()
    waits = True
    while not all(read_run(path).rounds for path in paths):
        if waits:
            say("waiting for the first aggregation; Ctrl-C ends it")
        waits = False
        time.sleep(1.0)
    serve(paths, port, lambda address: _open(address, browser, "; Ctrl-C ends it"))


def _open(address: str, browser: bool, more: str = "") -> None:
    say(f"{address}{more}")
    if browser and not webbrowser.open(address):
        say("no browser could be opened: open that address yourself")
