"""TensorBoard, written with tensorboardX: `tensorboard --logdir <folder>` shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedtide import config
from fedtide.core import forms
from fedtide.core.arguments import arg
from fedtide.records.round import RoundRecord
from fedtide.trackers.resumed import package
from fedtide.trackers.scalars import scalars

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.drivers.simulate import Result


@dataclass
class TensorBoard:
    """Writes the numbers of every aggregation, and the experiment as text. The step is the aggregation's index."""

    logdir: Annotated[
        Path | None,
        arg("where to write, one folder for each run; default: tensorboard in the run folder, or runs/<date>"),
    ] = None
    _experiment: Experiment | None = field(default=None, init=False, repr=False)
    _where: Path | None = field(default=None, init=False, repr=False)
    _writer: Any = field(default=None, init=False, repr=False)

    def begin(self, experiment: Experiment, folder: Path | None, total: int) -> None:
        """Look for the package, and settle where to write."""
        package("tensorboardX", "tensorboard")
        self._experiment = experiment
        self._where = self.logdir or (folder / "tensorboard" if folder else None)

    def round(self, record: RoundRecord) -> None:
        """Write the numbers of one aggregation."""
        if self._writer is None:
            self._writer = self._open(record.index)
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, record.index)
        self._writer.flush()  # whoever looks now sees it, and what is killed has it

    def end(self, result: Result | None) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, first: int) -> Any:
        """Return a writer of a new file; the steps of older ones from `first` on no longer count."""
        begun = self._where is not None and any(self._where.glob("events.out.tfevents.*"))
        writer = package("tensorboardX", "tensorboard").SummaryWriter(
            str(self._where) if self._where else None,
            purge_step=first if begun else None,
            filename_suffix=f".{first:08d}",  # two files of one second must not be one
        )
        if not begun and self._experiment is not None:
            text = forms.write(config.dump(self._experiment))
            writer.add_text("experiment", "".join(f"    {line}\n" for line in text.splitlines()), 0)
        return writer
