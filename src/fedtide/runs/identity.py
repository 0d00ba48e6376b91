"""What a run is made of besides its experiment: the data, the system and the trainer that may have been handed over.

A run may only go on with what it was begun with, whoever made that: the experiment, or a caller of `simulate`. Arrays are
compared by SHA-256 of what they hold (MNIST takes an eighth of a second), objects by name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.config.effort import LARGE_FLEET_DEVICES
from fedtide.core.reading import is_own_file
from fedtide.data.holdings import is_virtual
from fedtide.devices.fleet import Fleet
from fedtide.engine.checks import CHECKED
from fedtide.engine.system import System, make_channel, make_coverage, make_part
from fedtide.errors import RunFolderError
from fedtide.learning.model import Model
from fedtide.parts import user_code
from fedtide.timeline.clock import Ticks, span_of, start_times
from fedtide.types import Dataset, Ints, Tick

_MOST_ASKED = 64  # devices that are asked what they hold, if that is computed from their numbers
# How to hand over what differs.
_ARGUMENTS = {"data": "dataset", "trainer": "trainer"}  # all else comes with the system
_FIRST = "its beginning "  # before the digest of a timeline of which only the first ticks are looked at
_SEEN = 10_000  # ticks and ready devices of these


def identity(system: System, trainer: Any, begun: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return what a run is made of, by part: digests of numbers, names of objects. begun: what it was begun with, if it was."""
    fleet = system.fleet
    policies = {**system.policy._asdict(), "codec": system.codec}
    return {
        "data": data_digest(system.dataset),
        "fleet": fleet_digest(fleet),
        "timeline": _timeline(system, (begun or {}).get("timeline")),
        "policies": "; ".join(f"{kind}={_described(each)}" for kind, each in policies.items()),
        "model": repr(system.model)
        if isinstance(system.model, Model)
        else _type_label(system.model, is_own_file(system.experiment.learning.model.name)),
        "trainer": trainer_name(trainer),
        **_replaced(system),
    }


def _timeline(system: System, begun: Any) -> str:
    """Return the digest of all ticks; of a large fleet on a timeline of ours, of how long it is and how it begins.

    A run of a large fleet that was begun with the digest of all ticks keeps it.
    """
    ticks, whole = system.ticks, isinstance(begun, str) and not begun.startswith(_FIRST)
    if not isinstance(ticks, Ticks) or len(system.fleet.duration) <= LARGE_FLEET_DEVICES or whole:
        times = start_times(ticks)[2:]
        return _digest(chain([times, np.array([system.num_symbols])], _columns(ticks)))
    span, rows = span_of(ticks), 0
    seen = []
    for tick in ticks:
        seen += [np.array([tick.time]), tick.ready, tick.start]
        rows += 1 + len(tick.ready)
        if rows > _SEEN:
            break
    return _FIRST + _digest([np.array([span.count, span.end, system.num_symbols]), *seen])


def _columns(ticks: Iterable[Tick]) -> Iterator[Ints]:
    for tick in ticks:
        yield tick.ready
        yield tick.start


def _replaced(system: System) -> dict[str, str]:
    """Return channel, allocation and energy where a caller put others in the place of those that the experiment names."""
    experiment = system.experiment
    found = {"channel": system.channel, "allocation": system.allocation, "energy": system.energy}
    named = {
        "channel": make_channel(experiment, make_coverage(experiment)),
        **{kind: make_part(experiment, kind) for kind in ("allocation", "energy")},
    }
    return {kind: _described(each) for kind, each in found.items() if not _same(each, named[kind])}


def _same(one: Any, other: Any) -> bool:
    """Say whether two parts are of a kind and made with the same; a user's own is known by the experiment that names it."""
    if isinstance(one, user_code.Guarded) and isinstance(other, user_code.Guarded):  # one of them may be under watch
        ours = user_code.is_ours(one) and user_code.is_ours(other)
        return one.name == other.name and (_same(one.policy, other.policy) if ours else True)
    if type(one) is not type(other):
        return False
    if isinstance(one, CHECKED):
        return _same(one.part, other.part)
    if dataclasses.is_dataclass(one):
        compared = [each.name for each in dataclasses.fields(one) if each.compare]
        return all(_same(getattr(one, name), getattr(other, name)) for name in compared)
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)


def check_identity(path: Path, before: Mapping[str, Any] | None, now: Mapping[str, str] | None) -> None:
    """Raise if a run was begun with something else. None: it did not write that down, or the folder is only looked at."""
    if before is None or now is None or before == now:
        return
    for part in (*now, *before):
        was, here = before.get(part), now.get(part)
        if was != here:
            argument = _ARGUMENTS.get(part, "system")
            what = {"data": "data set", "policies": "set of policies"}.get(part, part)
            raise RunFolderError(
                f"{path} was begun with another {what} ({_short(was)}, and here it is {_short(here)}): continue it from "
                f"Python with the same {argument}, fedtide.simulate(experiment, folder, {argument}=...), or start in a new "
                "folder"
            )


