"""An experiment, as a frozen value: every key, its default (the paper's), its bounds. Nothing else is configuration."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from fedtide.config import callables, effort
from fedtide.config.fields import Args, Count, Decibels, Name, NotNegative, Positive, Scale, Whole, explain
from fedtide.config.trees import lay as lay
from fedtide.config.trees import merge as merge
from fedtide.config.trees import nest as nest
from fedtide.core import parts
from fedtide.core.forms import NotAForm, plain, shown
from fedtide.core.kinds import NAMED
from fedtide.core.reading import beside, is_file, is_own_file, locate
from fedtide.core.reading import parse_overrides as parse_overrides
from fedtide.core.reading import read_file as read_file
from fedtide.errors import FedtideError

# Keys that may name a file of the user's own, as file.py:name.
POLICY_KEYS = tuple(kind.key for kind in NAMED.values())


def _later(default: Any, description: str) -> Any:
    """Return the field of a key that came after the first version: at its default it changes no digest."""
    given: Any = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**given, description=description, json_schema_extra={"later": True})


def _kind(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<number>"


# Told apart by what was given, so that a wrong value is told of once.
OneOrSeveral = Annotated[
    Annotated[Scale, Tag("<number>")] | Annotated[list[Scale], Tag("<list>")], Discriminator(_kind)
]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Group):
    """What is learned, and how it is dealt out."""

    name: Name = Field("mnist", description="the data set")
    args: Args = _later(dict, "arguments of the data set")
    folder: Path | None = Field(None, description="where MNIST's IDX files lie (default: cache, then download)")
    num_train: Count | None = Field(None, description="use only so many training samples")
    num_test: Count | None = Field(None, description="use only so many test samples")
    partition: Name = Field("shards", description="who holds what; shards is the paper's non-i.i.d. setting")
    partition_args: Args = _later(dict, "arguments of the partition")
    num_shards: Count = Field(200, description="label shards in all, dealt floor(num_shards/N) to each device")
    concentration: Annotated[Positive, Field(ge=1e-30)] = Field(
        0.5, description="of the Dirichlet partition; smaller is more skewed"
    )
    size_spread: Annotated[NotNegative, Field(le=100)] = Field(
        0.0, description="sigma of log-normal sizes; 0: all devices hold the same number"
    )


class FleetConfig(_Group):
    """The devices."""

    num_devices: Count = Field(40, description="N")
    min_duration: NotNegative = Field(0.0, description="T_min; T_k ~ U(T_min, T_max)")
    max_duration: Positive = Field(1.0, description="T_max; times are in units of your choice, the default is T_max")
    duration: Name = _later("uniform", "how long a local training takes")
    duration_args: Args = _later(dict, "arguments of the duration")
    availability: Name = _later("always", "when a device is there")
    availability_args: Args = _later(dict, "arguments of the availability")
    joules_per_sample: NotNegative = _later(0.0, "energy of visiting one sample in training, in J; 0: not counted")

    @model_validator(mode="after")
    def _ordered(self) -> FleetConfig:
        if self.min_duration > self.max_duration:
            raise ValueError(
                f"fleet.min_duration={self.min_duration} exceeds fleet.max_duration={self.max_duration}; swap them or lower it"
            )
        return self


class TimelineConfig(_Group):
    """When the server acts."""

    name: Name = Field("periodic", description="when the server acts")
    args: Args = Field(default_factory=dict, description="arguments of your own timeline")
    period: Positive = Field(0.25, description="T~ of the periodic timeline")
    buffer_size: Count = Field(8, description="how many finished devices the buffered timeline waits for")
    horizon: Positive = Field(35.0, description="simulated time in all")


class Radio(_Group):
    """The uplink."""

    num_symbols: Scale = Field(300_000, description="n, symbols per T_max/4; scaled to the timeline's own pace")
    snr_db: Decibels = Field(13.0, description="average received SNR in dB")
    large_scale: OneOrSeveral = Field(1.0, description="beta_k: one number, or one per device")
    channel: Name = _later("rayleigh", "what the uplinks carry")
    channel_args: Args = _later(dict, "arguments of the channel")
    allocation: Name = _later("equal_bits", "how a tick's symbols are shared")
    allocation_args: Args = _later(dict, "arguments of the allocation")
    joules_per_symbol: NotNegative = _later(0.0, "energy of sending one symbol, in J; 0: not counted")


class Policy(_Group):
    """Who uploads, and how what arrives is weighed and combined."""

    scheduler: Name = Field("data_importance", description="who uploads; see `fedtide parts`")
    scheduler_args: Args = Field(default_factory=dict, description="arguments of the scheduler")
    limit: Count = Field(8, description="R, uploads per aggregation at most")
    weighting: Name = Field("age_aware", description="how much each arrived update counts")
    weighting_args: Args = Field(default_factory=dict, description="arguments of your own weighting")
    age_base: Positive = Field(1.0, description="gamma: below 1 favours fresh updates, above 1 old ones")
    combiner: Name = Field("average_models", description="how arrived updates become the next model")
    combiner_args: Args = Field(default_factory=dict, description="arguments of the combiner, e.g. {mixing: 0.4}")


class CodecConfig(_Group):
    """How updates become bits."""

    name: Name = Field("sparse_quantized", description="how an update becomes bits; sparse_quantized is the paper's")
    args: Args = Field(default_factory=dict, description="arguments of your own codec")
    num_levels: Annotated[Count, Field(le=32_767)] = Field(4, description="nu, quantisation levels")
    element_bits: Annotated[Count, Field(le=64)] | None = Field(
        None, description="bits per kept element (default: ceil(log2(nu+1)) + 1)"
    )


class Learning(_Group):
    """What a device does with a model, and how models are scored."""

    model: Name = Field("paper_cnn", description="what is trained; file.py:make for a PyTorch module")
    model_args: Args = _later(dict, "arguments of the model")
    trainer: Name = Field("native", description="who trains: native is the C++ kernel, torch is PyTorch")
    trainer_args: Args = _later(dict, "arguments of the trainer")
    local_epochs: Count | None = Field(3, description="E as passes over the device's data")
    local_steps: Count | None = Field(None, description="E as steps; takes the place of local_epochs")
    batch_size: Count = Field(50, description="samples per step")
    learning_rate: Positive = Field(0.01, description="alpha at the start")
    schedule: Literal["halved", "constant", "cosine"] = Field("halved", description="halved: at half-time")
    proximal: NotNegative = Field(0.02, description="lambda")
    dropout: bool = Field(True, description="keep the model's dropout layers")
    evaluate_every: NotNegative = Field(0.0, description="simulated time between evaluations; 0: every aggregation")
    training_loss: bool = Field(False, description="evaluate the loss on all training data too")


class Experiment(_Group):
    """One run: same experiment, same bits."""

    seed: Whole = Field(0, description="names every random stream")
    framework: Literal["periodic", "fedavg", "fedasync", "fedbuff"] | None = Field(
        None, description="a preset for timeline, aggregation and learning; keys you give yourself win"
    )
    profile: Literal["paper", "released-code"] = Field("paper", description="whose values fill what you leave out")
    data: Data = Data()
    fleet: FleetConfig = FleetConfig()
    timeline: TimelineConfig = TimelineConfig()
    radio: Radio = Radio()
    policy: Policy = Policy()
    codec: CodecConfig = CodecConfig()
    learning: Learning = Learning()
    tracker: list[str | dict[str, Any]] = _later(list, "who watches the run: names, or {name: ..., arguments}")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        given = split_parts(given)
        filled = merge(PROFILES.get(str(given.get("profile", "paper")), {}), {})
        filled = merge(filled, FRAMEWORKS.get(str(given.get("framework")), {}))
        filled = _looked_up(lay(filled, given))
        learning = given.get("learning", {})
        if isinstance(learning, Mapping) and learning.get("local_steps") is not None and "local_epochs" not in learning:
            filled = merge(filled, {"learning": {"local_epochs": None}})
        return filled

    @model_validator(mode="after")
    def _fits_together(self) -> Experiment:
        fleet, timeline = self.fleet, self.timeline
        if self.policy.limit > fleet.num_devices:
            raise ValueError(
                f"policy.limit={self.policy.limit} (R) exceeds fleet.num_devices={fleet.num_devices} (N); "
                "lower it or add devices"
            )
        if isinstance(self.radio.large_scale, list) and len(self.radio.large_scale) != fleet.num_devices:
            raise ValueError(
                f"radio.large_scale has {len(self.radio.large_scale)} values for fleet.num_devices={fleet.num_devices}; "
                "give one number or one per device"
            )
        for kind in NAMED:
            parts.check_name(kind, str(value(self, NAMED[kind].key)))
        if problem := effort.timeline_problem(self):
            raise ValueError(problem)
        if (self.learning.local_epochs is None) == (self.learning.local_steps is None):
            raise ValueError("give exactly one of learning.local_epochs and learning.local_steps")
        if 0 < self.learning.evaluate_every < 1e-12 * timeline.horizon:
            raise ValueError(
                f"learning.evaluate_every={self.learning.evaluate_every:g} is nothing beside timeline.horizon="
                f"{timeline.horizon:g}; raise it, or say 0 for every aggregation"
            )
        if problem := effort.beyond_reach(self):
            raise ValueError(problem)
        return self


# A framework is a composition of timeline, scheduler, aggregation and learning; each entry is what differs from the default.
# "=group.key" stands for the value of another key.
FRAMEWORKS: dict[str, dict[str, Any]] = {
    "periodic": {},
    "fedavg": {"timeline": {"name": "synchronous"}, "learning": {"proximal": 0.0}},
    "fedasync": {
        "timeline": {"name": "per_arrival"},
        "policy": {"scheduler": "random", "limit": 1, "combiner": "mix", "combiner_args": {"mixing": 0.4}},
        "learning": {"evaluate_every": 0.25},
    },
    "fedbuff": {
        "timeline": {"name": "buffered"},
        # everyone in the buffer counts, unless told otherwise
        "policy": {
            "scheduler": "random",
            "limit": "=timeline.buffer_size",
            "weighting": "uniform",
            "combiner": "buffered_mean",
        },
    },
}

# What the authors' released code used where it differs from the text.
PROFILES: dict[str, dict[str, Any]] = {
    "paper": {},
    "released-code": {
        "radio": {"snr_db": 10 * math.log10(20)},
        "codec": {"element_bits": 3},
        "policy": {"scheduler": "best_of_random_subsets"},
        "learning": {"proximal": 0.0},
    },
}


def split_parts(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree in which `scheduler: {name: mine, share: 0.5}` is `scheduler: mine, scheduler_args: {share: 0.5}`."""
    for kind in NAMED.values():
        (group, leaf), args = kind.key.split("."), kind.args.rpartition(".")[2]
        inner = tree.get(group)
        if not isinstance(inner, Mapping):
            continue
        given = inner.get(leaf)
        if not isinstance(given, Mapping) or "name" not in given:
            continue
        rest = {name: each for name, each in given.items() if name != "name"}
        if rest and args in inner:
            raise FedtideError(f"{kind.args} is given beside {kind.key}={shown(dict(given))}; keep one of the two")
        tree = {**tree, group: {**inner, leaf: given["name"], **({args: rest} if rest else {})}}
    return dict(tree)


