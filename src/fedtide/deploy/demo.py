"""A whole federation on this machine, to look at: one SuperLink, a few SuperNodes of different speeds, one run folder."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from fedtide import config
from fedtide.config import Experiment
from fedtide.deploy import apps, trace
from fedtide.deploy.credentials import make_credentials
from fedtide.deploy.federation import Federation
from fedtide.deploy.settings import Deployment, Terms, check_terms, write_app
from fedtide.deploy.trace import Period
from fedtide.errors import FedtideError
from fedtide.parts.kinds import NAMED
from fedtide.runs import RoundRecord, is_complete, machine_fault, read_rounds

_SLOWEST_PERIODS = 2.5  # periods that the slowest node takes for a training; the fastest takes a tenth of one
_TABLE_ROWS = 12  # periods in the live table


class Demo(NamedTuple):
    """What to show."""

    num_nodes: int = 6
    num_periods: int = 20
    period: float = 15.0  # seconds; a message takes Flower some seconds, a wave to six nodes about nine
    data: str = "mnist"
    seed: int = 0
    secure: bool = False  # TLS and node keys


class View(NamedTuple):
    """What there is to see now."""

    rounds: list[RoundRecord]
    periods: list[Period]
    note: str


def demo_terms(demo: Demo, changes: dict[str, Any]) -> Terms:
    """Return the demo's terms, small and learnable in twenty periods; raise if they cannot be had on this machine."""
    nodes, limit = demo.num_nodes, max(1, demo.num_nodes // 2)
    tree: dict[str, Any] = {
        "seed": demo.seed,
        "data": {"name": demo.data, "num_train": 2000 * nodes, "num_test": 2000, "num_shards": 20 * nodes},
        "fleet": {"num_devices": nodes, "max_duration": 4 * demo.period},
        "timeline": {"period": demo.period, "horizon": demo.period * demo.num_periods},
        "policy": {"limit": limit},
        "radio": {"num_symbols": 20_000 * limit},
        "learning": {"local_epochs": 2, "learning_rate": 0.05},
    }
    experiment = config.experiment(tree, changes)
    terms = Terms(experiment, Deployment(min_nodes=demo.num_nodes, poll=0.5, deadline=0.9))
    if (count := experiment.fleet.num_devices) != demo.num_nodes:
        raise FedtideError(f"fleet.num_devices={count}: the demo starts one SuperNode per device; use --nodes {count}")
    if (period := experiment.timeline.period) != demo.period:
        raise FedtideError(
            f"timeline.period={period:g}: the demo's nodes take their pace from it; use --period {period:g}"
        )
    check_terms(terms)
    return terms._replace(experiment=_with_files_in_full(experiment))


def _with_files_in_full(experiment: Experiment) -> Experiment:
    """Name the user's own files by their full paths: Flower's processes work in a folder of their own."""
    changes: dict[str, dict[str, Any]] = {}
    for kind in NAMED.values():  # where the name of a part changes, its arguments are given anew
        args = dict(config.key_value(experiment, kind.args))
        for key, place in config.experiment_argument_files(experiment).items():
            if key.startswith(f"{kind.args}."):
                args[key.removeprefix(f"{kind.args}.")] = str(Path(place).absolute())
        group, _, leaf = kind.args.partition(".")
        changes.setdefault(group, {})[leaf] = args
    for key, name in config.own_files(experiment).items():
        group, _, leaf = key.rpartition(".")
        place, _, wanted = name.rpartition(":")
        changes[group][leaf] = f"{Path(place).absolute()}:{wanted}"
    return config.experiment(experiment, changes)


def paces(demo: Demo) -> list[float]:
    """Return how many seconds a training takes each node at least."""
    pace: list[float] = (np.linspace(0.1, _SLOWEST_PERIODS, demo.num_nodes) * demo.period).tolist()
    return pace


def run_demo(demo: Demo, terms: Terms, folder: Path, show: Callable[[View], None]) -> None:
    """Run the federation to its end and stop everything it started, also when interrupted; the run is in `folder`."""
    _make_folder(folder)
    with tempfile.TemporaryDirectory(prefix="fedtide-flower-", ignore_cleanup_errors=True) as temporary:
        base = Path(temporary)
        app = write_app(base / "app", terms, folder.absolute())
        hosts = ["localhost", "127.0.0.1"]
        credentials = make_credentials(base / "keys", hosts, demo.num_nodes) if demo.secure else None
        with _kept_logs(base / "home", folder), Federation(base / "home", credentials, base) as federation:
            show(View([], [], "starting the SuperNodes"))
            for part, pace in enumerate(paces(demo)):
                key = None
                if credentials is not None:
                    key, public = credentials.nodes[part]
                    federation.flwr("supernode", "register", str(public), "here")
                settings: dict[str, Any] = {"partition-id": part, "pace": pace}
                if terms.experiment.data.folder is not None:
                    settings["data-folder"] = str(terms.experiment.data.folder.absolute())
                federation.start_node(f"node-{part}", settings, key)
            federation.flwr("run", str(app), "here")
            _watch(federation, terms.experiment.timeline.period, folder, show)


def _make_folder(folder: Path) -> None:
    """Make an empty run folder: whether it can be written to shows now, and not when six nodes are up."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FedtideError(f"{folder} is not empty; choose a new folder with --out")
        apps.server_log(folder).unlink(missing_ok=True)  # of an older run of this name
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise machine_fault(folder, "used", error) from error


def _watch(federation: Federation, period: float, folder: Path, show: Callable[[View], None]) -> None:
    """Show the run as it goes, until it is complete."""
    patience, last, progress = 120 + 4 * period, time.monotonic(), 0
    while not is_complete(folder):
        rounds = read_rounds(folder)
        if len(rounds) > progress:
            last, progress = time.monotonic(), len(rounds)
        show(_view(folder, rounds, "the nodes train" if rounds else "waiting for the nodes and the first period"))
        if problem := apps.server_error(folder):
            raise FedtideError(f"the server gave up: {problem}")
        if time.monotonic() - last > patience:
            raise FedtideError(f"nothing has happened for {patience:.0f} s; see the logs in {_logs(folder)}")
        if federation.superlink.poll() is not None:
            raise FedtideError(f"the SuperLink has ended; see the logs in {_logs(folder)}")
        time.sleep(0.5)
    show(_view(folder, read_rounds(folder), "done; stopping the federation"))


def _view(folder: Path, rounds: list[RoundRecord], note: str) -> View:
    return View(rounds, trace.read_trace(folder).periods[: len(rounds)] if rounds else [], note)


@contextlib.contextmanager
def _kept_logs(home: Path, folder: Path) -> Iterator[None]:
    """Keep Flower's logs beside the run folder when something goes wrong."""
    try:
        yield
    except FedtideError:
        with contextlib.suppress(OSError):  # what went wrong is told in any case
            _logs(folder).mkdir(parents=True, exist_ok=True)
            for log in home.glob("*.log"):
                (_logs(folder) / log.name).write_bytes(log.read_bytes())
        raise


def _logs(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.logs")


def demo_table(experiment: Experiment, view: View) -> Table:
    """Return the live table: ready, picked, ages, bits, accuracy, newest period last."""
    total = round(experiment.timeline.horizon / experiment.timeline.period)
    shown = Table(
        title=f"period {len(view.rounds)} of {total}: {view.note}", title_justify="left", box=None, padding=(0, 2)
    )
    for heading in ("period", "ready", "picked", "age", "kbit granted", "kbit sent", "accuracy"):
        shown.add_column(heading, justify="left" if heading in ("ready", "picked") else "right")
    start = max(0, len(view.rounds) - _TABLE_ROWS)
    for record, period in zip(view.rounds[start:], view.periods[start:], strict=False):
        picked = " ".join(f"{k}" if k in period.arrived else f"[strike]{k}[/]" for k in record.picked)
        shown.add_row(
            str(record.index),
            " ".join(map(str, record.ready)) or "-",
            picked or "-",
            " ".join(map(str, record.age)) or "-",
            f"{sum(record.budget_bits) / 1000:.0f}",
            f"{sum(record.sent_bits) / 1000:.0f}",
            f"{record.test_accuracy:.3f}" if record.test_accuracy is not None else "",
        )
    return shown
