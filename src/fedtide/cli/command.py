"""What all commands share: consoles, options, and the border at which whatever goes wrong becomes one line and an exit code.

`friendly` is the border around a command, `Border` the one around the whole command line; `faults.explain` knows the words.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import gc
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Annotated, Any, ClassVar, TypeVar

import click
import rich.console
import typer
from rich.console import Console, ConsoleDimensions
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from fedtide.core import faults, signals
from fedtide.errors import FedtideError

_F = TypeVar("_F", bound=Callable[..., Any])


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the border."""
        raise  # the BrokenPipeError that is being handled


class _Page(_Console):
    @property  # type: ignore[misc]
    def size(self) -> ConsoleDimensions:
        """At least so wide that a table can be read; a narrower terminal breaks the lines itself."""
        found = super().size
        return ConsoleDimensions(max(found.width, _NARROWEST), found.height)


_NARROWEST = 50
if not os.environ.get("COLUMNS", "").strip("0"):  # of a terminal that does not know its width
    os.environ.pop("COLUMNS", None)
out = _Page()
err = _Console(stderr=True)

# For outputs that know no Unicode: one character each, so that columns stay columns.
_LOOKALIKES = dict(
    zip("▁▂▃▄▅▆▇█┤│└─┄━╸╺╭╮╰╯┃┌┐┘…→←≥≤±×–—•’‘“”", ".::-=+*#||`-.---++++|+++~><><+x--*''\"\"", strict=True)
)


def _plainer(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    bad = error.object[error.start : error.end]
    return "".join(_LOOKALIKES.get(each, "?") for each in bad), error.end


codecs.register_error("fedtide", _plainer)


def friendly(command: _F) -> _F:
    """Turn whatever goes wrong in a command into one line and an exit code; keep what it prints as JSON clean."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        gc.enable()
        _never_fail_to_encode()
        try:
            with _clean(bool(kwargs.get("as_json"))):
                result = command(*args, **kwargs)
                _flush(sys.stdout)
                return result
        except (click.exceptions.Exit, SystemExit):
            raise
        except BaseException as error:
            raise typer.Exit(report_error(error)) from None

    return wrapped  # type: ignore[return-value]


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Let the garbage collector rest while much is imported, all of which stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Border(TyperGroup):
    """The whole command line: the same border around the reading of words and the printing of help.

    `later` lists commands whose modules are imported only when they are called: name to (module, attribute, help).
    """

    later: ClassVar[dict[str, tuple[str, str, str]]] = {}

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; every way out has an exit code."""
        _never_fail_to_encode()
        try:
            try:
                code = super().main(*args, **{**kwargs, "standalone_mode": False})
            finally:
                _flush(sys.stdout)
        except SystemExit as error:
            if not isinstance(error.__context__, BrokenPipeError):
                raise
            code = 0  # typer's 1, as in `fedtide league --help | head`
        except BaseException as error:
            code = report_error(error)
        if code == 130 and signals.stop_requested():  # typer's, whatever the signal was
            code = signals.exit_code()
        raise SystemExit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse words that no command can mean."""
        for position, word in enumerate(args, 1):
            if not word:
                raise FedtideError(
                    f"word {position} of the command is empty (an unset variable?): leave it out or fill it in"
                )
            if "\0" in word:
                raise FedtideError(f"{word[:80]!r} holds a NUL character, which no name or value may: leave it out")
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands, those to be imported last."""
        return [*super().list_commands(ctx), *self.later]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or its name and help while it is not imported."""
        if cmd_name in self.later and cmd_name not in self.commands:
            return TyperCommand(cmd_name, help=self.later[cmd_name][2], rich_markup_mode="rich")
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the command that is called."""
        if args and args[0] in self.later and args[0] not in self.commands:
            self.commands[args[0]] = _imported(args[0], *self.later[args[0]][:2])
        return super().resolve_command(ctx, args)


def _imported(name: str, module: str, attribute: str) -> click.Command:
    found = getattr(importlib.import_module(module), attribute)
    holder = typer.Typer(rich_markup_mode="rich", callback=lambda: None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    group = typer.main.get_command(holder)
    assert isinstance(group, click.Group)
    return group.commands[name]


def report_error(error: BaseException) -> int:
    """Tell what happened in one line, and return the exit code."""
    if signals.wanted(error):
        _tell("[yellow]interrupted[/]")
        return signals.exit_code()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.ClickException):
        error = _in_our_words(error)
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


def _in_our_words(error: click.ClickException) -> FedtideError:
    """Return what click says of wrong options as one line like any other."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    remedy = f"; see `{context.command_path} --help`" if context is not None else ""
    text = " ".join(error.format_message().split())
    text = re.sub(r"(Did you mean .*?\?) \(?Did you mean .*", r"\1", text)  # typer and click both guess
    return FedtideError(text.rstrip(".?") + remedy)


def _tell(text: str, style: str | None = None) -> None:
    try:
        err.print(text, style=style, highlight=False, soft_wrap=True)
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
    return failed and steps[-1:] in ([__file__], [rich.console.__file__])


def _give_up(stream: IO[str] | None) -> None:
    """Let what a stream still holds go nowhere, so that the interpreter does not stumble over it at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        assert stream is not None
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _never_fail_to_encode() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="fedtide")


@contextlib.contextmanager
def _clean(as_json: bool) -> Iterator[None]:
    """Send what a user's own code prints to stderr while a program reads our stdout."""
    if not as_json:
        yield
        return
    out.file = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
        _flush(sys.stdout)
    finally:
        out._file = None


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]
CORES = os.cpu_count() or 1


def say(text: str) -> None:
    """Tell people something that is not a result."""
    _tell(escape(text), "dim")


def warn(text: str) -> None:
    """Tell people that something will probably not go well."""
    _tell(f"[yellow]warning:[/] {escape(text)}")


def print_json(tree: Any) -> None:
    """Print plain data for programs."""
    print_text(json.dumps(tree, indent=2) + "\n")


def print_text(text: str) -> None:
    """Print a text as it is: no line is broken or padded."""
    out.file.write(text)


def choices(values: Sequence[Any]) -> str:
    """Write choices one after the other, as a user would type them."""
    return ", ".join(
        "null" if each is None else str(each).lower() if isinstance(each, bool) else str(each) for each in values
    )
