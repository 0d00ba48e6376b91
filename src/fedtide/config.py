"""An experiment, as a frozen value: every key, its default (the paper's), its bounds. Nothing else is configuration."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedtide import inputs
from fedtide.errors import FedtideError

Decibels = Annotated[float, Field(ge=-300, le=300, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Args = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML with the numbers of its version 1.2: version 1.1 takes 1e-3 for a word."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Group):
    """What is learned, and how it is dealt out."""

    name: Literal["mnist", "synthetic"] = Field("mnist", description="the data set")
    folder: Path | None = Field(None, description="where MNIST's IDX files lie (default: cache, then download)")
    num_train: Count | None = Field(None, description="use only so many training samples")
    num_test: Count | None = Field(None, description="use only so many test samples")
    partition: Literal["shards", "iid", "dirichlet", "slow_labels"] = Field(
        "shards", description="shards is the paper's non-i.i.d. setting"
    )
    num_shards: Count = Field(200, description="label shards in all, dealt floor(num_shards/N) to each device")
    concentration: Positive = Field(0.5, description="of the Dirichlet partition; smaller is more skewed")
    size_spread: NotNegative = Field(0.0, description="sigma of log-normal sizes; 0: all devices hold the same number")


class FleetConfig(_Group):
    """The devices."""

    num_devices: Count = Field(40, description="N")
    min_duration: NotNegative = Field(0.0, description="T_min; T_k ~ U(T_min, T_max)")
    max_duration: Positive = Field(1.0, description="T_max; times are in units of your choice, the default is T_max")

    @model_validator(mode="after")
    def _ordered(self) -> FleetConfig:
        if self.min_duration > self.max_duration:
            raise ValueError(
                f"fleet.min_duration={self.min_duration} exceeds fleet.max_duration={self.max_duration}; swap them or lower it"
            )
        return self


class TimelineConfig(_Group):
    """When the server acts."""

    name: str = Field("periodic", description="periodic, synchronous, per_arrival, buffered, or your own")
    args: Args = Field(default_factory=dict, description="arguments of your own timeline")
    period: Positive = Field(0.25, description="T~ of the periodic timeline")
    buffer_size: Count = Field(8, description="how many finished devices the buffered timeline waits for")
    horizon: Positive = Field(35.0, description="simulated time in all")


class Radio(_Group):
    """The uplink."""

    num_symbols: Positive = Field(300_000, description="n, symbols per T_max/4; scaled to the timeline's own pace")
    snr_db: Decibels = Field(13.0, description="average received SNR in dB")
    large_scale: Positive | list[Positive] = Field(1.0, description="beta_k: one number, or one per device")


class Policy(_Group):
    """Who uploads, and how what arrives is weighed and combined."""

    scheduler: str = Field("data_importance", description="see `fedtide policies`, or your own")
    scheduler_args: Args = Field(default_factory=dict, description="arguments of the scheduler")
    limit: Count = Field(8, description="R, uploads per aggregation at most")
    weighting: str = Field("age_aware", description="age_aware, uniform, or your own")
    weighting_args: Args = Field(default_factory=dict, description="arguments of your own weighting")
    age_base: Positive = Field(1.0, description="gamma: below 1 favours fresh updates, above 1 old ones")
    combiner: str = Field(
        "average_models", description="average_models, average_deltas, mix, buffered_mean, or your own"
    )
    combiner_args: Args = Field(default_factory=dict, description="arguments of the combiner, e.g. {mixing: 0.4}")


class CodecConfig(_Group):
    """How updates become bits."""

    name: str = Field(
        "sparse_quantized", description="sparse_quantized (the paper's), dead_zone (ours), ideal, or your own"
    )
    args: Args = Field(default_factory=dict, description="arguments of your own codec")
    num_levels: Annotated[int, Field(ge=1, le=32_767)] = Field(4, description="nu, quantisation levels")
    element_bits: Count | None = Field(None, description="bits per kept element (default: ceil(log2(nu+1)) + 1)")


class Learning(_Group):
    """What a device does with a model, and how models are scored."""

    model: str = Field(
        "paper_cnn", description="paper_cnn, mlp, mcmahan_cnn, small_cnn, softmax, or file.py:make for torch"
    )
    trainer: Literal["native", "torch"] = Field("native", description="native (C++) or torch")
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

    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(0, description="names every random stream")
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

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        filled = merge(PROFILES.get(str(given.get("profile", "paper")), {}), {})
        filled = merge(filled, FRAMEWORKS.get(str(given.get("framework")), {}))
        filled = lay(filled, given)
        timeline = filled.get("timeline", {})
        if filled.get("framework") == "fedbuff" and isinstance(timeline, Mapping):
            # everyone in the buffer counts, unless told otherwise
            size = timeline.get("buffer_size", TimelineConfig.model_fields["buffer_size"].default)
            filled = merge({"policy": {"limit": size}}, filled)
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
        first = {"periodic": timeline.period, "synchronous": fleet.max_duration}.get(timeline.name)
        if first is not None and first > timeline.horizon:
            raise ValueError(
                f"timeline.horizon={timeline.horizon} ends before the first aggregation at {first}; "
                "lengthen the horizon or shorten the period"
            )
        if timeline.name == "buffered" and timeline.buffer_size > fleet.num_devices:
            raise ValueError(
                f"timeline.buffer_size={timeline.buffer_size} exceeds fleet.num_devices={fleet.num_devices}: "
                "the buffer would never fill; lower it"
            )
        if (self.learning.local_epochs is None) == (self.learning.local_steps is None):
            raise ValueError("give exactly one of learning.local_epochs and learning.local_steps")
        return self


# A framework is a composition of timeline, scheduler, aggregation and learning; each entry is what differs from the default.
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
        "policy": {"scheduler": "random", "weighting": "uniform", "combiner": "buffered_mean"},
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


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `over` on `under`, group by group; free-form `args` are replaced whole."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        deeper = isinstance(value, Mapping) and isinstance(below, Mapping) and not key.endswith("args")
        merged[key] = merge(below, value) if deeper else value  # type: ignore[arg-type]
    return merged


def lay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `over` on `under`, but drop the arguments of a policy in whose place `over` puts another."""
    bare = {key: dict(value) if isinstance(value, Mapping) else value for key, value in under.items()}
    for group, inner in over.items():
        below = bare.get(group)
        if isinstance(inner, Mapping) and isinstance(below, dict):
            for key in inner:
                if f"{key}_args" in below and inner[key] != below.get(key):
                    del below[f"{key}_args"]
    return merge(bare, over)


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


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Turn `group.key=value` words (values in YAML) into a nested mapping."""
    tree: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise FedtideError(f"{word!r} is not key=value; write for example policy.limit=8")
        path = key.strip().split(".")
        try:
            value = yaml.load(text, _Loader)
        except yaml.YAMLError as error:
            raise FedtideError(f"{word!r}: the value is not YAML ({' '.join(str(error).split())}); quote it") from error
        here = tree
        for part in path[:-1]:
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                raise FedtideError(
                    f"{word!r} goes below {part!r}, which was given a value already; give one of the two"
                )
            here = inner
        here[path[-1]] = value
    return tree


def read_file(path: Path, kind: str = "experiment") -> dict[str, Any]:
    """Read an experiment file (YAML), or one of another kind."""
    try:
        tree = yaml.load(inputs.read_text(path), _Loader)
    except FileNotFoundError as error:
        words = ", or give key=value words" if kind == "experiment" else ""
        raise FedtideError(f"there is no {kind} file {path}; name a YAML file{words}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FedtideError(f"the {kind} file {path} cannot be read: {' '.join(str(error).split())}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise FedtideError(f"the {kind} file {path} holds a {type(tree).__name__}; it must be a mapping of keys")
    return tree


def read_words(words: Iterable[str]) -> dict[str, Any]:
    """Read what a command line says of an experiment: a file, if the first word is not key=value, then keys on top."""
    given = list(words)
    tree: dict[str, Any] = {}
    if given and "=" not in given[0]:
        path = Path(given.pop(0))
        tree = read_file(path)
        if tree.keys() & {"axes", "variants"} or tree.keys() >= {"version", "name"}:
            raise FedtideError(
                f"{path} is a study file (it has {', '.join(tree)}), not an experiment: use `fedtide study run {path}`"
            )
    return merge(tree, parse_overrides(given))


def experiment(*trees: Mapping[str, Any]) -> Experiment:
    """Make an Experiment from nested mappings, the later ones on top; one clear line if it cannot be."""
    merged: dict[str, Any] = {}
    for tree in trees:
        merged = merge(merged, tree)
    try:
        return Experiment.model_validate(merged)
    except ValidationError as error:
        raise FedtideError("; ".join(_explain(each) for each in error.errors())) from None


def nearest(key: str) -> str:
    """Say which valid key a wrong one may have meant, or where to look."""
    if key in all_keys():  # in a file, as one word with a dot
        group, _, name = key.rpartition(".")
        return f" of its own: write it inside its group, {group}: {{{name}: ...}}"
    inside = [name for name in all_keys() if name.startswith(f"{key}.")]
    if inside:
        return f": it is a group of keys; name one of {', '.join(inside)}"
    leaf = [each for each in all_keys() if each.rpartition(".")[2] == key.rpartition(".")[2]]
    near = leaf or difflib.get_close_matches(key, [*all_keys(), *Experiment.model_fields], 1, 0.5)
    return f": did you mean {near[0]}?" if near else ": see `fedtide run --keys` for all keys"


def _explain(error: Any) -> str:
    """Say in one line what pydantic found: the key, the value, the reason, the remedy."""
    path = [str(part) for part in error["loc"] if part not in ("constrained-float", "list[constrained-float]")]
    key = ".".join(path)
    if error["type"] == "extra_forbidden":
        return f"{key} is not a key{nearest(key)}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "model_type":
        return f"{key}={error['input']!r}{nearest(key)}"
    field = all_keys().get(".".join(path[:2])) or all_keys().get(path[0] if path else "")
    about = f" ({field.description})" if field is not None and field.description else ""
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{key}={error['input']!r}{about}: {message}"


def dump(experiment: Experiment) -> dict[str, Any]:
    """Return the resolved experiment as plain data."""
    return experiment.model_dump(mode="json")


def digest(experiment: Experiment) -> str:
    """Return a hash that identifies the resolved experiment: same hash, same results.

    Where the data files lie and which preset filled the values do not change a result, so they do not count.
    """
    tree = dump(experiment)
    del tree["framework"], tree["profile"], tree["data"]["folder"]
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
