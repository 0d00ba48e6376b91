"""What a choice of devices would lead to: the same step of the server, tried out, and the loss of its model on held-out samples.

A simulation can tell this, because every draw has an address: what is tried out is what happens if it is chosen. No server
can, because it would need the updates of all ready devices before it picks some. It is for upper estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtide.engine.exchange import Announced, Delivered, Exchange, ReadyDevices
from fedtide.engine.loop import score_model
from fedtide.engine.step import ServerState, global_model, step
from fedtide.engine.system import System
from fedtide.errors import DivergedError
from fedtide.learning.trainer import Trainer
from fedtide.types import Candidates, Floats, Grant, Rng, Tick


@dataclass(frozen=True)
class _Chosen:
    """A scheduler whose answer is known."""

    answer: Any

    def __call__(self, candidates: Candidates, limit: int, rng: Rng) -> Any:
        return self.answer


@dataclass(frozen=True)
class _AsReady:
    """Devices of which it is known who is ready, with their updates."""

    found: ReadyDevices
    devices: Exchange

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        return self.found

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        return self.devices.announce(state, tick, ready, grant)

    def send(self, state: ServerState, tick: Tick, lot: Any) -> Delivered:
        return self.devices.send(state, tick, lot)


def outcome_of(
    system: System, trainer: Trainer, devices: Exchange, state: ServerState, tick: Tick, found: ReadyDevices
) -> Callable[[Sequence[Any]], Floats]:
    """Return what tells a scheduler which loss [s] its answers [s] would lead to, by one step each; the state stays as it is.

    A model that is not finite has an infinite loss.
    """
    rules, exchange, samples = system.rules, _AsReady(found, devices), system.dataset.held_out
    assert samples is not None
    state = state._replace(memory={kind: each for kind, each in state.memory.items() if kind != "scheduler"})

    def loss(answer: Any) -> float:
        policy = rules.policy._replace(scheduler=_Chosen(answer))
        try:
            after, _ = step(rules._replace(policy=policy), state, tick, exchange)
        except DivergedError:
            return math.inf
        found = score_model(trainer, global_model(after), samples).loss
        return found if math.isfinite(found) else math.inf

    return lambda answers: np.array([loss(answer) for answer in answers])
