"""What a judge is given, read and checked: a part and its kind, the worlds, what is tuned, and seeds derived from the file."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fedtide import config
from fedtide.config import Experiment, workload
from fedtide.config.build import part_object_value
from fedtide.config.presets import scenario_names
from fedtide.core.files import is_own_file
from fedtide.core.yaml12 import shown, yaml_in_line
from fedtide.errors import FedtideError, did_you_mean
from fedtide.parts import registry
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.parts.user_code import own_names, user_source_digest
from fedtide.runs import policy_files
from fedtide.studies.race_input import check_level
from fedtide.studies.spec import Given, given_base, spec_run_name
from fedtide.testing.source import refuse_source

# Parts of a method. All other kinds are the world, or score themselves (a trainer evaluates its own models).
JUDGED_KINDS: Final = ("scheduler", "selector", "weighting", "aggregator", "codec", "allocation", "schedule")
_FRESH_AGES: Final = 0.846  # gamma of the paper's figures that favours fresh updates
_RATE_STEP: Final = 3.0  # learning rates that are tried: the world's over this, itself, and times this

# A run of some seconds. Smaller worlds stay as they are.
_MOST_PERIODS: Final = 40
_MOST_SAMPLES: Final = 150  # of each device
_MOST_TEST: Final = 1000

Settings = dict[str, Any]  # dotted keys


class JudgedPart(NamedTuple):
    """What is judged: parts by key, the digests of their files, and what they may use besides computing."""

    keys: Mapping[str, Any]  # dotted key of the experiment -> name, or name and parameters
    files: Mapping[str, str]  # name of the user's file -> SHA-256 of it and of what it imports from beside it
    allowed: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Its names in a line."""
        return _parts_in_line(self.keys)

    def portable_keys(self) -> dict[str, Any]:
        """Return the parts as they are named wherever the files lie: without folders."""
        return {key: _without_folder(entry) for key, entry in self.keys.items()}


def _parts_in_line(keys: Mapping[str, Any]) -> str:
    """Name parts in a line: alone without their keys."""
    texts = {key: yaml_in_line(_without_folder(entry)) for key, entry in keys.items()}
    return next(iter(texts.values())) if len(texts) == 1 else ", ".join(f"{key}={text}" for key, text in texts.items())


def _without_folder(entry: Any) -> Any:
    if isinstance(entry, Mapping):
        return {name: _without_folder(each) for name, each in entry.items()}
    return os.path.basename(entry) if isinstance(entry, str) and is_own_file(entry) else entry


def judged_part(given: Any, kind: str | None = None, allow: Sequence[str] = ()) -> JudgedPart:
    """Read what is to be judged: `mine.py:Part`, words such as `policy.scheduler=mine.py:Part`, keys, or a Python object."""
    if kind is not None and kind not in JUDGED_KINDS:
        hint = did_you_mean(kind, JUDGED_KINDS, "see `fedtide parts`.")
        raise FedtideError(f"kind={shown(kind)} cannot be judged; {hint} There are {', '.join(JUDGED_KINDS)}")
    if isinstance(allow, str):
        raise FedtideError(f"allow={shown(allow)} must be a list of dotted names, such as [{allow!r}]")
    tree = _read_words(given)
    if isinstance(tree, Mapping):
        keys = _entries(tree)
    else:
        for name in own_names(tree):
            refuse_source(name, allow)  # before it is imported
        key = KINDS[kind or part_kind(tree)].key
        keys = {key: part_object_value(key, tree)}
    return JudgedPart(keys, _source_digests(keys, allow), tuple(allow))


def _read_words(given: Any) -> Any:
    """Return what is given as a tree of keys, as a single name, or as the object that it is."""
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, (list, tuple)) or not words or not all(isinstance(word, str) for word in words):
        return given
    if "=" in words[0]:
        return config.parse_overrides(words)
    if len(words) > 1:
        raise FedtideError(
            f"{shown(' '.join(words))}: several parts need their keys, as in policy.scheduler=mine.py:Part"
        )
    return words[0]


def _source_digests(keys: Mapping[str, Any], allow: Sequence[str] = ()) -> dict[str, str]:
    """Return the SHA-256 of the files of some parts, by the name of the file, each with what it imports from beside it."""
    files: dict[str, str] = {}
    for name in own_names(keys):
        if not is_own_file(name):
            raise FedtideError(f"{name}: a judge reads the source: give the file, as in path/mine.py:Part")
        refuse_source(name, allow)
        place, digest = name.rpartition(":")[0], user_source_digest(name)
        if digest is None:
            raise FedtideError(f"{name}: file not found: {place}; give its path, as in path/mine.py:Part")
        if files.setdefault(os.path.basename(place), digest) != digest:
            raise FedtideError(f"two of the files are called {os.path.basename(place)}; rename one of them")
    return files


