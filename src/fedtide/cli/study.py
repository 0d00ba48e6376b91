"""`fedtide study`: many runs, compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedtide.cli.command import CORES, AsJson, err, friendly, out, print_json, say, warn
from fedtide.cli.drawing import SCREEN_STYLE, DrawingStyle
from fedtide.cli.progress import study_progress
from fedtide.errors import FedtideError
from fedtide.report.terminal import NOT_REACHED, TableColumn, listed
from fedtide.studies.paths import Mode, plan_paths
from fedtide.studies.run import Failure, Outcome, expected_work, missing, run_study
from fedtide.studies.spec import Study, read_study
from fedtide.studies.statistics import HELP, METRICS
from fedtide.studies.store import Store

study_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Many runs from one file: a base experiment, axes or variants, seeds. Finished runs are never repeated.",
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="A study file (YAML).")]
StorePath = Annotated[Path, typer.Option("--store", "-s", help="Where results are kept, a few tables.")]
Workers = Annotated[int, typer.Option("--workers", "-j", min=1, max=1000, help="Runs at a time, one thread each.")]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        help="local: processes on this machine; dask: the cluster at --address, or one started for it; here: this process.",
    ),
]
Address = Annotated[str | None, typer.Option("--address", help="A Dask scheduler, as in tcp://host:8786.")]
Strict = Annotated[
    bool,
    typer.Option(
        "--isa-strict", help="Do what is missing on the instruction path of the stored runs of the same seed."
    ),
]
Redo = Annotated[
    bool,
    typer.Option(
        "--isa-redo", help="As --isa-strict; a seed whose path this machine lacks is done anew on its own, beside it."
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        help="With what: a variant for all, or a part of labels (scheduler=random, a name, a value), all else being equal.",
    ),
]
Metric = Annotated[
    str, typer.Option("--metric", "-m", help=f"The number per run that is compared: {', '.join(METRICS)}, or {HELP}.")
]


def mode_of(strict: bool, redo: bool) -> Mode:
    """Return what two options say about instruction paths."""
    return "redo" if redo else "pair" if strict else "any"


def do_runs(
    name: str,
    studies: Sequence[Study],
    store: Store,
    workers: int,
    backend: str,
    address: str | None,
    mode: Mode = "any",
) -> list[Failure]:
    """Run what is missing of some studies under a progress bar; tell every cause of a failure once, when it is met."""
    study = Study(name, tuple({run.name: run for part in studies for run in part.runs}.values()))
    plans = plan_paths(studies, store, mode)
    todo, have = plans.todo, len(study.runs) - len(missing(study, store))
    if have:
        say(f"{have} of {len(study.runs)} runs are in {store.folder} already")
    for line in plans.warnings:
        warn(line)
    with study_progress(study.name, len(todo), sum(expected_work(run) for run in todo)) as advance:
        done, causes = 0, set[str]()

        def on_done(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            accuracy = outcome.result.column("test_accuracy")[-1] if outcome.result else None
            which = f"{outcome.run.label}, seed {outcome.run.experiment.seed}"
            word = f"{accuracy:.4f}" if accuracy is not None else "failed"
            if outcome.result and outcome.result.diverged is not None:
                word = f"diverged at time {outcome.result.diverged:g}, and counts as a guess from then on"
            text = f"{which}: {word}"
            advance(expected_work(outcome.run), done, text)
            if outcome.reason is not None and outcome.reason not in causes:  # many runs may fail for one
                causes.add(outcome.reason)
                line = f"[red]failed:[/] {escape(f'{which}: {outcome.reason}')}"
                err.print(line, highlight=False, soft_wrap=True)
            elif outcome.result is not None and not err.is_terminal:
                say(text)

        try:
            return run_study(
                study, store, workers=workers, backend=backend, address=address, plan=plans, on_done=on_done
            )
        except KeyboardInterrupt:
            say("stopped. Finished runs are kept, others continue from where they are: give the same command again")
            raise


def finish(failures: Sequence[Failure]) -> None:
    """Raise if runs failed, with their exit code if they have one in common."""
    if failures:
        causes = len({failure.reason for failure in failures})
        runs = "1 run" if len(failures) == 1 else f"{len(failures)} runs"
        above = "the reason above" if causes == 1 else f"the {causes} reasons above"
        error = FedtideError(f"{runs} failed for {above}; all others are kept. Running again tries only these")
        codes = {failure.exit_code for failure in failures}
        error.exit_code = codes.pop() if len(codes) == 1 else FedtideError.exit_code
        raise error


@study_app.command("run")
@friendly
def study_run(
    file: File,
    store: StorePath = Path("results"),
    workers: Workers = CORES,
    backend: Backend = "local",
    address: Address = None,
    isa_strict: Strict = False,
    isa_redo: Redo = False,
) -> None:
    """Run what is missing of a study; stop it whenever you like, and run it again to go on."""
    study = read_study(file)
    mode = mode_of(isa_strict, isa_redo)
    failures = do_runs(study.name, [study], Store(store), workers, backend, address, mode)
    _print_table(study, Store(store), "mean_accuracy")
    finish(failures)


@study_app.command("show")
@friendly
def study_show(
    file: File,
    store: StorePath = Path("results"),
    metric: Metric = "mean_accuracy",
    against: Against = None,
    as_json: AsJson = False,
) -> None:
    """Show every variant's mean, and its paired difference from another one with its interval.

    That is the one with the first value on the first axis (or the first variant), all else being equal; or see --against.
    """
    study = read_study(file)
    if len(missing(study, Store(store))) == len({run.name for run in study.runs}):
        raise FedtideError(
            f"{store} holds no run of {study.name!r}: `fedtide study run {file}` first, or name its --store"
        )
    if as_json:
        print_json(_rows(study, Store(store), metric, against))
    else:
        _print_table(study, Store(store), metric, against)


@study_app.command("plot")
@friendly
def study_plot(
    file: File,
    store: StorePath = Path("results"),
    to: Annotated[
        Path | None, typer.Option("--out", "-o", help="File name without ending (default: the study's).")
    ] = None,
    column: Annotated[
        str, typer.Option("--column", help="What to plot: test_accuracy, test_loss, train_loss, ...")
    ] = "test_accuracy",
    over: Annotated[
        str, typer.Option("--over", help="Against what: time, index, bits, symbols, samples_trained.")
    ] = "time",
    against: Against = None,
    style: DrawingStyle = SCREEN_STYLE,
) -> None:
    """Plot mean curves, seeds and 95 % intervals, as PDF, SVG and PNG; with --against paired gains, averaged up to then."""
    from fedtide.studies.plot import draw_study

    study = read_study(file)
    for path in draw_study(study, Store(store), to or Path(study.stem), column, over, against, style):
        out.print(escape(str(path)), highlight=False, soft_wrap=True)


@study_app.command("export")
@friendly
def study_export(
    file: File,
    to: Annotated[Path, typer.Option("--out", "-o", help="A .csv or .parquet file.")],
    store: StorePath = Path("results"),
) -> None:
    """Export all curves as one long table, a row per run and evaluation, for pandas and friends."""
    from fedtide.studies.table import export

    count = export(read_study(file), Store(store), to)
    out.print(f"{count:,} rows in {escape(str(to))}", highlight=False, soft_wrap=True)


@study_app.command("paths")
@friendly
def study_paths(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A folder of results.")] = Path("results"),
    as_json: AsJson = False,
) -> None:
    """List on which instruction paths, and by which version, the results of a store were made."""
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
    out.print(listed(columns, rows, out.width, escape(str(store))), highlight=False)


def _rows(study: Study, store: Store, metric: str, against: str | None = None) -> list[dict[str, Any]]:
    from fedtide.studies.table import table_rows

    return table_rows(study, store, metric, against)


def _compared(row: dict[str, Any]) -> tuple[str, str]:
    from fedtide_lab.paper.reproduce import effect

    if "difference" in row:
        return effect(row), row["verdict"]
    why = "; ".join(filter(None, [row["reason"], row["diverged_note"]]))
    return _nothing(row) if row["against"] else "(others' reference)", why


def _middle(row: dict[str, Any]) -> str:
    """Write a variant's mean, or the median of what it spends until it reaches something and how many seeds do."""
    value = row.get("mean", row.get("median"))
    some = f", {row['reached']} of {row['reached_of']}" if row.get("reached") != row.get("reached_of") else ""
    return _nothing(row) if value is None else f"{value:.4f}{some}"


