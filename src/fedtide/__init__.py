"""fedtide: asynchronous federated learning over wireless networks.

What is offered here is imported when it is first asked for: `fedtide --help` needs none of it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtide.config import Experiment, experiment
    from fedtide.errors import FedtideError
    from fedtide.simulate import Result, simulate
    from fedtide.types import Candidates, Grant, Selection, Tick

__version__ = "0.1.0"
__all__ = ["Candidates", "Experiment", "FedtideError", "Grant", "Result", "Selection", "Tick", "experiment", "simulate"]

_HOMES = {
    "Experiment": "config",
    "experiment": "config",
    "FedtideError": "errors",
    "Result": "simulate",
    "simulate": "simulate",
    **dict.fromkeys(("Candidates", "Grant", "Selection", "Tick"), "types"),
}


class _Package(ModuleType):
    """The package, in which `simulate` is the function: importing the module of that name does not take its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "simulate" and isinstance(value, ModuleType):
            value = value.simulate
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module 'fedtide' has no attribute {name!r}")
        home = f"fedtide.{_HOMES.get(name, name)}"
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as error:
            if error.name != home:
                raise
            raise AttributeError(f"module 'fedtide' has no attribute {name!r}") from None
        return getattr(module, name) if name in _HOMES else module

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
