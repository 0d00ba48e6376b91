"""Checks of parts before they run: does a part depend on its arguments alone?

    >>> from fedtide import testing
    >>> def freshest_first(candidates, limit, rng):
    ...     return candidates.age.argsort(kind="stable")[:limit]
    >>> testing.check(freshest_first, "scheduler")
    []

A run makes its parts anew when it is resumed, and may call them from any thread: what a part remembers is its memory, what it
draws comes from the `rng` or the seed that it is given. `check` calls a part again and again on small inputs and says in one
line each what goes wrong: with the same arguments, in another order, from other threads. A run with a part of the user's own
does the same once before it begins (`refuse_impure`).
"""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import checks, registry
from fedtide.parts.arguments import NO_DEFAULT, part_parameters
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.types import Candidates, Clock, Dataset, Idle, Ints, Job, Memory, MetricContext, Samples, UplinkView

_REMEDY: Final = (
    "draw only from the rng it is given, or by seed from fedtide.columns, and keep state only in its memory"
)
_BUDGET_BITS: Final = 2000.0  # of an upload
_TIMES: Final = 12  # that a part is asked again: hidden state may show after several calls only ...
_SECONDS: Final = 1.0  # ... but it is asked no longer than this

Ask = Callable[[Any], Any]  # part -> all that it answers


def check(part: Any, kind: str | None = None, args: Mapping[str, Any] | None = None) -> list[str]:
    """Check a part for hidden state, unaddressed random numbers and invalid results.

    part: an object, a function, or a name (`file.py:name`). kind: the kind of the part, such as `scheduler`; None: it follows
    from the arguments. args: parameters of the part.

    Returns: One line per problem; an empty list if there are none.
    """
    kind = kind or _kind_of(part)
    if kind not in KINDS:
        raise FedtideError(f"kind={kind!r} is not a kind of part: give one of {', '.join(KINDS)}")
    if kind in ("data", "model"):  # what makes them is what is checked
        maker = registry.find_part(kind, part, builtin_parts(kind)) if isinstance(part, str) else part
        return _problems(maker, [lambda asked: _made(asked, kind, dict(args or {}))], thorough=True)
    if isinstance(part, str):
        part = registry.part(kind, part, args or {})
    elif isinstance(part, type):
        part = part(**(args or {}))
    if kind == "tracker":
        return _watching(part)
    return _problems(
        part, [ask for variant in range(2) if (ask := _questions(kind, part, variant=variant))], thorough=True
    )


def refuse_impure(parts: Mapping[str, Any], num_devices: int, num_labels: int, num_parameters: int) -> None:
    """Raise if a user's own part, by kind, answers otherwise when it is asked again. What it raises, the run will say."""
    for kind, outer in parts.items():
        part = checks.outermost_user_part(outer)
        if part is None:
            continue
        asked = _copied(getattr(part, "__wrapped__", part))
        found = (_questions(kind, asked, num_devices, num_labels, num_parameters, variant) for variant in range(2))
        for problem in _problems(asked, [ask for ask in found if ask]):
            raise TrainingError(f"{checks.part_label(kind, part)} {problem}: {_REMEDY}")


def refuse_dice(trainer: Any, jobs: list[Job], label: str) -> None:
    """Raise if a user's own trainer trains the same jobs otherwise when it is asked again."""
    if checks.is_ours(trainer) or not jobs:
        return
    asked = _copied(trainer)
    if any("another answer" in problem for problem in _problems(asked, [_training(asked, jobs)], times=1)):
        raise TrainingError(
            f"{label} gives another update when it trains the same job again: draw only by address "
            "(fedtide.rng.stream(seed, ..., *job.address)) and keep state only in job.memory"
        )


def _copied(part: Any) -> Any:
    """Return a copy, so that the part itself is as it was; one that cannot be copied as it is."""
    try:
        return copy.deepcopy(part)
    except Exception:
        return part


