"""fedtide: asynchronous federated learning over wireless networks.

experiment(...)   what to run: a file, keys, or both
plan(e)           who is ready, who is picked, what an upload may cost; nothing is trained
simulate(e)       run it                                        -> Result
load(folder)      read a run back                               -> Result
compare({...})    named experiments on the same seeds, paired   -> StudyResult
study(base, ...)  axes, variants, seeds                         -> StudyResult

What is offered here is imported when it is first asked for: `fedtide --help` needs none of it.
"""

from __future__ import annotations

_TYPE_CHECKING = False  # nothing is imported here: the command line has Ctrl-C in hand only after this
if _TYPE_CHECKING:
    from typing import Any

    from fedtide.config import Experiment, experiment
    from fedtide.engine.simulate import simulate
    from fedtide.errors import FedtideError
    from fedtide.parts.arguments import arg
    from fedtide.report.plan import Plan, plan
    from fedtide.rng import stream
    from fedtide.runs.result import Result, load
    from fedtide.studies.study import StudyResult, compare, study
    from fedtide.types import (
        Candidates,
        Clock,
        Dataset,
        Grant,
        Job,
        Link,
        Memory,
        Samples,
        Selection,
        Shares,
        Signal,
        Tick,
        Trained,
    )

__version__ = "0.1.0"
__all__ = [
    "Candidates",
    "Clock",
    "Dataset",
    "Experiment",
    "FedtideError",
    "Grant",
    "Job",
    "Link",
    "Memory",
    "Plan",
    "Result",
    "Samples",
    "Selection",
    "Shares",
    "Signal",
    "StudyResult",
    "Tick",
    "Trained",
    "arg",
    "compare",
    "experiment",
    "load",
    "plan",
    "simulate",
    "stream",
    "study",
]

_VALUES = "Candidates Clock Dataset Grant Job Link Memory Samples Selection Shares Signal Tick Trained"
_HOMES = {
    "Experiment": "config",
    "experiment": "config",
    "FedtideError": "errors",
    "Plan": "report.plan",
    "Result": "runs.result",
    "StudyResult": "studies.study",
    "arg": "parts.arguments",
    "compare": "studies.study",
    "load": "runs.result",
    "plan": "report.plan",
    "simulate": "engine.simulate",
    "stream": "rng",
    "study": "studies.study",
    **dict.fromkeys(_VALUES.split(), "types"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedtide' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"fedtide.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