def fleet_digest(fleet: Fleet) -> str:
    """Return the SHA-256 of what devices take and hold; of virtual holdings, what devices spread over the fleet hold."""
    held, some = fleet.partition, range(len(fleet.partition))
    if is_virtual(held):
        some = some[:: max(len(held) // _MOST_ASKED, 1)]
    counts = fleet.label_counts if len(some) == len(held) else fleet.label_counts[np.array(some)]
    return _digest([fleet.duration, fleet.num_samples, counts, *(held[device] for device in some)])


def data_digest(dataset: Dataset) -> str:
    """Return the SHA-256 of what a data set holds: images, labels and what bytes stand for, training and test."""
    held = [each for each in (*dataset.train, *dataset.test) if each is not None]
    return _digest([*held, np.array([dataset.num_labels])])


def _digest(arrays: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for each in arrays:
        array = np.ascontiguousarray(each)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _described(policy: Any) -> str:
    """Name a policy with its settings: ours write them down themselves, those of a user's are in the experiment."""
    made = policy.policy if isinstance(policy, user_code.Guarded) else policy
    own = isinstance(policy, user_code.Guarded) and is_own_file(policy.name)
    text = _written(made) if _writes_itself(made) or isinstance(made, (int, float)) else _type_label(made, own)
    if isinstance(policy, user_code.Guarded):
        return f"{policy.name} {text}"
    return text if user_code.is_ours(made) or isinstance(made, (int, float)) else text + _settings(made)


def _writes_itself(made: Any) -> bool:
    is_object = dataclasses.is_dataclass(made) and not isinstance(made, type)
    return is_object and type(made).__module__.startswith("fedtide.")


def _written(made: Any) -> str:
    """Return the repr of one of ours; a user's own that it is made with by name: its repr may say where in memory it is."""
    if _writes_itself(made):
        told = [field.name for field in dataclasses.fields(made) if field.repr]
        inside = (f"{name}={_written(getattr(made, name))}" for name in told)
        return f"{type(made).__qualname__}({', '.join(inside)})"
    return _described(made) if callable(made) else repr(made)


def _settings(policy: Any) -> str:
    """Return the plain values that a policy was made with: a caller may hand over one of the same class with others."""
    if isinstance(policy, functools.partial):
        values: dict[str, Any] = {"": policy.args, **policy.keywords}
    elif isinstance(policy, types.FunctionType):
        inner = inspect.getclosurevars(policy).nonlocals
        values = {**inner, "defaults": policy.__defaults__, **(policy.__kwdefaults__ or {})}
    else:
        values = getattr(policy, "__dict__", {})
    plain = {name: text for name, value in sorted(values.items()) if (text := _plain(value))}
    return f"({', '.join(f'{name}={text}' for name, text in plain.items())})" if plain else ""


def _plain(value: Any) -> str:
    """Write a value down if it is the same text in every process; "" for what is not."""
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_plain, value))}]" if value else ""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc"):
        return repr(value.item()) if value.size == 1 else _digest([value])[:12]
    return ""


def trainer_name(trainer: Any) -> str:
    """Name a trainer: native and torch are ours; one of your own is known by its class, and by its `name` if it has one."""
    own = isinstance(trainer, user_code.Guarded) and is_own_file(trainer.name)
    trainer = trainer.policy if isinstance(trainer, user_code.Guarded) else trainer
    kind = type(trainer)
    if kind.__module__.startswith("fedtide.learning."):
        return str(getattr(trainer, "name", kind.__module__.rpartition(".")[2]))
    name = getattr(trainer, "name", None)
    return _type_label(trainer, own) + (f" {name}" if isinstance(name, str) else "")


def _type_label(thing: Any, own: bool = False) -> str:
    """Return module.name of a function, or of the class of anything else; a script is the module that its file would be.

    own: it is named by its file in the experiment, whose content is in versions.json, so that the name alone is enough.
    """
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    module = str(getattr(named, "__module__", None))
    if module == "__main__":
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or module).stem
    if own or module.startswith(user_code.MODULE):  # named after where the file lies; what it holds is in versions.json
        return str(named.__qualname__)
    return f"{module}.{named.__qualname__}"


def _short(text: Any) -> str:
    return f"{str(text)[:100]}" if text is None or len(str(text)) != 64 else f"sha256 {str(text)[:12]}"
