"""What all commands share: consoles, errors as one line and an exit code, options."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from fedtide.errors import FedtideError

out = Console()
err = Console(stderr=True)

F = TypeVar("F", bound=Callable[..., Any])


def friendly(command: F) -> F:
    """Turn our errors into one line and an exit code, and Ctrl-C into 130."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except FedtideError as error:
            err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            err.print("[yellow]interrupted[/]")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of our output went away, as in `fedtide plan | head`
            sys.stderr.close()
            raise typer.Exit(0) from None

    return wrapped  # type: ignore[return-value]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]
CORES = os.cpu_count() or 1


def say(text: str) -> None:
    """Tell people something that is not a result."""
    err.print(escape(text), style="dim", highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Tell people that something will probably not go well."""
    err.print(f"[yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)


def print_json(tree: Any) -> None:
    """Print plain data for programs."""
    sys.stdout.write(json.dumps(tree, indent=2) + "\n")
