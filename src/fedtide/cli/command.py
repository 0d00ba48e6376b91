"""Commands and groups, and the border around them, where any failure becomes one line and an exit code."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import click
import rich.console
from rich.markup import escape

from fedtide.cli import console
from fedtide.cli.options import Argument
from fedtide.core import faults, signals
from fedtide.errors import FedtideError, did_you_mean


class Command(click.Command):
    """A command whose help explains its arguments and keeps the lines of its examples, which begin with `fedtide`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text = re.sub(r"\n\n(?=fedtide )", "\n\n\b\n", inspect.cleandoc(self.help or ""))
        self.help = re.sub(r"(?m)^(?=fedtide )", "  ", text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then the options."""
        rows = [(param.metavar or "", param.about) for param in self.params if isinstance(param, Argument)]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)


class Group(Command, click.Group):
    """A group of commands in the order of their definition, inside the one border."""

    command_class = Command
    group_class = type
    sections: ClassVar[Mapping[str, Sequence[str]]] = {}  # of the help: a title -> the commands below it
    others: ClassVar[str] = "Commands"  # the title of those that are in no section

    def main(self, args: Any = None, prog_name: str | None = None, **_: Any) -> Any:  # type: ignore[override]
        """Run the command line; every way out has an exit code."""
        console.encode_for_console()
        try:
            try:
                words = list(sys.argv[1:] if args is None else args)
                only_json = _only_json("--json" in words and "--help" not in words)
                with only_json, self.make_context(prog_name or "fedtide", words) as context:
                    self.invoke(context)
                code = 0
            except click.exceptions.Exit as left:
                code = left.exit_code
            console.flush_console(sys.stdout)
        except BaseException as error:
            code = _report_error(error)
        raise SystemExit(code)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse arguments that no command can mean; print the help if there is none."""
        for position, word in enumerate(args, 1):
            if not word:
                raise FedtideError(f"argument {position} is empty (an unset variable?): leave it out or fill it in")
            if "\0" in word:
                raise FedtideError(f"{word[:80]!r} holds a NUL character, which no name or value may: leave it out")
        if not args:
            click.echo(ctx.get_help())
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of their definition."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called, or say which one may be meant."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"No such command {args[0]!r}{hint and f' ({hint})'}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every command with the first paragraph of its help, section by section."""
        names = self.list_commands(ctx)
        grouped = {title: [name for name in names if name in those] for title, those in self.sections.items()}
        known = {name for those in grouped.values() for name in those}
        for title, those in {**grouped, self.others: [name for name in names if name not in known]}.items():
            found = [(name, self.get_command(ctx, name)) for name in those]
            rows = [(name, " ".join(((each and each.help) or "").split("\n\n")[0].split())) for name, each in found]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@contextlib.contextmanager
def _only_json(wanted: bool) -> Iterator[None]:
    """With --json, send what a user's own code prints to stderr."""
    if not wanted:
        yield
        return
    console.out.file = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        console.out._file = None


def command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command, for packages that bring theirs by an entry point of the group `fedtide.commands`."""
    return click.command(name, cls=Command, context_settings={"show_default": True})


def _report_error(error: BaseException) -> int:
    """Tell what happened in one line, and return the exit code."""
    if signals.stop_was_wanted(error):
        console.tell("[yellow]interrupted[/]")
        return signals.signal_exit_code()
    if isinstance(error, click.ClickException):  # a wrong option: in one line like any other
        context = error.ctx if isinstance(error, click.UsageError) else None
        remedy = f"; see `{context.command_path} --help`" if context is not None else ""
        said = " ".join(error.format_message().split()).rstrip(".?")
        if isinstance(error, click.NoSuchOption):  # as everywhere: (did you mean ...?)
            said = f"No such option {error.option_name!r}" + (
                f" (did you mean {' or '.join(sorted(error.possibilities))}?)" if error.possibilities else ""
            )
        error = FedtideError(said + remedy)
    about = None
    if _at_output(error):
        console.discard_console(sys.stdout)
        if isinstance(error, BrokenPipeError):  # the reader went away, as in `fedtide plan | head`
            return 0
        about = "standard output"
    if os.environ.get("FEDTIDE_TRACEBACK"):
        with contextlib.suppress(Exception):
            traceback.print_exception(error)
    line, code = faults.explain_fault(error, about)
    console.tell(f"[bold red]error:[/] {escape(line)}")
    return code


def _at_output(error: BaseException) -> bool:
    """Say whether it was our own printing that failed."""
    steps = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    printing = (console.__file__, rich.console.__file__, click.utils.__file__)
    failed = (isinstance(error, OSError) and error.filename is None) or "closed file" in faults.fault_message(error)
    return failed and bool(steps) and steps[-1] in printing
