"""Ctrl-C and SIGTERM: the command line asks a run to stop, once; it is saved and ends.

`install_signals` makes both raise KeyboardInterrupt in the main thread. A second one shortly after the first is let pass, since
the run is being saved just then. Until `signals_raise` and after `leave_signals` there is nothing to save, and the process ends at
once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time

_TYPE_CHECKING = False  # every import here comes before Ctrl-C is in hand
if _TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any

_GRACE_SECONDS = 3.0  # for saving, in which asking again changes nothing
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_at_once = False  # starting or leaving: nothing to save
_installed = False
_asked: int | None = None  # the signal
_asked_at = 0.0


def install_signals() -> None:
    """Take Ctrl-C, SIGTERM and the end of the terminal in hand; what the caller of this process ignores stays ignored."""
    global _at_once, _installed
    _at_once = _installed = True
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)
    before = sys.unraisablehook

    def quiet(unraisable: Any) -> None:
        if _asked is None:  # after that, what a callback could not finish is no news
            before(unraisable)

    sys.unraisablehook = quiet
    sys.excepthook = _uncaught
    atexit.register(_ignore)  # the last of all: later, Python would let a signal kill it, done as it is


def signals_raise() -> None:
    """From now on there is something to save or to clean up: raise KeyboardInterrupt."""
    global _at_once
    _at_once = False


def leave_signals_to_parent() -> None:
    """In a worker process: Ctrl-C is for its parent, which ends it; a KeyboardInterrupt here is raised by code."""
    global _installed
    _installed = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def stop_requested() -> bool:
    """Say whether this process was asked to stop."""
    return _asked is not None


def is_foreign_signal(error: BaseException) -> bool:
    """Say whether a KeyboardInterrupt is nobody's at the keyboard: raised by code, not by a signal that we handle."""
    return isinstance(error, KeyboardInterrupt) and _installed and _asked is None


def stop_was_wanted(error: BaseException) -> bool:
    """Say whether this is the end that somebody asked for, whatever the error looks like by now."""
    return stop_requested() or (isinstance(error, KeyboardInterrupt) and not is_foreign_signal(error))


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if this process was asked to stop: somebody may have swallowed the first."""
    if _asked is not None:
        raise KeyboardInterrupt


def signal_exit_code() -> int:
    """Return 130 after Ctrl-C, 143 after SIGTERM: 128 and the number of the signal."""
    return 128 + (_asked if _asked is not None else int(signal.SIGINT))


def leave_signals() -> None:
    """On the way out: a signal ends the process at once; one that was asked to stop already hears no more."""
    global _at_once
    _at_once = True
    if _asked is not None:
        _ignore()
        # After a KeyboardInterrupt within an exec, `python -m` would end by SIGINT, whatever our code: the next exec resets it.
        exec("")


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _handle(number: int, _: FrameType | None) -> None:
    global _asked, _asked_at
    if _at_once:
        _end(number)
    now = time.monotonic()
    if _asked is not None and now - _asked_at < _GRACE_SECONDS:
        return
    _asked, _asked_at = number, now
    raise KeyboardInterrupt


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End as asked where KeyboardInterrupt was raised outside of every border, just before the first or after the last."""
    if _asked is not None and kind is KeyboardInterrupt:
        _end(_asked)
    sys.__excepthook__(kind, error, trace)


def _end(number: int) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:  # also where nobody can be told
        os._exit(128 + number)
