"""TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

import abc
import importlib
import logging
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import TypeAdapter

from fedtide import config
from fedtide.core import yaml12
from fedtide.core.faults import fault_text
from fedtide.core.files import write_atomically
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.runs.record import RoundRecord
from fedtide.trackers.base import tracker_scalars

if TYPE_CHECKING:
    from fedtide.config import Experiment
    from fedtide.runs.result import Result

_FILE: Final = "trackers.json"  # in the run folder: what trackers need to find their own run again, by tracker
_SESSIONS: Final = TypeAdapter(dict[str, dict[str, Any]])


@dataclass
class _Adapter(abc.ABC):
    """What they have in common: a run is opened with its first aggregation, and goes on with that of an earlier session."""

    packages: ClassVar[tuple[str, ...]]  # that it writes with
    _experiment: Any = field(default=None, init=False, repr=False)
    _folder: Path | None = field(default=None, init=False, repr=False)
    _run: Any = field(default=None, init=False, repr=False)  # while it is open
    _last: int = field(default=0, init=False, repr=False)  # the last aggregation that is written
    _mark: str = field(default="", init=False, repr=False)  # names this tracker in _FILE

    def begin(self, experiment: Experiment, folder: Path | None, total: int) -> None:
        """Look for the packages; say what to install if they are not there."""
        self._experiment, self._folder, self._last = experiment, folder, 0
        for name in self.packages:
            try:
                importlib.import_module(name)
            except ImportError as error:
                remedy = f"pip install 'fedtide[{type(self).__name__.lower()}]'"
                raise FedtideError(f"{name} cannot be imported ({fault_text(error)}): {remedy}") from error

    def round(self, record: RoundRecord) -> None:
        """Write the numbers of one aggregation, unless an earlier session of this run did."""
        if self._run is None:
            self._run = self._open(record.index)
        if record.index > self._last:
            self._write(record.index, tracker_scalars(record))
            self._last = record.index

    @abc.abstractmethod
    def _open(self, first: int) -> Any:
        """Open the tracker's run; `first` is the first aggregation of this session."""

    @abc.abstractmethod
    def _write(self, step: int, values: dict[str, float]) -> None:
        """Write the numbers of one aggregation."""

    def _sessions(self) -> dict[str, dict[str, Any]]:
        try:
            return _SESSIONS.validate_json((self._folder / _FILE).read_bytes()) if self._folder else {}
        except (OSError, ValueError):  # a new run, or a damaged file: the tracker begins a run of its own
            return {}

    def _remember(self, **values: Any) -> None:
        """Write something down for the next session of this run, beside what other trackers did."""
        if self._folder is not None:
            content = _SESSIONS.dump_json({**self._sessions(), self._mark: values}, indent=2)
            write_atomically(self._folder / _FILE, content)


