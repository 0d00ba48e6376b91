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
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
threads = click.option(
    "--threads",
    "-j",
    type=click.IntRange(1),
    default=CORES,
    help="Devices trained in parallel. Does not change the results.",
)
style = click.option(
    "--style",
    default="screen",
    help="Style of figures: screen; for print ieee (3.5 in), ieee-wide (7.16 in), nature, nature-wide (no titles, embedded fonts).",
)


def cli_argument(name: str, metavar: str, help: str, **settings: Any) -> Callable[[_Decorated], _Decorated]:
    """Declare an argument."""
    return click.argument(name, cls=Argument, metavar=metavar, help=help, **settings)


def out_option(help: str, name: str = "folder", **settings: Any) -> Callable[[_Decorated], _Decorated]:
    """Declare where a command writes."""
    return click.option("--out", "-o", name, type=PATH, help=help, **settings)


words = cli_argument(
    "words", "[FILE] [KEY=VALUE]...", "An experiment file (YAML), then keys that override it.", nargs=-1
)
run_argument = cli_argument("run", "RUN", "A run folder.", type=PATH)


def store_option(default: str = "results") -> Callable[[_Decorated], _Decorated]:
    """Declare where results are kept."""
    return click.option("--store", "-s", type=PATH, default=Path(default), help="Folder of the stored results.")


_BACKEND = (
    click.option(
        "--workers", "-j", type=click.IntRange(1, 1000), default=CORES, help="Number of parallel runs, one thread each."
    ),
    click.option(
        "--backend",
        default="local",
        help="local: processes on this machine; dask: the cluster at --address, or a local one; here: this process.",
    ),
    click.option("--address", help="Address of a Dask scheduler, such as tcp://host:8786."),
)
_PATHS = (
    click.option(
        "--isa-strict",
        is_flag=True,
        help="Run what is missing on the CPU instruction set of the stored runs with the same seed.",
    ),
    click.option(
        "--isa-redo",
        is_flag=True,
        help="Like --isa-strict; seeds whose instruction set this machine lacks are run again on its own.",
    ),
)


def backend_options(command: _Decorated) -> _Decorated:
    """Declare where runs are done: what `study_backend` takes by name."""
    for option in reversed(_BACKEND):
        command = option(command)
    return command


def work_options(command: _Decorated) -> _Decorated:
    """Declare how the runs of a study are done: what `do_study_runs` takes by name."""
    for option in reversed(_PATHS):
        command = option(command)
    return backend_options(command)