def _kind_of(part: Any) -> str:
    """Guess the kind of a function from the names of what it takes."""
    names = getattr(getattr(part, "__code__", None), "co_varnames", ())
    for kind, known in KINDS.items():
        called = known.calls.get("", ())
        if called and names[: len(called)] == called:
            return kind
    raise FedtideError(f"what kind of part {part!r} is cannot be inferred from its arguments: use check(part, kind)")


# What is asked.


def _questions(
    kind: str, part: Any, num_devices: int = 20, num_labels: int = 10, num_parameters: int = 40, variant: int = 0
) -> Ask | None:
    """Return how to ask a part of a kind for answers on small inputs, other ones for every variant; None: it is not asked."""
    rng = np.random.default_rng(1 + variant)
    m, r = min(num_devices, 6), min(num_devices, 3)
    device, seed, times = np.arange(m), 7 + variant, np.linspace(0.5, 2.0, m)
    capacity, age, samples = rng.uniform(1, 5, m), rng.integers(0, 4, m), rng.integers(10, 50, m)
    model = rng.standard_normal(num_parameters).astype(np.float32)
    starts, updates = rng.standard_normal((2, r, num_parameters)).astype(np.float32)
    weights = np.full(r, 1 / r)
    table = Candidates(
        num_devices,
        device,
        samples,
        rng.integers(0, 9, (m, num_labels)),
        age,
        age,
        capacity,
        rng.uniform(0.1, 1, m),
        3,
        age / 2,
        capacity,
        UplinkView(rng.uniform(1, 9, (m, 2)), np.log1p, 3000.0, 1e6, 1.0),
        1.5,
        outcome=lambda answers: np.array([float(sum(map(int, each)) % 3) for each in answers]),
    )
    calls: dict[
        str, tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]
    ] = {  # what init, every call, and one with memory gets
        "scheduler": ((num_devices,), (table, r, "rng"), ()),
        "weighting": ((num_devices,), (samples[:r], age[:r]), (device[:r],)),
        "aggregator": ((model,), (model, starts, updates, weights, age[:r]), (device[:r],)),
        "channel": ((), (seed, 3, 1.5, device), ()),
        "coverage": ((), (seed, device, times), ()),
        "csi": ((), (seed, 3, 1.5, device, capacity), ()),
        "modem": ((), (capacity,), ()),
        "allocation": ((), (capacity[:r], 3000.0), ()),
        "retransmission": ((), (100 * capacity[:r], 10 * capacity[:r]), ()),
        "selector": ((), (Idle(1.5, device, age, samples), r, "rng"), ()),
        "access": ((), (updates, weights, capacity[:r], "rng"), ()),
        "downlink": ((), (seed, device, times, 1e6), ()),
        "energy": ((), (seed, device, samples, 100 * capacity), ()),
        "duration": ((), (seed, device, np.ones_like(device)), ()),
        "availability": ((), (seed, device, times), ()),
        "work": ((), (seed, device, 1 + age), ()),
        "schedule": ((), (times / 2,), ()),
    }
    if kind == "timeline":
        return lambda timeline: _times(timeline, _clock(num_devices, 3.0 + variant))
    if kind == "partition":
        return lambda partition: _dealt(partition(_dataset(num_devices, num_labels), num_devices, seed), num_devices)
    if kind == "metric":
        context = _metric_context(min(num_devices, 20), num_labels, seed)
        return lambda metric: metric(_readonly(model), context)
    if kind == "codec":
        return lambda codec: _encoded(codec, updates[0])
    if kind == "trainer" and hasattr(part, "initial_model"):
        return _training(part, _jobs(part))
    if kind not in calls or not callable(getattr(part, "policy", part)):
        return None
    init, given, last = calls[kind]

    def ask(asked: Any) -> Any:
        lent = [np.random.default_rng(5) if isinstance(each, str) else _readonly(each) for each in (*given, *last)]
        if not checks.part_remembers(asked):
            return asked(*lent[: len(given)])
        memory: Memory = {name: np.array(value) for name, value in asked.init(*map(_readonly, init)).items()}
        return asked(memory, *lent)

    return ask


