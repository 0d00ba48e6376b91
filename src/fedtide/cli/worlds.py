"""`fedtide worlds`: the paper's main comparisons in other worlds, from runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedtide.cli.command import CORES, AsJson, friendly, out, print_json, say
from fedtide.cli.drawing import SCREEN, DrawingStyle
from fedtide.cli.study import Address, Backend, Redo, StorePath, Strict, Workers, do_runs, finish, mode_of
from fedtide.core.files import check_folder
from fedtide.errors import FedtideError
from fedtide.report.tables import Column, listed
from fedtide.studies.result import Store
from fedtide.studies.work import Failure

WIDE = 14  # columns of the terminal that a verdict takes; a claim takes two of them


@friendly
def worlds(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORLD]...", help="paper, fashion, macro, walking, phones, cifar. Default: all."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", "-n", min=1, max=20, help="Seeds per curve (default: 3 to 5).")
    ] = None,
    store: StorePath = Path("results/worlds"),
    to: Annotated[Path, typer.Option("--out", "-o", help="Folder for the figure and the page worlds.md.")] = Path(
        "docs"
    ),
    workers: Workers = CORES,
    backend: Backend = "local",
    address: Address = None,
    isa_strict: Strict = False,
    isa_redo: Redo = False,
    draw_only: Annotated[bool, typer.Option("--draw-only", help="Run nothing; draw what is there.")] = False,
    style: DrawingStyle = SCREEN,
    as_json: AsJson = False,
) -> None:
    """Ask whether the paper's conclusions survive: its main comparisons with other data, radio or devices.

    [dim]fedtide worlds --draw-only[/]       the page and its figure, from the runs there are
    [dim]fedtide worlds macro --seeds 8[/]   more seeds of one world
    """
    from fedtide.paper import worlds_page
    from fedtide.paper.worlds import WORLDS, collect, study
    from fedtide.report.style import named

    named(style)  # before anything is run
    known = {world.name: world for world in WORLDS}
    for name in names or []:
        if name not in known:
            raise FedtideError(f"there is no world {name!r}; there are {', '.join(known)}")
    check_folder(to)
    kept = Store(store)
    failures: list[Failure] = []
    if not draw_only:
        parts = [study(known[name], range(seeds) if seeds else None) for name in names or known]
        failures = do_runs("worlds", parts, kept, workers, backend, address, mode_of(isa_strict, isa_redo))
    results = collect(WORLDS, kept)
    found = worlds_page.decided(WORLDS, results)
    if not found:
        raise FedtideError(f"{store} holds no run of these worlds; leave out --draw-only, or name another --store")
    drawn = worlds_page.draw(found, to / "figures" / "worlds", style)
    worlds_page.write(to / "worlds.md", Path("figures/worlds.png"), found, results)
    say(f"drawn: {', '.join(map(str, drawn))}")
    say(f"written: {to / 'worlds.md'}")
    if as_json:
        print_json(worlds_page.rows(found))
    else:
        _print(found)
    finish(failures)


def _print(found: list[Any]) -> None:
    colours = {"holds": "green", "contradicted": "red", "not resolved": "yellow"}
    names = [each.world.name for each in found]
    claims = [verdict.claim.text for verdict in found[0].verdicts]
    verdicts = [[each.verdicts[number].verdict for each in found] for number in range(len(claims))]
    if out.width >= WIDE * (len(names) + 2):
        columns = (Column("claim", wraps=True), *(Column(name, wraps=True) for name in names))
        rows = [
            (escape(claim), *(f"[{colours.get(cell, 'dim')}]{cell}[/]" for cell in cells))
            for claim, cells in zip(claims, verdicts, strict=True)
        ]
        out.print(listed(columns, rows, out.width), highlight=False)
        return
    for claim, cells in zip(claims, verdicts, strict=True):  # a column for every world would cut their verdicts
        where = {cell: [name for name, one in zip(names, cells, strict=True) if one == cell] for cell in cells}
        out.print(f"[bold]{escape(claim)}[/]", highlight=False)
        for cell, those in where.items():
            out.print(f"  [{colours.get(cell, 'dim')}]{cell}:[/] {escape(', '.join(those))}", highlight=False)
