"""`fedtide race`: the best of some candidates, with few runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from fedtide.cli import command, options
from fedtide.cli.console import err, out, print_json, print_table, say
from fedtide.cli.study import margin_option, metric_option, told_if_stopped
from fedtide.errors import FedtideError

if TYPE_CHECKING:
    from fedtide.studies.race import RaceResult, RaceRow
    from fedtide.studies.run import Outcome
    from fedtide.studies.spec import Study


@command.command("race")
@options.cli_argument(
    "words",
    "FILE | [FILE] KEY=VALUE,VALUE...",
    "A study file, whose variants and axes are the candidates (its seeds are not used); or keys of an experiment, some with "
    "several values: every combination is a candidate.",
    nargs=-1,
    required=True,
)
@click.option("--seeds", "-n", type=click.IntRange(1), default=20, help="Maximum number of seeds per candidate.")
@click.option("--budget", help="Maximum number of runs (40), or total core time (90s, 20m, 1.5h).")
@metric_option
@margin_option
@click.option("--against", help="Candidate that the winner is compared with on fresh seeds (default: the first one).")
@click.option(
    "--fidelity",
    "fidelities",
    metavar="KEY=VALUE,...",
    multiple=True,
    help="Cheaper runs to start with, such as timeline.horizon=2.5,seeds=6. Repeatable, in this order.",
)
@click.option("--confirm", type=click.IntRange(0), default=5, help="Number of fresh seeds for the winner's comparison.")
@options.store_option()
@options.backend_options
@options.as_json
def race_command(
    words: tuple[str, ...], fidelities: tuple[str, ...], budget: str | None, as_json: bool, **given: Any
) -> None:
    """Find the best candidate with few runs: after every seed, candidates that are clearly worse are dropped.

    fedtide race study.yaml --budget 40
    fedtide race scenario=macro_cell policy.limit=2,4,8 policy.scheduler=random,proposed --budget 20m
    fedtide race policy.limit=2,4,8 --fidelity timeline.horizon=2.5,seeds=6

    You can stop it at any time; the same command continues and reaches the same decision.
    """
    from fedtide.parts import user_code
    from fedtide.studies.race import race
    from fedtide.studies.race_input import race_stage

    study = _candidates(words)
    cheaper = [_fidelity(text) for text in fidelities]
    limit = int(budget) if budget and budget.isdecimal() else budget
    entries = {run.label: run.experiment for run in study.runs}
    seeds = range(given["seeds"])
    num_seeds = sum(len(race_stage(each, seeds).seeds) for each in (*cheaper, {}))
    most = num_seeds * len(entries) + 2 * given["confirm"]
    most = min(most, limit) if isinstance(limit, int) else most
    with user_code.search_user_folder(study.runs[0].beside), told_if_stopped(), _progress(study.name, most) as told:
        found = race(entries, fidelities=cheaper, budget=limit, name=study.name, **told, **given)
    if as_json:
        print_json(found.as_json())
    else:
        _print_race(found)


def _candidates(words: Sequence[str]) -> Study:
    """Return the candidates as a study of one seed: a study file's, or every combination of the values in these words."""
    from fedtide import config
    from fedtide.studies.spec import given_study

    single, axes = config.split_axes(words)
    if "seed" in axes:
        raise FedtideError("seed cannot distinguish candidates, since all run on the same seeds; use --seeds 20")
    base = single[0] if len(single) == 1 and "=" not in single[0] else config.read_words(single)
    study = given_study(base, axes or None, None, None, "race", 1)
    if len(study.labels) < 2:
        raise FedtideError(
            "a race needs two candidates or more: give a key several values, as policy.limit=2,4,8, or a study file"
        )
    return study._replace(runs=study.runs[: len(study.labels)])


def _fidelity(text: str) -> dict[str, Any]:
    """Read keys with values, separated by commas; a comma inside a value stays there."""
    from fedtide.core import parse_yaml_word

    return dict(parse_yaml_word(word) for word in re.split(r",(?=\s*[\w.]+=)", text))


@contextmanager
def _progress(name: str, most: int) -> Iterator[dict[str, Any]]:
    """Show a race as it goes: runs done, who leads by how much, how many are left. Yields what a race calls."""
    from fedtide.cli.progress import study_progress

    with study_progress(name, most, most) as advance:
        done, standing = 0, ""

        def on_done(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            which = f"{outcome.run.label}, seed {outcome.run.experiment.seed}"
            advance(1, done, "; ".join(filter(None, [standing, f"{which}: {outcome.reason or 'done'}"])))

        def on_step(found: RaceResult) -> None:
            nonlocal done, standing
            before, done, standing = done, found.num_runs, _standing(found)
            advance(done - before, done, standing)
            if not err.is_terminal:
                say(f"{standing}, after {done} runs")

        yield {"on_done": on_done, "on_step": on_step}


def _standing(found: RaceResult) -> str:
    """Say who leads, with the interval of the lead over the next one, and how many are left."""
    left = [row for row in found.rows if not row.reason]
    rivals = sorted((row for row in left if row.behind is not None), key=lambda row: row.behind or 0.0)
    ahead = f", {rivals[0].candidate} is behind by {_behind(rivals[0])}" if rivals else ""
    return f"{found.leader} leads{ahead}; {len(left)} of {len(found.rows)} left"


def _behind(row: RaceRow) -> str:
    if row.behind is None:
        return ""
    interval = "" if row.low is None or row.high is None else f" ({row.low:+.4f} to {row.high:+.4f})"
    return f"{row.behind:+.4f}{interval}"


def _print_race(found: RaceResult) -> None:
    from fedtide.report.terminal import TableColumn

    heads = {"candidate": False, "seeds": True, "mean": True, "behind the leader": False, "outcome": False}
    columns = [TableColumn(head, right=right, wraps=not right) for head, right in heads.items()]
    last = max(row.fidelity for row in found.rows)
    rows = []
    for row in found.rows:
        outcome = (row.reason or row.outcome) + (f" (fidelity {row.fidelity + 1})" if row.fidelity < last else "")
        mean = "-" if row.mean is None else f"{row.mean:.4f}"
        rows.append((row.candidate, str(row.num_seeds), mean, _behind(row), outcome))
    title = f"{found.name}: {found.leader} leads in {found.metric}; {found.stopped}; {found.num_runs} runs"
    print_table(columns, [[*map(escape, row)] for row in rows], title)
    for line in filter(None, (_confirmed(found), found.note)):
        out.print(escape(line), highlight=False)


def _confirmed(found: RaceResult) -> str:
    """Write the gain on fresh seeds."""
    from fedtide.studies.table import finite_table_value, table_effect

    if found.confirmed is None:
        return ""
    gain = table_effect({**finite_table_value(found.confirmed._asdict()), "verdict": found.confirmed.verdict})
    word = {"higher": "better", "lower": "worse"}.get(found.confirmed.verdict, found.confirmed.verdict)
    return f"gain of {found.leader} over {found.against} on fresh seeds: {gain}, {word}"
