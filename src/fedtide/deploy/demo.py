"""A whole federation on this machine, to look at: one SuperLink, a few SuperNodes of different speeds, one run folder."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from rich.table import Table

from fedtide import config
from fedtide.config import Experiment
from fedtide.core.files import require_writable
from fedtide.deploy.credentials import Credentials, make_credentials
from fedtide.deploy.log import server_error, server_log
from fedtide.deploy.settings import Deployment, Terms, acts_as_it_sees_fit, check_terms, write_app
from fedtide.deploy.trace import last_timing
from fedtide.deploy.watchdog import start_watchdog
from fedtide.errors import FedtideError
from fedtide.runs import RoundRecord, is_complete, read_rounds

_SLOWEST_PERIODS = 2.5  # periods that the slowest node takes for a training; the fastest takes a tenth of one
_TABLE_ROWS = 12  # periods in the live table
_HOST = "127.0.0.1"
ANSWER_SECONDS = 60.0  # until a SuperLink must answer
_GRACE_SECONDS = 8.0  # between asking a process to stop and making it


class Demo(NamedTuple):
    """What to show."""

    num_nodes: int = 6
    num_periods: int = 20
    period: float = 15.0  # seconds; a message takes Flower some seconds, a wave to six nodes about nine
    data: str = "mnist"
    seed: int = 0
    secure: bool = False  # TLS and node keys


Show: TypeAlias = Callable[[list[RoundRecord], str], None]  # told of the rounds so far, and what is going on


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
    files = {key: str(Path(place).absolute()) for key, place in config.experiment_argument_files(experiment).items()}
    tree = config.dump(experiment)
    for key, name in config.own_file_keys(experiment).items():
        place, _, wanted = name.rpartition(":")
        *above, leaf = key.split(".")
        here = functools.reduce(lambda inner, group: inner[group], above, tree)
        full = f"{Path(place).absolute()}:{wanted}"
        here[leaf] = {**here[leaf], "name": full} if isinstance(here[leaf], dict) else full
    return config.experiment(tree, files)


def _paces(demo: Demo) -> list[float]:
    """Return how many seconds a training takes each node at least."""
    return [float(pace) for pace in np.linspace(0.1, _SLOWEST_PERIODS, demo.num_nodes) * demo.period]


def run_demo(demo: Demo, terms: Terms, folder: Path, show: Show) -> None:
    """Run the federation to its end and stop everything it started, also when interrupted; the run is in `folder`."""
    require_writable(folder)  # that shows now, and not when six nodes are up
    if folder.exists() and any(folder.iterdir()):
        raise FedtideError(f"{folder} is not empty; choose a new folder with --out")
    with tempfile.TemporaryDirectory(prefix="fedtide-flower-", ignore_cleanup_errors=True) as temporary:
        base = Path(temporary)
        app = write_app(base / "app", terms, folder.absolute())
        hosts = ["localhost", "127.0.0.1"]
        credentials = make_credentials(base / "keys", hosts, demo.num_nodes) if demo.secure else None
        with Federation(base / "home", credentials, base) as federation:
            try:
                _start(federation, demo, terms, show)
                log = server_log(folder)
                log_begins = log.stat().st_size if log.exists() else 0  # there may be one of an older run
                federation.flwr("run", str(app), "here")
                _watch(federation, terms.experiment.timeline.period, folder, show, log_begins)
            except FedtideError:
                with contextlib.suppress(OSError):  # what went wrong is told in any case
                    _logs(folder).mkdir(parents=True, exist_ok=True)
                    for path in federation.home.glob("*.log"):
                        shutil.copy(path, _logs(folder))
                raise


def _start(federation: Federation, demo: Demo, terms: Terms, show: Show) -> None:
    """Start the SuperLink and the SuperNodes."""
    federation.start_superlink()
    show([], "starting the SuperNodes")
    for part, pace in enumerate(_paces(demo)):
        key = None
        if federation.credentials is not None:
            key, public = federation.credentials.nodes[part]
            federation.flwr("supernode", "register", str(public), "here")
        settings: dict[str, Any] = {"partition-id": part, "pace": pace}
        if terms.experiment.data.folder is not None:
            settings["data-folder"] = str(terms.experiment.data.folder.absolute())
        federation.start_node(f"node-{part}", settings, key)


def _watch(federation: Federation, period: float, folder: Path, show: Show, log_begins: int) -> None:
    """Show the run as it goes, until it is complete."""
    patience, last, progress = 120 + 4 * period, time.monotonic(), 0
    while not is_complete(folder):
        rounds = read_rounds(folder)
        if len(rounds) > progress:
            last, progress = time.monotonic(), len(rounds)
        timing = last_timing(folder)
        show(rounds, f"the server acted {timing}" if timing else "waiting for the nodes and the first period")
        if problem := server_error(folder, log_begins):
            raise FedtideError(f"the server gave up: {problem}")
        if time.monotonic() - last > patience:
            raise FedtideError(f"nothing has happened for {patience:.0f} s; see the logs in {_logs(folder)}")
        if federation.superlink.poll() is not None:
            raise FedtideError(f"the SuperLink has ended; see the logs in {_logs(folder)}")
        time.sleep(0.5)
    show(read_rounds(folder), "done; stopping the federation")


def _logs(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.logs")


def demo_table(experiment: Experiment, rounds: list[RoundRecord], note: str) -> Table:
    """Return the live table: ready, picked, ages, bits, accuracy, newest period last. Who is not in the model is struck."""
    horizon = experiment.timeline.horizon
    of = f"of {round(horizon / experiment.timeline.period)}"
    if acts_as_it_sees_fit(experiment):
        of = f"at {rounds[-1].time if rounds else 0.0:.0f} of {horizon:.0f} s"
    shown = Table(title=f"period {len(rounds)} {of}: {note}", title_justify="left", box=None, padding=(0, 2))
    for heading in ("period", "ready", "picked", "age", "kbit granted", "kbit sent", "accuracy"):
        shown.add_column(heading, justify="left" if heading in ("ready", "picked") else "right")
    for record in rounds[-_TABLE_ROWS:]:
        weights = zip(record.picked, record.weight, strict=True)
        picked = " ".join(f"{k}" if weight else f"[strike]{k}[/]" for k, weight in weights)
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


# -- Flower's processes on loopback ---------------------------------------------------------------------------------


class Federation:
    """Flower's processes on this machine. Leaving the context ends all of them, whatever happened.

    A watchdog does so if this process is killed itself. home is a folder of its own for Flower's files and logs; temporary
    is one around it that should then go as well. With credentials the SuperLink speaks TLS and only nodes whose public key
    has been registered may join; without, everything is in the clear and open to this machine.
    """

    def __init__(self, home: Path, credentials: Credentials | None = None, temporary: Path | None = None) -> None:
        self.home, self.credentials = home.absolute(), credentials
        self.address = f"{_HOST}:{_free_port()}"
        self.home.mkdir(parents=True, exist_ok=True)
        secure = f'root-certificates = "{credentials.authority}"' if credentials else "insecure = true"
        text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{secure}\n'
        (self.home / "config.toml").write_text(text)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watchdog = start_watchdog(self.home, temporary.absolute() if temporary else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ask everyone to stop; whoever does not is killed by the watchdog."""
        for process in reversed(self._processes):
            process.terminate()
        until = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < until and any(process.poll() is None for process in self._processes):
            time.sleep(0.1)
        self._watchdog.communicate()  # its input ends
        for process in self._processes:
            process.wait(10)

    def start_superlink(self, database: str | None = None) -> None:
        """Start the SuperLink and wait until it answers. database: as Flower takes it; None: a file at home."""
        host, _, port = self.address.rpartition(":")
        # A database on disk, so that a SuperLink that is killed and started again still knows its nodes and their keys.
        command = [
            "flower-superlink",
            "--host",
            host,
            "--port",
            port,
            "--database",
            database or str(self.home / "superlink.db"),
        ]
        command += ["--disable-runtime-dependency-installation"]
        if self.credentials is None:
            command += ["--insecure"]
        else:
            files = zip(("--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile"), self.credentials[:3], strict=True)
            command += ["--enable-supernode-auth", *(str(word) for pair in files for word in pair)]
        self.superlink = self.start("superlink", command)
        until = time.monotonic() + ANSWER_SECONDS
        while not _listens(host, int(port)):
            if self.superlink.poll() is not None or time.monotonic() > until:
                words = (self.home / "superlink.log").read_text(errors="replace").split()
                log = f"ends with {' '.join(words)[-300:]!r}" if words else "is empty"
                raise FedtideError(f"the SuperLink did not start: its log {log}")
            time.sleep(0.2)

    def start_node(self, name: str, config: Mapping[str, Any], key: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a SuperNode with this node configuration and, in a secured federation, its private key."""
        command = ["flower-supernode", "--superlink", self.address, "--host", _HOST, "--port", str(_free_port())]
        quoted = {word: f'"{value}"' if isinstance(value, str) else value for word, value in config.items()}
        command += ["--node-config", " ".join(f"{word}={value}" for word, value in quoted.items())]
        command += ["--root-certificates", str(self.credentials.authority)] if self.credentials else ["--insecure"]
        command += ["--auth-supernode-private-key", str(key.absolute())] if key else []
        return self.start(name, command)

    def flwr(self, *words: str) -> str:
        """Run Flower's own command, such as `run APP here` or `supernode register KEY here`; return what it printed."""
        try:
            done = subprocess.run(
                [_program("flwr"), *words],
                env=self._environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ANSWER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FedtideError(
                f"flwr {words[0]} did not answer within {ANSWER_SECONDS:.0f} s: this machine is busy; try again or lengthen "
                "--period"
            ) from error
        if done.returncode:
            raise FedtideError(f"flwr {words[0]} failed: {' '.join((done.stdout + done.stderr).split())[-400:]}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Return the environment of all processes: a home of their own, no calls to anyone outside."""
        return {
            **os.environ,
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start one of Flower's programs, with its output in a log of this name."""
        with open(self.home / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [_program(command[0]), *command[1:]],
                env=self._environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=self._watchdog.pid,  # Ctrl-C is for us; we stop the others in order
            )
        self._processes.append(process)
        return process


def _free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server((_HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def _program(name: str) -> str:
    """Return the command of this environment."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise FedtideError(f"{name} is not installed beside Python: pip install 'fedtide[flower]'")
    return str(path)
