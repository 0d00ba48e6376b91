"""MLflow: `mlflow ui --backend-store-uri sqlite:///<folder>/mlflow/mlflow.db` shows it."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedtide import config
from fedtide.core.arguments import arg
from fedtide.records.round import RoundRecord
from fedtide.trackers.resumed import package, remember, remembered
from fedtide.trackers.scalars import dotted, scalars

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.drivers.simulate import Result

ALWAYS = "devices/ready"  # a metric of every aggregation, which tells how far a run has come
LONGEST = 6000  # characters of a parameter's value
PARAMS = 100  # of one call
CHATTY = ("mlflow.store.db.utils", "alembic")


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
        self._keys, self._folder = dotted(config.dump(experiment)), folder

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
        self._last = max((each.step for each in client.get_metric_history(run, ALWAYS)), default=0)
        client.update_run(run, status="RUNNING")
        return run

    def _new(self, client: Any, number: str) -> str:
        run = str(client.create_run(number, run_name=self._folder.name if self._folder else None).info.run_id)
        remember(self._folder, self._mark, run=run)
        param = package("mlflow.entities", "mlflow").Param
        params = [param(_allowed(key), str(value)[:LONGEST]) for key, value in self._keys.items()]
        for start in range(0, len(params), PARAMS):
            client.log_batch(run, params=params[start : start + PARAMS])
        self._last = 0
        return run


def _allowed(name: str) -> str:
    """Return a name with nothing in it that MLflow refuses."""
    return re.sub(r"[^\w\-. /:]", "_", name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep it from telling how it makes the tables of a new store."""
    loggers = [logging.getLogger(name) for name in CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
