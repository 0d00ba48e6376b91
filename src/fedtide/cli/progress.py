"""A run as it goes: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedtide.cli.command import err, say
from fedtide.core import stop

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
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("time {task.fields[time]:.4g}  accuracy {task.fields[accuracy]}"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(label, total=None, time=0.0, accuracy="-")

        def advance(record: Any, total: int) -> None:
            stop.check()
            progress.update(task, total=total, completed=record.index, time=record.time)
            if record.test_accuracy is not None:
                progress.update(task, accuracy=f"{record.test_accuracy:.4f}")

        yield advance


def _lines(label: str) -> Callable[[Any, int], None]:
    """Return what prints a line every LINE_SECONDS: how far, how good, how long still."""
    first: int | None = None
    begun = told = time.monotonic()
    accuracy = "-"

    def advance(record: Any, total: int) -> None:
        nonlocal first, told, accuracy
        stop.check()
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
