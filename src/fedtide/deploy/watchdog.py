"""A watchdog that ends the processes of a local federation when its parent is done, or was killed: nobody else could.

Run as a process of its own, with nothing but the standard library. When its input ends, all processes of the federation are
killed, and its temporary folder, if it has one, is removed.
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
    """Start it, as the leader of a process group that those whom it watches should join."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(home), *([str(temporary)] if temporary else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",  # it keeps no disk busy
        process_group=0,  # Ctrl-C is not for it
    )


def _federation_processes(home: str | Path) -> list[int]:
    """Return every process that carries a federation's FLWR_HOME.

    Flower starts its grandchildren in sessions of their own, so no process group holds them all.
    """
    mark, found = f"FLWR_HOME={home}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is not ours
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def _main(home: str, temporary: str | None = None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    until = time.monotonic() + 10
    while (left := _federation_processes(home)) and time.monotonic() < until:  # one may just have started another
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)  # itself, and on systems without /proc what its parent started


if __name__ == "__main__":
    _main(*sys.argv[1:])
