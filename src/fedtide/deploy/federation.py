"""A federation on this machine: a SuperLink and SuperNodes as processes on loopback, and all of them stopped again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from fedtide.core.signals import SIGNALS
from fedtide.deploy.credentials import Credentials
from fedtide.deploy.watchdog import Watchdog, federation_processes
from fedtide.errors import FedtideError

_HOST = "127.0.0.1"
PATIENCE = 60.0  # seconds until a SuperLink must answer
_GRACE = 8.0  # seconds between asking a process to stop and making it


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class Federation:
    """Context manager: leaving it ends every process that belongs to the federation, whatever happened.

    A watchdog does so if this process is killed itself. home is a folder of its own for Flower's files and logs; temporary
    is one around it that should then go as well. With credentials the SuperLink speaks TLS and only nodes whose public key
    has been registered may join; without, everything is in the clear and open to this machine.
    """

    def __init__(self, home: Path, credentials: Credentials | None = None, temporary: Path | None = None) -> None:
        self.home, self.credentials = home.absolute(), credentials
        self._temporary = temporary.absolute() if temporary else None
        self._watchdog: Watchdog | None = None
        self.address = f"{_HOST}:{free_port()}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.superlink: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Federation:
        _check_programs()
        self.home.mkdir(parents=True, exist_ok=True)
        secure = "" if self.credentials is None else f'root-certificates = "{self.credentials.authority.absolute()}"\n'
        plain = "insecure = true\n" if self.credentials is None else ""
        text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{secure}{plain}'
        (self.home / "config.toml").write_text(text)
        try:
            self.start_superlink()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # -- processes --------------------------------------------------------------------------------------------------

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it answers."""
        host, _, port = self.address.rpartition(":")
        command = ["flower-superlink", "--host", host, "--port", port, "--disable-runtime-dependency-installation"]
        # On disk, so that a SuperLink that is killed and started again still knows its nodes and their keys.
        command += ["--database", str(self.home / "superlink.db")]
        if self.credentials is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-ca-certfile", str(self.credentials.authority.absolute())]
            command += ["--ssl-certfile", str(self.credentials.certificate.absolute())]
            command += ["--ssl-keyfile", str(self.credentials.key.absolute()), "--enable-supernode-auth"]
        self.superlink = self._start("superlink", command)
        until = time.monotonic() + PATIENCE
        while not _listens(host, int(port)):
            if self.superlink.poll() is not None or time.monotonic() > until:
                raise FedtideError(f"the SuperLink did not start: {self._last_words('superlink')}")
            time.sleep(0.2)

    def start_node(
        self, name: str, config: Mapping[str, Any], key: Path | None = None, *, authority: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start a SuperNode with this node configuration and, in a secured federation, its private key."""
        words = " ".join(f"{each}={_toml(value)}" for each, value in config.items())
        command = ["flower-supernode", "--superlink", self.address, "--host", _HOST, "--port", str(free_port())]
        command += ["--node-config", words] if words else []
        if self.credentials is None:
            command += ["--insecure"]
        elif authority:
            command += ["--root-certificates", str(self.credentials.authority.absolute())]
        if key is not None:
            command += ["--auth-supernode-private-key", str(key.absolute())]
        return self._start(name, command)

    def register(self, public: Path) -> None:
        """Let a node with this public key join."""
        self.flwr("supernode", "register", str(public.absolute()), "here")

    def run_app(self, app: Path) -> None:
        """Send the app to the SuperLink, which starts the ServerApp."""
        self.flwr("run", str(app.absolute()), "here")

    def flwr(self, *words: str) -> str:
        """Run Flower's own command and return what it printed."""
        try:
            done = subprocess.run(
                [_program("flwr"), *words],
                env=self.environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FedtideError(
                f"flwr {words[0]} did not answer within {PATIENCE:.0f} s: this machine is busy; try again or lengthen --period"
            ) from error
        if done.returncode:
            raise FedtideError(f"flwr {words[0]} failed: {' '.join((done.stdout + done.stderr).split())[-400:]}")
        return done.stdout

    def environment(self) -> dict[str, str]:
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

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        if self._watchdog is None:  # first of all: from now on something could be left behind
            self._watchdog = Watchdog(self.home, self._temporary)
        with open(self.home / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [_program(command[0]), *command[1:]],
                env=self.environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we stop the others in order
            )
        self._processes.append(process)
        self._watchdog.watch(process.pid)
        return process

    def _last_words(self, name: str) -> str:
        """Return the end of a process's log in one line."""
        try:
            text = (self.home / f"{name}.log").read_text(errors="replace")
        except OSError as error:
            return str(error)
        return f"its log ends with {' '.join(text.split())[-300:]!r}" if text.strip() else "its log is empty"

    # -- the end ----------------------------------------------------------------------------------------------------

    def members(self) -> list[int]:
        """Return every process of this federation, its grandchildren included."""
        return federation_processes(self.home)

    def server_apps(self) -> list[int]:
        """Return the processes that run a ServerApp."""
        found = []
        for pid in self.members():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.endswith(b"flwr-serverapp") for word in words[:2]):
                found.append(pid)
        return found

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL a process and what it started, as a power cut would."""
        for pid in [*_descendants(process.pid), process.pid]:
            _signal(pid, signal.SIGKILL)
        process.wait(10)

    def stop(self) -> None:
        """Ask everyone to stop, then make them; an impatient second Ctrl-C does not get in between."""
        with _deaf():
            self._stop()

    def _stop(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + _GRACE
        while time.monotonic() < until and any(each.poll() is None for each in self._processes):
            time.sleep(0.1)
        for _ in range(20):  # a process that is killed may just have started another
            left = self.members()
            for pid in left:
                _signal(pid, signal.SIGKILL)
            for process in self._processes:
                if process.poll() is None:
                    process.kill()
                    process.wait(10)
            if not left:
                break
            time.sleep(0.1)
        self._processes.clear()
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Ignore Ctrl-C and requests to end for a moment; only the main thread may decide that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and a closed terminal into KeyboardInterrupt, so that what was started is stopped.

    Whoever handles or ignores them already goes on doing so.
    """

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    deadly = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in deadly:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in deadly:
            signal.signal(number, signal.SIG_DFL)


def temporary_home() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for Flower's files that goes away with its context."""
    return tempfile.TemporaryDirectory(prefix="fedtide-flower-", ignore_cleanup_errors=True)


def _check_programs() -> None:
    """Raise if one of Flower's programs is missing: it starts most of them itself, and says nothing if it cannot."""
    for name in (
        "flwr",
        "flower-superlink",
        "flower-supernode",
        "flower-superexec",
        "flwr-serverapp",
        "flwr-clientapp",
    ):
        _program(name)


def _program(name: str) -> str:
    """Return the command of this environment."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise FedtideError(f"{name} is not installed beside Python: pip install 'fedtide[flower]'")
    return str(path)


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def _toml(value: Any) -> str:
    return (
        f'"{value}"'
        if isinstance(value, (str, Path))
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _descendants(pid: int) -> list[int]:
    """Return all children of a process and theirs."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found, todo = [], [pid]
    while todo:
        here = todo.pop()
        children = [child for child, parent in parents.items() if parent == here]
        found += children
        todo += children
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
