"""The two consoles: results go to stdout, everything else to stderr; neither fails for a character or a closed pipe."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from fedtide.report.terminal import TableColumn


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the border."""
        raise  # the BrokenPipeError that is being handled


out, err = _Console(emoji=False), _Console(emoji=False, stderr=True)  # a user's `:x:` is none
out.width = max(out.width, 50)  # so wide that a table can be read; a narrower terminal breaks the lines itself


def encode_for_console() -> None:
    """Let both streams replace the characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def say(text: str) -> None:
    """Tell people something that is not a result."""
    tell(f"[dim]{escape(text)}[/]")


def warn(text: str) -> None:
    """Tell people that something will probably not go well."""
    tell(f"[yellow]warning:[/] {escape(text)}")


def print_json(tree: Any) -> None:
    """Print plain data for programs."""
    print_text(json.dumps(tree, indent=2) + "\n")


def print_text(text: str) -> None:
    """Print a text as it is: no line is broken or padded."""
    out.file.write(text)


def print_line(markup: str) -> None:
    """Print a line that may be copied, such as a path: only the terminal may break it."""
    out.print(markup, highlight=False, soft_wrap=True)


def print_table(
    columns: Sequence[TableColumn], rows: Iterable[Sequence[str]], title: str = "", indent: int = 0
) -> None:
    """Print a table that fits the terminal; cells are markup, the title is not."""
    from fedtide.report.terminal import terminal_list

    out.print(terminal_list(columns, rows, out.width, escape(title), indent), highlight=False)


def tell(markup: str) -> None:
    """Print a line to stderr, if anybody can be told."""
    try:
        err.print(markup, highlight=False, soft_wrap=True)
        flush_console(sys.stderr)
    except (OSError, ValueError):  # nobody can be told
        discard_console(sys.stderr)


def flush_console(stream: IO[str] | None) -> None:
    """Write out what a stream still holds."""
    if stream is not None and not stream.closed:
        stream.flush()


def discard_console(stream: IO[str] | None) -> None:
    """Let what a stream still holds go nowhere, so that the interpreter does not stumble over it at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        assert stream is not None
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
