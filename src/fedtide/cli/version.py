"""`fedtide --version`: what is installed here."""

from __future__ import annotations

from fedtide import __version__
from fedtide.learning import native


def version_line() -> str:
    """Return the version, whether the kernel is there, and the instruction path that it takes here."""
    if not native.available():
        return f"fedtide {__version__}, without the native kernel (learning.trainer=torch trains)"
    wanted, there = native.isa(), native.isas()
    if wanted not in there:
        return f"fedtide {__version__}, native kernel, FEDTIDE_ISA={wanted} is not among its paths {', '.join(there)}"
    return f"fedtide {__version__}, native kernel, instruction path {wanted} (of {', '.join(there)})"
