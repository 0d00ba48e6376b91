"""The kinds of parts: everything of an experiment that a researcher may want to replace.

A part is found by its name (one of ours, `file.py:name`, `package.module:name`, an installed entry point of the group
`fedtide.<kind>`), made with the parameters that the experiment gives, and called as its kind says.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Kind:
    """One kind of part."""

    key: str  # the experiment's key that names it
    job: str  # what it does, in a few words
    signatures: tuple[
        str, ...
    ]  # "method(what it is given) -> answer"; with **parameters: how it is made, if that is all
    memory: tuple[
        str, ...
    ] = ()  # signatures that differ for one with memory, `init` first; none: it may have no memory
    fold: tuple[
        str, ...
    ] = ()  # signatures of one that is given its arguments a lot at a time; none: there is no such form
    asked_before: bool = False  # it is asked before a run begins, not while it is on
    made_with: tuple[str, ...] = ()  # what its class is given besides its parameters, filled in as run.<name>
    # what a part of it may ask for with arg(key=...) besides the experiment's keys, and what that is
    fills: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def calls(self) -> dict[str, tuple[str, ...]]:
        """What it is given, by method ("" for the object itself)."""
        return _calls(self.signatures)

    @functools.cached_property
    def calls_with_memory(self) -> dict[str, tuple[str, ...]]:
        """The same for one with memory."""
        return {**_calls(self.memory), **self.calls, **_calls(self.memory)}

    @functools.cached_property
    def calls_of_fold(self) -> dict[str, tuple[str, ...]]:
        """The same for one that is given its arguments a lot at a time."""
        return _calls(self.fold)


def _calls(signatures: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found = (re.match(r"(\w*)\((.*?)\) ->", signature) for signature in signatures if "**" not in signature)
    return {match[1]: tuple(match[2].split(", ")) for match in found if match}


_DURATION = {"run.duration": "the part that fleet.duration names: (seed, device [m], job [m]) -> times [m]"}
_ENERGY = {"run.energy": "the part that fleet.energy names: (seed, device [m], samples [m], symbols [m]) -> J [m]"}
_COVERAGE = {"run.coverage": "the part that radio.coverage names: (seed, device [m], time [m]) -> average SNR [m]"}

KINDS: Final[dict[str, Kind]] = {
    "data": Kind(
        "data.name",
        "the data set",
        ("(**parameters) -> Dataset",),
        asked_before=True,
        fills={
            "run.say": "a function to call with a line about each download",
            "run.images": "false for a plan, which needs only labels",
        },
    ),
    "partition": Kind(
        "data.partition",
        "which device holds which samples",
        ("(dataset, num_devices, seed) -> one array of sample numbers for each device [N]",),
        asked_before=True,
        fills={"fleet.durations": "how long the first training of every device takes, in units of time [N]"},
    ),
    "duration": Kind(
        "fleet.duration",
        "how long a local training takes",
        ("(seed, device, job) -> times [m]",),
        asked_before=True,
        fills={
            "fleet.num_samples": "how many samples every device holds [N]",
            "fleet.samples_per_job": "how many samples every device goes through in one training [N]; if learning.work differs from "
            "job to job, a function (device [m], job [m]) -> samples [m]",
        },
    ),
    "availability": Kind(
        "fleet.availability",
        "when a device is available",
        ("(seed, device, time) -> when each is next there [m]",),
        asked_before=True,
        fills=_COVERAGE,
    ),
    "channel": Kind(
        "radio.channel",
        "how strong the uplinks are",
        (
            "(seed, tick, time, device) -> SNR, a number, not in dB [m], or Link(capacity [m], estimated_capacity [m]) in bit/symbol",
        ),
        fills=_COVERAGE,
    ),
    "coverage": Kind(
        "radio.coverage",
        "the average SNR of each device, for channels that fade about it",
        ("(seed, device, time) -> average SNR, a number, not in dB [m]",),
    ),
    "csi": Kind(
        "radio.csi",
        "what the server knows about the uplinks",
        ("(seed, tick, time, device, snr) -> estimated SNR [m], or Signal(snr [m], estimated_snr [m])",),
    ),
    "modem": Kind(
        "radio.modem",
        "how many bits a symbol carries",
        (
            "(snr) -> capacity in bit/symbol [m]",
            "and perhaps achieved(snr, estimated_snr) -> capacity [m] in truth, error(snr) -> how likely a packet is lost [m]",
        ),
    ),
    "allocation": Kind(
        "radio.allocation",
        "how symbols are shared among the uploads",
        ("(capacity, num_symbols) -> symbols [r], or Shares(symbols [r], bits [r])",),
    ),
    "access": Kind(
        "radio.access",
        "orthogonal uploads, or over the air",
        ("(updates, weights, snr, rng) -> what the server hears of sum_k w_k u_k [d]",),
    ),
    "retransmission": Kind(
        "radio.retransmission",
        "what happens to a lost packet",
        ("(carried, before) -> bits that the server has of each packet [r]",),
    ),
    "downlink": Kind(
        "radio.downlink",
        "how long a device takes to receive a model",
        ("(seed, device, time, bits) -> times [m]",),
        asked_before=True,
        fills=_COVERAGE,
    ),
    "energy": Kind("fleet.energy", "how much energy devices spend", ("(seed, device, samples, symbols) -> J [m]",)),
    "selector": Kind(
        "fleet.selector",
        "who takes a free place where only some train at a time",
        ("(idle, count, rng) -> positions [count] within those who wait",),
        fills={**_COVERAGE, **_DURATION},
    ),
    "timeline": Kind(
        "timeline.name",
        "when the server acts",
        ("(clock) -> ticks, one after the other",),
        fold=("when(situation) -> when the server acts next",),
        asked_before=True,
    ),
    "scheduler": Kind(
        "policy.scheduler",
        "who uploads",
        ("(candidates, limit, rng) -> positions within the candidates, limit at most, a Selection or a Decision",),
        (
            "init(num_devices) -> memory",
            "(memory, candidates, limit, rng) -> (positions within the candidates, a Selection or a Decision, memory)",
        ),
        fills={**_DURATION, **_ENERGY},
    ),
    "weighting": Kind(
        "policy.weighting",
        "how much each arrived update counts",
        ("(num_samples, age) -> weights [r]",),
        ("init(num_devices) -> memory", "(memory, num_samples, age, device) -> (weights [r], memory)"),
    ),
    "aggregator": Kind(
        "policy.aggregator",
        "how arrived updates become the next model",
        ("(model, starts, updates, weights, age) -> the next model [d]",),
        (
            "init(model) -> memory",
            "(memory, model, starts, updates, weights, age, device) -> (the next model [d], memory)",
        ),
        (
            "init(model, num_devices) -> state",
            "start(state, model, cohort) -> accumulator",
            "add(accumulator, rows, starts, updates) -> accumulator",
            "finish(state, accumulator, model) -> (the next model [d], state)",
        ),
        fills=_COVERAGE,
    ),
    "codec": Kind(
        "codec.name",
        "how an update becomes bits",
        (
            "encode(update, budget_bits, rng) -> Packet",
            "decode(packet) -> update [d]",
            "num_kept(num_parameters, budget_bits) -> elements that such a budget keeps",
        ),
        ("init(num_parameters) -> memory", "encode(memory, update, budget_bits, rng) -> (Packet, memory)"),
    ),
    "model": Kind(
        "learning.model",
        "the model",
        ("(input_shape, num_labels, **parameters) -> Model; without input_shape and num_labels, a torch.nn.Module",),
        made_with=("input_shape", "num_labels"),
    ),
    "trainer": Kind(
        "learning.trainer",
        "how devices train",
        (
            "initial_model(seed) -> model [d]",
            "train(jobs) -> updates [r d]",
            "evaluate(model, samples) -> Score(accuracy, loss)",
        ),
        ("init(num_parameters) -> memory of a device", "train(jobs) -> Trained(updates [r d], memory)"),
        made_with=("task",),
    ),
    "work": Kind(
        "learning.work",
        "how much each device does with a model",
        (
            "(seed, device, job) -> Work(epochs [m] or steps [m], batch_size [m], rate [m]), each of which may be left out",
        ),
        asked_before=True,
    ),
    "schedule": Kind(
        "learning.schedule",
        "how the learning rate changes during a run",
        ("(elapsed) -> factors of learning.learning_rate [m]; elapsed: shares of the horizon, from 0 to 1 [m]",),
    ),
    "metric": Kind("learning.metrics", "what else is measured", ("(model, context) -> finite numbers by name",)),
    "tracker": Kind(
        "tracker",
        "what follows a run",
        ("begin(experiment, folder, total) -> None", "round(record) -> None", "end(result) -> None"),
    ),
}

# Those whose name is a key of the experiment's own; metrics and trackers change nothing and are named in lists.
NAMED: Final = {name: kind for name, kind in KINDS.items() if name not in ("metric", "tracker")}


@functools.cache
def builtin_parts(kind: str) -> Mapping[str, Any]:
    """Return ours of a kind, by name: what makes the part, or where it is found (`module:attribute`)."""
    tables: Mapping[str, str] = importlib.import_module("fedtide.builtin").TABLES
    module, _, name = tables[kind].partition(":")
    found: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return found
