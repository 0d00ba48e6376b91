"""What one aggregation costs, in the units of the ledger: made of the system once, and the same for all that make records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedtide.learning.trainer import LocalWork, samples_per_training
from fedtide.records.round import Ledger
from fedtide.server.step import Info
from fedtide.system import MODEL_BITS, System
from fedtide.world.access import separate
from fedtide.world.downlink import shared
from fedtide.world.energy import Energy, counted


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

    def _joules(self, info: Info, samples: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        if self.energy is None:
            return 0.0
        sent = np.zeros(len(samples))
        if self.at_once:  # those that stay silent send nothing
            sent[info.arrived] = info.grant.symbols.sum()
        else:
            sent[info.grant.picked] = info.grant.symbols
        return math.fsum(self.energy(self.seed, info.rows.device, samples, sent))  # in any order the same


def costs(system: System, num_parameters: int, counts_all: bool = True) -> Costs:
    """Return the costs of a system whose models have so many parameters.

    counts_all: False for a run whose records were begun in a format that knows of nothing but the uplink.
    """
    radio = system.experiment.radio
    return Costs(
        work=system.work,
        seed=system.experiment.seed,
        model_bits=MODEL_BITS * num_parameters if counts_all else 0.0,
        shared=shared(system.downlink),
        symbol_rate=radio.symbol_rate if counts_all else 0.0,
        energy=system.energy if counts_all and counted(system.energy) else None,
        at_once=not separate(system.access),
    )
