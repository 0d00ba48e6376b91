"""The devices and the server in time, as slowly and plainly as can be: no queue, no columns, nothing shared with the package."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NEVER = math.inf


@dataclass
class Device:
    """One device: what it does, until when, and the model it has."""

    number: int
    does: str = "nothing"
    until: float = NEVER
    version: int = 1
    jobs: int = 0


@dataclass
class SlowWorld:
    """Plays one moment after the other; asks every device every time."""

    count: int
    horizon: float
    takes: Callable[[int, int, float], float]  # (device, job, time) -> how long it trains
    when: Callable[[dict[str, Any]], float]
    keep: bool = False
    interrupt: bool = False
    concurrency: int | None = None
    release: str = "finish"
    absent: str = "compute"
    back: Callable[[int, float], float] | None = None  # (device, time) -> when it is next there
    choose: Callable[[list[int], int, int], list[int]] | None = None  # (idle, how many, number of the draw) -> which

    def __post_init__(self) -> None:
        self.devices = [Device(number) for number in range(self.count)]
        self.now = self.model_time = 0.0
        self.acted = self.landed = self.draws = 0

    def away(self, device: Device) -> bool:
        return self.back is not None and self.back(device.number, self.now) > self.now

    def doing(self, *what: str) -> list[Device]:
        return [device for device in self.devices if device.does in what]

    def hand_out(self) -> bool:
        busy = len([one for one in self.doing("training") if one.until < NEVER])
        if self.release == "aggregation":
            busy += len(self.doing("finished", "sending", "absent"))
        places = NEVER if self.concurrency is None else self.concurrency - busy
        if places <= 0:
            return False
        waiting = []
        for device in self.doing("nothing"):
            if self.absent != "compute" and self.away(device):
                assert self.back is not None
                device.does, device.until = "away", self.back(device.number, self.now)
            else:
                waiting.append(device.number)
        if places < len(waiting):
            self.draws += 1
            assert self.choose is not None
            waiting = self.choose(waiting, int(places), self.draws)
        for number in waiting:
            device = self.devices[number]
            device.jobs += 1
            device.version = self.acted + 1
            device.does = "training"
            device.until = self.now + self.takes(number, device.jobs, self.now)
        return bool(waiting)

    def happen(self) -> None:
        """Let everything happen that is due now."""
        for device in [one for one in self.devices if one.until == self.now]:
            if device.does == "training" and self.absent != "compute" and self.away(device):
                assert self.back is not None
                device.does = "away" if self.absent == "abandon" else "training"
                device.until = self.back(device.number, self.now)
            elif device.does in ("training", "absent"):
                device.does, device.until = "finished", NEVER
            else:
                self.landed += device.does == "sending"
                device.does, device.until = "nothing", NEVER

    def next_tick(self) -> tuple[float, list[int], list[int]] | None:
        while True:
            busy = self.now < self.model_time
            act = self.model_time if busy else self.when(self.seen())
            if not busy and act > self.now and self.hand_out():
                continue
            moment = min(device.until for device in self.devices)
            if min(moment, act) > self.horizon:
                return None
            if moment <= act:
                self.now = moment
                self.happen()
                continue
            self.now = act
            if busy:
                continue
            waiting = self.doing("finished")
            for device in waiting:
                if self.away(device):
                    assert self.back is not None
                    device.does, device.until = "absent", self.back(device.number, act)
            ready = self.doing("finished")
            if ready or not waiting or self.landed:
                return act, [one.number for one in ready], [one.version for one in ready]

    def seen(self) -> dict[str, Any]:
        return {
            "time": self.now,
            "last": self.model_time,
            "finished": len(self.doing("finished")),
            "working": len([one for one in self.doing("training") if one.until < NEVER]),
            "sending": len(self.doing("sending")),
            "landed": self.landed,
            "tick": self.acted,
        }

    def settle(self, picked: list[int], until: list[float] | None, done: float, lost: list[int]) -> None:
        self.acted += 1
        self.model_time, self.landed = done, 0
        for device in self.doing("finished"):
            if device.number not in picked:
                if not self.keep:
                    device.does = "nothing"
            elif until is not None:
                device.does = "sending"
                device.until = until[picked.index(device.number)]
            elif device.number not in lost:
                device.does = "nothing"
        if self.interrupt:
            for device in self.doing("training"):
                if device.until < NEVER:
                    device.does, device.until = "nothing", NEVER
