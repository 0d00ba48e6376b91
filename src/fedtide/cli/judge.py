"""`fedtide judge`: is a part better than another one, world by world, with a certificate that others can verify."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from fedtide.cli import options
from fedtide.cli.command import command
from fedtide.cli.console import err, print_json, print_line, print_table, say
from fedtide.cli.study import margin_option, metric_option, run_in_words, told_if_stopped
from fedtide.errors import FedtideError

if TYPE_CHECKING:
    from fedtide.studies.judge import Judgement
    from fedtide.studies.run import Outcome


@command("judge")
@options.cli_argument(
    "words", "[PART] [KEY=VALUE]...", "mine.py:Part, or parts by their keys: policy.scheduler=mine.py:Part.", nargs=-1
)
@click.option("--in", "worlds", default="paper", help="Worlds: scenarios or experiment files, separated by commas.")
@click.option("--kind", help="Kind of the part (scheduler, codec, ...), if its arguments are ambiguous.")
@click.option(
    "--against",
    multiple=True,
    help="Another part of the same kind, or KEY=VALUE. Default: the paper's choice. Repeatable.",
)
@click.option("--tune", multiple=True, help="KEY=V1,V2: also tune this parameter of the part. Repeatable.")
@metric_option
@margin_option
@click.option("--seeds", type=int, default=20, help="Maximum number of seeds per world.")
@click.option("--budget", default="10m", help="Total core time, such as 90s, 10m or 1h, or a number of runs.")
@click.option(
    "--salt", default="", help="A text that changes all seeds. A referee chooses one that no author could know."
)
@click.option(
    "--allow", multiple=True, help="A dotted name that the source may use. The certificate names it. Repeatable."
)
@click.option("--whole", is_flag=True, help="Use the full worlds instead of short versions.")
@options.out_option("The certificate.", "to", default=Path("certificate.json"))
@click.option("--store", "-s", type=options.PATH, help="Folder of the runs. Default: next to the certificate.")
@click.option("--workers", "-j", type=click.IntRange(1, 1000), default=options.CORES, help="Number of parallel runs.")
@click.option("--verify", type=options.PATH, help="Verify this certificate instead of judging.")
@click.option("--runs", type=click.IntRange(0), default=3, help="With --verify: number of runs to repeat.")
@click.option("--all", "all_runs", is_flag=True, help="With --verify: repeat all runs.")
@options.as_json
def judge_command(
    words: tuple[str, ...], verify: Path | None, runs: int, all_runs: bool, as_json: bool, **given: Any
) -> None:
    """Judge a part of your own in each world: better, worse, no difference above a margin, or not resolved.

    The part and what it is compared with are tuned alike, then compared on seeds that follow from the content of your file.
    The certificate contains everything needed to verify the verdicts.

    fedtide judge mine.py:Part --in paper,macro_cell,phones
    fedtide judge policy.scheduler=mine.py:Part --against random --budget 30m
    fedtide judge --verify certificate.json
    """
    if verify is not None:
        if words:
            raise FedtideError(
                f"{words[0]!r} cannot be judged while --verify verifies a certificate: leave one of them out"
            )
        _verify(verify, None if all_runs else runs, given["allow"], given["workers"], as_json)
        return
    if not words:
        raise FedtideError("nothing to judge: name a part, such as mine.py:Part; see `fedtide judge --help`")
    found = _judged(words, **given)
    if as_json:
        print_json({**found.as_json(), "certificate": str(given["to"])})
    else:
        _print(found)
        print_line(escape(f"{given['to']}  {found.certificate['digest'][:16]}"))


def _judged(
    words: tuple[str, ...],
    worlds: str,
    against: tuple[str, ...],
    tune: tuple[str, ...],
    budget: str,
    to: Path,
    store: Path | None,
    **more: Any,
) -> Judgement:
    from fedtide import config
    from fedtide.studies.judge import difference_text
    from fedtide.studies.judge import judge as judge_part

    rest, axes = config.split_axes(tune)
    single = config.nested_to_dotted(config.parse_overrides(rest))
    with _told_runs() as on_done:
        return judge_part(
            list(words),
            worlds=[world for world in worlds.split(",") if world],
            against=list(against) or None,
            tune={**axes, **{key: [value] for key, value in single.items()}},
            budget=int(budget) if budget.isdecimal() else budget,
            out=to,
            store=store or to.with_suffix(".runs"),
            on_done=on_done,
            on_world=lambda row: say(f"{row.world}: {row.verdict}, {difference_text(row)}"),
            **more,
        )


@contextmanager
def _told_runs() -> Iterator[Callable[[Outcome], None]]:
    """Tell of every run: on a terminal in a line that changes, elsewhere in a line each."""
    from fedtide.cli.progress import study_progress

    with told_if_stopped(), study_progress("judge", None, None) as advance:
        done = 0

        def tell(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            line = ": ".join(run_in_words(outcome))
            advance(1, done, line)
            if not err.is_terminal:
                say(line)

        yield tell


def _print(found: Judgement) -> None:
    from fedtide.report.terminal import TableColumn
    from fedtide.studies.judge import difference_text
    from fedtide.studies.judge_input import settings_text

    columns = (
        TableColumn("world"),
        TableColumn("verdict", wraps=True),
        TableColumn("difference (interval)", wraps=True),
        TableColumn("seeds", right=True),
        TableColumn("its settings", wraps=True),
        TableColumn("the other's", wraps=True),
    )
    rows = [
        tuple(
            map(
                escape,
                (
                    row.world,
                    f"{row.verdict}: {row.note}" if row.note else row.verdict,
                    difference_text(row),
                    str(row.num_seeds),
                    settings_text(row.settings),
                    settings_text(row.against_settings),
                ),
            )
        )
        for row in found.worlds
    ]
    title = f"{found.part} against {found.against}: {found.metric}"
    print_table(columns, rows, f"{title}, {found.num_runs} runs, {found.seconds:.0f} s of one core")


def _verify(path: Path, runs: int | None, allow: tuple[str, ...], workers: int, as_json: bool) -> None:
    from fedtide.studies.verify import verify_certificate

    with _told_runs() as on_done:
        found = verify_certificate(path, runs=runs, allow=allow, workers=workers, on_done=on_done)
    if as_json:
        print_json({"holds": True, **found._asdict()})
        return
    close = "the same bits" if found.exact else "this machine has another instruction path"
    repeated = (
        f"{found.repeated} of {found.num_runs} runs repeated: {close}" if found.repeated else "no run was repeated"
    )
    told = ", ".join(f"{world} {verdict}" for world, verdict in found.verdicts.items())
    print_line(f"[green]the certificate holds[/]: {escape('; '.join(filter(None, (told, repeated, found.note))))}")
    for name, value in found.settings.items():
        text = ", ".join(value) if isinstance(value, list) else value
        print_line(escape(f"{name}: {'none' if text in ('', None) else text}"))