@dataclass
class TensorBoard(_Adapter):
    """Writes the numbers of every aggregation, and the experiment as text, with tensorboardX.

    The step is the aggregation's index. `tensorboard --logdir <folder>` shows it.
    """

    logdir: Annotated[
        Path | None,
        arg("where to write, one folder for each run; default: tensorboard in the run folder, or runs/<date>"),
    ] = None
    packages = ("tensorboardX",)

    def _open(self, first: int) -> Any:
        """Return a writer of a new file; the steps of older ones from `first` on no longer count."""
        place = self.logdir or (self._folder / "tensorboard" if self._folder else None)
        begun = place is not None and any(place.glob("events.out.tfevents.*"))
        writer = importlib.import_module("tensorboardX").SummaryWriter(
            str(place) if place else None,
            purge_step=first if begun else None,
            filename_suffix=f".{first:08d}",  # two files of one second must not be one
        )
        if not begun:
            text = yaml12.to_yaml(config.dump(self._experiment))
            writer.add_text("experiment", "".join(f"    {line}\n" for line in text.splitlines()), 0)
        return writer

    def _write(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._run.add_scalar(name, value, step)
        self._run.flush()  # whoever looks now sees it, and what is killed has it

    def end(self, result: Result | None) -> None:
        """Close the file."""
        if self._run is not None:
            self._run.close()
            self._run = None


_EVERY_STEP = "devices/ready"  # a metric of every aggregation, which tells how far a run has come
_MAX_VALUE_CHARACTERS, _MAX_PARAMS_PER_CALL = 6000, 100


@dataclass
class MLflow(_Adapter):
    """Writes the experiment's keys as parameters, the numbers of every aggregation, and the final model as an artifact.

    `mlflow ui --backend-store-uri sqlite:///<folder>/mlflow/mlflow.db` shows it.
    """

    experiment: Annotated[str, arg("the MLflow experiment that the run belongs to")] = "fedtide"
    uri: Annotated[
        str | None,
        arg("address of the tracking server or store; default: an SQLite file in the run folder, or in mlflow/ here"),
    ] = None
    _client: Any = field(default=None, init=False, repr=False)
    packages = ("mlflow", "sqlalchemy", "alembic")  # the slim package, and what its SQLite store needs

    def __post_init__(self) -> None:
        self._mark = f"mlflow {self.experiment} {self.uri or ''}".strip()
        # Unless the user wants it: it would tell its makers of every run over the network.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

    def _write(self, step: int, values: dict[str, float]) -> None:
        metric, now = importlib.import_module("mlflow.entities").Metric, int(time.time() * 1000)
        metrics = [metric(_allowed(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, result: Result | None) -> None:
        """Write the final model, if it is kept, and close the run."""
        if self._run is None and (result is None or self._mark not in self._sessions()):
            return  # nothing was written, in this session or an earlier one
        run = self._run or self._open(0)
        model = self._folder / "model.npy" if self._folder else None
        if result is not None and model is not None and model.is_file():
            self._client.log_artifact(run, str(model))
        self._client.set_terminated(run, "KILLED" if result is None else "FINISHED")
        self._run = None

    def _open(self, first: int) -> str:
        """Go on with the run of this folder, or begin one; return its number."""
        uri, artifacts = self.uri, None
        if uri is None:
            place = ((self._folder or Path()) / "mlflow").resolve()
            place.mkdir(parents=True, exist_ok=True)
            uri, artifacts = f"sqlite:///{place / 'mlflow.db'}", (place / "artifacts").as_uri()
        before = logging.root.manager.disable
        logging.disable(logging.INFO)  # it would tell how it makes the tables of a new store
        try:
            client = self._client = importlib.import_module("mlflow").MlflowClient(tracking_uri=uri)
            found = client.get_experiment_by_name(self.experiment)
            number = found.experiment_id if found else client.create_experiment(self.experiment, artifacts)
        finally:
            logging.disable(before)
        run = self._sessions().get(self._mark, {}).get("run", "")
        # that of an earlier session, if the store still has it
        if client.search_runs([number], f"attributes.run_id = '{run}'"):
            self._last = max((each.step for each in client.get_metric_history(run, _EVERY_STEP)), default=0)
            client.update_run(run, status="RUNNING")
            return str(run)
        run = str(client.create_run(number, run_name=self._folder.name if self._folder else None).info.run_id)
        self._remember(run=run)
        param, keys = (
            importlib.import_module("mlflow.entities").Param,
            config.nested_to_dotted(config.dump(self._experiment)),
        )
        params = [param(_allowed(key), str(value)[:_MAX_VALUE_CHARACTERS]) for key, value in keys.items()]
        for start in range(0, len(params), _MAX_PARAMS_PER_CALL):
            client.log_batch(run, params=params[start : start + _MAX_PARAMS_PER_CALL])
        return run


def _allowed(name: str) -> str:
    """Return a name with nothing in it that MLflow refuses."""
    return re.sub(r"[^\w\-. /:]", "_", name)


_FLUSH_SECONDS = 0.1  # to the file; more is lost if the run is killed. Older versions know no such setting.


@dataclass
class WandB(_Adapter):
    """Writes the experiment's keys as the run's config, and the numbers of every aggregation.

    Offline unless told otherwise: `wandb sync <folder>/wandb/offline-run-*` uploads it later.
    """

    project: Annotated[str, arg("the project that the run belongs to")] = "fedtide"
    mode: Annotated[Literal["offline", "online"], arg("offline: write files only, nothing goes over the network")] = (
        "offline"
    )
    packages = ("wandb",)

    def __post_init__(self) -> None:
        self._mark = f"wandb {self.project} {self.mode}"
        if self.mode == "offline":  # it reports its own errors over the network even then, here and in its service
            os.environ["WANDB_ERROR_REPORTING"] = "false"

    def _write(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step, commit=True)  # not when the next one comes

    def end(self, result: Result | None) -> None:
        """Close the run."""
        if self._run is not None:
            self._run.finish(exit_code=1 if result is None else 0)
            # Only now: a session that is killed may not have written its last steps, and twice is better than never.
            self._remember(id=self._run.id, last=self._last)
            self._run = None

    def _open(self, first: int) -> Any:
        """Go on with the run of this folder, or begin one: offline that is another file with the same id."""
        wandb, before = importlib.import_module("wandb"), self._sessions().get(self._mark, {})
        self._last = int(before.get("last", 0))
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
            config=config.nested_to_dotted(config.dump(self._experiment)),
            resume="allow" if self.mode == "online" else None,
            reinit="create_new",  # a run of the user's own stays as it is
            settings=settings,
        )
        self._remember(id=run.id, last=self._last)
        return run