def _metric_context(num_devices: int, num_labels: int, seed: int) -> MetricContext:
    """Return what a metric looks at: a model that takes every other sample for label 0, and is right else."""
    data, most = _dataset(num_devices, num_labels), 20 * num_devices

    def predict(samples: Samples) -> Ints:
        return np.where(samples.images[:, 0, 0, 0] < 0.5, 0, samples.labels).astype(np.int64)

    def score(samples: Samples) -> Any:
        return SimpleNamespace(accuracy=float(np.mean(predict(samples) == samples.labels)), loss=0.5)

    holdings = [_readonly(np.arange(most)[device::num_devices]) for device in range(num_devices)]
    return MetricContext(score, predict, data.test, data.train, holdings, num_labels, seed, 3, 1.5)


def _clock(num_devices: int, horizon: float) -> Clock:
    """Return a clock of devices that are always there, each with its own pace."""
    return Clock(num_devices, horizon, lambda device, job, time: 0.3 + 0.4 * np.asarray(device, float) / num_devices)


def _times(timeline: Any, clock: Clock) -> Any:
    """Return the first ticks of a timeline that plans, or the times that one names that reacts."""
    if not callable(getattr(timeline, "when", None)):
        return [*itertools.islice(timeline(clock), 50)]
    counts = ["num_finished", "num_working", "num_sending", "num_landed", "num_here", "num_picked", "num_lost"]
    situations = (
        SimpleNamespace(
            time=clock.horizon,
            tick=3,
            last=clock.horizon - 0.5,
            **dict.fromkeys(counts, number),
            finished=np.arange(number),
            since=np.full(number, clock.horizon - 0.2),
            start=np.full(number, 2),
            progress={},
        )
        for number in (0, 1, 20)
    )
    return [float(timeline.when(each)) for each in situations]


def _dataset(num_devices: int, num_labels: int) -> Dataset:
    """Return a few random images for every device, each owned by one of them."""
    rng, count = np.random.default_rng(3), 20 * num_devices
    labels = rng.permutation(np.arange(count) % num_labels).astype(np.uint8)
    samples = Samples(_readonly(rng.random((count, 1, 4, 4), np.float32)), _readonly(labels))
    return Dataset(
        "checked", samples, samples, num_labels, "fedtide.testing", _readonly(np.arange(count) % num_devices)
    )


def _dealt(answer: Any, num_devices: int) -> list[Any]:
    """Return who holds what, of an answer that is a sequence or goes through one."""
    held = answer if hasattr(answer, "__getitem__") else [*itertools.islice(answer, num_devices)]
    return [np.sort(held[k]) for k in range(num_devices)]


def _made(maker: Any, kind: str, args: dict[str, Any]) -> Any:
    """Return the data set or the model that this makes."""
    needed = [each.name for each in part_parameters(maker) if each.default is NO_DEFAULT]
    return maker((1, 28, 28), 10, **args) if kind == "model" and needed[:1] == ["input_shape"] else maker(**args)


def _watching(tracker: Any) -> list[str]:
    """Return what is wrong with how a tracker can be called: nothing that it answers is used."""
    calls = KINDS["tracker"].calls
    there = {name: call for name in calls if callable(call := getattr(tracker, name, None))}
    if not there and callable(tracker):  # a function of the record
        there = {"round": tracker}
    found = [] if there else [f"has none of {', '.join(calls)}"]
    for name, call in there.items():
        try:
            inspect.signature(call).bind(*calls[name])
        except TypeError as error:
            found.append(f"cannot be called as {name}({', '.join(calls[name])}): {error}")
    return found


def _encoded(codec: Any, update: Any) -> Any:
    given, rng = (_readonly(update), _BUDGET_BITS), np.random.default_rng(5)
    if checks.part_remembers(codec):
        packet, memory = codec.encode(codec.init(len(update)), *given, rng)
        return packet, memory, codec.decode(packet)
    packet = codec.encode(*given, rng)
    return packet, codec.decode(packet)


