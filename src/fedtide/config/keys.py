"""An experiment, as a frozen value: every key, its default (the paper's), its bounds. Nothing else is configuration.

At the end, what identifies it: its resolved keys, and the files of the user's own that it names.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from fedtide.config import workload
from fedtide.config.nested import PART_KEYS, merge_nested, without_replaced_nested
from fedtide.config.presets import FRAMEWORKS, METHODS, PRESETS, PROFILES, load_scenario, method_problem
from fedtide.config.values import Count, Decibels, Name, NonNegativeInt, NotNegative, Part, Positive, Scale, Share
from fedtide.core.files import is_own_file
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.kinds import KINDS, NAMED


def _part(name: str, description: str) -> Any:
    """Return the field of a key that names a part."""
    return Field(Part(name), description=description)


def _kind(value: Any) -> str:
    return "<list>" if isinstance(value, (list, tuple)) else "<number>"


# Told apart by what was given, so that a wrong value is told of once.
OneOrSeveral = Annotated[
    Annotated[Scale, Tag("<number>")] | Annotated[tuple[Scale, ...], Tag("<list>")], Discriminator(_kind)
]


Images = Annotated[Count, Field(le=workload.MOST_IMAGES)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def __setattr__(self, name: str, _: Any = None) -> None:
        raise FedtideError(
            f"{name} cannot be changed: an experiment is frozen; make another one, as in "
            'fedtide.experiment(e, **{"policy.limit": 4})'
        )

    __delattr__ = __setattr__


class Data(_Group):
    """What is learned, and how it is dealt out."""

    name: Part = _part("mnist", "the data set")
    folder: Path | None = Field(None, description="folder with the official files (default: cache, then download)")
    num_train: Images | None = Field(None, description="number of training samples to use (default: all)")
    num_test: Images | None = Field(None, description="number of test samples to use (default: all)")
    validation: Annotated[NotNegative, Field(le=0.9)] = Field(
        0.0,
        description="share of the training samples to hold out and test on instead of the test set",
    )
    num_held_out: Images | None = Field(
        None,
        description="number of training samples after the first num_train held out for schedulers that look ahead",
    )
    partition: Part = _part("shards", "which device holds which samples; shards is the paper's non-i.i.d. setting")
    num_shards: Count = Field(200, description="label shards in all, dealt floor(num_shards/N) to each device")
    concentration: Annotated[Positive, Field(ge=1e-30)] = Field(
        0.5, description="concentration of the Dirichlet partition; smaller is more skewed"
    )
    size_spread: Annotated[NotNegative, Field(le=100)] = Field(
        0.0, description="sigma of log-normal sizes; 0: all devices hold the same number"
    )


class FleetConfig(_Group):
    """The devices."""

    num_devices: Annotated[Count, Field(le=workload.MOST_DEVICES)] = Field(40, description="N, number of devices")
    min_duration: NotNegative = Field(0.0, description="T_min; T_k ~ U(T_min, T_max)")
    max_duration: Positive = Field(1.0, description="T_max; times are in units of your choice, the default is T_max")
    duration: Part = _part("uniform", "how long a local training takes")
    availability: Part = _part("always", "when a device is available")
    cycles_per_sample: NotNegative = Field(1e7, description="c: CPU cycles per training sample")
    min_frequency: Positive = Field(1e9, description="f_k ~ U(min, max), CPU frequency in cycles per second")
    max_frequency: Positive = Field(1e9, description="f_k ~ U(min, max), CPU frequency in cycles per second")
    energy: Part = _part("per_unit", "how much energy devices spend")
    joules_per_sample: NotNegative = Field(0.0, description="energy per training sample, in J; 0: not counted")
    unpicked: Literal["restart", "keep"] = Field(
        "restart", description="a finished device that is not picked starts over, or keeps its update until it is"
    )
    interrupt: bool = Field(False, description="a new model interrupts devices that are still training")
    absent: Literal["compute", "fetch", "abandon"] = Field(
        "compute",
        description="a device that is away continues to train; or fetches the newest model on return; or also drops its update",
    )
    concurrency: Count | None = Field(None, description="M, devices that train at a time; null: all of them")
    release: Literal["finish", "aggregation"] = Field(
        "finish", description="when one of the M slots becomes free: its device has finished, or its update is used"
    )
    selector: Part = _part("uniform", "which waiting device takes a free slot of the M")
    battery_joules: Positive | None = Field(
        None, description="battery capacity for training and sending, in J; null: unlimited"
    )
    harvest_joules: NotNegative = Field(0.0, description="charging power, in J per unit of time")

    @model_validator(mode="after")
    def _ordered(self) -> FleetConfig:
        for name in ("duration", "frequency"):
            least, most = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if least > most:
                raise ValueError(f"fleet.min_{name}={least:g} exceeds fleet.max_{name}={most:g}; swap them or lower it")
        return self


class TimelineConfig(_Group):
    """When the server acts."""

    name: Part = _part("periodic", "when the server acts")
    period: Positive = Field(0.25, description="T~ of the periodic timeline")
    buffer_size: Count = Field(8, description="how many finished devices the buffered timeline waits for")
    horizon: Positive = Field(35.0, description="simulated time of the run")
    upload_time: NotNegative = Field(
        0.0, description="how long the uploads of an aggregation take; the new model is ready after them"
    )
    uploads: Literal["fixed", "wait", "later"] = Field(
        "fixed",
        description="how long uploads take: fixed: upload_time; wait: what links need, the server waits; later: it does not wait",
    )
    overrun: Literal["spill", "refuse"] = Field(
        "spill", description="uploads that take longer than the period: the next aggregation is late, or an error"
    )


class Radio(_Group):
    """The uplink."""

    num_symbols: Scale = Field(300_000, description="n, symbols per T_max/4; scaled to the timeline's own pace")
    snr_db: Decibels = Field(13.0, description="average received SNR, in dB")
    large_scale: OneOrSeveral = Field(1.0, description="beta_k: one number, or one per device")
    channel: Part = _part("rayleigh", "what the uplinks carry")
    coherence_time: Positive | None = Field(
        None, description="how long a link keeps its fading, in units of time; null: every aggregation draws anew"
    )
    coverage: Part = _part("equal", "the average SNR of each device")
    csi: Part = _part("perfect", "what the server knows about the uplinks")
    modem: Part = _part("shannon", "how many bits a symbol carries")
    access: Part = _part("orthogonal", "orthogonal uploads, or over the air")
    downlink: Part = _part("instant", "how long a device takes to receive a model")
    symbol_rate: NotNegative = Field(
        0.0, description="symbols per unit of time (the bandwidth); 0: airtime is not counted"
    )
    allocation: Part = _part("equal_bits", "how symbols are shared among the uploads")
    num_blocks: Annotated[Count, Field(le=10_000)] = Field(1, description="b, resource blocks that fade independently")
    max_power: Positive = Field(
        1.0, description="largest power that a scheduler may choose, relative to the nominal power"
    )
    retransmission: Part = _part("drop", "what happens to a lost packet")
    joules_per_symbol: NotNegative = Field(0.0, description="energy of sending one symbol, in J; 0: not counted")


class PolicyConfig(_Group):
    """Who uploads, and how what arrives is weighed and combined."""

    scheduler: Part = _part("proposed", "who uploads; see `fedtide parts`")
    limit: Count = Field(8, description="R, maximum number of uploads per aggregation")
    weighting: Part = _part("age_aware", "how much each arrived update counts")
    age_base: Positive = Field(1.0, description="gamma: below 1 favours fresh updates, above 1 old ones")
    aggregator: Part = _part("average_models", "how arrived updates become the next model")


class CodecConfig(_Group):
    """How updates become bits."""

    name: Part = _part("sparse_quantized", "how an update becomes bits; sparse_quantized is the paper's")
    num_levels: Annotated[Count, Field(le=32_767)] = Field(4, description="nu, quantisation levels")
    element_bits: Annotated[Count, Field(le=64)] | None = Field(
        None, description="bits per kept element (default: ceil(log2(nu+1)) + 1)"
    )


class Learning(_Group):
    """What a device does with a model, and how models are scored."""

    model: Part = _part("paper_cnn", "the model; file.py:make for a PyTorch module")
    trainer: Part = _part("native", "how devices train: native is the C++ kernel, torch is PyTorch")
    local_epochs: Count | None = Field(3, description="E, passes over the data of the device")
    local_steps: Count | None = Field(None, description="E, number of steps; replaces local_epochs")
    batch_size: Count = Field(50, description="samples per step")
    learning_rate: Positive = Field(0.01, description="alpha, initial learning rate")
    schedule: Part = _part("halved", "how the learning rate changes during a run; halved: at half-time")
    work: Part = _part("equal", "how much work each device does, if it differs between devices")
    seed_by: Literal["version", "job"] = Field(
        "version",
        description="what seeds batches and dropout, with the device: its model version, or how many trainings it has done",
    )
    proximal: NotNegative = Field(0.02, description="lambda, weight of the proximal term")
    dropout: bool = Field(True, description="keep the model's dropout layers")
    evaluate_every: NotNegative = Field(0.0, description="simulated time between evaluations; 0: every aggregation")
    training_loss: bool = Field(False, description="also evaluate the loss on all training data")
    target_accuracy: Share | None = Field(None, description="the run ends once this test accuracy is reached")
    patience: Count | None = Field(
        None, description="the run ends after this number of evaluations without a better test accuracy"
    )
    metrics: tuple[Part, ...] = Field(
        (), description="what else to measure at every evaluation: a list of names, or of {name: ..., arguments}"
    )


class Experiment(_Group):
    """All settings of one run. The same experiment gives the same bits on the same CPU instruction set.

    Build one with `fedtide.experiment`. Keys are attributes, such as `e.policy.limit` and `e.seed`; an experiment cannot be changed.
    """

    seed: NonNegativeInt = Field(0, description="seed of all random numbers")
    framework: Literal["periodic", "fedavg", "fedasync", "fedbuff"] | None = Field(
        None, description="a preset for timeline, aggregation and learning; keys that you set override it"
    )
    method: Literal["scaffold", "ef21", "over_the_air"] | None = Field(
        None,
        description="parts that a paper published together; you can set their parameters",
    )
    profile: Literal["paper", "released-code"] = Field(
        "paper", description="source of the default values: the paper, or the authors' released code"
    )
    scenario: Name | None = Field(
        None,
        description="a preset for data, devices, radio and their times; framework and keys that you set override it",
    )
    data: Data = Data()
    fleet: FleetConfig = FleetConfig()
    timeline: TimelineConfig = TimelineConfig()
    radio: Radio = Radio()
    policy: PolicyConfig = PolicyConfig()
    codec: CodecConfig = CodecConfig()
    learning: Learning = Learning()
    tracker: tuple[Part, ...] = Field(
        (), description="what follows the run: a list of names, or of {name: ..., arguments}"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or has_all_keys(given):  # whoever has every key was filled in before
            return given
        filled = merge_nested(_default_parts(), PROFILES.get(str(given.get("profile", "paper")), {}))
        preset = FRAMEWORKS.get(str(given.get("framework")), {})
        if isinstance(name := given.get("scenario"), str):
            world = load_scenario(name).keys
            filled = merge_nested(without_replaced_nested(filled, world), world)
            preset = _in_units_of(world.get("fleet", {}).get("max_duration", 1.0), preset)
        filled = merge_nested(filled, _looked_up(preset, merge_nested(merge_nested(filled, preset), given)))
        if (chosen := str(given.get("method"))) in METHODS:
            filled = merge_nested(filled, METHODS[chosen].keys)
        return merge_nested(without_replaced_nested(filled, given), given)

    @model_validator(mode="after")
    def _fits_together(self) -> Experiment:
        fleet, timeline = self.fleet, self.timeline
        if self.policy.limit > fleet.num_devices:
            raise ValueError(
                f"policy.limit={self.policy.limit} (R) exceeds fleet.num_devices={fleet.num_devices} (N); "
                "lower it or add devices"
            )
        if isinstance(self.radio.large_scale, tuple) and len(self.radio.large_scale) != fleet.num_devices:
            raise ValueError(
                f"radio.large_scale has {len(self.radio.large_scale)} values for fleet.num_devices={fleet.num_devices}; "
                "give one number or one per device"
            )
        for kind in NAMED:
            registry.check_registry_name(kind, self.part(kind).name)
        for kind, parts in (("tracker", self.tracker), ("metric", self.learning.metrics)):
            for part in parts:
                registry.check_registry_name(kind, part.name)
        if problem := method_problem(self.method, lambda key: str(key_value(self, key))):
            raise ValueError(problem)
        if (self.learning.local_epochs is None) == (self.learning.local_steps is None):
            raise ValueError("give exactly one of learning.local_epochs and learning.local_steps")
        if 0 < self.learning.evaluate_every < 1e-12 * timeline.horizon:
            raise ValueError(
                f"learning.evaluate_every={self.learning.evaluate_every:g} is too small for timeline.horizon="
                f"{timeline.horizon:g}; raise it, or say 0 for every aggregation"
            )
        if problem := workload.workload_problem(self):
            raise ValueError(problem)
        return self

    def part(self, kind: str) -> Part:
        """Return the name and parameters of the part of this kind, such as `scheduler`."""
        found: Part = key_value(self, KINDS[kind].key)
        return found


def _looked_up(preset: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset with values in the place of its references (`=group.key`): those of a tree, or the defaults."""
    for group, inner in preset.items():
        for name, each in inner.items():
            if isinstance(each, str) and each.startswith("="):
                other, _, leaf = each[1:].partition(".")
                there = tree.get(other, {})
                found = there.get(leaf) if isinstance(there, Mapping) else None
                preset = merge_nested(preset, {group: {name: all_keys()[each[1:]].default if found is None else found}})
    return dict(preset)