def _nothing(row: dict[str, Any]) -> str:
    """Say in the place of a number that there is none, and whether that is because a target was not reached."""
    from fedtide.studies.statistics import UNCOUNTED

    counted = not any(row["reason"].endswith(each) for each in UNCOUNTED.values())
    return NOT_REACHED if row["reason"] and counted else "-"


def _print_table(study: Study, store: Store, metric: str, against: str | None = None) -> None:
    rows = _rows(study, store, metric, against)
    other = next((row["against_part"] for row in rows if row["against_part"]), "another")
    columns = [
        TableColumn("variant", wraps=True),
        TableColumn("seeds", right=True),
        TableColumn("median" if rows and "median" in rows[0] else "mean", right=True),
        TableColumn(f"difference from {other} (95 % interval)", wraps=True),
        TableColumn("verdict", wraps=True),
    ]
    cells = [
        [escape(row["variant"]), f"{row['done']}/{row['seeds']}", _middle(row), *map(escape, _compared(row))]
        for row in rows
    ]
    if any(row["lost_share"] for row in rows):
        columns.append(TableColumn("uploads lost", right=True))
        for row, cell in zip(rows, cells, strict=True):
            cell.append("-" if row["lost_share"] is None else f"{row['lost_share']:.1%}")
    out.print(listed(columns, cells, out.width, escape(f"{study.name}: {metric}")), highlight=False)
    for line in _foot(study, store, any(row["paths_note"] for row in rows)):
        out.print(f"[dim]{escape(line)}[/]", highlight=False)


def _foot(study: Study, store: Store, is_mixed: bool) -> list[str]:
    """Return what stands below a table about instruction paths."""
    from fedtide.studies.paths import WHY, unknown
    from fedtide.studies.table import by_label

    lines = [f"{WHY} `fedtide study run --isa-strict`, or --isa-redo, makes pairs on one."] if is_mixed else []
    lost = unknown(result for runs in by_label(study, store).values() for result in runs.values())
    return [*lines, lost] if lost else lines
