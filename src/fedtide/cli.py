"""The command line. Tables and progress go to people, `--json` to programs; a user's mistake is one line and an exit code.

Exit codes: 0 done, 2 bad input, 3 data cannot be had, 4 run folder cannot be used, 5 training went wrong, 130 interrupted.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fedtide import config
from fedtide.cli_deploy import deploy_app, replay
from fedtide.cli_study import paper, study_app
from fedtide.command import CORES, AsJson, err, friendly, out, print_json, say, warn
from fedtide.config import Experiment
from fedtide.errors import RunFolderError

app = typer.Typer(
    name="fedtide",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Asynchronous federated learning over wireless networks: simulate it, compare policies, trust the plot.",
    epilog="Start with [bold]fedtide run[/bold] (the paper's default experiment), look ahead with [bold]fedtide plan[/bold], "
    "list what you can choose with [bold]fedtide policies[/bold].",
)

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE] [KEY=VALUE]...", help="An experiment file (YAML), then keys that differ from it."),
]
Threads = Annotated[
    int, typer.Option("--threads", "-j", min=1, help="Devices trained at a time. Does not change results.")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def _experiment(words: list[str] | None) -> Experiment:
    return config.experiment(config.read_words(words or []))


@app.command()
@friendly
def run(
    words: Words = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder (default: runs/<what>-<hash>).")
    ] = None,
    threads: Threads = CORES,
    as_json: AsJson = False,
    show_keys: Annotated[bool, typer.Option("--keys", help="List every key with its default, and stop.")] = False,
) -> None:
    """Run an experiment: train, record, and show the curve.

    Without words it is the paper's default: 40 devices, non-i.i.d. MNIST, periodic aggregation, the proposed scheduler.

    [dim]fedtide run policy.scheduler=random seed=3[/]
    [dim]fedtide run framework=fedasync data.partition=iid[/]
    [dim]fedtide run experiment.yaml policy.scheduler=my_policy.py:freshest_first[/]

    The same experiment continues where it stopped; a finished one is shown again.
    """
    if show_keys:
        _list_keys(as_json)
        return
    experiment = _experiment(words)
    folder = folder or _default_folder(experiment)
    _check_handed(folder, experiment)
    _run(experiment, folder, threads, as_json)


@app.command()
@friendly
def resume(run: RunPath, threads: Threads = CORES, as_json: AsJson = False) -> None:
    """Continue a run that was stopped or killed; the result is the same as if it had not been."""
    from fedtide.records import read_experiment

    _run(read_experiment(run), run, threads, as_json)


def _default_folder(experiment: Experiment) -> Path:
    clock, who = (
        Path(name.rpartition(":")[2]).name for name in (experiment.timeline.name, experiment.policy.scheduler)
    )
    return Path("runs") / f"{clock}-{who}-{experiment.data.partition}-{config.digest(experiment)[:8]}"


def _run(experiment: Experiment, folder: Path, threads: int, as_json: bool) -> None:
    begun = time.perf_counter()
    from fedtide.records import check_folder, is_complete, is_deployment
    from fedtide.simulate import simulate

    if is_complete(folder) and not is_deployment(folder):
        check_folder(folder, experiment)
        _show(folder, as_json, draw=True)
        return
    seconds = {"start-up": time.perf_counter() - begun}
    try:
        with _progress("training") as advance:
            result = simulate(experiment, folder, threads=threads, say=say, on_round=advance)
    except KeyboardInterrupt:
        err.print(
            f"[yellow]stopped.[/] Everything so far is saved; continue with: fedtide resume {escape(str(folder))}"
        )
        raise typer.Exit(130) from None
    drawing = time.perf_counter()
    _show(folder, as_json, draw=True)
    now = time.perf_counter()
    if not as_json:
        seconds |= {**result.seconds, "figure": now - drawing}
        seconds["other"] = seconds.get("other", 0.0) + now - begun - sum(seconds.values())
        spent = ", ".join(f"{stage} {each:.1f} s" for stage, each in seconds.items() if each >= 0.05)
        out.print(f"[dim]wall time {now - begun:.1f} s: {spent}[/]", highlight=False)


def _check_handed(folder: Path, experiment: Experiment) -> None:
    """Raise if a finished run was made in Python with data, a system or a trainer that this experiment does not give."""
    from fedtide.records import check_folder, check_identity, identity, is_complete, read_versions

    if not is_complete(folder):
        return  # whoever continues it looks
    check_folder(folder, experiment)
    begun = read_versions(folder)
    if begun.get("handed"):  # else the experiment made everything itself
        from fedtide.system import build, make_trainer

        system = build(experiment, say=say)
        check_identity(folder, begun.get("identity"), identity(system, make_trainer(system)))


@contextmanager
def _progress(label: str) -> Iterator[Callable[[Any, int], None]]:
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("time {task.fields[time]:.4g}  accuracy {task.fields[accuracy]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(label, total=None, time=0.0, accuracy="-")

        def advance(record: Any, total: int) -> None:
            progress.update(task, total=total, completed=record.index, time=record.time)
            if record.test_accuracy is not None:
                progress.update(task, accuracy=f"{record.test_accuracy:.4f}")

        yield advance


@app.command()
@friendly
def show(run: RunPath, as_json: AsJson = False) -> None:
    """Show a run, finished or not: its numbers and its curve."""
    _show(run, as_json)


def _show(folder: Path, as_json: bool, draw: bool = False) -> None:
    from fedtide.records import is_deployment, read_run
    from fedtide.report.summary import evaluated, summarise
    from fedtide.report.terminal import curve, summary_table

    experiment, rounds, num_parameters, complete = read_run(folder)
    summary = summarise(experiment, rounds, num_parameters)
    if draw:
        _draw(experiment, rounds, folder / "curve.png")
    if as_json:
        print_json({"folder": str(folder), "complete": complete, **summary})
        return
    scored = evaluated(rounds)
    out.print(curve([each.time for each in scored], [each.test_accuracy or 0.0 for each in scored]))
    how = "start its ServerApp again" if is_deployment(folder) else f"fedtide resume {folder}"
    state = "complete" if complete else f"stopped at time {summary['time']:g}: {how}"
    out.print(summary_table(f"{folder} ({state})", summary), highlight=False)
    if (folder / "curve.png").exists():
        out.print(f"[dim]figure: {escape(str(folder / 'curve.png'))}[/]", highlight=False)


def _draw(experiment: Experiment, rounds: Sequence[Any], path: Path) -> None:
    """Draw a run's curve if it is missing or half written. A run without its figure is still a run."""
    from fedtide.report.figure import is_whole, run_figure

    try:
        if not is_whole(path):
            run_figure(experiment, rounds, path)
    except RunFolderError as error:
        warn(f"there is no figure: {error}")


