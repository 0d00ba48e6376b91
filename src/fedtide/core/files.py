"""Files: small ones that a user names are read with limits, and none is ever half written."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import select
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from fedtide.core.faults import fault_reason, fault_remedy
from fedtide.errors import FedtideError, RunFolderError

# Files that are never half written.


_LEFT_SECONDS = 3600.0  # a write takes moments: what is older was left by a process that was killed
_HEAD_BYTES = 100_000  # of a file, by which its kind is recognised


def file_fault(path: Path, doing: str, error: OSError) -> RunFolderError:
    """Return the error for a file that the machine does not let us read or write: its reason and what to do.

    The file itself may be as good as ever.
    """
    return RunFolderError(f"{path} cannot be {doing} ({fault_reason(error)}): {fault_remedy(error)}")


def file_is_there(path: Path) -> bool:
    """Say whether something has this name; raise if the machine does not tell."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise file_fault(path, "read", error) from error
    except ValueError as error:  # a null byte in the name
        raise RunFolderError(f"{str(path)!r} cannot be a file's name ({error}): choose another") from error
    return True


def _aside_of(path: Path) -> Path:
    """Return a name beside a file under which it can be written first; `leftover_files` knows such names."""
    return path.with_name(f".{path.name}.fedtide-{os.getpid()}-{secrets.token_hex(4)}.part")


def leftover_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that a fedtide process wrote aside."""
    return folder.glob(".*.fedtide-*-" + "[0-9a-f]" * 8 + ".part")  # nobody else names files so


def write_output(path: Path, content: bytes, kind: bytes, what: str) -> None:
    """Write a file that a user named; raise if that would replace a file of another kind."""
    refuse_other_file_kind(path, kind, what)
    write_atomically(path, content)


def refuse_other_file_kind(path: Path, kind: bytes, what: str) -> None:
    """Raise if something else than `what` has this name. kind: a pattern that such files match at their beginning."""
    if not os.path.lexists(path):
        return
    if path.is_dir():
        raise FedtideError(f"{path} is a folder: name the file to write")
    if not path.is_file():
        raise FedtideError(f"{path} is a pipe, a device or a link to nothing, and not {what}: name another file")
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise file_fault(path, "read", error) from error
    if not re.match(kind, head, re.DOTALL):
        raise FedtideError(f"{path} exists and is not {what}: name another file, or move that one away")


def require_writable(path: Path) -> None:
    """Raise if no folder can be made there, or written to: before hours of runs, not after."""
    above = next(each for each in (path, *path.absolute().parents) if file_is_there(each))
    if not above.is_dir() or not os.access(above, os.W_OK):
        why = "no right to write in it" if above.is_dir() else "it is no folder"
        raise RunFolderError(
            f"{path} cannot be written ({above}: {why}): choose a place that you may write to with --out"
        )


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write aside, sync, rename: the file is the old one or the new one, never half of it."""
    aside = _aside_of(path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # the rename would take its place
        raise RunFolderError(f"{path} is a pipe or a device, which a file may not replace: name a file")
    try:
        try:
            with open(aside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise file_fault(path, "written", error) from error


def remove_temporary(folder: Path) -> None:
    """Remove what processes that are gone left half written in a folder; what is being written stays."""
    for path in leftover_files(folder):
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours to remove
            if time.time() - path.stat().st_mtime > _LEFT_SECONDS:
                path.unlink()


# Reading a small file that a user names: it ends, and soon, whatever the name leads to.


_MOST_BYTES = 16 * 2**20
PIPE_SECONDS = 5.0  # for `<(command)` of a shell to say all it has to say


def read_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """Return what a file holds, at most so many bytes, or a pipe that somebody writes to; OSError says why it cannot be had."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise OSError(errno.EINVAL, "it is a device, not a file", str(path))
        content, end = bytearray(), time.monotonic() + PIPE_SECONDS
        while len(content) <= most:
            if stat.S_ISFIFO(mode) and not select.select([handle], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError(errno.ETIMEDOUT, f"nobody wrote to this pipe for {PIPE_SECONDS:g} s", str(path))
            part = os.read(handle, 1 << 16)
            if not part:
                return bytes(content)
            content += part
        raise OSError(errno.EFBIG, f"it holds more than {most // 2**20} MB", str(path))
    finally:
        os.close(handle)


# Users' own files, by the names that experiments give them.


def is_own_file(name: str) -> bool:
    """Say whether a policy's name is that of a user's own file, `file.py:attribute`."""
    return name.rpartition(":")[0].endswith(".py")


def locate_file(place: str, folder: Path | None) -> Path:
    """Return where a user's own file is: in the working folder, or beside the file that names it.

    What is in neither comes out as it is. Two different files of one name are refused: nobody knows which was meant.
    """
    here = Path(place)
    there = here if folder is None else folder / here
    if os.path.isdir(there) and not os.path.exists(here):
        return there
    if not os.path.isfile(there):
        return here
    if os.path.isfile(here) and not here.samefile(there) and here.read_bytes() != there.read_bytes():
        raise FedtideError(
            f"{place} is there twice with different contents, in the working folder and as {there}; "
            "write the path of the one that is meant in full"
        )
    return here if os.path.isfile(here) else there


def files_beside(name: str, folder: Path) -> str:
    """Return a policy's name such that its file is found from anywhere, if it lies beside the experiment file alone."""
    place, _, attribute = name.rpartition(":")
    found = locate_file(place, folder) if is_own_file(name) else Path(place)
    return name if found == Path(place) else f"{os.path.abspath(found)}:{attribute}"
