"""Public names of a package that are imported when they are first asked for: `fedtide --help` needs none of them."""

from __future__ import annotations

_TYPE_CHECKING = False  # every import here comes before the command line has Ctrl-C in hand
if _TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_names(package: str, **names: str) -> Callable[[str], Any]:
    """Return a package's `__getattr__`. names: by module of the package, separated by spaces."""
    homes = {name: module for module, those in names.items() for name in those.split()}

    def find(name: str) -> Any:
        if name not in homes:  # a module, perhaps: Python looks for it then
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find
