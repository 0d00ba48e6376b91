"""What all commands share: consoles, options, groups, and the border where any failure becomes one line and an exit code."""

from __future__ import annotations

import codecs
import contextlib
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import click
import rich.console
from rich.console import Console, ConsoleDimensions
from rich.markup import escape

from fedtide.core import faults, signals
from fedtide.errors import FedtideError, did_you_mean

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

# ---- Consoles: results go to stdout, everything else to stderr.


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the border."""
        raise  # the BrokenPipeError that is being handled


class _Page(_Console):
    @property  # type: ignore[misc]
    def size(self) -> ConsoleDimensions:
        """At least so wide that a table can be read; a narrower terminal breaks the lines itself."""
        found = super().size
        return ConsoleDimensions(max(found.width, _MIN_COLUMNS), found.height)


_MIN_COLUMNS = 50
if not os.environ.get("COLUMNS", "").strip("0"):  # a terminal that does not know its width
    os.environ.pop("COLUMNS", None)
out = _Page()
err = _Console(stderr=True)

# For outputs without Unicode: one character for one, so that columns stay columns.
_LOOKALIKES = dict(
    zip("▁▂▃▄▅▆▇█┤│└─┄━╸╺╭╮╰╯┃┌┐┘…→←≥≤±×–—•’‘“”", ".::-=+*#||`-.---++++|+++~><><+x--*''\"\"", strict=True)
)


def _plainer(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    bad = error.object[error.start : error.end]
    return "".join(_LOOKALIKES.get(character, "?") for character in bad), error.end


codecs.register_error("fedtide", _plainer)


def say(text: str) -> None:
    """Tell people something that is not a result."""
    _tell(f"[dim]{escape(text)}[/]")


def warn(text: str) -> None:
    """Tell people that something will probably not go well."""
    _tell(f"[yellow]warning:[/] {escape(text)}")


def print_json(tree: Any) -> None:
    """Print plain data for programs."""
    print_text(json.dumps(tree, indent=2) + "\n")


def print_text(text: str) -> None:
    """Print a text as it is: no line is broken or padded."""
    out.file.write(text)


def print_line(markup: str) -> None:
    """Print a line that may be copied, such as a path: only the terminal may break it."""
    out.print(markup, highlight=False, soft_wrap=True)


# ---- Commands, groups, arguments and options


class Argument(click.Argument):
    """An argument with a help text."""

    def __init__(self, *args: Any, help: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = help


class Command(click.Command):
    """A command whose help explains its arguments and keeps the lines of its examples, which begin with `fedtide`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text = re.sub(r"\n\n(?=fedtide )", "\n\n\b\n", inspect.cleandoc(self.help or ""))
        self.help = re.sub(r"(?m)^(?=fedtide )", "  ", text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then the options."""
        rows = [(param.metavar or "", param.help) for param in self.params if isinstance(param, Argument)]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; with --json, send what a user's own code prints to stderr."""
        if not ctx.params.get("as_json"):
            return super().invoke(ctx)
        out.file = sys.stdout
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return super().invoke(ctx)
        finally:
            out._file = None


class Group(Command, click.Group):
    """A group of commands in the order of their definition, inside the one border."""

    command_class = Command
    group_class = type

    def main(self, args: Any = None, prog_name: str | None = None, **_: Any) -> Any:  # type: ignore[override]
        """Run the command line; every way out has an exit code."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="fedtide")
        try:
            try:
                words = sys.argv[1:] if args is None else args
                with self.make_context(prog_name or "fedtide", list(words)) as context:
                    self.invoke(context)
                code = 0
            except click.exceptions.Exit as left:
                code = left.exit_code
            _flush(sys.stdout)
        except BaseException as error:
            code = report_error(error)
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
        """Write every command with the first paragraph of its help."""
        rows = []
        for name in self.list_commands(ctx):
            found = self.get_command(ctx, name)
            rows.append((name, " ".join(((found and found.help) or "").split("\n\n")[0].split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


PATH = click.Path(path_type=Path)
CORES = os.cpu_count() or 1
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of tables.")
threads_option = click.option(
    "--threads", "-j", type=click.IntRange(1), default=CORES, help="Devices trained at a time. Does not change results."
)
style_option = click.option(
    "--style",
    default="screen",
    help="Of figures: screen; for print ieee (3.5 in), ieee-wide (7.16), nature, nature-wide: no titles, embedded fonts.",
)


def command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command, for packages that bring theirs by an entry point of the group `fedtide.commands`."""
    return click.command(name, cls=Command, context_settings={"show_default": True})


def argument(name: str, metavar: str, help: str, **settings: Any) -> Callable[[_Decorated], _Decorated]:
    """Declare an argument."""
    return click.argument(name, cls=Argument, metavar=metavar, help=help, **settings)


def out_option(help: str, name: str = "folder", **settings: Any) -> Callable[[_Decorated], _Decorated]:
    """Declare where a command writes."""
    return click.option("--out", "-o", name, type=PATH, help=help, **settings)


words_argument = argument(
    "words", "[FILE] [KEY=VALUE]...", "An experiment file (YAML), then keys that differ from it.", nargs=-1
)
run_argument = argument("run", "RUN", "A run folder.", type=PATH)


# ---- The border


def report_error(error: BaseException) -> int:
    """Tell what happened in one line, and return the exit code."""
    if signals.wanted(error):
        _tell("[yellow]interrupted[/]")
        return signals.exit_code()
    if isinstance(error, click.ClickException):  # a wrong option: in one line like any other
        context = error.ctx if isinstance(error, click.UsageError) else None
        remedy = f"; see `{context.command_path} --help`" if context is not None else ""
        error = FedtideError(" ".join(error.format_message().split()).rstrip(".?") + remedy)
    about = None
    if _at_output(error):
        _give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):  # the reader went away, as in `fedtide plan | head`
            return 0
        about = "standard output"
    if os.environ.get("FEDTIDE_TRACEBACK"):
        with contextlib.suppress(Exception):
            traceback.print_exception(error)
    line, code = faults.explain(error, about)
    _tell(f"[bold red]error:[/] {escape(line)}")
    return code


def _tell(markup: str) -> None:
    try:
        err.print(markup, highlight=False, soft_wrap=True)
        _flush(sys.stderr)
    except (OSError, ValueError):  # nobody can be told
        _give_up(sys.stderr)


def _flush(stream: IO[str] | None) -> None:
    if stream is not None and not stream.closed:
        stream.flush()


def _at_output(error: BaseException) -> bool:
    """Say whether it was our own printing that failed."""
    steps = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    failed = (isinstance(error, OSError) and error.filename is None) or "closed file" in faults.said(error)
    return failed and steps[-1:] in ([__file__], [rich.console.__file__], [click.utils.__file__])


def _give_up(stream: IO[str] | None) -> None:
    """Let what a stream still holds go nowhere, so that the interpreter does not stumble over it at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        assert stream is not None
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
