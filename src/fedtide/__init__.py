"""fedtide: asynchronous federated learning over wireless networks.

experiment(...)   build an experiment from files and keys             -> Experiment
plan(e)           predict a run without training                      -> Plan
simulate(e)       run an experiment                                   -> Result
load(folder)      read a stored run                                   -> Result
compare({...})    compare named experiments on the same seeds         -> StudyResult
study(base, ...)  run a grid of keys, variants and seeds              -> StudyResult
race({...})       find the best of some candidates with few runs      -> RaceResult
judge(part)       judge a part against another one, world by world    -> Judgement
advise(base)      find good settings for a network                    -> Advice

Names are imported on first use, so `fedtide --help` starts fast.
"""

from __future__ import annotations

from fedtide.lazy import lazy_names

_TYPE_CHECKING = False  # as little as can be is imported here: the command line has Ctrl-C in hand only after this
if _TYPE_CHECKING:
    from fedtide.config import Experiment, experiment
    from fedtide.engine.simulate import simulate
    from fedtide.errors import FedtideError
    from fedtide.pages.advice import advise
    from fedtide.parts.arguments import arg
    from fedtide.report.plan import Plan, plan
    from fedtide.rng import stream
    from fedtide.runs.result import Result, load
    from fedtide.studies.advice import Advice
    from fedtide.studies.judge import Judgement, judge
    from fedtide.studies.plans import Plans, plans
    from fedtide.studies.race import RaceResult, race
    from fedtide.studies.study import StudyResult, compare, study
    from fedtide.types import (
        Candidates,
        Clock,
        Dataset,
        Decision,
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
        Work,
    )

__version__ = "1.0.0rc1"
__all__ = [
    "Advice",
    "Candidates",
    "Clock",
    "Dataset",
    "Decision",
    "Experiment",
    "FedtideError",
    "Grant",
    "Job",
    "Judgement",
    "Link",
    "Memory",
    "Plan",
    "Plans",
    "RaceResult",
    "Result",
    "Samples",
    "Selection",
    "Shares",
    "Signal",
    "StudyResult",
    "Tick",
    "Trained",
    "Work",
    "advise",
    "arg",
    "compare",
    "experiment",
    "judge",
    "load",
    "plan",
    "plans",
    "race",
    "simulate",
    "stream",
    "study",
]

__getattr__ = lazy_names(
    __name__,
    **{
        "config": "Experiment experiment",
        "report.plan": "Plan plan",
        "engine.simulate": "simulate",
        "errors": "FedtideError",
        "pages.advice": "advise",
        "parts.arguments": "arg",
        "rng": "stream",
        "runs.result": "Result load",
        "studies.judge": "Judgement judge",
        "studies.advice": "Advice",
        "studies.plans": "Plans plans",
        "studies.race": "RaceResult race",
        "studies.study": "StudyResult compare study",
        "types": "Candidates Clock Dataset Decision Grant Job Link Memory Samples Selection Shares Signal Tick Trained Work",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