def _looked_up(tree: dict[str, Any]) -> dict[str, Any]:
    """Put values in the place of the references (`=group.key`) that a framework has."""
    for group, inner in tree.items():
        for name, each in inner.items() if isinstance(inner, Mapping) else ():
            if isinstance(each, str) and each.startswith("="):
                other, _, leaf = each[1:].partition(".")
                there = tree.get(other, {})
                found = there.get(leaf) if isinstance(there, Mapping) else None
                tree = merge(tree, {group: {name: all_keys()[each[1:]].default if found is None else found}})
    return tree


def value(experiment: Experiment, key: str) -> Any:
    """Return the value of a dotted key."""
    found: Any = experiment
    for name in key.split("."):
        found = getattr(found, name)
    return found


@functools.cache
def all_keys() -> dict[str, Any]:
    """Return every dotted key with its pydantic field."""
    found: dict[str, Any] = {}
    for name, field in Experiment.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, _Group):
            found |= {f"{name}.{inner}": each for inner, each in group.model_fields.items()}
        else:
            found[name] = field
    return found


def read_words(words: Iterable[str]) -> dict[str, Any]:
    """Read what a command line says of an experiment: a file, if the first word is not key=value, then keys on top."""
    given = list(words)
    tree = _read_experiment(Path(given.pop(0))) if given and "=" not in given[0] else {}
    return _on_top(tree, parse_overrides(given))


