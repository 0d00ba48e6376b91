"""What may be set in a network: choices, their options, and settings made of these."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide import config
from fedtide.codec.baselines import is_secret
from fedtide.config import Experiment
from fedtide.engine.making import system_durations
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts

Setting = tuple[str, ...]  # an option of every choice, in the order of the choices

# What is tried of every part. The order is that of trying: if the budget is short, the first ones are tried alone.
_CODECS: Final = ("dead_zone", "qsgd", "top_k", "error_feedback", "sparse_quantized")
_SCHEDULES: Final = ("random", "best_channel", "soft_rate_label", "age_based", "proportional_fair", "proposed")
_SERVERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "fedac 0.01": {"name": "fedac", "rate": 0.01},
    "average_deltas 1": {"name": "average_deltas", "server_rate": 1.0},
    "ace 1": {"name": "ace", "server_rate": 1.0},
    "buffered_mean 1": {"name": "buffered_mean", "server_rate": 1.0},
    "ca2fl 1": {"name": "ca2fl", "server_rate": 1.0},
    "average_deltas 1.5": {"name": "average_deltas", "server_rate": 1.5},
    "momentum 0.5": {"name": "server_momentum", "momentum": 0.5},
    "momentum 0.9": {"name": "server_momentum", "momentum": 0.9, "rate": 0.3},
    "mix 0.8": {"name": "mix", "mixing": 0.8},
    "adam 0.01": {"name": "server_adam", "rate": 0.01},
    "fedac 0.03": {"name": "fedac", "rate": 0.03},
    "average_models": {"name": "average_models"},
}
_REPLACEABLE: Final = {"server_yogi", "fadas", *(each["name"] for each in _SERVERS.values())}
_AGE_BASES: Final = (0.5, 0.8, 1.0, 1.25)
_RATE_FACTORS: Final = (4.0, 2.0, 8.0, 0.5, 16.0)
_PERIOD_FACTORS: Final = (0.5, 2.0, 0.25, 4.0)
_LIMIT_FACTORS: Final = (2.0, 0.5, 4.0, 0.25)
_EPOCH_FACTORS: Final = (2.0, 0.5)
_FEWEST_TICKS: Final = 8  # aggregations in the horizon, with the longest period


class Choice(NamedTuple):
    """Something that may be set: its options by name, each with its keys; the base's comes first and has none."""

    name: str
    key: str  # of an experiment
    options: dict[str, dict[str, Any]]

    @property
    def base(self) -> str:
        """The option that the base has."""
        return next(iter(self.options))


class DesignSpace(NamedTuple):
    """All choices, and what is not offered."""

    base: Experiment
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]  # which choices are not offered, and why

    @property
    def base_setting(self) -> Setting:
        """What the base has."""
        return tuple(choice.base for choice in self.choices)

    def keys(self, setting: Setting) -> dict[str, Any]:
        """Return the keys of a setting that the base does not have."""
        pairs = zip(self.choices, setting, strict=True)
        return {key: value for choice, option in pairs for key, value in choice.options[option].items()}

    def experiment(self, setting: Setting, more: Mapping[str, Any] = {}) -> Experiment:  # read only
        """Return the experiment of a setting."""
        return config.experiment(self.base, config.nest({**self.keys(setting), **more}))

    def text(self, setting: Setting) -> str:
        """Name a setting by what it changes."""
        pairs = zip(self.choices, setting, strict=True)
        return ", ".join(option for choice, option in pairs if option != choice.base) or "base"

    def neighbours(self, setting: Setting, options: Mapping[str, Sequence[str]]) -> list[Setting]:
        """Return the settings with one other option. options: of every choice, the likeliest first, all of which come first."""
        rows = [
            [replaced_options(setting, [at], [option]) for option in options[choice.name] if option != setting[at]]
            for at, choice in enumerate(self.choices)
        ]
        return [each for rank in itertools.zip_longest(*rows) for each in rank if each is not None]


def replaced_options(setting: Setting, places: Sequence[int], options: Sequence[str]) -> Setting:
    """Return a setting with other options at some places."""
    new = dict(zip(places, options, strict=True))
    return tuple(new.get(at, option) for at, option in enumerate(setting))


