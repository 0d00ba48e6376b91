"""Saves periods one after the other, elsewhere: a slow or full disk delays no tick."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from fedtide.deploy.mailbox import Run
from fedtide.errors import FedtideError

_log = logging.getLogger("fedtide.deploy")

_MOST_WAITING: Final = 100  # periods


class Saver:
    """Does jobs in order. One that the disk refuses is tried again at every `add`, so it must bear being done twice."""

    def __init__(self, run: Run) -> None:
        self._run, self._lock = run, threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False
        self._error: Exception | None = None  # why the first of those that wait was not done
        self.seconds = 0.0  # that the last job took

    @property
    def num_waiting(self) -> int:
        """Number of jobs that are not done."""
        return len(self._waiting)

    def add(self, job: Callable[[], None]) -> None:
        """Do this after the others; raise if one failed for good, or if too many wait."""
        self._waiting.append(job)
        self._go_on()
        if self._error and (not _may_pass(self._error) or len(self._waiting) > _MOST_WAITING):
            raise self._error

    def finish(self, sleep: Callable[[float], None], patience: float) -> None:
        """Wait until everything is done, or raise the reason after so many tries a second apart."""
        tries = 0.0
        while self._waiting:
            self._go_on()
            if self._waiting and self._error and (tries >= patience or not _may_pass(self._error)):
                raise self._error
            if self._waiting:
                sleep(1.0)
                tries += 1

    def _go_on(self) -> None:
        with self._lock:
            if self._busy or not self._waiting:
                return
            self._busy = True
        self._run(self._work)

    def _work(self) -> None:
        try:
            while True:
                with self._lock:
                    if not self._waiting:
                        self._busy, self._error = False, None
                        return
                begun = time.monotonic()
                self._waiting[0]()
                self._waiting.popleft()
                self.seconds, self._error = time.monotonic() - begun, None
        except Exception as error:
            if self._error is None and _may_pass(error):
                _log.warning("%s; the federation goes on, and this is tried again", error)
            self._error, self._busy = error, False


def _may_pass(error: Exception) -> bool:
    """Say whether the disk is the reason."""
    return isinstance(error, FedtideError) and isinstance(error.__cause__, OSError)
