"""The command line. Tables and progress go to people, `--json` to programs; a user's mistake is one line and an exit code.

Exit codes: 0 done, 1 a defect of fedtide (or `replay` gave other bits, or a certificate does not hold), 2 bad input, 3 data
cannot be had, 4 run folder cannot be used, 5 training or a policy of your own went wrong, 6 the machine cannot (rights,
space, memory, output), 130 interrupted, 143 terminated.

Modules of the command line import at their top only what `fedtide --help` needs; a command imports the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click
from rich.markup import escape

from fedtide.cli import options
from fedtide.cli.advise import advise_command
from fedtide.cli.command import Group
from fedtide.cli.console import out, print_json, print_line, print_table, say, tell, warn
from fedtide.cli.deploy import deploy, replay
from fedtide.cli.judge import judge_command
from fedtide.cli.pages import explore, report, scenario
from fedtide.cli.race import race_command
from fedtide.cli.study import study
from fedtide.core import faults, signals
from fedtide.errors import FedtideError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from fedtide.config import Experiment
    from fedtide.runs import RoundRecord, RunHeader
    from fedtide.runs.result import Result


class Commands(Group):
    """All commands: ours, and those of installed packages (entry points of the group `fedtide.commands`)."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {
        "One run": ("run", "resume", "show", "plan"),
        "Many runs": ("study", "race", "advise", "judge"),
        "Pages for a browser": ("report", "explore"),
        "What there is to choose from": ("parts", "scenario", "data"),
        "Real devices": ("deploy", "replay"),
    }
    others: ClassVar[str] = "Laboratory and installed packages"

    @cached_property
    def installed(self) -> dict[str, EntryPoint]:
        """What installed packages bring, by name; ours cannot be replaced."""
        from importlib.metadata import entry_points

        return {
            point.name: point for point in entry_points(group="fedtide.commands") if point.name not in self.commands
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List our commands, then the others."""
        return [*self.commands, *sorted(self.installed)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one that cannot be loaded says so when it is called, and leaves the others alone."""
        if cmd_name in self.commands or cmd_name not in self.installed:
            return self.commands.get(cmd_name)
        try:
            found = self.installed[cmd_name].load()
            if not isinstance(found, click.Command):
                raise TypeError(f"{self.installed[cmd_name].value} is not a click command")
        except (Exception, SystemExit) as error:
            return _broken(self.installed[cmd_name], error)
        return found


def _broken(point: EntryPoint, error: BaseException) -> click.Command:
    line = (
        f"the command {point.name!r} cannot be loaded from {point.value} ({faults.fault_text(error)}): "
        "repair or remove the package that brings it"
    )

    def fail() -> None:
        told = FedtideError(line)
        told.exit_code = faults.MACHINE
        raise told from error

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(point.name, callback=fail, help=line, context_settings=anything)


@click.group(
    "fedtide",
    cls=Commands,
    invoke_without_command=True,
    context_settings={"show_default": True, "max_content_width": 100},
    epilog="Start with `fedtide run` (the paper's default experiment), predict with `fedtide plan`, list the building blocks "
    "with `fedtide parts`.",
)
@click.option("--version", is_flag=True, help="Print the version, the kernel and its CPU instruction set, and exit.")
def app(version: bool) -> None:
    """Simulate asynchronous federated learning over wireless links, compare methods, and run them on real devices."""
    if version:
        click.echo(_version_line())
        raise click.exceptions.Exit(0)


def _version_line() -> str:
    """Return the version, and the instruction path that the kernel takes here."""
    from fedtide import __version__
    from fedtide.extension import native

    paths = native.isas()
    wanted = os.environ.get("FEDTIDE_ISA") or paths[0]
    if wanted not in paths:
        return f"fedtide {__version__}, native kernel, FEDTIDE_ISA={wanted} is not among its paths {', '.join(paths)}"
    return f"fedtide {__version__}, native kernel, instruction path {wanted} (of {', '.join(paths)})"


def _experiment(words: Sequence[str]) -> Experiment:
    from fedtide import config

    return config.experiment(config.read_words(words))


@app.command()
@options.words
@options.out_option("Run folder (default: a folder in runs/, named after the experiment).")
@options.threads
@options.as_json
@click.option("--keys", "show_keys", is_flag=True, help="List every key with its default and exit.")
def run(words: tuple[str, ...], folder: Path | None, threads: int, as_json: bool, show_keys: bool) -> None:
    """Run an experiment: train the model, record the run and show its accuracy.

    With no arguments, runs the paper's default experiment: 40 devices, non-i.i.d. MNIST, periodic aggregation, the
    proposed scheduler.

    fedtide run policy.scheduler=random seed=3
    fedtide run framework=fedasync data.partition=iid
    fedtide run scenario=phones policy.limit=5
    fedtide run experiment.yaml policy.scheduler=my_policy.py:freshest_first

    An interrupted experiment continues where it stopped; a finished one is shown again.
    """
    if show_keys:
        from fedtide.cli.parts import list_keys

        list_keys(as_json)
        return
    from fedtide.cli.progress import default_folder
    from fedtide.engine.simulate import simulate

    experiment = _experiment(words)
    folder = folder or default_folder(experiment)
    if not _is_shown(experiment, folder, as_json):
        with _training(experiment, folder, as_json) as (advance, done):
            done(simulate(experiment, folder, threads=threads, say=say, on_round=advance, warn=warn))


@app.command()
@options.run_argument
@options.threads
@options.as_json
def resume(run: Path, threads: int, as_json: bool) -> None:
    """Continue an interrupted run. The result is the same as without the interruption."""
    from fedtide.engine.simulate import simulate
    from fedtide.parts import user_code
    from fedtide.runs import read_run_header

    header = read_run_header(run)
    experiment = header.experiment
    with user_code.search_user_folder(header.versions.files_folder):
        if not _is_shown(experiment, header, as_json):
            with _training(experiment, run, as_json) as (advance, done):
                done(simulate(experiment, header, threads=threads, say=say, on_round=advance, warn=warn))


def _is_shown(experiment: Experiment, where: Path | RunHeader, as_json: bool) -> bool:
    """Show the run in a folder, or the one whose header was read, if it is complete; say whether it was."""
    from fedtide.runs import is_complete, is_deployment_folder, read_run, read_run_header
    from fedtide.runs.result import as_result

    folder = where if isinstance(where, Path) else where.path
    if not is_complete(folder) or is_deployment_folder(folder):
        return False
    header = read_run_header(where) if isinstance(where, Path) else where
    header.check(experiment, _identity(header) if isinstance(where, Path) else None)
    _show(folder, as_result(read_run(header)), header.isa, as_json, draw=True)
    return True


@contextmanager
def _training(
    experiment: Experiment, folder: Path, as_json: bool
) -> Iterator[tuple[Callable[[RoundRecord, int], None], Callable[[Result], None]]]:
    """Show how a run goes, and its result, which is handed to the second of what this gives."""
    from fedtide.cli.progress import shown_progress
    from fedtide.config.workload import long_workload
    from fedtide.runs.manifest import manifest_instruction_path

    begun, done = time.perf_counter(), list[Any]()
    if long := long_workload(experiment):
        say(long)
    try:
        with shown_progress("training", experiment.timeline.horizon) as advance:
            yield advance, done.append
    except KeyboardInterrupt as error:
        if signals.is_foreign_signal(error):
            raise
        tell(f"[yellow]stopped.[/] Everything so far is saved; continue with: fedtide resume {escape(str(folder))}")
        raise click.exceptions.Exit(signals.signal_exit_code()) from None
    trained, result = time.perf_counter(), done[0]
    _show(folder, result, manifest_instruction_path(experiment), as_json, draw=True)
    if not as_json:
        spent = {**result.seconds, "figure and table": time.perf_counter() - trained}
        out.print(f"[dim]{_wall_time(spent, time.perf_counter() - begun)}[/]", highlight=False)


def _wall_time(spent: dict[str, float], total: float) -> str:
    """Say where the time went; the parts add up."""
    stages = {stage: seconds for stage, seconds in spent.items() if seconds >= 0.05 and stage != "other"}
    stages["other"] = total - sum(stages.values())
    told = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in stages.items() if seconds >= 0.05)
    return f"wall time {total:.1f} s: {told}"


