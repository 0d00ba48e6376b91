"""`fedtide advise`: what to set in a network."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from fedtide.cli import options
from fedtide.cli.command import command
from fedtide.cli.console import err, print_json, print_line, print_table, say

if TYPE_CHECKING:
    from fedtide.studies.advice import Advice


@command("advise")
@options.words
@click.option("--target", type=float, help="Target accuracy, such as 0.9.")
@click.option(
    "--for",
    "goal",
    type=click.Choice(["accuracy", "time", "airtime", "joules"]),
    default="accuracy",
    help="Objective: the mean accuracy over the horizon, or the cost of reaching --target.",
)
@click.option(
    "--budget",
    default="20m",
    help="How long to search, such as 90s, 20m or 2h of wall-clock time with all workers busy.",
)
@click.option("--only", help="Settings to advise on, separated by commas, such as limit,period. Default: all.")
@options.out_option("Output folder.", default=Path("advice"))
@click.option("--store", "-s", type=options.PATH, help="Folder of the stored results (default: results in --out).")
@click.option(
    "--workers",
    "-j",
    type=click.IntRange(1, 1000),
    default=options.CORES,
    help="Number of parallel runs, one thread each.",
)
@options.as_json
def advise_command(
    words: tuple[str, ...],
    target: float | None,
    goal: str,
    budget: str,
    only: str | None,
    folder: Path,
    store: Path | None,
    workers: int,
    as_json: bool,
) -> None:
    """Advise what to set in a network: period, limit, schedule, codec, server, age weights, learning rate, local epochs.

    fedtide advise scenario=macro_cell --budget 20m
    fedtide advise experiment.yaml --for joules --target 0.85

    Plans rule most settings out, short runs find good ones, a race decides, and fresh seeds confirm the gain over the
    given experiment. All settings use the airtime of that experiment. Writes advice.yaml (an experiment for `fedtide run`),
    advice.json and advice.html. You can stop it at any time; the same command continues.
    """
    from fedtide import config
    from fedtide.cli.progress import study_progress
    from fedtide.pages.advice import advise as find_advice
    from fedtide.studies.advise import AdviceProgress
    from fedtide.studies.race_input import race_budget
    from fedtide.studies.run import Outcome

    base = config.read_words(words)
    done, leader, phase = 0, "", ""
    with study_progress("advise", None, race_budget(budget).seconds * workers) as advance:

        def on_done(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            took = (outcome.result.totals.get("seconds") if outcome.result else None) or 0.0
            advance(took, done, f"{phase}; {leader}" if leader else phase)

        def on_step(standing: AdviceProgress) -> None:
            nonlocal leader, phase
            phase = standing.phase
            leader = f"{standing.leader} leads, {standing.gain}".rstrip(", ") if standing.leader else ""
            advance(0.0, done, f"{phase}; {leader}" if leader else phase)
            if not err.is_terminal:
                left = max(race_budget(budget).seconds * workers - standing.seconds, 0.0) / workers / 60
                say(f"{phase}, {standing.num_runs} runs, {left:.0f} min left at most{leader and f': {leader}'}")

        try:
            found = find_advice(
                base, target, goal, budget, only=[name.strip() for name in only.split(",")] if only else None, store=store,
                out=folder, workers=workers, command=_command(words, target, goal, budget, only, folder, store, workers),
                say=say, on_step=on_step, on_done=on_done,
            )  # fmt: skip
        except KeyboardInterrupt:
            so_far = f" So far: {leader}." if leader else ""
            say(f"stopped.{so_far} Finished runs are kept: the same command continues")
            raise
    if as_json:
        print_json(json.loads((folder / "advice.json").read_text()))
        return
    _print_advice(found, folder)


def _command(
    words: tuple[str, ...],
    target: float | None,
    goal: str,
    budget: str,
    only: str | None,
    folder: Path,
    store: Path | None,
    workers: int,
) -> str:
    values = {
        "for": goal,
        "budget": budget,
        "target": target,
        "only": only,
        "out": folder,
        "store": store,
        "workers": workers,
    }
    given = [f"--{name}={value}" for name, value in values.items() if value is not None]
    return shlex.join(["fedtide", "advise", *words, *given])


def _print_advice(found: Advice, folder: Path) -> None:
    from fedtide.report.terminal import TableColumn
    from fedtide.studies.advice import gain_text

    share = "" if found.worth_share == 1 else f" over {found.worth_share:.0%} of the horizon"
    columns = [
        TableColumn("setting"),
        TableColumn("base"),
        TableColumn("advice"),
        TableColumn(f"worth{share} (95 % interval)", wraps=True),
    ]
    rows = [
        (
            row.choice,
            row.base,
            "as it is" if row.advice == row.base else f"[bold]{escape(row.advice)}[/]",
            gain_text(row.gain),
        )
        for row in found.worth
    ]
    print_table(columns, rows, f"Advice for {found.goal}")
    print_line(escape(found.headline))
    for line in found.doubts:
        print_line(f"[dim]{escape(line)}[/]")
    pruned = found.pruned
    why = ", ".join(f"{count:,} {reason}" for reason, count in pruned.reasons.items())
    print_line(
        f"[dim]{pruned.considered:,} settings considered, {pruned.left:,} left by plans{why and f' ({escape(why)})'}[/]"
    )
    print_line(f"[dim]{escape(str(folder / 'advice.html'))}\nfedtide run {escape(str(folder / 'advice.yaml'))}[/]")