def _entries(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a tree of keys, by dotted key; raise if there is anything else in it."""
    found: dict[str, Any] = {}
    allowed = [KINDS[kind].key for kind in JUDGED_KINDS]
    for group, inner in config.nest(tree).items():
        for leaf, entry in inner.items() if isinstance(inner, Mapping) else [("", inner)]:
            key = f"{group}.{leaf}".rstrip(".")
            if key not in allowed:
                raise FedtideError(
                    f"{key}={shown(entry)} is not a part of a method: a judge takes {', '.join(allowed)}"
                )
            found[key] = part_object_value(key, entry)
            if isinstance(found[key], Mapping) and "name" not in found[key]:
                raise FedtideError(f"{key} has parameters and no name: say {key}=mine.py:Part, too")
    return found


def part_kind(given: Any) -> str:
    """Tell the kind of a part from the names of what it is called with; raise unless exactly one fits."""
    found = given
    if isinstance(given, str):
        if not is_own_file(given):
            kinds = [kind for kind in JUDGED_KINDS if given in builtin_parts(kind)]
            if len(kinds) == 1:
                return kinds[0]
            raise FedtideError(
                f"{shown(given)} is not a part: give path/mine.py:Part, or policy.scheduler=random for a built-in one"
            )
        found = registry.find_part("part", given, {})
    fits = [kind for kind in JUDGED_KINDS if _fits(kind, found)]
    if len(fits) != 1:
        raise FedtideError(
            f"what kind of part {given if isinstance(given, str) else shown(given)} is cannot be told from the names of its "
            f"arguments: add --kind, one of {', '.join(JUDGED_KINDS)}"
        )
    return fits[0]


def _fits(kind: str, found: Any) -> bool:
    known = KINDS[kind]
    forms = [form for form in (known.calls, known.calls_with_memory, known.calls_of_fold) if form]
    return any(all(_takes(found, method, names) for method, names in form.items()) for form in forms)


def _takes(found: Any, method: str, names: Sequence[str]) -> bool:
    """Say whether an object, or those of a class, have a method whose arguments begin with these names."""
    called = found if inspect.isroutine(found) else getattr(found, method or "__call__", None)
    if called is None or (method and inspect.isroutine(found)):
        return False
    try:
        declared = list(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return False
    return declared[inspect.isclass(found) :][: len(names)] == list(names)


def reference_part(part: JudgedPart, against: Any) -> JudgedPart:
    """Return what a part is compared with: what the default experiment has of the same kinds, or what is named."""
    keys = {key: config.key_value(Experiment(), key).entry for key in part.keys}
    if against is None:
        return JudgedPart(keys, {})
    tree = _read_words(against)
    if not isinstance(tree, Mapping):
        if len(part.keys) > 1:
            raise FedtideError(
                f"against={shown(tree)}: several parts are judged: say which, as in policy.scheduler=random"
            )
        tree = dict.fromkeys(part.keys, tree)
    keys |= _entries(tree)
    if other := {*keys} - {*part.keys}:
        raise FedtideError(
            f"against names {', '.join(sorted(other))}, which the judged part does not have: leave it out"
        )
    return JudgedPart(keys, _source_digests(keys, part.allowed), part.allowed)


# Worlds.


class JudgedWorld(NamedTuple):
    """A world as it is judged in."""

    name: str
    experiment: Experiment
    changed: Settings  # keys that make its runs shorter than the world itself

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of the user's files that it names, by name."""
        return {os.path.basename(name): digest for name, digest in policy_files(self.experiment).items()}

    def portable_keys(self) -> dict[str, Any]:
        """Return its keys as they are wherever the files lie: without folders."""
        keys = config.dump(self.experiment)
        keys["data"]["folder"] = None
        return {group: _without_folder(inner) for group, inner in keys.items()}

    @property
    def digest(self) -> str:
        """What identifies it: its keys, and the content of the user's files that it names."""
        return spec_run_name(config.experiment(self.portable_keys()), self.files)


def judged_world(given: Given, whole: bool = False) -> JudgedWorld:
    """Return a scenario by its name, or an experiment, shortened by a fixed rule so that a run takes some seconds."""
    if isinstance(given, str) and given in scenario_names():
        name, made = given, config.experiment(scenario=given)
    elif isinstance(given, str) and "=" not in given and not os.path.isfile(given):
        hint = did_you_mean(given, scenario_names(), "see `fedtide scenario list`.")
        raise FedtideError(f"world {shown(given)} is neither a scenario nor an experiment file; {hint}")
    else:
        name = given if isinstance(given, str) else getattr(given, "name", "experiment")
        made = config.experiment(given_base(given))
    plain = config.experiment(made, {"seed": 0, "data.validation": 0.0, "tracker": []})
    changed = {} if whole else _shorter(plain)
    return JudgedWorld(os.path.basename(str(name)), config.experiment(plain, changed), changed)


def _shorter(e: Experiment) -> Settings:
    """Return the keys that make a world's runs short: fewer aggregations, fewer samples.

    A training takes as long, and costs as much energy, as with all samples; fewer steps have a higher learning rate.
    """
    changed: Settings = {}
    if e.timeline.horizon > _MOST_PERIODS * e.timeline.period:
        changed["timeline.horizon"] = _MOST_PERIODS * e.timeline.period
    if (workload.expected_dataset_size(e, "num_test") or 0) > _MOST_TEST:
        changed["data.num_test"] = _MOST_TEST
    size, most = workload.expected_dataset_size(e, "num_train") or 0, _MOST_SAMPLES * e.fleet.num_devices
    if size > most:
        changed["data.num_train"] = most
        for name in ("cycles_per_sample", "joules_per_sample"):
            if cost := getattr(e.fleet, name):
                changed[f"fleet.{name}"] = cost * size / most
        changed["learning.learning_rate"] = e.learning.learning_rate * (size / most) ** 0.5
    return changed


# Tuning.


TUNING_SEEDS: Final = 2
_VALIDATION: Final = 0.1  # share of the training samples on which settings are chosen


def tuning_fidelity(e: Experiment) -> Settings:
    """Return the keys of the runs that settings are chosen with: half of the horizon, scored on samples that no device holds."""
    horizon = e.timeline.horizon
    return {"data.validation": _VALIDATION, "timeline.horizon": max(horizon / 2, min(horizon, 4 * e.timeline.period))}


def tuning_grids(
    part: JudgedPart, world: JudgedWorld, tune: Mapping[str, Sequence[Any]]
) -> tuple[list[Settings], list[Settings]]:
    """Return the settings that are tried for the part and for what it is compared with: as many for both.

    What is tuned of the part makes its grid larger; the other side has as many more learning rates.
    """
    for key, values in tune.items():
        if (
            not any(key.startswith(f"{own}.") for own in part.keys)
            or not isinstance(values, (list, tuple))
            or not values
        ):
            example = f"{next(iter(part.keys))}.PARAMETER=1,2"
            raise FedtideError(
                f"--tune {key}={shown(values)} names no parameter of what is judged, or no values: say {example}"
            )
    own = [dict(zip(tune, values, strict=True)) for values in itertools.product(*tune.values())]
    ages = _age_grid(part, world.experiment)
    mine = [{**rate, **age, **each} for rate in _rates(world.experiment, 1) for age in ages for each in own]
    return mine, [{**rate, **age} for rate in _rates(world.experiment, len(own)) for age in ages]


def _rates(e: Experiment, times: int) -> list[Settings]:
    """Return learning rates about the world's: three, or so many times as many within the same range, its own among them."""
    steps = 3 * times // 2  # from the world's own up
    powers = [step / steps for step in range(-steps, steps + 1)][-3 * times :]
    return [{"learning.learning_rate": e.learning.learning_rate * _RATE_STEP**power} for power in powers]


def _age_grid(part: JudgedPart, e: Experiment) -> list[Settings]:
    """Return the values of gamma that are tried, where the weighting reads it and is not what is judged."""
    key = KINDS["weighting"].key
    found = registry.find_part("weighting", e.part("weighting").name, builtin_parts("weighting"))
    reads = any(each.about.key == "policy.age_base" for each in registry.own_parameters("weighting", found))
    if key in part.keys or not reads:
        return [{}]
    return [{"policy.age_base": value} for value in dict.fromkeys((e.policy.age_base, _FRESH_AGES))]


# Seeds, and how sure a verdict is.


def check_settings(level: Any, seeds: Any, salt: Any, *in_certificate: Any) -> None:
    """Raise if a judgement cannot be as it is asked for. in_certificate: what JSON must hold."""
    try:
        json.dumps(in_certificate, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise FedtideError(
            f"{shown(in_certificate)} cannot be written to a certificate ({error}): give plain numbers and texts"
        ) from None
    check_level(level)
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 2 <= seeds <= 1000:
        raise FedtideError(f"seeds={shown(seeds)} must be a whole number from 2 to 1000")
    if not isinstance(salt, str):
        raise FedtideError(f"salt={shown(salt)} must be a text")


def derived_seeds(part: JudgedPart, world: str, tune: Mapping[str, Any], salt: str, use: str, count: int) -> list[int]:
    """Return seeds that follow from the content of the files, the parameters and the world: whoever changes one gets others.

    world: its digest. use: tuning or judging.
    """
    told = [sorted(part.files.values()), part.portable_keys(), tune, world, salt, use]
    text = json.dumps(told, sort_keys=True)
    return [int(hashlib.sha256(f"{text} {number}".encode()).hexdigest()[:12], 16) for number in range(count)]


def settings_text(settings: Mapping[str, Any]) -> str:
    """Write settings in a line."""
    short = {
        key.rpartition(".")[2]: f"{value:.4g}" if isinstance(value, float) else value for key, value in settings.items()
    }
    return ", ".join(f"{key} {value}" for key, value in short.items())
