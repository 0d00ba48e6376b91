"""`fedtide league`: the methods that papers cite, tuned alike, at equal airtime, in three worlds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedtide.cli.command import CORES, AsJson, friendly, out, print_json, say
from fedtide.cli.study import Address, Backend, Redo, StorePath, Strict, Workers, do_runs, finish, mode_of
from fedtide.core.files import check_folder
from fedtide.errors import FedtideError
from fedtide.report.tables import Column, listed
from fedtide.studies.result import Store
from fedtide.studies.work import Failure

COLUMNS = (
    Column("method", wraps=True),
    Column("rank", right=True),
    Column("range"),
    Column("accuracy", right=True),
    Column("gain over random", wraps=True),
)


@friendly
def league(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[WORLD]...", help="paper, macro, phones. Default: all.")
    ] = None,
    store: StorePath = Path("results/league"),
    to: Annotated[Path, typer.Option("--out", "-o", help="Folder for the figures and the page league.md.")] = Path(
        "docs"
    ),
    workers: Workers = CORES,
    backend: Backend = "local",
    address: Address = None,
    isa_strict: Strict = False,
    isa_redo: Redo = False,
    draw_only: Annotated[bool, typer.Option("--draw-only", help="Run nothing; draw what is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask which method to deploy: schedulers, servers, codecs and local methods, ranked with paired intervals.

    [dim]fedtide league --draw-only[/]   the page and its figures, from the runs there are
    [dim]fedtide league macro[/]         one world; all three take one to two hours of two cores

    Each method is tuned with the same number of runs on a seed of its own. A method of yours is a row in league/methods.py.
    """
    from fedtide.league import draw, page
    from fedtide.league.playing import ARENAS
    from fedtide.league.season import played, stages

    known = {arena.name: arena for arena in ARENAS}
    for name in names or []:
        if name not in known:
            raise FedtideError(f"there is no world {name!r} in the league; there are {', '.join(known)}")
    check_folder(to)
    kept = Store(store)
    failures: list[Failure] = []
    if not draw_only:
        for stage, parts in stages([known[name] for name in names or known], kept):
            failures += do_runs(stage, parts, kept, workers, backend, address, mode_of(isa_strict, isa_redo))
    seasons = [each for arena in ARENAS if (each := played(arena, kept)) is not None]
    if not seasons:
        raise FedtideError(f"{store} holds no run of the league; leave out --draw-only, or name another --store")
    tables = [table for table, _ in seasons]
    runs = {table.arena.name: results for table, results in seasons}
    figures = to / "figures"
    drawn = draw.draw_gains(tables, figures / "league") + draw.draw_curves(tables, runs, figures / "league-curves")
    page.write(to / "league.md", Path("figures/league.png"), Path("figures/league-curves.png"), tables, runs)
    say(f"drawn: {', '.join(map(str, drawn))}")
    say(f"written: {to / 'league.md'}")
    if as_json:
        print_json(page.rows(tables))
    else:
        _print(tables)
    finish(failures)


def _print(tables: list[Any], most: int = 10) -> None:
    from fedtide.league.methods import PAPER, REFERENCE
    from fedtide.league.ranking import effect

    for each in tables:
        rows = [
            (
                escape(row.name),
                str(row.rank),
                f"{row.highest} to {row.lowest}",
                f"{row.accuracy:.3f}",
                escape(effect(row.over_reference)),
            )
            for row in each.rows
            if row.rank <= most or row.name in (PAPER, REFERENCE)
        ]
        out.print(listed(COLUMNS, rows, out.width, escape(each.arena.title)), highlight=False)
