"""The command line. Tables and progress go to people, `--json` to programs; a user's mistake is one line and an exit code.

Exit codes: 0 done, 1 a defect of fedtide (or `replay` gave other bits), 2 bad input, 3 data cannot be had, 4 run folder
cannot be used, 5 training or a policy of your own went wrong, 6 the machine cannot (rights, space, memory, output),
130 interrupted, 143 terminated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedtide.cli.command import CORES, AsJson, Border, err, friendly, out, print_json, say, uncollected, warn
from fedtide.cli.drawing import SCREEN_STYLE, DrawingStyle
from fedtide.cli.progress import shown_progress
from fedtide.core import signals
from fedtide.core.faults import explain
from fedtide.errors import FedtideError
from fedtide.parts import user_code

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.runs import RoundRecord, RunHeader
    from fedtide.runs.result import Result


class Commands(Border):
    """All commands; those below need much that the others do not."""

    later = {  # noqa: RUF012
        "report": (
            "fedtide.cli.pages",
            "report",
            "Write a page to look at in a browser, one file without network: of a run, of two runs or of a study.",
        ),
        "explore": (
            "fedtide.cli.pages",
            "explore",
            "Open the page of a run, of two runs or of a study in the browser.",
        ),
        "replay": (
            "fedtide.cli.deploy",
            "replay",
            "Play a deployment's trace again in the simulator: to the bit, or with another scheduler, weighting or codec.",
        ),
        "worlds": (
            "fedtide_lab.commands",
            "worlds",
            "Ask whether the paper's conclusions survive: its main comparisons with other data, radio or devices.",
        ),
        "league": (
            "fedtide_lab.commands",
            "league",
            "Ask which method to deploy: schedulers, servers, codecs and local methods, ranked with paired intervals.",
        ),
        "paper": (
            "fedtide_lab.commands",
            "paper",
            "Reproduce the paper: run what is missing, draw its figures with error bars, and decide its claims.",
        ),
        "study": (
            "fedtide.cli.study",
            "study_app",
            "Many runs from one file: a base experiment, axes or variants, seeds. Finished runs are never repeated.",
        ),
        "scenario": (
            "fedtide.cli.pages",
            "scenario_app",
            "Worlds to learn in: data, devices and radio of a paper's system section, by one name.",
        ),
        "deploy": (
            "fedtide.cli.deploy",
            "deploy_app",
            "Run the policies on real devices with Flower (needs the extra `flower`).",
        ),
    }


app = typer.Typer(
    name="fedtide",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Asynchronous federated learning over wireless networks: simulate it, compare policies, trust the plot.",
    epilog="Start with [bold]fedtide run[/bold] (the paper's default experiment), look ahead with [bold]fedtide plan[/bold], "
    "list what you can choose with [bold]fedtide parts[/bold].\n\n"
    "Exit codes: 0 done, 1 a defect of fedtide, 2 bad input, 3 data, 4 run folder, 5 training or a policy of yours, "
    "6 the machine cannot, 130 interrupted, 143 terminated.",
)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE] [KEY=VALUE]...", help="An experiment file (YAML), then keys that differ from it."),
]
Threads = Annotated[
    int, typer.Option("--threads", "-j", min=1, help="Devices trained at a time. Does not change results.")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def _experiment(words: list[str] | None) -> Experiment:
    from fedtide import config

    return config.experiment(config.read_words(words or []))


@app.command()
@friendly
def run(
    words: Overrides = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run folder (default: runs/, named by what it holds)."),
    ] = None,
    threads: Threads = CORES,
    as_json: AsJson = False,
    show_keys: Annotated[bool, typer.Option("--keys", help="List every key with its default, and stop.")] = False,
) -> None:
    """Run an experiment: train, record, and show the curve.

    Without words it is the paper's default: 40 devices, non-i.i.d. MNIST, periodic aggregation, the proposed scheduler.

    [dim]fedtide run policy.scheduler=random seed=3[/]
    [dim]fedtide run framework=fedasync data.partition=iid[/]
    [dim]fedtide run scenario=phones policy.limit=5[/]
    [dim]fedtide run experiment.yaml policy.scheduler=my_policy.py:freshest_first[/]

    The same experiment continues where it stopped; a finished one is shown again.
    """
    if show_keys:
        from fedtide.cli.parts import list_keys

        list_keys(as_json)
        return
    from fedtide.cli.progress import default_folder

    experiment = _experiment(words)
    _run(experiment, folder or default_folder(experiment), threads, as_json)


@app.command()
@friendly
def resume(run: RunPath, threads: Threads = CORES, as_json: AsJson = False) -> None:
    """Continue a run that was stopped or killed; the result is the same as if it had not been."""
    from fedtide.runs import read_header

    header = read_header(run)
    with user_code.search_folder(header.user_folder):
        _run(header.experiment, header, threads, as_json)


def _run(experiment: Experiment, where: Path | RunHeader, threads: int, as_json: bool) -> None:
    """Run an experiment in a folder, or go on with the run whose header was read."""
    from fedtide.config.effort import long_work
    from fedtide.engine.simulate import simulate
    from fedtide.runs import is_complete, is_deployment, read_header, read_run
    from fedtide.runs.manifest import instruction_path
    from fedtide.runs.result import as_result

    folder = where if isinstance(where, Path) else where.path
    if is_complete(folder) and not is_deployment(folder):
        header = read_header(where) if isinstance(where, Path) else where
        header.check(experiment, _identity(header) if isinstance(where, Path) else None)
        _show(folder, as_result(read_run(header)), header.isa, as_json, draw=True)
        return
    begun = time.perf_counter()
    if long := long_work(experiment):
        say(long)
    try:
        with shown_progress("training") as advance:
            result = simulate(experiment, where, threads=threads, say=say, on_round=advance, warn=warn)
    except KeyboardInterrupt as error:
        if signals.foreign(error):
            raise
        err.print(
            f"[yellow]stopped.[/] Everything so far is saved; continue with: fedtide resume {escape(str(folder))}",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(signals.exit_code()) from None
    trained = time.perf_counter()
    _show(folder, result, instruction_path(experiment), as_json, draw=True)
    if not as_json:
        spent = {**result.seconds, "figure and table": time.perf_counter() - trained}
        out.print(f"[dim]{_wall_time(spent, time.perf_counter() - begun)}[/]", highlight=False)


def _wall_time(spent: dict[str, float], total: float) -> str:
    """Say where the time went; the parts add up."""
    stages = {stage: seconds for stage, seconds in spent.items() if seconds >= 0.05 and stage != "other"}
    rest = total - sum(stages.values())
    parts = [f"{stage} {seconds:.1f} s" for stage, seconds in stages.items()]
    return f"wall time {total:.1f} s: {', '.join([*parts, *([f'other {rest:.1f} s'] if rest >= 0.05 else [])])}"


def _draw(folder: Path, experiment: Experiment, rounds: Sequence[RoundRecord]) -> None:
    """Draw the figure of a finished run, if there is none or only a part; a run without a figure is still a run."""
    from fedtide.plot.figure import is_whole_figure, run_figure

    path = folder / "curve.png"
    if is_whole_figure(path):
        return
    try:
        run_figure(experiment, rounds, path)
    except (FedtideError, OSError) as error:
        warn(f"no figure: {explain(error)[0]}; the run itself is complete")


def _identity(header: RunHeader) -> dict[str, str] | None:
    """Return what the experiment of a run makes here, if a caller in Python handed over data, a system or a trainer."""
    if not header.versions.handed:  # the experiment made everything itself
        return None
    from fedtide.engine.system import build, make_trainer
    from fedtide.runs import identity

    system = build(header.experiment, say=say)
    return identity(system, make_trainer(system))


@app.command()
@friendly
def show(run: RunPath, style: DrawingStyle = SCREEN_STYLE, as_json: AsJson = False) -> None:
    """Show a run, finished or not: its numbers and its curve. With a --style for print, draw curve-STYLE.pdf beside it."""
    from fedtide.runs import read_run
    from fedtide.runs.result import as_result

    kept = read_run(run)
    _show(run, as_result(kept), kept.isa, as_json)
    if style != SCREEN_STYLE:
        from fedtide.plot.figure import run_figure

        path = run / f"curve-{style}.pdf"
        run_figure(kept.experiment, kept.rounds, path, style)
        say(f"drawn: {path}")


def _show(folder: Path, run: Result, isa: str | None, as_json: bool, draw: bool = False) -> None:
    from fedtide.report.ages import stale
    from fedtide.report.summary import chance, evaluated, summarise
    from fedtide.report.terminal import curve_lines, summary_table
    from fedtide.runs import is_deployment

    if run.complete and (draw or (folder / "curve.png").exists()):
        _draw(folder, run.experiment, run.rounds)
    summary = summarise(run.experiment, run.rounds, len(run.model) or None, isa)
    if as_json:
        print_json({"folder": str(folder), "complete": run.complete, **summary})
        return
    scored = evaluated(run.rounds)
    times, accuracies = [each.time for each in scored], [each.test_accuracy or 0.0 for each in scored]
    out.print(curve_lines(times, accuracies, out.width, chance(run.experiment)))
    how = "start its ServerApp again" if is_deployment(folder) else f"fedtide resume {folder}"
    state = "complete" if run.complete else f"stopped at time {summary['time']:g}: {how}"
    out.print(summary_table(f"{folder} ({state})", summary, out.width), highlight=False)
    if old := stale(summary["largest_age"], summary["aggregations"]):
        warn(old)
    if (folder / "curve.png").exists():
        # A path is copied: only the terminal may break it.
        out.print(f"[dim]figure: {escape(str(folder / 'curve.png'))}[/]", highlight=False, soft_wrap=True)


@app.command()
@friendly
def plan(
    words: Overrides = None,
    as_json: AsJson = False,
    ticks: Annotated[int, typer.Option("--ticks", min=0, help="How many aggregations to list.")] = 12,
) -> None:
    """Show the timeline, ages, bits, kept share and airtime of an experiment in a moment; nothing is trained.

    [dim]fedtide plan radio.num_symbols=50000 policy.limit=20[/]
    """
    with uncollected():
        from fedtide.engine.system import build, load_dataset
        from fedtide.report.ages import stale
        from fedtide.report.plan import plan_rows, plan_summary, plan_tables

        experiment = _experiment(words)
    system = build(experiment, dataset=load_dataset(experiment, say, images=False))
    rows = plan_rows(system)
    summary = plan_summary(system, rows)
    if as_json:
        print_json({"summary": summary, "aggregations": rows})
        return
    for table in plan_tables(system, rows, summary, ticks, out.width):
        out.print(table, highlight=False)
    if old := stale(summary["largest_age"], summary["aggregations"]):
        warn(old)


@app.command()
@friendly
def parts(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="One kind in detail, such as scheduler or channel.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what an experiment is made of: every kind of part, what there is to choose, its parameters, and how to add yours.

    [dim]fedtide parts[/]
    [dim]fedtide parts scheduler[/]
    [dim]fedtide run 'policy.scheduler={name: age_based, pool_share: 0.3}'[/]
    [dim]fedtide run radio.channel=my_channel.py:rician[/]

    Parts of installed packages (entry points of the groups fedtide.KIND) are listed as ours are.
    """
    from fedtide.cli.parts import list_parts

    list_parts(kind, as_json)


