"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


class Argument(click.Argument):
    """An argument with a help text."""

    def __init__(self, *args: Any, help: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.about = help  # not `help`: click 8.5 and later would write it a second time


PATH = click.Path(path_type=Path)
CORES = os.cpu_count() or 1
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of tables.")
threads = click.option(
    "--threads", "-j", type=click.IntRange(1), default=CORES, help="Devices trained at a time. Does not change results."
)
style = click.option(
    "--style",
    default="screen",
    help="Of figures: screen; for print ieee (3.5 in), ieee-wide (7.16), nature, nature-wide: no titles, embedded fonts.",
)


def cli_argument(name: str, metavar: str, help: str, **settings: Any) -> Callable[[_Decorated], _Decorated]:
    """Declare an argument."""
    return click.argument(name, cls=Argument, metavar=metavar, help=help, **settings)


def out_option(help: str, name: str = "folder", **settings: Any) -> Callable[[_Decorated], _Decorated]:
    """Declare where a command writes."""
    return click.option("--out", "-o", name, type=PATH, help=help, **settings)


words = cli_argument(
    "words", "[FILE] [KEY=VALUE]...", "An experiment file (YAML), then keys that differ from it.", nargs=-1
)
run_argument = cli_argument("run", "RUN", "A run folder.", type=PATH)


def store_option(default: str = "results") -> Callable[[_Decorated], _Decorated]:
    """Declare where results are kept."""
    return click.option("--store", "-s", type=PATH, default=Path(default), help="Where results are kept, a few tables.")


_WORK = (
    click.option(
        "--workers", "-j", type=click.IntRange(1, 1000), default=CORES, help="Runs at a time, one thread each."
    ),
    click.option(
        "--backend",
        default="local",
        help="local: processes on this machine; dask: the cluster at --address, or one started for it; here: this process.",
    ),
    click.option("--address", help="A Dask scheduler, as in tcp://host:8786."),
    click.option(
        "--isa-strict",
        is_flag=True,
        help="Do what is missing on the instruction path of the stored runs of the same seed.",
    ),
    click.option(
        "--isa-redo",
        is_flag=True,
        help="As --isa-strict; a seed whose path this machine lacks is done anew on its own, beside it.",
    ),
)


def work_options(command: _Decorated) -> _Decorated:
    """Declare how the runs of a study are done: what `do_study_runs` takes by name."""
    for option in reversed(_WORK):
        command = option(command)
    return command
