"""`fedtide study`: many runs, compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from fedtide.cli import options
from fedtide.cli.command import Group
from fedtide.cli.console import err, out, print_json, print_line, print_table, print_text, say, tell, warn
from fedtide.errors import FedtideError

if TYPE_CHECKING:
    from fedtide.studies.results import SeedResults
    from fedtide.studies.run import Outcome
    from fedtide.studies.spec import Study
    from fedtide.studies.store import Store

_file_argument = options.cli_argument("file", "FILE", "A study file (YAML).", type=options.PATH)
_against_option = click.option(
    "--against",
    help="Reference: one variant for all, or part of a label (scheduler=random, a name, a value), all else being equal.",
)
_moderate_option = click.option(
    "--moderate", is_flag=True, help="Estimate each variance with the help of all: shorter intervals from few seeds."
)
metric_option = click.option(
    "--metric",
    "-m",
    default="mean_accuracy",
    help="The number per run that is compared: mean_accuracy, final_accuracy, mean_train_loss, final_train_loss, variation, "
    "roughness, arrived_share, lost_share, silent_share, retransmitted_share (of the uploads), idle_share (of the symbols), "
    "metrics/NAME for what a scheduler or learning.metrics measured, or "
    "time_to_A, bits_to_A, joules_to_A, bits_down_to_A, air_time_to_A, co2_grams_to_A with an accuracy A such as 0.9.",
)
margin_option = click.option(
    "--margin",
    type=float,
    help="The smallest difference that matters. One that is shown to be smaller is called `no difference above` it. "
    "Default: 0.01 for accuracies, none for other metrics; 0 disables it.",
)


def do_study_runs(
    name: str, studies: Sequence[Study], store: Store, isa_strict: bool, isa_redo: bool, **work: Any
) -> list[Outcome]:
    """Run what is missing of some studies under a progress bar; tell every cause of a failure once, when it is met.

    work: what `run_study` takes; with the two before it, what `options.work_options` declares.
    """
    from fedtide.cli.progress import study_progress
    from fedtide.studies.instruction_paths import plan_paths
    from fedtide.studies.run import expected_run_work, missing_runs, run_study
    from fedtide.studies.spec import Study

    whole = Study(name, tuple({run.name: run for part in studies for run in part.runs}.values()))
    plans = plan_paths(studies, store, "redo" if isa_redo else "pair" if isa_strict else "any")
    todo, have = plans.todo, len(whole.runs) - len(missing_runs(whole, store))
    if have:
        say(f"{have} of {len(whole.runs)} runs are in {store.folder} already")
    for line in plans.warnings:
        warn(line)
    with study_progress(name, len(todo), sum(expected_run_work(run) for run in todo)) as advance:
        done, causes = 0, set[str]()

        def on_done(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            which, word = run_in_words(outcome)
            text = f"{which}: {word}"
            advance(expected_run_work(outcome.run), done, text)
            if outcome.reason and outcome.reason not in causes:  # many runs may fail for one
                causes.add(outcome.reason)
                tell(f"[red]failed:[/] {escape(f'{which}: {outcome.reason}')}")
            elif outcome.result is not None and not err.is_terminal:
                say(text)

        with told_if_stopped():
            return run_study(whole, store, plan=plans, on_done=on_done, **work)


def run_in_words(outcome: Outcome) -> tuple[str, str]:
    """Say which run ended, and how."""
    accuracy = outcome.result.column("test_accuracy")[-1] if outcome.result else None
    word = f"{accuracy:.4f}" if accuracy is not None else "failed"
    if outcome.result and outcome.result.diverged is not None:
        word = f"diverged at time {outcome.result.diverged:g}, and counts as a guess from then on"
    return f"{outcome.run.label}, seed {outcome.run.experiment.seed}", word


@contextmanager
def told_if_stopped() -> Iterator[None]:
    """Say what becomes of runs that are interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped. Finished runs are kept, interrupted ones continue: run the same command again")
        raise


def finish_study(failures: Sequence[Outcome]) -> None:
    """Raise if runs failed, with their exit code if they have one in common."""
    if failures:
        causes = len({failure.reason for failure in failures})
        runs = "1 run" if len(failures) == 1 else f"{len(failures)} runs"
        above = "the reason above" if causes == 1 else f"the {causes} reasons above"
        error = FedtideError(f"{runs} failed for {above}; all others are kept. Running again tries only these")
        codes = {failure.exit_code for failure in failures}
        error.exit_code = codes.pop() if len(codes) == 1 else FedtideError.exit_code
        raise error


@click.group("study", cls=Group)
def study() -> None:
    """Run and compare many experiments from one file: a base experiment, axes or variants, seeds."""


def _finished(file: Path, store: Path) -> tuple[Study, SeedResults]:
    """Read a study and its results; raise if there are none."""
    from fedtide.studies.spec import read_study
    from fedtide.studies.store import Store
    from fedtide.studies.table import by_label

    made = read_study(file)
    results = by_label(made, Store(store))
    if not any(results.values()):
        raise FedtideError(
            f"{store} has no finished run of {made.name!r}: `fedtide study run {file}` first, or name its --store"
        )
    return made, results


@study.command("run")
@_file_argument
@options.store_option()
@options.work_options
def study_run(file: Path, store: Path, **work: Any) -> None:
    """Run the missing runs of a study. You can stop it at any time and run it again to continue."""
    from fedtide.studies.spec import read_study
    from fedtide.studies.store import Store
    from fedtide.studies.table import by_label

    made, kept = read_study(file), Store(store)
    failures = do_study_runs(made.name, [made], kept, **work)
    _print_table(made, by_label(made, kept), "mean_accuracy")
    finish_study(failures)


