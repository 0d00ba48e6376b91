"""A run as it goes: a bar on a terminal, elsewhere a line now and then; and where a run is stored by default."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.markup import escape

from fedtide import config
from fedtide.cli.console import err, say
from fedtide.core import signals

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Where a run goes if nobody says: runs/<framework>-<scheduler>-<data>-s<seed>-<hash>.


_RUNS = Path("runs")
_LONGEST = 40  # characters of a part's name: the folder's stays below the 255 that file systems allow


def _folder_name(experiment: config.Experiment) -> str:
    """Return what a person would look for: method or framework, scheduler, data set, seed, and a hash that tells the rest."""
    timeline, scheduler, data = (experiment.part(kind).name for kind in ("timeline", "scheduler", "data"))
    words = [_plain(name) for name in (experiment.method or experiment.framework or timeline, scheduler, data)]
    return "-".join([*words, f"s{experiment.seed}", _hash(experiment)])


def default_folder(experiment: config.Experiment, runs: Path = _RUNS) -> Path:
    """Return the folder of an experiment: the one that is there under whatever name with its hash, else a new one.

    The same experiment may be written in several ways (a framework, or its keys one by one), and earlier versions named
    their folders otherwise.
    """
    wanted = runs / _folder_name(experiment)
    there = [] if wanted.exists() else sorted(runs.glob(f"*-{_hash(experiment)}"))
    return next((each for each in there if (each / "experiment.yaml").is_file()), wanted)


def _hash(experiment: config.Experiment) -> str:
    return config.digest(experiment)[:8]


def _plain(name: str) -> str:
    """Return a part's name as a word that any file system takes; of `path/file.py:name` only the name."""
    own = name.rpartition(":")[2].replace("\\", "/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._]+", "_", own).strip("._")[:_LONGEST] or "own"


# A run or a study as it goes: a bar on a terminal, elsewhere a line now and then.


LINE_SECONDS = 15.0  # between two lines about a run whose stderr is no terminal


class Fates(NamedTuple):
    """What became of the uploads since the command began."""

    picked: int = 0
    lost: int = 0
    silent: int = 0
    retransmitted: int = 0

    def after(self, record: Any) -> Fates:
        """Return the counts with those of one more aggregation."""
        more = (record.picked, record.lost, record.silent, record.retransmitted)
        return Fates(*(count + len(some) for count, some in zip(self, more, strict=True)))

    def text(self, end: str) -> str:
        """Say how many of the uploads were lost, silent or retransmitted; nothing if none was."""
        found = [f"{count:,} {name}" for name, count in self._asdict().items() if count and name != "picked"]
        return f"{', '.join(found)} of {self.picked:,} uploads{end}" if found else ""


def _bar(name: str, total: float | None, *texts: str, **fields: Any) -> tuple[Progress, TaskID]:
    """Return a bar and its task: a name, which is cut where it gets long, texts of its fields, time so far and left."""
    from rich import progress as rich
    from rich.table import Column

    room = max(err.width // 3 - 12, 4)
    progress = rich.Progress(
        rich.TextColumn(
            "[bold]{task.description}", table_column=Column(no_wrap=True, max_width=room, overflow="ellipsis")
        ),
        rich.BarColumn(40 if err.width >= 110 else 10),
        *(rich.TextColumn(text, table_column=Column(no_wrap=True)) for text in texts),
        rich.TimeElapsedColumn(table_column=Column(no_wrap=True)),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(table_column=Column(no_wrap=True)),
        console=err,
        transient=True,
        speed_estimate_period=3600,
    )
    return progress, progress.add_task(escape(name), total=total, **fields)


@contextmanager
def shown_progress(label: str, horizon: float) -> Iterator[Callable[[Any, int], None]]:
    """Show a run as it goes: a bar on a terminal, elsewhere a line now and then.

    Where nobody knows how many aggregations there will be (a total of 0), simulated time up to the horizon says how far it is.
    """
    if not err.is_terminal:
        yield _lines(label, horizon)
        return
    texts = ["{task.fields[done]}", "accuracy {task.fields[accuracy]}", "{task.fields[fates]}"]
    progress, task = _bar(label, None, *texts, done="", accuracy="-", fates="")
    fates = Fates()
    with progress:

        def advance(record: Any, total: int) -> None:
            nonlocal fates
            signals.raise_if_stopped()
            fates = fates.after(record)
            whole, so_far = (total, record.index) if total else (horizon, min(record.time, horizon))
            done = f"{record.index}/{total}" if total else f"{record.index}, time {record.time:.4g}/{horizon:g}"
            progress.update(task, total=whole, completed=so_far, done=done, fates=fates.text(""))
            if record.test_accuracy is not None:
                progress.update(task, accuracy=f"{record.test_accuracy:.4f}")

        yield advance


@contextmanager
def study_progress(
    name: str, runs: int | None, work: float | None, what: str = "runs"
) -> Iterator[Callable[[float, int, str], None]]:
    """Show a study as it goes, on a terminal: a bar with its times, and in a line of its own what ended last.

    Yields what is told of a run that ended: its work, how many have ended, and its result in words. Runs differ in length:
    the time left goes by their expected work, not by their number. runs, work: how many there will be, and how much work
    they are in all; None if nobody knows. what: the word for them.
    """
    if not err.is_terminal:
        yield lambda *_: None
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    progress, task = _bar(
        name,
        work,
        "{task.fields[done]}{task.fields[of]} {task.fields[what]}",
        done=0,
        what=what,
        of="" if runs is None else f"/{runs}",
    )
    last = Text(style="dim", no_wrap=True, overflow="ellipsis")
    with Live(get_renderable=lambda: Group(progress, last), console=err, transient=True):

        def advance(more: float, done: int, text: str) -> None:
            progress.update(task, advance=more, done=done)
            last.plain = " ".join(text.split())

        yield advance


def _lines(label: str, horizon: float) -> Callable[[Any, int], None]:
    """Return what prints a line every LINE_SECONDS: how far, how good, how long still."""
    first: float | None = None  # aggregations, or simulated time, before this command
    begun = told = time.monotonic()
    accuracy, fates = "-", Fates()

    def advance(record: Any, total: int) -> None:
        nonlocal first, told, accuracy, fates
        signals.raise_if_stopped()
        fates = fates.after(record)
        now = time.monotonic()
        whole, so_far = (total, record.index) if total else (horizon, record.time)
        first = (record.index - 1 if total else record.time) if first is None else first
        if record.test_accuracy is not None:
            accuracy = f"{record.test_accuracy:.4f}"
        if now - told < LINE_SECONDS or so_far >= whole:
            return
        told = now
        left = f"about {_duration((now - begun) / (so_far - first) * (whole - so_far))} left" if so_far > first else ""
        far = (
            f"{record.index} of {total}, time {record.time:.4g}"
            if total
            else f"{record.index}, time {record.time:.4g} of {horizon:g}"
        )
        say(f"{label}: aggregation {far}, accuracy {accuracy}, {fates.text(', ')}{left}".rstrip(", "))

    return advance


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
