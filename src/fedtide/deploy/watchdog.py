"""Ends a federation whose parent is gone: SIGKILL leaves nobody else who could.

Run as a process of its own, with nothing but the standard library. It reads the numbers of the processes that its parent
started; if they end with "done", the parent has stopped everything itself. If they just end, so has the parent: then all
processes of the federation are killed and its folder of temporary files, if it has one, is removed.
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

_TRIES, _PAUSE = 100, 0.1  # a process that is killed may just have started another


class Watchdog:
    """The parent's end. remove: a folder that goes away with a parent that was killed."""

    def __init__(self, home: Path, remove: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(home), *([str(remove)] if remove else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/" if os.name == "posix" else None,  # it keeps no disk busy
            start_new_session=True,  # Ctrl-C is not for it
        )

    def watch(self, pid: int) -> None:
        """Tell it of a process."""
        self._say(f"{pid}\n")

    def dismiss(self) -> None:
        """All is stopped; it may go."""
        self._say("done\n")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # somebody ended it: then it cannot help
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()


def federation_processes(home: str | Path) -> list[int]:
    """Return every process of a federation, its grandchildren included: those that carry its FLWR_HOME."""
    mark, found = f"FLWR_HOME={home}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:  # it ended, or is not ours
            continue
    return found


def _main(home: str, remove: str | None) -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    words = sys.stdin.buffer.read().split()
    if words[-1:] == [b"done"]:
        return
    started = [int(word) for word in words]
    for _ in range(_TRIES):
        left = federation_processes(home)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(_PAUSE)
    if not Path("/proc/self/environ").exists():  # another system: what was started leads a process group each
        for pid in started:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
    if remove is not None:
        shutil.rmtree(remove, ignore_errors=True)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
