"""The loop of a run: step, score, record; then every sink is told. Simulator, coordinator and replay go through this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from fedtide.engine.step import Exchange, Info, ServerState, step
from fedtide.engine.system import System
from fedtide.engine.training import Stopwatch, evaluate_model
from fedtide.learning.trainer import Trainer
from fedtide.runs import Costs, Ledger, RoundRecord, round_record
from fedtide.types import Tick, Vector

# What is told of every aggregation: a run folder, trackers, a progress bar, a trace.
Sink: TypeAlias = Callable[[RoundRecord, ServerState, Info], None]


class Devices(Exchange, Protocol):
    """The devices of a whole run."""

    def prepare(self, state: ServerState, tick: Tick) -> ServerState:
        """Let the time pass until a tick; devices that wait for it receive the newest model."""
        ...


@dataclass
class Loop:
    """One run, as far as it has come."""

    system: System
    trainer: Trainer
    devices: Devices
    costs: Costs
    state: ServerState
    ledger: Ledger = Ledger()  # noqa: RUF009 - a frozen value
    rounds: list[RoundRecord] = field(default_factory=list)
    sinks: Sequence[tuple[str, Sink]] = ()  # each with the stage that its time is charged to
    names_ready: bool = True  # records say who was ready
    watch: Stopwatch = field(default_factory=Stopwatch)

    def run(self, ticks: Iterable[Tick]) -> Vector:
        """Go through these ticks; return the last model."""
        rules, watch = self.system.rules, self.watch
        for tick in ticks:
            state, info = step(rules, self.devices.prepare(self.state, tick), tick, self.devices)
            watch.lap("aggregation")
            scores = evaluate_model(self.system, self.trainer, state, tick)
            watch.lap("evaluation")
            record = round_record(info, scores, self.ledger, self.costs, self.names_ready)
            self.state, self.ledger = state, record.ledger
            self.rounds.append(record)
            for stage, sink in self.sinks:
                sink(record, state, info)
                watch.lap(stage)
        return self.state.models[self.state.version]