def design_space(base: Experiment, only: Sequence[str] | None = None) -> DesignSpace:
    """Return what may be set in an experiment. only: names of choices; the others stay as they are."""
    found, notes = [], []
    for name, key, options in _offered(base):
        if isinstance(options, str):
            notes.append(f"{name} stays as it is: {options}")
            continue
        made = Choice(name, key, {_base_label(name, base, key): {}})
        for label, value in options.items():
            try:
                other = config.experiment(base, config.nest({key: value}))
            except FedtideError:  # not with the rest of this experiment
                continue
            if config.digest(other) != config.digest(base) and label not in made.options:
                made.options[label] = {key: value}
        found.append(made)
    names = [choice.name for choice in found]
    for name in only or ():
        if name not in names:
            why = next((f" ({note})" for note in notes if note.startswith(f"{name} ")), "")
            raise FedtideError(f"{name!r} is nothing that can be advised on here{why}; there are {', '.join(names)}")
    return DesignSpace(base, tuple(choice for choice in found if only is None or choice.name in only), tuple(notes))


def _offered(base: Experiment) -> Iterator[tuple[str, str, dict[str, Any] | str]]:
    """Yield every choice: its name, its key, and its options by name, or why there is none."""
    whole = base.method or (None if _is_plain(base) else f"codec.name={base.codec.name.name}")
    rate = base.learning.learning_rate
    yield "learning_rate", "learning.learning_rate", _numbers("rate", [rate * each for each in _RATE_FACTORS])
    server = base.policy.aggregator.name
    yield (
        "server",
        "policy.aggregator",
        f"it belongs to {whole}"
        if whole
        else dict(_SERVERS)
        if server in _REPLACEABLE
        else f"policy.aggregator={server} is there for a reason of its own",
    )
    yield (
        "codec",
        "codec.name",
        f"it belongs to {whole}" if whole else {name: {"name": name} for name in _CODECS},
    )
    limits = [max(round(base.policy.limit * each), 1) for each in _LIMIT_FACTORS]
    yield "limit", "policy.limit", _numbers("R", [each for each in limits if each <= base.fleet.num_devices])
    longest = base.timeline.horizon / _FEWEST_TICKS
    periods = [each for factor in _PERIOD_FACTORS if (each := base.timeline.period * factor) <= longest]
    clock = base.part("timeline").name
    yield (
        "period",
        "timeline.period",
        _numbers("period", [each for each in periods if each > 2 * base.timeline.upload_time])
        if clock == "periodic"
        else f"timeline.name={clock} has no period",
    )
    yield "schedule", "policy.scheduler", {name: {"name": name} for name in _SCHEDULES}
    weighting = base.policy.weighting.name
    yield (
        "age_base",
        "policy.age_base",
        _numbers("gamma", _AGE_BASES) if weighting == "age_aware" else f"policy.weighting={weighting} has none",
    )
    yield _epochs(base)


def _is_plain(base: Experiment) -> bool:
    """Say whether devices send coded updates of their own, which any codec could code; private ones must stay private."""
    name = base.codec.name.name
    found = registry.find_part("codec", name, builtin_parts("codec"))
    return base.radio.access.name == "orthogonal" and name not in ("ideal", "ef21") and not is_secret(found)


def _epochs(base: Experiment) -> tuple[str, str, dict[str, Any] | str]:
    """Return the choice of local epochs (or steps), if devices take longer for more of them."""
    leaf = "local_epochs" if base.learning.local_epochs is not None else "local_steps"
    now = getattr(base.learning, leaf)
    key, values = f"learning.{leaf}", [max(round(now * each), 1) for each in _EPOCH_FACTORS]
    twice = config.experiment(base, config.nest({key: 2 * now}))
    held = np.full(base.fleet.num_devices, 1000)
    if np.array_equal(system_durations(base, held), system_durations(twice, held)):
        return (
            leaf,
            key,
            f"fleet.duration={base.fleet.duration.name} does not follow it, so that more would cost no time",
        )
    return leaf, key, _numbers("E", values)


def _numbers(word: str, values: Sequence[float]) -> dict[str, Any]:
    return {f"{word} {value:.4g}": value for value in values}


_WORDS: Final = {"learning_rate": "rate", "limit": "R", "period": "period", "age_base": "gamma"}


def _base_label(name: str, base: Experiment, key: str) -> str:
    value = config.key_value(base, key)
    if isinstance(value, (int, float)):
        return f"{_WORDS.get(name, 'E')} {value:.4g}"
    return next((label for label, each in _SERVERS.items() if each == value.entry), value.name)
