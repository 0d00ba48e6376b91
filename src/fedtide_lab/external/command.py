"""`fedtide external`: experiments of others whose numbers are published, run here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from fedtide.cli import command, do_study_runs, finish_study, options, print_json, print_table, say
from fedtide_lab.commands import chosen_worlds, opened_store

if TYPE_CHECKING:
    from fedtide.studies import Outcome


@command.command("external")
@options.cli_argument(
    "names", "[EXPERIMENT]...", "ancestor-cnn-iid and others that docs/external.md lists. Default: all.", nargs=-1
)
@click.option("--seeds", "-n", type=click.IntRange(1, 20), help="Seeds per experiment (default: 6 to 10).")
@options.store_option("results/external")
@options.out_option("Folder for the page external.md.", "to", default=Path("docs"))
@options.work_options
@click.option("--draw-only", is_flag=True, help="Run nothing; write the page from the stored runs.")
@options.as_json
def external(
    names: tuple[str, ...], seeds: int | None, store: Path, to: Path, draw_only: bool, as_json: bool, **work: Any
) -> None:
    """Run experiments whose results others published, and set our numbers beside theirs.

    fedtide external --draw-only                    write the page from the stored runs
    fedtide external ancestor-cnn-iid --seeds 3     one experiment, three seeds
    """
    from fedtide.report import TableColumn
    from fedtide_lab.external import page
    from fedtide_lab.external.queues import read_queues, store_queues
    from fedtide_lab.external.studies import PUBLISHED_CELLS, cell_study

    wanted = chosen_worlds(names, PUBLISHED_CELLS, "experiment")
    kept = opened_store(store, to, page.EXTERNAL)
    failures: list[Outcome] = []
    if not draw_only:
        parts = [cell_study(cell, range(seeds) if seeds else None) for cell in wanted]
        failures = do_study_runs(page.EXTERNAL, parts, kept, **work)
        if not read_queues(store):
            say("counting arrivals of asynchronous servers: a minute or two")
            store_queues(store)
    runs = page.external_runs(kept)
    page.write_external_page(to / "external.md", runs, store)
    say(f"written: {to / 'external.md'}")
    numbers = page.external_numbers(runs)
    if as_json:
        print_json(page.external_rows(numbers))
    else:
        columns = [TableColumn(name, wraps=True) for name in ("experiment", "round", "theirs", "ours", "within")]
        rows = [
            (
                escape(each.cell.title),
                str(each.published.round),
                f"{each.published.accuracy:.2f}",
                f"{each.mean:.2f}" if each.accuracies else "",
                each.verdict,
            )
            for each in numbers
        ]
        print_table(columns, rows)
    finish_study(failures)
