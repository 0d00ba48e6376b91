"""A federation on this machine: a SuperLink and SuperNodes as processes on loopback, and all of them stopped again."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from fedtide.deploy.credentials import Credentials
from fedtide.deploy.watchdog import kill_federation, start_watchdog
from fedtide.errors import FedtideError

_HOST = "127.0.0.1"
_PROGRAMS = (  # Flower starts most of them itself, and says nothing if it cannot
    "flwr", "flower-superlink", "flower-supernode", "flower-superexec", "flwr-serverapp", "flwr-clientapp",
)  # fmt: skip
ANSWER_SECONDS = 60.0  # until a SuperLink must answer
_GRACE_SECONDS = 8.0  # between asking a process to stop and making it


class Federation:
    """Context manager: leaving it ends every process that belongs to the federation, whatever happened.

    A watchdog does so if this process is killed itself. home is a folder of its own for Flower's files and logs; temporary
    is one around it that should then go as well. With credentials the SuperLink speaks TLS and only nodes whose public key
    has been registered may join; without, everything is in the clear and open to this machine.
    """

    def __init__(self, home: Path, credentials: Credentials | None = None, temporary: Path | None = None) -> None:
        self.home, self.credentials = home.absolute(), credentials
        self._temporary = temporary.absolute() if temporary else None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self.address = f"{_HOST}:{_free_port()}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for name in _PROGRAMS:
            _program(name)
        self.home.mkdir(parents=True, exist_ok=True)
        secure = f'root-certificates = "{self.credentials.authority}"' if self.credentials else "insecure = true"
        text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{secure}\n'
        (self.home / "config.toml").write_text(text)
        try:
            self.start_superlink()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it answers."""
        host, _, port = self.address.rpartition(":")
        # A database on disk, so that a SuperLink that is killed and started again still knows its nodes and their keys.
        command = ["flower-superlink", "--host", host, "--port", port, "--database", str(self.home / "superlink.db")]
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
        if self._watchdog is None:  # first of all: from now on something could be left behind
            self._watchdog = start_watchdog(self.home, self._temporary)
        with open(self.home / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [_program(command[0]), *command[1:]],
                env=self._environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we stop the others in order
            )
        self._processes.append(process)
        with contextlib.suppress(OSError):  # somebody ended it: then it cannot help
            os.write(self._watchdog.stdin.fileno(), f"{process.pid}\n".encode())  # type: ignore[union-attr]
        return process

    def stop(self) -> None:
        """Ask everyone to stop, then make them. If this is interrupted, the watchdog does the rest."""
        for process in reversed(self._processes):
            process.terminate()
        until = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < until and any(process.poll() is None for process in self._processes):
            time.sleep(0.1)
        kill_federation(self.home)
        for process in self._processes:
            process.kill()
            process.wait(10)
        self._processes.clear()
        if self._watchdog is not None:
            self._watchdog.communicate(b"done\n")
            self._watchdog = None


def _free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


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