def _in_units_of(longest: float, preset: dict[str, Any]) -> dict[str, Any]:
    """Return a framework with the times that it gives, which are those of T_max = 1, in those of a world's T_max."""
    every = preset.get("learning", {}).get("evaluate_every")
    return preset if every is None else merge_nested(preset, {"learning": {"evaluate_every": every * longest}})


@functools.cache
def _default_parts() -> dict[str, Any]:
    """Return the names of the parts of the default experiment, so that parameters alone have a part to go with."""
    found: dict[str, Any] = {}
    for key in PART_KEYS:
        group, _, leaf = key.partition(".")
        found.setdefault(group, {})[leaf] = all_keys()[key].default.name
    return found


def has_all_keys(tree: Mapping[str, Any]) -> bool:
    """Say whether a tree has every key of every group, so that there is nothing to fill in."""
    for key in all_keys():
        group, _, name = key.rpartition(".")
        inner = tree.get(group)
        if group and not (isinstance(inner, Mapping) and name in inner):
            return False
    return True


def key_value(experiment: Experiment, key: str) -> Any:
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


def dump(experiment: Experiment) -> dict[str, Any]:
    """Return the resolved experiment as plain data."""
    return experiment.model_dump(mode="json")


def own_file_keys(experiment: Experiment) -> dict[str, str]:
    """Return the keys that name a file of the user's own, there or not, each with the name (`file.py:attribute`)."""
    names = {kind.key: experiment.part(name).entry for name, kind in NAMED.items()}
    names |= {f"learning.metrics[{at}]": part.entry for at, part in enumerate(experiment.learning.metrics)}
    return {key: name for key, entry in names.items() for key, name in _files_of(key, entry).items()}


