# ruff: noqa: NPY002  # what is tested is that nobody uses the shared generator
"""What every part of the world promises, whatever its kind: it depends on what it is called with, and on nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config
from fedtide.parts import checks, registry
from fedtide.parts.arguments import NO_DEFAULT, part_parameters
from fedtide.radio.cell import Equal
from fedtide.timeline import clock
from fedtide.types import Tick
from trace_files import needed

# Values of parameters that have no default. A new part whose parameter is not here needs a line.
NEEDED: Mapping[str, Any] = {"num_devices": 30, "period": 0.25, "round_duration": 1.0, "size": 3}
NUM_DEVICES = 30  # that the devices of a test lie below
# What a system fills in besides the experiment's keys.
FILLED: Mapping[str, Any] = {
    "run.coverage": Equal(),
    "fleet.num_samples": np.arange(1, NUM_DEVICES + 1) * 10,
    "fleet.samples_per_job": np.arange(1, NUM_DEVICES + 1) * 30,
}
# Arguments of parts that do not work without.
GIVEN: Mapping[tuple[str, str], dict[str, Any]] = {
    ("channel", "trace"): {"path": str(Path(__file__).parent / "fixtures" / "uplinks.csv"), "wrap": True},
    ("aggregator", "hierarchical"): {"edges": 1},
    ("aggregator", "basgd"): {"buffers": 1},
    ("work", "per_device"): {"steps": [3, 1, 7], "batch_size": [10, 20], "rate": [1.0, 0.5]},
}


def made(maker: Callable[..., Any]) -> Any:
    """Return a registered part with its defaults, and what it needs besides."""
    return maker(**{each.name: NEEDED[each.name] for each in part_parameters(maker) if each.default is NO_DEFAULT})


def part(kind: str, name: str, **more: Any) -> Any:
    """Return a registered part, or one of a file, as the default experiment makes it. more: what is filled in besides."""
    experiment = config.experiment({"fleet": {"num_devices": NUM_DEVICES, "min_frequency": 5e8}})
    if name == "in_sight":  # asks for what only satellites say
        more = {"run_coverage": part("coverage", "leo"), **more}
    extra = {**FILLED, **{key.replace("_", ".", 1): value for key, value in more.items()}}
    given = {**needed(kind, name), **GIVEN.get((kind, name), {})}
    return registry.resolve(
        kind, name, given, lambda key: extra[key] if key in extra else config.key_value(experiment, key)
    )


def without_memory(asked: Any, *init: Any, method: str = "", last: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """Return how to ask a part for an answer, with or without memory: from the same beginning each time.

    init: what its memory is made of. last: what one with memory is given besides. That memory keeps its names, shapes and
    types, and that the answer depends on it alone, is checked on the way.
    """
    call = getattr(asked, method) if method else asked
    if not checks.part_remembers(asked):
        return call  # type: ignore[no-any-return]

    def ask(*given: Any) -> Any:
        begun = checks.first_part_memory(asked, "part", *init)
        for name, again in checks.first_part_memory(asked, "part", *init).items():
            assert np.array_equal(again, begun[name])
        answer, after = checks.call_part(asked, "part", begun, None, given, last, method)
        checks.call_part(asked, "part", after, None, given, last, method)  # it can go on from there
        return answer

    return ask


def checked_ticks(ticks: Iterable[Tick], num_devices: int, horizon: float) -> list[Tick]:
    """Return all ticks; raise if a timeline breaks its contract or does not come to its end."""
    return list(clock.checked_ticks(ticks, num_devices, horizon))


def frozen(values: Any, kind: Any = np.int64) -> Any:
    """Return an array that cannot be written to."""
    array = np.array(values, kind)
    array.flags.writeable = False
    return array


def depends_on_its_arguments_alone(
    ask: Callable[[Any], Any], num_rows: int, shuffle: Callable[[list[int]], None]
) -> Any:
    """Check that rows are answered alike asked together, again, alone, shuffled and in parts; return the answer.

    ask: takes the positions of the rows wanted and returns an array with one entry for each.
    """
    everyone = np.arange(num_rows)
    answer = np.asarray(ask(everyone))
    assert answer.shape == (num_rows,)
    before = random.getstate(), repr(np.random.get_state())
    assert np.array_equal(ask(everyone), answer)
    assert (random.getstate(), repr(np.random.get_state())) == before  # it draws from no shared generator,
    random.seed(1)
    np.random.seed(1)
    assert np.array_equal(ask(everyone), answer)  # and does not read its state,
    for at in range(num_rows):  # nor who else is asked,
        assert np.array_equal(ask(everyone[at : at + 1]), answer[at : at + 1])
    order = everyone.tolist()
    shuffle(order)  # in which order,
    assert np.array_equal(ask(np.array(order, np.int64)), answer[order])
    assert np.asarray(ask(everyone[:0])).shape == (0,)  # and nobody is nobody.
    return answer
