"""`fedtide --version`: what is installed here. Asks the kernel itself: nothing else needs to be imported for it."""

from __future__ import annotations

import os

from fedtide import __version__


def paths() -> list[str]:
    """Return the instruction paths that the kernel has on this machine, the one it takes first."""
    from fedtide.extension import native

    return native.isas()


def version_line() -> str:
    """Return the version, and the instruction path that the kernel takes here."""
    there = paths()
    wanted = os.environ.get("FEDTIDE_ISA") or there[0]
    if wanted not in there:
        return f"fedtide {__version__}, native kernel, FEDTIDE_ISA={wanted} is not among its paths {', '.join(there)}"
    return f"fedtide {__version__}, native kernel, instruction path {wanted} (of {', '.join(there)})"