@study.command("show")
@_file_argument
@options.store_option()
@metric_option
@_against_option
@margin_option
@_moderate_option
@options.as_json
def study_show(
    file: Path, store: Path, metric: str, against: str | None, margin: float | None, moderate: bool, as_json: bool
) -> None:
    """Show the mean of every variant and its paired difference from a reference, with intervals.

    The reference has the first value on the first axis (or is the first variant), all else being equal. --against chooses another.
    """
    from fedtide.studies.table import table_rows

    made, results = _finished(file, store)
    if as_json:
        print_json(table_rows(made, results, metric, against, margin, moderate))
    else:
        _print_table(made, results, metric, against, margin, moderate)


@study.command("table")
@_file_argument
@options.store_option()
@metric_option
@_against_option
@margin_option
@_moderate_option
@click.option("--latex", is_flag=True, help="Print LaTeX (booktabs) for a paper.")
def study_table(
    file: Path, store: Path, metric: str, against: str | None, margin: float | None, moderate: bool, latex: bool
) -> None:
    """Print the table of `study show` as text or LaTeX.

    fedtide study table study.yaml --latex > table.tex
    """
    from fedtide.studies.table import latex_table, table_rows

    made, results = _finished(file, store)
    if latex:
        print_text(latex_table(made, table_rows(made, results, metric, against, margin, moderate), metric))
    else:
        _print_table(made, results, metric, against, margin, moderate)


@study.command("plot")
@_file_argument
@options.store_option()
@options.out_option("File name without extension (default: the study's name).")
@click.option(
    "--column", default="test_accuracy", help="What to plot: test_accuracy, test_loss, train_loss, metrics/NAME, ..."
)
@click.option("--over", default="time", help="Horizontal axis: time, index, bits, symbols, samples_trained.")
@_against_option
@options.style
def study_plot(
    file: Path, store: Path, folder: Path | None, column: str, over: str, against: str | None, style: str
) -> None:
    """Plot mean curves, seeds and 95 % intervals as PDF, SVG and PNG; with --against, the cumulative mean of paired gains."""
    from fedtide.studies.plot import draw_study

    made, results = _finished(file, store)
    for path in draw_study(made, results, folder or Path(made.stem), column, over, against, style):
        print_line(escape(str(path)))


@study.command("export")
@_file_argument
@options.out_option("A .csv or .parquet file.", "to", required=True)
@options.store_option()
def study_export(file: Path, to: Path, store: Path) -> None:
    """Export all curves as one table with a row per run and evaluation."""
    from fedtide.studies.table import export_table

    count = export_table(*_finished(file, store), to)
    print_line(f"{count:,} rows in {escape(str(to))}")


@study.command("paths")
@options.cli_argument(
    "store", "[STORE]", "A folder of results. Default: results.", type=options.PATH, default=Path("results")
)
@options.as_json
def study_paths(store: Path, as_json: bool) -> None:
    """List the versions and CPU instruction sets with which the stored results were made."""
    from fedtide.report.terminal import TableColumn
    from fedtide.studies.store import Store

    sources = Store(store).sources()
    if not sources:
        raise FedtideError(f"{store} holds no results: name the folder that --store named")
    if as_json:
        print_json([each._asdict() for each in sources])
        return
    rows = [
        (f"{count:,}", *(escape(each or "-") for each in (path, found_by, version, (commit or "")[:12])))
        for path, found_by, version, commit, count in sources
    ]
    names = ("instruction path", "found by", "version", "commit")
    columns = (TableColumn("results", right=True), *(TableColumn(name, wraps=True) for name in names))
    print_table(columns, rows, str(store))


def _print_table(
    study: Study,
    results: SeedResults,
    metric: str,
    against: str | None = None,
    margin: float | None = None,
    moderate: bool = False,
) -> None:
    from fedtide.report.terminal import TableColumn
    from fedtide.studies.statistics import WHY, unknown_pairs_note
    from fedtide.studies.table import table_row_cells, table_rows

    rows = table_rows(study, results, metric, against, margin, moderate)
    other = next((row["against_part"] for row in rows if row["against_part"]), "another")
    columns = [
        TableColumn("variant", wraps=True),
        TableColumn("seeds", right=True),
        TableColumn("median" if rows and "median" in rows[0] else "mean", right=True),
        TableColumn(f"difference from {other} (95 % interval)", wraps=True),
        TableColumn("verdict", wraps=True),
    ]
    cells = [list(map(escape, table_row_cells(row))) for row in rows]
    for fate in ("lost", "silent", "retransmitted"):
        shares = [row[f"{fate}_share"] for row in rows]
        if any(shares):
            columns.append(TableColumn(f"uploads {fate}", right=True))
            for share, cell in zip(shares, cells, strict=True):
                cell.append("-" if share is None else f"{share:.1%}")
    print_table(columns, cells, f"{study.name}: {metric}")
    mixed = any(row["paths_note"] for row in rows)
    why = f"{WHY} `fedtide study run --isa-strict`, or --isa-redo, makes pairs on one." if mixed else ""
    counts = dict.fromkeys(row["counts_note"] for row in rows)
    unknown = unknown_pairs_note(result for runs in results.values() for result in runs.values())
    plain = [row["variant"] for row in rows if row.get("moderated") is False]
    kept = f", except those of {', '.join(plain)}, which hold outliers" if plain else ""
    moderated = (
        f"Intervals are moderated: each variance is estimated with the help of all others{kept}." if moderate else ""
    )
    for line in (why, unknown, *counts, moderated):
        if line:
            out.print(f"[dim]{escape(line)}[/]", highlight=False)
