"""A run as it goes: a bar on a terminal, elsewhere a line now and then; and where a run is stored by default."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape

from fedtide import config
from fedtide.cli.console import err, say
from fedtide.core import signals

# Where a run goes if nobody says: runs/<framework>-<scheduler>-<data>-s<seed>-<hash>.


_RUNS = Path("runs")
_LONGEST = 40  # characters of a part's name: the folder's stays below the 255 that file systems allow


def folder_name(experiment: config.Experiment) -> str:
    """Return what a person would look for: method or framework, scheduler, data set, seed, and a hash that tells the rest."""
    timeline, scheduler, data = (experiment.part(kind).name for kind in ("timeline", "scheduler", "data"))
    words = [_plain(name) for name in (experiment.method or experiment.framework or timeline, scheduler, data)]
    return "-".join([*words, f"s{experiment.seed}", _hash(experiment)])


def default_folder(experiment: config.Experiment, runs: Path = _RUNS) -> Path:
    """Return the folder of an experiment: the one that is there under whatever name with its hash, else a new one.

    The same experiment may be written in several ways (a framework, or its keys one by one), and earlier versions named
    their folders otherwise.
    """
    wanted = runs / folder_name(experiment)
    there = [] if wanted.exists() else sorted(runs.glob(f"*-{_hash(experiment)}"))
    return next((each for each in there if (each / "experiment.yaml").is_file()), wanted)


def _hash(experiment: config.Experiment) -> str:
    return config.digest(experiment)[:8]


def _plain(name: str) -> str:
    """Return a part's name as a word that any file system takes; of `path/file.py:name` only the name."""
    own = name.rpartition(":")[2].replace("\\", "/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._]+", "_", own).strip("._")[:_LONGEST] or "own"


# A run as it goes: a bar on a terminal, elsewhere a line now and then.


_LEAST_BAR = 10  # columns of a bar that still shows something
LINE_SECONDS = 15.0  # between two lines about a run whose stderr is no terminal


@contextmanager
def shown_progress(label: str) -> Iterator[Callable[[Any, int], None]]:
    """Show a run as it goes: a bar on a terminal, elsewhere a line now and then."""
    if not err.is_terminal:
        yield _lines(label)
        return
    from rich import progress as rich

    columns = (
        rich.TextColumn("[bold]{task.description}"),
        rich.BarColumn(bar_width(62)),
        rich.MofNCompleteColumn(),
        *([rich.TextColumn("time {task.fields[time]:.4g}")] if err.width >= 76 else []),
        rich.TextColumn("accuracy {task.fields[accuracy]}"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(label, total=None, time=0.0, accuracy="-")

        def advance(record: Any, total: int) -> None:
            signals.raise_if_stopped()
            progress.update(task, total=total, completed=record.index, time=record.time)
            if record.test_accuracy is not None:
                progress.update(task, accuracy=f"{record.test_accuracy:.4f}")

        yield advance


@contextmanager
def study_progress(name: str, runs: int, work: float) -> Iterator[Callable[[float, int, str], None]]:
    """Show a study as it goes, on a terminal: a bar with its times, and in a line of its own what ended last.

    Yields what is told of a run that ended: its work, how many have ended, and its result in words. Runs differ in length:
    the time left goes by their expected work, not by their number.
    """
    if not err.is_terminal:
        yield lambda *_: None
        return
    from rich import progress as rich
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    progress = rich.Progress(*study_columns(len(name), runs), console=err, speed_estimate_period=3600)
    task = progress.add_task(escape(name), total=work, done=0, runs=runs)
    last = Text(style="dim", no_wrap=True, overflow="ellipsis")

    def shown() -> RenderableType:
        return Group(progress, last) if last else progress

    with Live(get_renderable=shown, console=err, transient=True):

        def advance(more: float, done: int, text: str) -> None:
            progress.update(task, advance=more, done=done)
            last.plain = " ".join(text.split())

        yield advance


def study_columns(name: int, runs: int) -> tuple[Any, ...]:
    """Return the columns of a study's bar, which fit: a long name is cut, bar and times are not."""
    from rich import progress as rich
    from rich.table import Column

    count = 2 * len(str(runs)) + len("/ runs")
    beside = count + len("0:00:00 left 0:00:00") + 5  # with the gaps
    title = max(min(name, err.width // 3, err.width - beside - _LEAST_BAR), 4)
    return (
        rich.TextColumn(
            "[bold]{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", width=title)
        ),
        rich.BarColumn(bar_width(title + beside)),
        rich.TextColumn("{task.fields[done]}/{task.fields[runs]} runs", table_column=Column(no_wrap=True)),
        rich.TimeElapsedColumn(table_column=Column(no_wrap=True)),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )


def bar_width(beside: int) -> int:
    """Return how wide a bar may be next to so many columns of words."""
    return max(_LEAST_BAR, min(40, err.width - beside))


def _lines(label: str) -> Callable[[Any, int], None]:
    """Return what prints a line every LINE_SECONDS: how far, how good, how long still."""
    first: int | None = None
    begun = told = time.monotonic()
    accuracy = "-"

    def advance(record: Any, total: int) -> None:
        nonlocal first, told, accuracy
        signals.raise_if_stopped()
        now = time.monotonic()
        first = record.index if first is None else first
        if record.test_accuracy is not None:
            accuracy = f"{record.test_accuracy:.4f}"
        if now - told < LINE_SECONDS or record.index == total:
            return
        told = now
        left = (now - begun) / (record.index - first + 1) * (total - record.index)
        say(
            f"{label}: aggregation {record.index} of {total}, time {record.time:.4g}, accuracy {accuracy}, "
            f"about {_duration(left)} left"
        )

    return advance


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