def _read_experiment(path: Path) -> dict[str, Any]:
    """Read an experiment file; the user's own policies are looked for beside it, too."""
    tree = read_file(path)
    if tree.keys() & {"axes", "variants"} or tree.keys() >= {"version", "name"}:
        raise FedtideError(
            f"{path} is a study file (it has {shown(', '.join(tree))}), not an experiment: use `fedtide study run {path}`"
        )
    tree = split_parts(nest(tree))
    for key in POLICY_KEYS:
        group, _, name = key.partition(".")
        inner = tree.get(group)
        if isinstance(inner, Mapping) and isinstance(inner.get(name), str):
            tree = merge(tree, {group: {name: beside(inner[name], path.parent)}})
    return _with_files_beside(tree, path.parent)


def _with_files_beside(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Name the files that parts' arguments name such that they are found from anywhere, if they lie in this folder alone."""
    for kind, each in NAMED.items():
        group, _, leaf = each.args.partition(".")
        inner = tree.get(group)
        args, name = (
            (inner.get(leaf), inner.get(each.key.partition(".")[2])) if isinstance(inner, Mapping) else ({}, None)
        )
        if not isinstance(args, Mapping) or not isinstance(name, str):
            continue
        with parts.beside(folder):
            files = parts.argument_files(kind, name, args)
        full = {key: os.path.abspath(locate(place, folder)) for key, place in files.items() if not is_file(Path(place))}
        tree = merge(tree, {group: {leaf: {**args, **full}}}) if full else tree
    return tree


def experiment(*given: Mapping[str, Any] | Experiment | str | Path, **keys: Any) -> Experiment:
    """Make an Experiment, the later ones of what is given on top; one clear line if it cannot be.

    Each is a mapping (nested, or with dotted keys), an Experiment, the path of a file, or a `key=value` word. What is laid
    on an Experiment changes it: all else keeps its value. Keywords come on top of all: `seed=3`, `policy={"limit": 4}` or
    `**{"policy.limit": 4}`.
    """
    merged: dict[str, Any] = {}
    for each in (*given, keys):
        merged = _on_top(merged, _tree(each))
    try:
        return Experiment.model_validate(merged)
    except ValidationError as error:
        raise FedtideError(explain(error, _about, nearest)) from None


def _tree(given: Any) -> dict[str, Any]:
    """Return as a nested mapping what experiment() was given."""
    if isinstance(given, Experiment):
        return dump(given)
    if isinstance(given, str):
        return read_words([given])
    if isinstance(given, Path):
        return _read_experiment(given)
    if not isinstance(given, Mapping):
        raise FedtideError(
            f"{shown(given)} is no experiment; give a mapping of keys, the path of a file, or an Experiment"
        )
    try:
        tree = plain(callables.replaced(given))
    except NotAForm as error:
        raise FedtideError(str(error)) from None
    return split_parts(nest(tree))


def _on_top(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Lay keys on others. On an experiment that has all its keys, one key may take another's place."""
    if not over or _has_all_keys(over):
        return over or under
    if not _has_all_keys(under):
        return merge(under, over)
    for key in ("framework", "profile"):
        if key in over and over[key] != under[key]:
            raise FedtideError(
                f"{key}={shown(over[key])} fills in what is left out, and this experiment has every key already "
                f"({key}={shown(under[key])}): give the keys themselves, or begin without it"
            )
    learning = over.get("learning")
    for one, other in (("local_steps", "local_epochs"), ("local_epochs", "local_steps")):
        if isinstance(learning, Mapping) and learning.get(one) is not None and other not in learning:
            under = merge(under, {"learning": {other: None}})
    return lay(under, over)


def _has_all_keys(tree: Mapping[str, Any]) -> bool:
    for key, field in all_keys().items():
        if _is_later(field):  # a file of an earlier version has every key it knows
            continue
        group, _, name = key.rpartition(".")
        inner = tree.get(group) if group else tree
        if not isinstance(inner, Mapping) or name not in inner:
            return False
    return True


def nearest(key: str) -> str:
    """Say which valid key a wrong one may have meant, or where to look."""
    inside = [name for name in all_keys() if name.startswith(f"{key}.")]
    if inside:
        return f": it is a group of keys; name one of {', '.join(inside)}"
    leaf = [each for each in all_keys() if each.rpartition(".")[2] == key.rpartition(".")[2]]
    near = leaf or difflib.get_close_matches(key, [*all_keys(), *Experiment.model_fields], 1, 0.5)
    return f": did you mean {near[0]}?" if near else ": see `fedtide run --keys` for all keys"


def _about(key: str) -> str | None:
    """Say what a key means."""
    field = all_keys().get(key)
    return field.description if field is not None else None


def dump(experiment: Experiment) -> dict[str, Any]:
    """Return the resolved experiment as plain data."""
    return experiment.model_dump(mode="json")


def own_files(experiment: Experiment) -> dict[str, str]:
    """Return the keys that name a file of the user's own, there or not, each with the name (`file.py:attribute`)."""
    tree = dump(experiment)
    names = {key: tree[group][leaf] for key in POLICY_KEYS for group, leaf in [key.split(".")]}
    return {key: name for key, name in names.items() if is_own_file(name)}


def argument_files(experiment: Experiment) -> dict[str, str]:
    """Return the arguments of the user's own parts that name a file, by dotted key, each with the name as it was given."""
    found: dict[str, str] = {}
    for name, kind in NAMED.items():
        args = value(experiment, kind.args)
        files = parts.argument_files(name, value(experiment, kind.key), args) if args else {}
        found |= {f"{kind.args}.{each}": place for each, place in files.items()}
    return found


def digest(experiment: Experiment) -> str:
    """Return a hash that identifies the resolved experiment: same hash, same results.

    Where the data files lie, who watches and which preset filled the values do not change a result, so they do not count.
    Nor does a key that came later, at its default: what was stored before it came is still found.
    """
    tree = dump(experiment)
    del tree["framework"], tree["profile"], tree["data"]["folder"], tree["tracker"]
    for key, field in all_keys().items():
        group, _, name = key.rpartition(".")
        if _is_later(field) and group and tree[group][name] == field.get_default(call_default_factory=True):
            del tree[group][name]
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def _is_later(field: Any) -> bool:
    return bool((field.json_schema_extra or {}).get("later"))
