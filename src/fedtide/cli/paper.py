"""`fedtide paper`: the paper's figures and claims, from runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from fedtide.cli.command import CORES, AsJson, friendly, out, print_json, say
from fedtide.cli.drawing import SCREEN, DrawingStyle
from fedtide.cli.study import Address, Backend, Redo, StorePath, Strict, Workers, do_runs, finish, mode_of
from fedtide.core.files import check_folder
from fedtide.studies.result import Store
from fedtide.studies.work import Failure


@friendly
def paper(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIGURE]...",
            help="R, period, frameworks, training_loss, schedulers, weights, slow_labels, profiles, "
            "timelines; or `claims` for the ledger. Default: all.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", "-n", min=1, help="Seeds per curve (default: 3 to 5).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the horizon, two seeds: a first look.")] = False,
    store: StorePath = Path("results/paper"),
    to: Annotated[Path, typer.Option("--out", "-o", help="Folder for figures and the page paper.md.")] = Path("docs"),
    workers: Workers = CORES,
    backend: Backend = "local",
    address: Address = None,
    isa_strict: Strict = False,
    isa_redo: Redo = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write the page even if that takes figures or runs from the one there.")
    ] = False,
    draw_only: Annotated[bool, typer.Option("--draw-only", help="Run nothing; draw what is there.")] = False,
    style: DrawingStyle = SCREEN,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper: run what is missing, draw its figures with error bars, and decide its claims.

    [dim]fedtide paper --quick[/]               everything, at a tenth of the horizon
    [dim]fedtide paper schedulers --seeds 5[/]  one figure, in full
    [dim]fedtide paper claims[/]                from the runs there are: figures, page, a verdict per claim
    """  # fmt: skip
    from fedtide.paper import page, rows, verdicts_figure
    from fedtide.paper.figures import FIGURES
    from fedtide.paper.reproduce import (
        QUICK,
        chosen,
        collect,
        draw_all,
        observed,
        refuse_a_poorer_page,
        studies,
        verdicts,
        without_run,
    )
    from fedtide.report.style import named

    named(style)  # before anything is run
    wanted = list(figures or [])
    names = chosen([name for name in wanted if name != "claims"])
    with_page = not wanted or "claims" in wanted
    shrunk = QUICK if quick else None
    if quick:
        store, to = (path / "quick" if path in (Path("results/paper"), Path("docs")) else path for path in (store, to))
    check_folder(to)
    kept = Store(store)
    failures: list[Failure] = []
    if not draw_only and wanted != ["claims"]:
        parts = studies(names, seeds, shrunk)
        failures = do_runs("paper", parts, kept, workers, backend, address, mode_of(isa_strict, isa_redo))
    results = collect(list(FIGURES), kept, shrunk, seeds or 0)
    decided, others = verdicts(results)
    besides = observed(results)
    if with_page and not force:
        refuse_a_poorer_page(to / "paper.md", results, store)
    if with_page:  # the page shows whole figures only, and says what is missing from the others
        names = [name for name in chosen([]) if name not in FIGURES or not without_run(name, results)]
    drawn = draw_all(names, results, to / "figures", say, style)
    if with_page and any(verdict.weakest.difference for verdict in decided):
        drawn["verdicts"] = verdicts_figure.draw(decided, to / "figures" / "paper-verdicts", style)
    for paths in drawn.values():
        say(f"drawn: {', '.join(str(path) for path in paths)}")
    if with_page:
        page.write(to / "paper.md", drawn, results, decided, others, besides, quick)
        say(f"written: {to / 'paper.md'}")
    else:
        say(f"the page {to / 'paper.md'} is as it was; `fedtide paper claims` writes it anew")
    if as_json:
        print_json([*rows.claims_rows(decided, others), *rows.observed_rows(besides)])
    else:
        _print_claims(rows.claims_rows(decided, others))
        _print_observed(rows.observed_rows(besides))
    finish(failures)


def _print_claims(rows: Sequence[dict[str, Any]]) -> None:
    """Print every claim with its verdict, and below it the comparisons that decide it."""
    from fedtide.paper.rows import effect, in_words

    colours = {"holds": "green", "contradicted": "red"}
    out.print("\n[dim]Differences are positive where they are as claimed.[/]", highlight=False)
    for row in rows:
        colour = colours.get(row["verdict"], "yellow")
        out.print(f"\n[bold {colour}]{row['verdict']}:[/] [bold]{escape(row['text'])}[/]", highlight=False)
        if row["by_other_measure"] != row["verdict"]:
            metrics = dict.fromkeys(each["by_other_measure"]["metric"] for each in row["comparisons"])
            out.print(f"    [dim]by {', '.join(metrics)}: {row['by_other_measure']}[/]", highlight=False)
        _print_aside(f'"{row["quote"]}" ({row["section"]})')
        if row["reading"]:
            _print_aside(f"We read it as: {row['reading']}")
        table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
        table.add_column(min_width=2)
        table.add_column()
        table.add_column()
        for each in row["comparisons"]:
            colour = colours.get(each["verdict"], "yellow")
            table.add_row("", escape(in_words(each)), f"[{colour}]{escape(effect(each))}[/]")
        out.print(table, highlight=False)


def _print_observed(rows: Sequence[dict[str, Any]]) -> None:
    """Print what we measure besides, without verdicts."""
    from fedtide.paper.rows import difference_words, effect

    out.print("\n[bold]What we find besides[/] [dim](no claims of the paper)[/]", highlight=False)
    for row in rows:
        out.print(f"\n[bold]{escape(row['text'])}[/]", highlight=False)
        _print_aside(row["note"])
        table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
        table.add_column(min_width=2)
        for each in row["comparisons"]:
            table.add_row("", escape(difference_words(each)), escape(effect(each)))
        out.print(table, highlight=False)


def _print_aside(text: str) -> None:
    out.print(Padding(f"[dim]{escape(text)}[/]", (0, 0, 0, 4), expand=False), highlight=False)
