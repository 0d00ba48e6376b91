"""Weights & Biases, offline unless told otherwise: `wandb sync <folder>/wandb/offline-run-*` uploads it later."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fedtide import config
from fedtide.core.arguments import arg
from fedtide.records.round import RoundRecord
from fedtide.trackers.resumed import package, remember, remembered
from fedtide.trackers.scalars import dotted, scalars

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.drivers.simulate import Result

FLUSH_SECONDS = 0.1  # to the file; more is lost if the run is killed. Older versions know no such setting.


@dataclass
class WandB:
    """Writes the experiment's keys as the run's config, and the numbers of every aggregation."""

    project: Annotated[str, arg("the project that the run belongs to")] = "fedtide"
    mode: Annotated[Literal["offline", "online"], arg("offline: into files alone, nothing goes over the network")] = (
        "offline"
    )
    _keys: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _folder: Path | None = field(default=None, init=False, repr=False)
    _run: Any = field(default=None, init=False, repr=False)
    _last: int = field(default=0, init=False, repr=False)  # the last aggregation that is written

    def begin(self, experiment: Experiment, folder: Path | None, total: int) -> None:
        """Look for the package."""
        if self.mode == "offline":  # it reports its own errors over the network even then, here and in its service
            os.environ["WANDB_ERROR_REPORTING"] = "false"
        package("wandb", "wandb")
        self._keys, self._folder = dotted(config.dump(experiment)), folder

    def round(self, record: RoundRecord) -> None:
        """Write the numbers of one aggregation, unless an earlier session of this run did."""
        if self._run is None:
            self._run = self._open()
        if record.index <= self._last:
            return
        self._run.log(scalars(record), step=record.index, commit=True)  # not when the next one comes
        self._last = record.index

    def end(self, result: Result | None) -> None:
        """Close the run."""
        if self._run is not None:
            self._run.finish(exit_code=1 if result is None else 0)
            # Only now: a session that is killed may not have written its last steps, and twice is better than never.
            remember(self._folder, self._mark, id=self._run.id, last=self._last)
            self._run = None

    @property
    def _mark(self) -> str:
        return f"wandb {self.project} {self.mode}"

    def _open(self) -> Any:
        """Go on with the run of this folder, or begin one: offline that is another file with the same id."""
        wandb = package("wandb", "wandb")
        before = remembered(self._folder, self._mark)
        last = before.get("last", 0)
        self._last = last if isinstance(last, int) else 0
        prompt = {"x_transaction_log_flush_interval": FLUSH_SECONDS}
        settings = wandb.Settings(
            silent=True,
            console="off",  # ours stays ours
            disable_git=True,
            save_code=False,
            x_disable_stats=True,  # the machine's; asks addresses of the network, too
            **{key: value for key, value in prompt.items() if key in wandb.Settings.model_fields},
        )
        run = wandb.init(
            project=self.project,
            mode=self.mode,
            dir=str((self._folder or Path()).resolve()),  # it would remember the folder of its first run
            id=before.get("id"),
            name=self._folder.name if self._folder else None,
            config=self._keys,
            resume="allow" if self.mode == "online" else None,
            reinit="create_new",  # a run of the user's own stays as it is
            settings=settings,
        )
        remember(self._folder, self._mark, id=run.id, last=self._last)
        return run
