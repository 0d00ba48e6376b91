"""Public names of a package that are imported when they are first asked for: `fedtide --help` needs none of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any


def lazy_names(package: str, names: Sequence[str], modules: str) -> Callable[[str], Any]:
    """Return a package's `__getattr__`: it finds `names` in these modules of the package, asked in this order."""

    def find(name: str) -> Any:
        if name in names and name in modules.split():
            return importlib.import_module(f"{package}.{name}")
        for module in modules.split() if name in names else ():
            found = vars(importlib.import_module(f"{package}.{module}"))
            if name in found:
                return found[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