def _draw(folder: Path, experiment: Experiment, rounds: Sequence[RoundRecord]) -> None:
    """Draw the figure of a finished run, if there is none or only a part; a run without a figure is still a run."""
    from fedtide.plot.figure import is_whole_figure
    from fedtide.plot.run import run_figure

    path = folder / "curve.png"
    if is_whole_figure(path):
        return
    try:
        run_figure(experiment, rounds, path)
    except (FedtideError, OSError) as error:
        warn(f"no figure: {faults.explain_fault(error)[0]}; the run itself is complete")


def _identity(header: RunHeader) -> dict[str, str] | None:
    """Return what the experiment of a run makes here, if a caller in Python handed over data, a system or a trainer."""
    if not header.versions.handed:  # the experiment made everything itself
        return None
    from fedtide.engine.system import build, make_trainer
    from fedtide.runs import run_identity

    system = build(header.experiment, say=say)
    return run_identity(system, make_trainer(system))


@app.command()
@options.run_argument
@options.style
@options.as_json
def show(run: Path, style: str, as_json: bool) -> None:
    """Show the numbers and the accuracy curve of a run. With --style ieee or another print style, also write curve-STYLE.pdf."""
    from fedtide.runs import read_run
    from fedtide.runs.result import as_result

    kept = read_run(run)
    _show(run, as_result(kept), kept.isa, as_json)
    if style != "screen":
        from fedtide.plot.run import run_figure

        path = run / f"curve-{style}.pdf"
        run_figure(kept.experiment, kept.rounds, path, style)
        say(f"drawn: {path}")


