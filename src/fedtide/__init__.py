"""fedtide: asynchronous federated learning over wireless networks.

What is offered here is imported when it is first asked for: `fedtide --help` needs none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtide.config import Experiment, experiment
    from fedtide.drivers.simulate import Result, simulate
    from fedtide.errors import FedtideError
    from fedtide.types import Candidates, Grant, Selection, Tick

__version__ = "0.1.0"
__all__ = ["Candidates", "Experiment", "FedtideError", "Grant", "Result", "Selection", "Tick", "experiment", "simulate"]

_HOMES = {
    "Experiment": "config",
    "experiment": "config",
    "FedtideError": "errors",
    "Result": "drivers.simulate",
    "simulate": "drivers.simulate",
    **dict.fromkeys(("Candidates", "Grant", "Selection", "Tick"), "types"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedtide' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedtide.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
