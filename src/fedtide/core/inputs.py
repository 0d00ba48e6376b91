"""Reading a small file that a user names: it ends, and soon, whatever the name leads to."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path

MOST_BYTES = 16 * 2**20
PIPE_SECONDS = 5.0  # for `<(command)` of a shell to say all it has to say


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return what a file holds, at most so many bytes, or a pipe that somebody writes to; OSError says why it cannot be had."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise OSError(errno.EINVAL, "it is a device, not a file", str(path))
        return _read(handle, path, stat.S_ISFIFO(mode), most)
    finally:
        os.close(handle)


def _read(handle: int, path: Path, is_pipe: bool, most: int) -> bytes:
    content, end = bytearray(), time.monotonic() + PIPE_SECONDS
    while True:
        if is_pipe and not select.select([handle], [], [], max(end - time.monotonic(), 0))[0]:
            raise TimeoutError(errno.ETIMEDOUT, f"nobody wrote to this pipe for {PIPE_SECONDS:g} s", str(path))
        part = os.read(handle, 1 << 16)
        if not part and is_pipe and not content:
            raise OSError(errno.EINVAL, "it is a pipe that nobody writes to", str(path))
        if not part:
            return bytes(content)
        content += part
        if len(content) > most:
            raise OSError(errno.EFBIG, f"it holds more than {most // 2**20} MB", str(path))