def _files_of(key: str, entry: Any) -> dict[str, str]:
    """Return the files that a part's entry names, its own and those of parts among its parameters, by dotted key."""
    if isinstance(entry, str):
        return {key: entry} if is_own_file(entry) else {}
    found: dict[str, str] = {}
    for name, value in entry.items() if isinstance(entry, Mapping) else ():
        found |= _files_of(key if name == "name" else f"{key}.{name}", value)
    return found


def experiment_argument_files(experiment: Experiment) -> dict[str, str]:
    """Return the parameters of parts that name a file, by dotted key, each with the name as it was given."""
    found: dict[str, str] = {}
    for name, kind in NAMED.items():
        part = experiment.part(name)
        files = registry.part_argument_files(name, part.name, part.args)
        found |= {f"{kind.key}.{parameter}": place for parameter, place in files.items()}
    return found


# Parameters of ours that say where work is done, by trainer: they change no result.
PLACES = {"dask": ("address", "workers")}


def digest(experiment: Experiment) -> str:
    """Return a hash that identifies the resolved experiment: same hash, same results.

    Where the data files lie, which workers train, who watches and which preset filled the values do not change a result, so
    they do not count. Nor does a key at its default: a new key leaves the names of stored runs as they are.
    """
    tree = dump(experiment)
    for key in (*PRESETS, "tracker"):
        del tree[key]
    del tree["data"]["folder"]
    trainer = experiment.learning.trainer
    kept = {name: value for name, value in trainer.args.items() if name not in PLACES.get(trainer.name, ())}
    tree["learning"]["trainer"] = {"name": trainer.name, **kept} if kept else trainer.name
    for group, keys in _default_keys().items():
        tree[group] = {key: value for key, value in tree[group].items() if key not in keys or value != keys[key]}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


@functools.cache
def _default_keys() -> dict[str, dict[str, Any]]:
    """Return the default of every key, by group."""
    return {group: keys for group, keys in dump(Experiment()).items() if isinstance(keys, dict)}


def _document() -> None:
    """Let help() list every key of an experiment, and of each of its groups, with default and meaning."""
    text = [Experiment.__doc__ or "", "", "Keys with their defaults; times are in the unit of fleet.max_duration:", ""]
    lines = {
        key: f"    {key} = {getattr(field.default, 'entry', field.default)!r}\n        {field.description or ''}"
        for key, field in all_keys().items()
    }
    text += [line for key, line in lines.items() if "." not in key]
    for name, field in Experiment.model_fields.items():
        if inside := [line for key, line in lines.items() if key.startswith(f"{name}.")]:
            group: Any = field.annotation
            text += ["", f"{name}: {group.__doc__}", *inside]
            group.__doc__ = "\n".join([group.__doc__, "", *inside])
    Experiment.__doc__ = "\n".join(text)


_document()
