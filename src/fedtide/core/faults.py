"""Any exception as one line and an exit code: those of the system, of a user's own code, and ours."""

from __future__ import annotations

import errno
import os
import re
import traceback
from pathlib import Path

from fedtide.errors import FedtideError, TrainingError

MACHINE = 6  # the exit code of "the machine cannot"
_LINE_CHARACTERS = 900  # at most; more is cut out of the middle

_PLACE = "name another place, or ask for the right to it"
_FULL = "free space, or name another disk"
_FILES = "close other programs or raise the limit (`ulimit -n`); nothing is wrong with the file"
_MEMORY = "free memory, or ask for less: fewer devices, samples or threads, a smaller model"
_REMEDIES = {
    errno.EACCES: _PLACE,
    errno.EPERM: _PLACE,
    errno.EROFS: "name a place that can be written to",
    errno.ENOLCK: "the disk knows no locks: name a place on another one",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "name a smaller file, or raise the limit (`ulimit -f`)",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENAMETOOLONG: "choose a shorter name, or a shorter path",
    errno.ELOOP: "the link leads back to itself: mend it",
    errno.EISDIR: "name a file, not a folder, or move the folder away",
    errno.ENOTDIR: "a part of this path is a file: name a folder, or move it away",
    errno.ENOENT: "check the name, or restore it",
    errno.EEXIST: "choose another name",
    errno.EIO: "the disk or the way to it fails: save what is there before you go on",
    errno.EBADF: "it was closed: open it again",
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: "too many processes or threads: end some, or ask for fewer",
}
_ABOUT_FILES = (None, errno.ENOENT, errno.EISDIR)  # what lies there, not what the machine can do
_TOO_BIG = re.compile(
    r"array is too big|maximum (allowed|supported) (size|dimension)|maximum possible size", re.IGNORECASE
)


def fault_message(error: BaseException) -> str:
    """Return what an exception says, in one line; nothing if even that raises."""
    try:
        return " ".join(str(error).split())
    except BaseException:
        return ""


def fault_text(error: BaseException) -> str:
    """Return an exception as `Kind: what it says`."""
    text = fault_message(error)
    return f"{type(error).__name__}{': ' if text else ''}{text[:300]}"


def explain_fault(error: BaseException, about: str | None = None) -> tuple[str, int]:
    """Return the line that tells a user what happened, and the exit code. about: what an error of the machine is about."""
    line, code = _explain(error, about)
    line = re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda found: repr(found.group())[1:-1], line)
    line = re.sub(r"\S{200,}", lambda found: f"{found.group()[:80]}...{found.group()[-40:]}", line)
    return line if len(line) <= _LINE_CHARACTERS else f"{line[: _LINE_CHARACTERS - 300]} ... {line[-290:]}", code


def _explain(error: BaseException, about: str | None) -> tuple[str, int]:
    if isinstance(error, FedtideError):
        text, cause = fault_message(error) or type(error).__name__, underlying_machine_fault(error)
        if cause is not None and "damaged" in text:  # what the machine refuses to read is not damaged
            return _explain(cause, about)
        return text, error.exit_code
    own = _own_file(error)
    if own is not None:
        return f"your own code raised {fault_text(error)} ({own}); correct it there", TrainingError.exit_code
    if isinstance(error, MemoryError):
        text = f" ({fault_message(error)})" if fault_message(error) else ""
        return f"this machine has not enough memory{text}: {_MEMORY}", MACHINE
    if isinstance(error, OverflowError) or (isinstance(error, ValueError) and _TOO_BIG.search(fault_message(error))):
        return (
            f"a number is too large for this machine ({fault_message(error)}): lower the sizes that you gave",
            MACHINE,
        )
    if isinstance(error, RecursionError):
        return f"something is nested too deeply for Python ({fault_message(error)}): make what you gave flatter", 2
    if isinstance(error, UnicodeError):
        return f"a name or a text is not UTF-8 ({fault_message(error)}): write it so", 2
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("fedtide"):
        return f"this installation lacks the package {error.name!r}: install fedtide again", MACHINE
    if about is not None and not isinstance(error, OSError):
        return f"{about}: {fault_message(error)}; it was closed by a policy of your own, or by whoever called", MACHINE
    if isinstance(error, OSError) and error.errno is not None:
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        what = about or " and ".join(names)
        told = f"{what}: {fault_reason(error)}" if what else f"{fault_reason(error)} ({_where(error)})"
        return f"{told}; {fault_remedy(error)}", MACHINE
    return (
        f"this is a defect of fedtide, not of what you gave: {fault_text(error)} ({_where(error)}); set FEDTIDE_TRACEBACK=1 "
        "to see how it came to it, and report it with the command",
        1,
    )


def fault_reason(error: OSError) -> str:
    """Return why the machine refused, in its own words."""
    return (error.strerror or fault_message(error) or type(error).__name__).rstrip(".")


def fault_remedy(error: OSError) -> str:
    """Return what to do when the machine refused."""
    return _REMEDIES.get(error.errno or 0, "check it, and try again")


def underlying_machine_fault(error: BaseException) -> BaseException | None:
    """Return the refusal of the machine that an error of ours came from, if it did: then no file is to blame."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or (isinstance(seen, OSError) and seen.errno not in _ABOUT_FILES):
            return seen
        seen = seen.__cause__
    return None


def _own_file(error: BaseException) -> str | None:
    """Return file:line of the last step if that was in a user's own file."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        own = str(frame.f_globals.get("__name__", "")).startswith("fedtide_user_")
        found = f"{frame.f_code.co_filename}:{line}" if own else None
    return found


def _where(error: BaseException) -> str:
    """Return file:line of the last step in fedtide, or of the last one."""
    steps = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    here = Path(__file__).parents[1]  # the package
    ours = [step for step in steps if here in Path(step[0]).parents and Path(step[0]).name != "command.py"]
    file, line = (ours or steps or [("no file", 0)])[-1]
    return f"{Path(file).relative_to(here.parent) if here in Path(file).parents else file}:{line}"
