"""The kinds of parts: everything of an experiment that a researcher may want to replace, one row each.

A part is found by its name (one of ours, `file.py:name`, `package.module:name`, an installed entry point of the group
`fedtide.<kind>`), made with the arguments that the experiment gives, and called as its kind says.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Kind(NamedTuple):
    """One kind of part."""

    key: str  # the experiment's key that names it
    args: str  # the experiment's key with its arguments
    table: str  # where ours are, as module:TABLE
    calls: Mapping[str, tuple[str, ...]]  # what it is given, by method ("" for the object itself)
    job: str  # what it does, in a few words
    remembers: Mapping[str, tuple[str, ...]] | None = None  # the same for one with memory; None: it may have none
    init: tuple[str, ...] = ()  # what init of one with memory is given
    formerly: tuple[str, ...] | None = None  # another way of calling it that is still understood
    asked_before: bool = False  # it is asked before a run begins, not while it is on
    made_with: tuple[str, ...] = ()  # what its class is given besides its arguments, filled in as run.<name>
    # what a part of it may ask for with arg(key=...) besides the experiment's keys, and what that is
    fills: Mapping[str, str] = {}
    gives: Mapping[str, str] = {}  # what it answers, by method; one that is never called: what is made of it


_ENCODE = ("update", "budget_bits", "rng")
_COMBINE = ("model", "starts", "updates", "weights", "age")
_TRAIN = {"initial_model": ("seed",), "train": ("jobs",), "evaluate": ("model", "samples")}
_TRACK = {"begin": ("experiment", "folder", "total"), "round": ("record",), "end": ("result",)}
_COVERAGE = {"run.coverage": "the part that radio.coverage names: (seed, device [m], time [m]) -> average SNR [m]"}
_DECODE = {"decode": ("packet",), "num_kept": ("num_parameters", "budget_bits")}

KINDS: Final[dict[str, Kind]] = {
    "data": Kind(
        "data.name",
        "data.args",
        "fedtide.data:DATASETS",
        {},
        "what is learned",
        asked_before=True,
        fills={
            "run.say": "a function that is told in a line what is fetched",
            "run.images": "false if a plan asks, which needs labels and no images",
        },
        gives={"": "Dataset"},
    ),
    "partition": Kind(
        "data.partition",
        "data.partition_args",
        "fedtide.data.partition:PARTITIONS",
        {"": ("dataset", "num_devices", "seed")},
        "who holds which samples",
        asked_before=True,
        fills={"fleet.durations": "how long the first training of every device takes, in units of time [N]"},
        gives={"": "one array of sample numbers for each device [N]"},
    ),
    "duration": Kind(
        "fleet.duration",
        "fleet.duration_args",
        "fedtide.devices.duration:DURATIONS",
        {"": ("seed", "device", "job")},
        "how long a local training takes",
        asked_before=True,
        fills={
            "fleet.num_samples": "how many samples every device holds [N]",
            "fleet.samples_per_job": "how many samples every device goes through in one training [N]",
        },
        gives={"": "times [m]"},
    ),
    "availability": Kind(
        "fleet.availability",
        "fleet.availability_args",
        "fedtide.devices.availability:AVAILABILITIES",
        {"": ("seed", "device", "time")},
        "when a device is there",
        asked_before=True,
        gives={"": "when each is next there [m]"},
    ),
    "channel": Kind(
        "radio.channel",
        "radio.channel_args",
        "fedtide.radio.channel:CHANNELS",
        {"": ("seed", "tick", "time", "device")},
        "how strong the uplinks are",
        fills=_COVERAGE,
        gives={"": "SNR, a number, not in dB [m], or Link(capacity [m], estimated_capacity [m]) in bit/symbol"},
    ),
    "coverage": Kind(
        "radio.coverage",
        "radio.coverage_args",
        "fedtide.radio.cell:COVERAGES",
        {"": ("seed", "device", "time")},
        "how strong a device is received on average, for channels that fade about it",
        gives={"": "average SNR, a number, not in dB [m]"},
    ),
    "csi": Kind(
        "radio.csi",
        "radio.csi_args",
        "fedtide.radio.csi:CSIS",
        {"": ("seed", "tick", "time", "device", "snr")},
        "what the server knows of the uplinks",
        gives={"": "estimated SNR [m], or Signal(snr [m], estimated_snr [m])"},
    ),
    "allocation": Kind(
        "radio.allocation",
        "radio.allocation_args",
        "fedtide.radio.allocation:ALLOCATIONS",
        {"": ("capacity", "num_symbols")},
        "how a tick's symbols are shared",
        gives={"": "symbols [r], or Shares(symbols [r], bits [r])"},
    ),
    "access": Kind(
        "radio.access",
        "radio.access_args",
        "fedtide.radio.over_the_air:ACCESSES",
        {"": ("updates", "weights", "snr", "rng")},
        "how the picked devices share the symbols: one by one, or all at once",
        gives={"": "what the server hears of sum_k w_k u_k [d]"},
    ),
    "downlink": Kind(
        "radio.downlink",
        "radio.downlink_args",
        "fedtide.radio.downlink:DOWNLINKS",
        {"": ("seed", "device", "time", "bits")},
        "how long a device takes to receive a model",
        asked_before=True,
        fills=_COVERAGE,
        gives={"": "times [m]"},
    ),
    "energy": Kind(
        "fleet.energy",
        "fleet.energy_args",
        "fedtide.devices.energy:ENERGIES",
        {"": ("seed", "device", "samples", "symbols")},
        "what devices spend in energy",
        gives={"": "J [m]"},
    ),
    "timeline": Kind(
        "timeline.name",
        "timeline.args",
        "fedtide.timeline.timelines:TIMELINES",
        {"": ("clock",)},
        "when the server acts",
        formerly=("duration", "horizon"),
        asked_before=True,
        gives={"": "ticks, one after the other"},
    ),
    "scheduler": Kind(
        "policy.scheduler",
        "policy.scheduler_args",
        "fedtide.schedule.schedulers:SCHEDULERS",
        {"": ("candidates", "limit", "rng")},
        "who uploads",
        {"": ("memory", "candidates", "limit", "rng")},
        ("num_devices",),
        gives={"": "positions within the candidates, limit at most, or a Selection"},
    ),
    "weighting": Kind(
        "policy.weighting",
        "policy.weighting_args",
        "fedtide.aggregate.averages:WEIGHTINGS",
        {"": ("num_samples", "age")},
        "how much each arrived update counts",
        {"": ("memory", "num_samples", "age", "device")},
        ("num_devices",),
        gives={"": "weights [r]"},
    ),
    "aggregator": Kind(
        "policy.aggregator",
        "policy.aggregator_args",
        "fedtide.aggregate.averages:AGGREGATORS",
        {"": _COMBINE},
        "how arrived updates become the next model",
        {"": ("memory", *_COMBINE, "device")},
        ("model",),
        gives={"": "the next model [d]"},
    ),
    "codec": Kind(
        "codec.name",
        "codec.args",
        "fedtide.codec.registry:CODECS",
        {"encode": _ENCODE, **_DECODE},
        "how an update becomes bits",
        {"encode": ("memory", *_ENCODE), **_DECODE},
        ("num_parameters",),
        gives={"encode": "Packet", "decode": "update [d]", "num_kept": "elements that such a budget keeps"},
    ),
    "model": Kind(
        "learning.model",
        "learning.model_args",
        "fedtide.learning.model:MODELS",
        {},
        "what is trained",
        made_with=("input_shape", "num_labels"),
        gives={"": "Model; without input_shape and num_labels, a torch.nn.Module"},
    ),
    "trainer": Kind(
        "learning.trainer",
        "learning.trainer_args",
        "fedtide.learning.trainer:TRAINERS",
        _TRAIN,
        "who trains",
        _TRAIN,
        ("num_parameters",),
        made_with=("task",),
        gives={"initial_model": "model [d]", "train": "updates [r d]", "evaluate": "Score(accuracy, loss)"},
    ),
    "tracker": Kind("tracker", "", "fedtide.trackers:TRACKERS", _TRACK, "who watches a run"),
}

# Those whose name is a key of the experiment's own; a tracker changes nothing and is named in a list.
NAMED: Final = {name: kind for name, kind in KINDS.items() if kind.args}


def builtin_parts(kind: str) -> Mapping[str, Any]:
    """Return ours of a kind, by name: what makes the part, or where it is found (`module:attribute`)."""
    module, _, name = KINDS[kind].table.partition(":")
    found: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return found