def _jobs(trainer: Any) -> list[Job]:
    """Return two small trainings."""
    task, rng = getattr(trainer, "task", None), np.random.default_rng(2)
    shape, num_labels = (task.shape, task.num_labels) if task is not None else ((1, 28, 28), 10)
    table = Samples(rng.random((8, *shape), np.float32), rng.integers(0, num_labels, 8).astype(np.uint8))
    start = np.asarray(trainer.initial_model(0), np.float32)
    return [Job(device, 1, start, 0.01, table, np.arange(4) + 4 * device) for device in range(2)]


def _training(trainer: Any, jobs: list[Job]) -> Ask:
    def ask(asked: Any) -> Any:
        lent = [job._replace(start=_readonly(job.start), indices=_readonly(job.indices)) for job in jobs]
        if checks.part_remembers(asked):
            lent = [job._replace(memory=asked.init(len(job.start))) for job in lent]
        return asked.train(lent)

    return ask


def _readonly(value: Any) -> Any:
    """Return a copy that cannot be written to, of an array or of all arrays in a table."""
    if isinstance(value, tuple) and hasattr(value, "_replace"):
        return type(value)(*map(_readonly, value))
    if not isinstance(value, np.ndarray):
        return value
    lent = value.copy()
    lent.flags.writeable = False
    return lent


# How it is asked.


def _problems(part: Any, asks: Sequence[Ask], thorough: bool = False, times: int = _TIMES) -> list[str]:
    """Return what is wrong with how a part answers: asked again and again, in this order and in the other one.

    thorough: what it raises is a problem, too, and it is asked elsewhere.
    """
    again = "when it is called again with the same arguments"
    shared = repr(np.random.get_state())  # noqa: NPY002 - who else uses it is the question
    first: list[Any] = []
    try:
        for ask in asks:
            first.append(_plain(ask(part)))
    except Exception as error:
        if first:
            return [f"raises {type(error.__cause__ or error).__name__} when it is called again"]
        if not thorough:
            return []
        if "read-only" in str(error):
            return [f"writes to what it is given ({error})"]
        return [f"raises {type(error).__name__}: {error}"]
    found: list[str] = []
    told = list(zip(asks, first, strict=True))
    ends = time.monotonic() + _SECONDS
    try:
        for number in range(times):
            if any(_plain(ask(part)) != answer for ask, answer in (told if number % 2 else told[::-1])):
                found.append(f"gives another answer {again}")
                break
            if time.monotonic() > ends:  # a slow one is not asked for long
                break
        if thorough and asks:
            found += _elsewhere(part, *told[0])
    except Exception as error:
        found.append(f"raises {type(error.__cause__ or error).__name__} {again}")
    if repr(np.random.get_state()) != shared:  # noqa: NPY002
        found.append("draws from the generator that all share (np.random)")
    return found


def _elsewhere(part: Any, ask: Ask, first: Any) -> list[str]:
    """Return what is wrong with a part that is asked from two threads, and after it was pickled."""
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(_plain(ask(part)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [] if answers == [first, first] else ["gives another answer from another thread"]
    try:
        other = pickle.loads(pickle.dumps(part))
    except Exception:  # a function of a file that was not imported by name: it is made anew from the file
        return found
    return found if _plain(ask(other)) == first else [*found, "gives another answer after it was pickled"]


def _plain(answer: Any) -> Any:
    """Return an answer as something that can be compared: arrays as bytes."""
    if isinstance(answer, Mapping):
        return {name: _plain(each) for name, each in answer.items()}
    if isinstance(answer, list | tuple):
        return [_plain(each) for each in answer]
    if is_dataclass(answer) and not isinstance(answer, type):
        return [_plain(getattr(answer, each.name)) for each in fields(answer)]
    if isinstance(answer, str | bytes | int | float | bool) or answer is None:
        return answer
    found = checks.answer_as_array(answer)
    return type(answer).__name__ if found.dtype == object else (found.dtype.str, found.shape, found.tobytes())
