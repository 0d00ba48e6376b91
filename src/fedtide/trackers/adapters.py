"""TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fedtide import config
from fedtide.core import yaml12
from fedtide.parts.arguments import arg
from fedtide.runs.record import RoundRecord
from fedtide.trackers.base import package, remember, remembered, scalars

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.runs.result import Result


# TensorBoard, written with tensorboardX: `tensorboard --logdir <folder>` shows it.


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
            text = yaml12.to_yaml(config.dump(self._experiment))
            writer.add_text("experiment", "".join(f"    {line}\n" for line in text.splitlines()), 0)
        return writer


# MLflow: `mlflow ui --backend-store-uri sqlite:///<folder>/mlflow/mlflow.db` shows it.


_ALWAYS = "devices/ready"  # a metric of every aggregation, which tells how far a run has come
_LONGEST = 6000  # characters of a parameter's value
_PARAMS = 100  # of one call
_CHATTY = ("mlflow.store.db.utils", "alembic")


@dataclass
class MLflow:
    """Writes the experiment's keys as parameters, the numbers of every aggregation, and the final model as an artifact."""

    experiment: Annotated[str, arg("the MLflow experiment that the run belongs to")] = "fedtide"
    uri: Annotated[
        str | None,
        arg("of the tracking server or store; default: an SQLite file in the run folder, or in mlflow/ here"),
    ] = None
    _keys: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _folder: Path | None = field(default=None, init=False, repr=False)
    _client: Any = field(default=None, init=False, repr=False)
    _run: str = field(default="", init=False, repr=False)
    _last: int = field(default=0, init=False, repr=False)  # the last aggregation that is written

    def begin(self, experiment: Experiment, folder: Path | None, total: int) -> None:
        """Look for the package."""
        # Unless the user wants it: it would tell its makers of every run over the network.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        package("mlflow", "mlflow")
        if self.uri is None:  # what an SQLite store needs besides the slim package
            package("sqlalchemy", "mlflow")
            package("alembic", "mlflow")
        self._keys, self._folder = config.dotted(config.dump(experiment)), folder

    def round(self, record: RoundRecord) -> None:
        """Write the numbers of one aggregation, unless an earlier session of this run did."""
        self._open()
        if record.index <= self._last:
            return
        metric, now = package("mlflow.entities", "mlflow").Metric, int(time.time() * 1000)
        self._client.log_batch(
            self._run,
            metrics=[metric(_allowed(name), value, now, record.index) for name, value in scalars(record).items()],
        )

    def end(self, result: Result | None) -> None:
        """Write the final model, if it is kept, and close the run."""
        if self._client is None and (result is None or not remembered(self._folder, self._mark)):
            return  # nothing was written, in this session or an earlier one
        self._open()
        model = self._folder / "model.npy" if self._folder else None
        if result is not None and model is not None and model.is_file():
            self._client.log_artifact(self._run, str(model))
        self._client.set_terminated(self._run, "KILLED" if result is None else "FINISHED")
        self._client = None

    def _open(self) -> None:
        """Go on with the run of this folder, or begin one."""
        if self._client is not None:
            return
        uri, place = self.uri, None
        if uri is None:
            place = ((self._folder or Path()) / "mlflow").resolve()
            place.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{place / 'mlflow.db'}"
        with _quiet():
            client = package("mlflow", "mlflow").MlflowClient(tracking_uri=uri)
            found = client.get_experiment_by_name(self.experiment)
            if found is None:
                artifacts = (place / "artifacts").as_uri() if place else None
                number = client.create_experiment(self.experiment, artifact_location=artifacts)
            else:
                number = found.experiment_id
        self._run = self._begun(client, number) or self._new(client, number)
        self._client = client

    @property
    def _mark(self) -> str:
        return f"mlflow {self.experiment} {self.uri or ''}".strip()

    def _begun(self, client: Any, number: str) -> str:
        """Return the run of an earlier session in this folder; nothing if the store no longer has it."""
        run = remembered(self._folder, self._mark).get("run")
        if not isinstance(run, str) or not any(
            each.info.run_id == run for each in client.search_runs([number], f"attributes.run_id = '{run}'")
        ):
            return ""
        self._last = max((each.step for each in client.get_metric_history(run, _ALWAYS)), default=0)
        client.update_run(run, status="RUNNING")
        return run

    def _new(self, client: Any, number: str) -> str:
        run = str(client.create_run(number, run_name=self._folder.name if self._folder else None).info.run_id)
        remember(self._folder, self._mark, run=run)
        param = package("mlflow.entities", "mlflow").Param
        params = [param(_allowed(key), str(value)[:_LONGEST]) for key, value in self._keys.items()]
        for start in range(0, len(params), _PARAMS):
            client.log_batch(run, params=params[start : start + _PARAMS])
        self._last = 0
        return run


def _allowed(name: str) -> str:
    """Return a name with nothing in it that MLflow refuses."""
    return re.sub(r"[^\w\-. /:]", "_", name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep it from telling how it makes the tables of a new store."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# Weights & Biases, offline unless told otherwise: `wandb sync <folder>/wandb/offline-run-*` uploads it later.


_FLUSH_SECONDS = 0.1  # to the file; more is lost if the run is killed. Older versions know no such setting.


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
        self._keys, self._folder = config.dotted(config.dump(experiment)), folder

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
        prompt = {"x_transaction_log_flush_interval": _FLUSH_SECONDS}
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
