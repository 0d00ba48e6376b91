"""What an aggregation costs (symbols, bits, time on the air, joules), and its record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedtide.devices.energy import Energy, counted
from fedtide.engine.step import Info
from fedtide.engine.system import MODEL_BITS, System
from fedtide.learning.trainer import LocalWork, samples_per_training
from fedtide.radio.downlink import is_shared
from fedtide.radio.over_the_air import separate
from fedtide.runs.record import Ledger, RoundRecord
from fedtide.schedule.label_variance import label_variance
from fedtide.types import Ints


@dataclass(frozen=True)
class Costs:
    """What the parts of an aggregation cost."""

    work: LocalWork  # of one local training
    seed: int
    model_bits: float  # of a model on its way to a device
    shared: bool  # one transmission serves all who receive a model
    symbol_rate: float  # symbols per unit of time; 0: time on the air is not counted
    energy: Energy | None  # None: not counted
    at_once: bool = False  # who sends does so on all symbols of the tick, together with the others

    def after(self, spent: Ledger, info: Info, bits: float, sending: Sequence[int]) -> Ledger:
        """Return what is spent after an aggregation. bits: of the payloads; sending: positions of those who sent one.

        All who are ready have trained and receive the new model, picked or not.
        """
        rows, grant = info.rows, info.grant
        samples, symbols = samples_per_training(self.work, rows.num_samples), float(grant.symbols.sum())
        receivers = min(len(rows.device), 1) if self.shared else len(rows.device)
        return Ledger(
            symbols=spent.symbols + symbols,
            bits=spent.bits + bits,
            samples_used=spent.samples_used + int(samples[list(sending)].sum()),
            samples_trained=spent.samples_trained + int(samples.sum()),
            control_bits=spent.control_bits + info.control_bits,
            bits_down=spent.bits_down + self.model_bits * receivers,
            air_time=spent.air_time + (symbols / self.symbol_rate if self.symbol_rate else 0.0),
            joules=spent.joules + self._joules(info, samples),
        )

    def _joules(self, info: Info, samples: Ints) -> float:
        if self.energy is None:
            return 0.0
        sent = np.zeros(len(samples))
        if self.at_once:  # those that stay silent send nothing
            sent[info.arrived] = info.grant.symbols.sum()
        else:
            sent[info.grant.picked] = info.grant.symbols
        return math.fsum(self.energy(self.seed, info.rows.device, samples, sent))  # in any order the same


def costs(system: System, num_parameters: int) -> Costs:
    """Return the costs of a system whose models have so many parameters."""
    return Costs(
        work=system.work,
        seed=system.experiment.seed,
        model_bits=MODEL_BITS * num_parameters,
        shared=is_shared(system.downlink),
        symbol_rate=system.experiment.radio.symbol_rate,
        energy=system.energy if counted(system.energy) else None,
        at_once=not separate(system.access),
    )


class Scores(NamedTuple):
    """How the model after an aggregation does; None where it was not evaluated, or the loss is not finite."""

    accuracy: float | None = None
    loss: float | None = None
    train_loss: float | None = None


def round_record(info: Info, scores: Scores, ledger: Ledger, costs: Costs, names_ready: bool = True) -> RoundRecord:
    """Return the record. ledger: what was spent before. names_ready: False for a large fleet, which only counts them.

    A picked device that sent nothing has no bits; one whose update did not arrive weighs nothing.
    """
    rows, grant = info.rows, info.grant
    picked = rows.device[grant.picked].tolist()
    packets = [info.sent.get(device) for device in picked]
    weight = dict(zip(rows.device[info.arrived].tolist(), info.weights.tolist(), strict=True))
    sending = [position for position, packet in zip(grant.picked.tolist(), packets, strict=True) if packet]
    return RoundRecord(
        index=info.tick.index,
        time=info.tick.time,
        ready=rows.device.tolist() if names_ready else [],
        picked=picked,
        age=rows.age[grant.picked].tolist(),
        capacity=rows.capacity[grant.picked].tolist(),
        symbols=grant.symbols.tolist(),
        budget_bits=grant.bits.tolist(),
        sent_bits=[packet.bits if packet else 0 for packet in packets],
        overhead_bits=[packet.overhead_bits if packet else 0 for packet in packets],
        num_kept=[packet.num_kept if packet else 0 for packet in packets],
        label_variance=label_variance(rows.label_counts[grant.picked]),
        proved_minimal=grant.proved_minimal,
        weight=[weight.get(device, 0.0) for device in picked],
        test_accuracy=scores.accuracy,
        test_loss=scores.loss,
        train_loss=scores.train_loss,
        ledger=costs.after(ledger, info, sum(packet.bits for packet in packets if packet), sending),
        lost=[device for device in picked if device in info.sent and device not in weight],
        metrics=grant.metrics,
        unnamed=0 if names_ready else len(rows.device),
    )