@app.command(hidden=True)
@friendly
def policies(as_json: AsJson = False) -> None:
    """List all that is chosen by name in one table, by key; frameworks and profiles too. `fedtide parts` tells more.

    [dim]fedtide policies --json[/]
    """
    from fedtide.cli.parts import list_policies

    list_policies(as_json)


@app.command()
@friendly
def data(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="mnist, fashion_mnist, cifar10, shakespeare. Default: mnist."),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="A folder with the set's official files.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Only say what is cached; fetch nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch MNIST or other data sets (byte-exact, checksums verified) into the cache, or say where they are.

    [dim]fedtide data[/]
    [dim]fedtide data fashion_mnist cifar10[/]
    """
    from fedtide.data import fetched
    from fedtide.report.terminal import TableColumn, listed

    found = {name: fetched(name, folder, None if status else say) for name in names or ["mnist"]}
    states = {name: {file.name: file.problem or "verified" for file in each.files} for name, each in found.items()}
    if as_json:
        told = [
            {"folder": str(each.folder), "complete": each.complete, "files": states[name], "name": name}
            for name, each in found.items()
        ]
        print_json(told if len(told) > 1 else told[0])
        return
    for name, each in found.items():
        rows = [
            (escape(file), "[green]verified[/]" if state == "verified" else f"[yellow]{escape(state)}[/]")
            for file, state in states[name].items()
        ]
        columns = (TableColumn("file"), TableColumn("state", wraps=True))
        out.print(listed(columns, rows, out.width, escape(f"{each.title} in {each.folder}")), highlight=False)


@app.command()
@friendly
def theory(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="What differs from the default task.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for theory.json and the figures.")
    ] = None,
    style: DrawingStyle = SCREEN_STYLE,
    as_json: AsJson = False,
    show_keys: Annotated[bool, typer.Option("--keys", help="List every key with its default, and stop.")] = False,
) -> None:
    """Evaluate Theorem 1: every constant and how it was obtained, the step-size condition, bound against measurement.

    [dim]fedtide theory task=softmax num_levels=8 --out theory[/]
    """
    if show_keys:
        from fedtide.cli.parts import key_row, print_keys
        from fedtide_lab.theory.options import Options

        fields = Options.model_fields
        print_keys({key: key_row(each.default, each) for key, each in fields.items()}, as_json)
        return
    from fedtide.plot.style import style_named
    from fedtide_lab.theory.command import run_theory as evaluate

    evaluate(list(words or []), folder, out, as_json, say, style_named(style).name)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, the kernel and its instruction path, and stop.")
    ] = False,
) -> None:
    if version:
        from fedtide.cli.version import version_line

        out.print(version_line(), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(0)


def main() -> None:
    """Run the command line."""
    from fedtide.__main__ import main

    main()