@app.command()
@friendly
def plan(
    words: Words = None,
    as_json: AsJson = False,
    ticks: Annotated[int, typer.Option("--ticks", min=0, help="How many aggregations to list.")] = 12,
) -> None:
    """Show the timeline, ages, bits, kept share and airtime of an experiment in a moment; nothing is trained.

    [dim]fedtide plan radio.num_symbols=50000 policy.limit=20[/]
    """
    from fedtide.report.plan import plan_rows, plan_summary, plan_tables
    from fedtide.system import build, load_dataset

    experiment = _experiment(words)
    system = build(experiment, dataset=load_dataset(experiment, say, images=False))
    rows = plan_rows(system)
    summary = plan_summary(system, rows)
    if as_json:
        print_json({"summary": summary, "aggregations": rows})
        return
    for table in plan_tables(system, rows, summary, ticks):
        out.print(table, highlight=False)


@app.command()
@friendly
def policies(as_json: AsJson = False) -> None:
    """List the timelines, schedulers, weightings, combiners, codecs, models, frameworks and profiles to choose from."""
    from fedtide.codec.registry import CODECS
    from fedtide.learning.model import MODELS
    from fedtide.policy.combining import COMBINERS
    from fedtide.policy.scheduling import SCHEDULERS
    from fedtide.policy.weighting import WEIGHTINGS
    from fedtide.timeline import TIMELINES

    kinds: dict[str, dict[str, Any]] = {
        "timeline.name": TIMELINES,
        "policy.scheduler": SCHEDULERS,
        "policy.weighting": WEIGHTINGS,
        "policy.combiner": COMBINERS,
        "codec.name": CODECS,
        "learning.model": MODELS,
    }
    listed = {key: {name: _first_sentence(each) for name, each in known.items()} for key, known in kinds.items()}
    listed["framework"] = {name: _flat(tree) or "the defaults" for name, tree in config.FRAMEWORKS.items()}
    listed["profile"] = {name: _flat(tree) or "the defaults" for name, tree in config.PROFILES.items()}
    if as_json:
        print_json(listed)
        return
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)  # every column counts in 80
    for heading in ("key", "value"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what it does", overflow="fold")  # a value too long for the line is wrapped, not cut off
    for key, choices in listed.items():
        for position, (name, text) in enumerate(choices.items()):
            table.add_row(f"[bold]{key}[/]" if position == 0 else "", f"[cyan]{name}[/]", escape(text))
    out.print(table, highlight=False)
    out.print("\nYour own: path/to/file.py:name, package.module:name, or an entry point of the group fedtide.<kind>.")


def _first_sentence(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split())


def _flat(tree: dict[str, Any]) -> str:
    return ", ".join(f"{group}.{key}={value}" for group, keys in tree.items() for key, value in keys.items())


def _list_keys(as_json: bool) -> None:
    fields = config.all_keys()
    defaults = config.dump(Experiment())
    rows = {}
    for key, field in fields.items():
        group, _, leaf = key.rpartition(".")
        rows[key] = {"default": defaults[group][leaf] if group else defaults[leaf], "about": field.description}
    _print_keys(rows, as_json)


def _print_keys(rows: dict[str, dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, padding=(0, 2))
    table.add_column("key", style="cyan")
    table.add_column("default", overflow="fold")
    table.add_column("meaning")
    for key, row in rows.items():
        table.add_row(key, escape(str(row["default"])), escape(row["about"] or ""))
    out.print(table, highlight=False)


@app.command()
@friendly
def data(
    folder: Annotated[Path | None, typer.Option("--folder", help="A folder with MNIST's IDX files to use.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Only say what is cached; fetch nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch MNIST (byte-exact, checksums verified) into the cache, or say where it is."""
    from fedtide.data.mnist import load_mnist, locate

    if not status:
        load_mnist(folder, say=say)
    found = locate(folder)
    states = {file.name: file.problem or "verified" for file in found.files}
    if as_json:
        print_json({"folder": str(found.folder), "complete": found.complete, "files": states})
        return
    table = Table(box=None, padding=(0, 2), title=f"MNIST in {found.folder}", title_justify="left")
    for heading in ("file", "state"):
        table.add_column(heading)
    for name, state in states.items():
        table.add_row(name, "[green]verified[/]" if state == "verified" else f"[yellow]{escape(state)}[/]")
    out.print(table, highlight=False)


@app.command()
@friendly
def theory(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="What differs from the default task.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for theory.json and the figures.")
    ] = None,
    as_json: AsJson = False,
    show_keys: Annotated[bool, typer.Option("--keys", help="List every key with its default, and stop.")] = False,
) -> None:
    """Evaluate Theorem 1: every constant and how it was obtained, the step-size condition, bound against measurement.

    [dim]fedtide theory task=softmax num_levels=8 --out theory[/]
    """
    if show_keys:
        from fedtide.theory.options import Options

        fields = Options.model_fields
        _print_keys(
            {key: {"default": each.default, "about": each.description} for key, each in fields.items()}, as_json
        )
        return
    from fedtide.theory.command import run as evaluate

    evaluate(list(words or []), folder, out, as_json, say)


app.add_typer(study_app, name="study")
app.add_typer(deploy_app, name="deploy")
app.command()(replay)
app.command()(paper)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from fedtide import __version__

        out.print(__version__, highlight=False)
        raise typer.Exit(0)


def main() -> None:
    """Run the command line."""
    app()