def _show(folder: Path, run: Result, isa: str | None, as_json: bool, draw: bool = False) -> None:
    from fedtide.report.summary import chance_accuracy, evaluated_rounds, stale_warning, summarise
    from fedtide.report.terminal import terminal_curve, terminal_summary
    from fedtide.runs import is_deployment_folder

    if run.complete and (draw or (folder / "curve.png").exists()):
        _draw(folder, run.experiment, run.rounds)
    summary = summarise(run.experiment, run.rounds, len(run.model) or None, isa)
    if as_json:
        print_json({"folder": str(folder), "complete": run.complete, **summary})
        return
    scored = evaluated_rounds(run.rounds)
    times, accuracies = [record.time for record in scored], [record.test_accuracy or 0.0 for record in scored]
    out.print(terminal_curve(times, accuracies, out.width, chance_accuracy(run.experiment)))
    how = "start its ServerApp again" if is_deployment_folder(folder) else f"fedtide resume {folder}"
    state = "complete" if run.complete else f"stopped at time {summary['time']:g}: {how}"
    out.print(terminal_summary(f"{folder} ({state})", summary, out.width), highlight=False)
    if old := stale_warning(summary["largest_age"], summary["aggregations"]):
        warn(old)
    if (folder / "curve.png").exists():
        print_line(f"[dim]figure: {escape(str(folder / 'curve.png'))}[/]")


