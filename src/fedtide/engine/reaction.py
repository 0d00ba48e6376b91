"""A run whose clock follows decisions: after every aggregation the devices are told what became of it, and time goes on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedtide.engine import uplink
from fedtide.engine.admission import sending_joules
from fedtide.engine.step import Info, ServerState, granted_rates, hold_versions
from fedtide.engine.system import System
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import checks
from fedtide.radio.retransmission import max_attempts
from fedtide.timeline.clock import RecordedTimes
from fedtide.timeline.world import IDLE, Sends, World
from fedtide.types import Floats, Grant, Ints, Memory, Tick


@dataclass
class Reaction:
    """The devices of a run in time. What they send takes as long as the codec says beforehand, or as what is granted."""

    system: System
    num_parameters: int
    world: World = field(init=False)
    times: RecordedTimes = field(default_factory=RecordedTimes)

    def __post_init__(self) -> None:
        assert self.system.world is not None
        self.world = self.system.world()

    def resume(self, state: ServerState, rounds: Sequence[Any], progress: Mapping[str, float]) -> ServerState:
        """Go on from a state, after these records. progress: what the last aggregation was found to be worth."""
        self.times = RecordedTimes(each.time for each in rounds)
        if "world" in state.memory:
            self.world.restore(state.memory["world"])
        self.world.progress = progress
        return state._replace(memory={**self.first_memory(), **state.memory})

    def first_memory(self) -> dict[str, Memory]:
        """Return what the server remembers of packets at the beginning, if any is sent again."""
        if max_attempts(self.system.retransmission) == 1:
            return {}
        return {"retransmission": uplink.first_attempts(self.system.fleet.num_devices)}

    def ticks(self) -> Iterator[Tick]:
        """Return the ticks; between two of them the first has to be settled."""
        while (tick := self.world.next_tick()) is not None:
            yield tick
        if self.world.tick == 0:
            horizon = self.system.experiment.timeline.horizon
            raise FedtideError(
                f"{self.world.label} does not act before timeline.horizon={horizon:g}; lengthen the horizon"
            )

    def settle(self, state: ServerState, info: Info) -> tuple[ServerState, Info]:
        """Let devices go on after an aggregation; the info says when its model is there."""
        if info.granted is not None:
            device, grant, rate = info.granted.device, info.granted.grant, info.granted.link.estimated_capacity
        else:
            device, grant = info.rows.device[info.grant.picked], info.grant
            rate = granted_rates(info.rows, grant)
        keeps = None if info.keeps is None else info.rows.device[info.keeps]
        lost = len(info.sent) - len(info.arrived)
        done = self.settle_grant(info.tick, device, grant, rate, keeps, lost)
        self.times.append(done)
        memory = {**state.memory, "world": self.world.state()}
        if kept := memory.get("retransmission"):
            memory["retransmission"] = self.forgotten(kept)
        return state._replace(memory=memory), info._replace(done=done)

    def settle_grant(
        self, tick: Tick, device: Ints, grant: Grant, rate: Floats, again: Ints | None = None, num_lost: int = 0
    ) -> float:
        """Let devices go on to which this was granted [r]; return when the new model is there. rate: bit/symbol [r]."""
        system, keys, radio = self.system, self.system.experiment.timeline, self.system.experiment.radio
        if grant.silent is not None:  # who cannot pay has not sent
            device, rate, grant = device[~grant.silent], rate[~grant.silent], uplink.sending_part(grant)
        took = uplink.planned_symbols(system, self.num_parameters, grant, rate)
        times = np.zeros(len(device))
        if keys.uploads != "fixed":
            times = uplink.upload_times(grant, took, radio.symbol_rate, radio.num_blocks, system.over_the_air)
            self._check(tick, device, times)
        joules = sending_joules(system, device, grant, took, rate) if self.world.batteries else None
        speed = None if grant.decision is None else grant.decision.speed
        done = tick.time + (keys.upload_time if keys.uploads == "fixed" else times.max(initial=0.0))
        if system.waits:
            self.world.settle(device, done, Sends(None, again, joules, speed, num_lost))
            return done
        self.world.settle(device, tick.time, Sends(tick.time + times, None, joules, speed, num_lost))
        return tick.time

    def _check(self, tick: Tick, device: Ints, times: Floats) -> None:
        """Raise if an upload takes for ever, or longer than it may."""
        keys = self.system.experiment.timeline
        longest = float(times.max(initial=0.0))
        if math.isinf(longest):
            label = checks.part_label("scheduler", self.system.policy.scheduler)
            raise TrainingError(
                f"{label} gives device {device[times.argmax()]} no share of the band at aggregation {tick.index}, and its upload "
                "never ends; give it a share, or no bits"
            )
        if keys.overrun == "refuse" and longest > keys.period:
            raise TrainingError(
                f"the uploads of aggregation {tick.index} take {longest:.6g}, longer than timeline.period={keys.period:g}: raise "
                "radio.symbol_rate, grant fewer symbols, or let them spill over (timeline.overrun=spill)"
            )

    def forgotten(self, kept: Memory) -> Memory:
        """Return what the server has of packets, without those of devices that have started over."""
        gone = (kept["attempts"] > 0) & (self.world.phase == IDLE)
        return (
            {name: np.where(gone, np.zeros_like(column), column) for name, column in kept.items()}
            if gone.any()
            else kept
        )

    def told(self, progress: Mapping[str, float]) -> None:
        """Note what the last aggregation was found to be worth, by name."""
        self.world.progress = progress

    def held(self, state: ServerState) -> ServerState:
        """Return the state with the versions that devices hold now."""
        keep = uplink.kept_versions(state.memory, state.version, self.system.history)
        return hold_versions(state, self.world.held, keep)
