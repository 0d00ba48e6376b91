"""`fedtide oracle`: what an oracle's schedule, an ideal codec and a radio without limits would gain in the league's worlds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from fedtide.cli import command, do_study_runs, finish_study, options, print_json, print_table, say
from fedtide.errors import FedtideError
from fedtide_lab.commands import chosen_worlds, opened_store

if TYPE_CHECKING:
    from fedtide.studies import Outcome


@command.command("oracle")
@options.cli_argument("names", "[WORLD]...", "paper, macro, phones. Default: all.", nargs=-1)
@click.option("--seeds", "-n", type=click.IntRange(1, 20), help="Seeds per curve (default: 5).")
@options.store_option("results/oracle")
@options.out_option("Folder for the page oracle.md.", "to", default=Path("docs"))
@options.work_options
@click.option("--draw-only", is_flag=True, help="Run nothing; write the page from the stored runs.")
@options.as_json
def oracle(
    names: tuple[str, ...], seeds: int | None, store: Path, to: Path, draw_only: bool, as_json: bool, **work: Any
) -> None:
    """Estimate how much any schedule could gain, with an oracle that looks ahead one step.

    fedtide oracle --draw-only       write the page from the stored runs
    fedtide oracle paper --seeds 2   one world, two seeds; a run of the oracle takes a minute or two on one core

    Runs stored in results/league are reused.
    """
    from fedtide.report import TableColumn
    from fedtide.studies import Store, pair_paths_summary
    from fedtide_lab.oracle import brackets, page
    from fedtide_lab.prose import gain_words

    wanted = chosen_worlds(names, brackets.ORACLE_WORLDS)
    kept, borrowed = opened_store(store, to, "oracle"), Store(store.parent / "league")
    failures: list[Outcome] = []
    if not draw_only:
        known = {*borrowed.names()}
        parts = [brackets.oracle_study(world, range(seeds) if seeds else None) for world in wanted]
        parts = [part._replace(runs=tuple(run for run in part.runs if run.name not in known)) for part in parts]
        failures = do_study_runs("oracle", parts, kept, **work)
    found = [each for world in brackets.ORACLE_WORLDS if (each := brackets.world_bracket(world, kept, borrowed))]
    if not found:
        raise FedtideError(f"{store} holds no run of the oracle; leave out --draw-only, or name another --store")
    page.write_oracle_page(
        to / "oracle.md", found, pair_paths_summary(run for each in found for run in each.runs), store
    )
    say(f"written: {to / 'oracle.md'}")
    if as_json:
        print_json(page.oracle_rows(found))
    else:
        columns = [TableColumn("gain over random", wraps=True), *(TableColumn(each.world.name) for each in found)]
        rows = [
            (escape(name), *(gain_words(each.gain.get(name)) for each in found))
            for name in brackets.ORACLE_CURVES
            if name != brackets.ORACLE_REFERENCE
        ]
        print_table(columns, rows)
    finish_study(failures)
