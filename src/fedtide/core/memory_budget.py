"""Saying how much memory something would need before it is asked for: a machine that runs out of it kills without a word."""

from __future__ import annotations

import math
import os
import re
import resource
from pathlib import Path

from fedtide.errors import FedtideError


def require_memory(num_bytes: float, what: str, remedy: str) -> None:
    """Raise if `what` needs more memory than there is. remedy: what to do instead."""
    free = _available_bytes()
    if free is not None and num_bytes > free:
        raise FedtideError(f"{what} would need {_size(num_bytes)} of memory, and {_size(free)} are free: {remedy}")


def _available_bytes() -> int | None:
    """Return how many bytes this process may still take, by the least of what machine, container and limits allow."""
    found = [each for each in (_machine(), _container(), _limit()) if each is not None]
    return max(min(found), 0) if found else None


def _size(num_bytes: float) -> str:
    """Return a number of bytes for people."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB")
    power = min(int(math.log10(max(num_bytes, 1)) / 3), len(units) - 1)
    return f"{num_bytes / 1000**power:.3g} {units[power]}"


def _machine() -> int:
    try:
        found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    if found:
        return 1024 * int(found[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # macOS: all there is


def _container() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        return int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None


def _limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return None
    try:
        return soft - resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # not Linux
        return None