@app.command()
@options.words
@options.as_json
@click.option("--ticks", type=click.IntRange(0), default=12, help="Number of aggregations to list.")
@click.option(
    "--time", "timed", is_flag=True, help="Measure how fast this machine trains and estimate the duration of the run."
)
def plan(words: tuple[str, ...], as_json: bool, ticks: int, timed: bool) -> None:
    """Predict who uploads, what arrives and what it costs in symbols, airtime and energy, without training.

    fedtide plan radio.num_symbols=50000 policy.limit=20
    fedtide plan policy.limit=2,4,8 policy.scheduler=random,proposed

    With several comma-separated values of a key, prints a table with one row per combination.
    """
    from fedtide import config
    from fedtide.aggregate.hierarchical import idle_edges_warning
    from fedtide.report.plan import plan_experiment
    from fedtide.report.plan_text import plan_tables
    from fedtide.report.summary import stale_warning

    threads = options.CORES if timed else None
    single, axes = config.split_axes(words)
    if axes:
        _compare_plans(single, axes, as_json, threads)
        return
    made = plan_experiment(_experiment(words), say, threads)
    if as_json:
        print_json({"summary": made.summary, "aggregations": made.rows})
        return
    for table in plan_tables(made, ticks, out.width):
        out.print(table, highlight=False)
    if old := stale_warning(made.summary["largest_age"], made.summary["aggregations"]):
        warn(old)
    if idle := idle_edges_warning(made.summary.get("uploads_per_edge") or ()):
        warn(idle)


def _compare_plans(words: Sequence[str], axes: dict[str, list[Any]], as_json: bool, threads: int | None) -> None:
    """Print the plans of every combination of some keys' values in one table."""
    from fedtide import config
    from fedtide.report.terminal import TableColumn
    from fedtide.studies.plans import plan_study
    from fedtide.studies.spec import cross_study

    base = config.read_words(words)
    seeds = axes.pop("seed", [base.get("seed", 0)])
    made = plan_study(cross_study("plans", base, axes, {}, seeds), say, threads)
    if as_json:
        rows = zip(made.rows(), made.plans, strict=True)
        print_json({"plans": [{**row, "summary": plan.summary} for row, plan in rows]})
        return
    headings, cells, same = made.table()
    columns = [TableColumn(heading, right=True) for heading in headings]
    print_table(columns, [[*map(escape, row)] for row in cells], "Plans (nothing trained)")
    if same:
        out.print(f"[dim]{escape(same)}[/]", highlight=False)


@app.command()
@options.cli_argument("kind", "[KIND]", "One kind in detail, such as scheduler or channel.", required=False)
@options.as_json
def parts(kind: str | None, as_json: bool) -> None:
    """List the parts of an experiment: every kind, its implementations, their parameters, and how to add your own.

    fedtide parts
    fedtide parts scheduler
    fedtide run 'policy.scheduler={name: age_based, pool_share: 0.3}'
    fedtide run radio.channel=my_channel.py:rician

    Parts from installed packages (entry points fedtide.KIND) are listed, too.
    """
    from fedtide.cli.parts import list_parts

    list_parts(kind, as_json)


@app.command()
@options.cli_argument("names", "[NAME]...", "mnist, fashion_mnist, cifar10, shakespeare. Default: mnist.", nargs=-1)
@click.option("--folder", type=options.PATH, help="A folder that already has the official files.")
@click.option("--status", is_flag=True, help="Show what is cached; download nothing.")
@options.as_json
def data(names: tuple[str, ...], folder: Path | None, status: bool, as_json: bool) -> None:
    """Download data sets to the cache and verify their checksums, or show where they are.

    fedtide data
    fedtide data fashion_mnist cifar10
    """
    from fedtide.data import fetched
    from fedtide.report.terminal import TableColumn

    found = {name: fetched(name, folder, None if status else say) for name in names or ["mnist"]}
    if as_json:
        told: list[dict[str, Any]] = [
            {
                "folder": str(state.folder),
                "complete": state.complete,
                "files": {file: problem or "verified" for file, problem in state.problems.items()},
                "name": name,
            }
            for name, state in found.items()
        ]
        print_json(told if len(told) > 1 else told[0])
        return
    for state in found.values():
        rows = [
            (escape(file), f"[yellow]{escape(problem)}[/]" if problem else "[green]verified[/]")
            for file, problem in state.problems.items()
        ]
        print_table((TableColumn("file"), TableColumn("state", wraps=True)), rows, f"{state.title} in {state.folder}")


for command in (study, race_command, advise_command, judge_command, report, explore, scenario, deploy, replay):
    app.add_command(command)
