"""The processes of a local federation, and a watchdog that ends them if their parent is killed: nobody else could.

Run as a process of its own, with nothing but the standard library. It reads the numbers of the processes that its parent
started. If they end with "done", the parent has stopped everything itself. If they just end, so has the parent: then all
processes of the federation are killed and its temporary folder, if it has one, is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def start_watchdog(home: Path, temporary: Path | None) -> subprocess.Popen[bytes]:
    """Start it; its parent writes the numbers of processes into its input, a line each."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(home), *([str(temporary)] if temporary else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",  # it keeps no disk busy
        start_new_session=True,  # Ctrl-C is not for it
    )


def federation_processes(home: str | Path) -> list[int]:
    """Return every process that carries a federation's FLWR_HOME.

    Flower starts its grandchildren in sessions of their own, so no process group holds them all.
    """
    mark, found = f"FLWR_HOME={home}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is not ours
            if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def kill_federation(home: str | Path) -> None:
    """SIGKILL every process of a federation; one that is killed may just have started another."""
    until = time.monotonic() + 10
    while (left := federation_processes(home)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _main(home: str, temporary: str | None = None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    words = sys.stdin.buffer.read().split()
    if words[-1:] == [b"done"]:
        return
    kill_federation(home)
    for word in words:  # without /proc: what was started leads a process group each
        with contextlib.suppress(OSError):
            os.killpg(int(word), signal.SIGKILL)
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
