"""A whole run in time and on the air, as slowly and plainly as can be: no queue, no columns, nothing shared with the package.

One device after the other, one moment after the other. What is random or a choice is a plain function that the test hands
over; the rest is written down here a second time: who trains when, who is ready, what is sent, lost and sent again, how long
it takes, what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NEVER = math.inf
SLACK = 1 + 1e-9


@dataclass
class World:
    """What a run goes by."""

    count: int
    horizon: float
    rule: str  # periodic, buffered, per_arrival, all, deadline
    period: float
    buffer: int
    takes: Callable[[int, int, float, float], float]  # (device, job, time, speed) -> from the model to the update
    back: Callable[[int, float], float] | None  # (device, time) -> when it is next there; None: always
    snr: Callable[[int, int, int], tuple[float, float]]  # (device, tick, block) -> true and estimated
    blocks: int
    capacity: Callable[[float], float]
    fails: Callable[[int, int, float], bool] | None  # (device, tick, mean chance of a loss) -> lost
    chance: Callable[[float], float]  # of a loss at an SNR
    decide: Callable[[int, list[dict[str, Any]]], list[dict[str, Any]]]  # (tick, ready) -> who sends how
    choose: Callable[[list[int], list[int], int], list[int]]  # (idle, their jobs, places) -> who takes them
    symbols: float
    symbol_rate: float
    size: Callable[[float], int]  # bits of a packet within a budget
    samples: Callable[[int], int]  # of one training
    uploads: str = "fixed"
    upload_time: float = 0.0
    keep: bool = False
    interrupt: bool = False
    absent: str = "compute"
    concurrency: int | None = None
    release: str = "finish"
    attempts: int = 1
    combines: bool = False
    per_symbol: float = 0.0  # J
    per_sample: float = 0.0  # J
    battery: float | None = None  # J
    harvest: float = 0.0


@dataclass
class Device:
    """One device."""

    number: int
    does: str = "nothing"  # nothing, training, finished, sending, away, absent (with an update), gone
    until: float = NEVER
    version: int = 1
    job: int = 0
    counted: int = 0  # the last of its trainings that an aggregation has counted
    speed: float = 1.0  # of the training that it has, or will have next
    joules: float = 0.0
    at: float = 0.0  # when it had them
    tries: int = 0  # of the packet that it sends
    budget: float = 0.0  # that it was made for
    collected: float = 0.0  # what the server has of it
    upload: dict[str, Any] = field(default_factory=dict)  # that is on its way


@dataclass
class Run:
    """Plays a world."""

    world: World

    def __post_init__(self) -> None:
        self.devices = [Device(number, joules=self.world.battery or 0.0) for number in range(self.world.count)]
        self.now = self.model_time = 0.0
        self.acted, self.receivers = 0, 0
        self.refused, self.acts_here, self.acted_at = "", 0, -1.0  # why it cannot go on
        self.dropped: list[tuple[int, float]] = []  # samples and J of trainings that were given up
        self.here: list[dict[str, Any]] = []  # uploads that have landed since the last aggregation
        self.due: float | None = None  # of a server that acts regularly

    # -- who does what ----------------------------------------------------------------------------------------------

    def doing(self, *what: str) -> list[Device]:
        return [device for device in self.devices if device.does in what]

    def away(self, device: Device) -> bool:
        return self.world.back is not None and self.world.back(device.number, self.now) > self.now * (1 + 1e-12)

    def let(self, device: Device, does: str, until: float = NEVER) -> None:
        device.does, device.until = does, until
        if does in ("training", "away", "absent") and until == NEVER:
            device.does = "gone"

    def leave(self, device: Device, does: str) -> None:
        assert self.world.back is not None
        self.let(device, does, self.world.back(device.number, self.now))

    def charge(self, device: Device) -> float:
        assert self.world.battery is not None
        device.joules = min(device.joules + self.world.harvest * (self.now - device.at), self.world.battery)
        device.at = self.now
        return device.joules

    def training_joules(self, device: Device) -> float:
        return self.world.per_sample * self.world.samples(device.number) * device.speed**2

    def hand_out(self) -> bool:
        world = self.world
        holding = ("training",) if world.release == "finish" else ("training", "finished", "sending", "absent")
        places = NEVER if world.concurrency is None else world.concurrency - len(self.doing(*holding))
        if places <= 0:
            return False
        waiting = []
        for device in self.doing("nothing"):
            if world.absent != "compute" and self.away(device):
                self.leave(device, "away")
                continue
            if world.battery is not None:
                needs, has = self.training_joules(device), self.charge(device)
                if has < needs * (1 - 1e-9):
                    possible = needs <= world.battery and world.harvest > 0
                    wait = max((needs - has) / world.harvest, 1e-9) if possible else NEVER
                    self.let(device, "away", self.now + wait)
                    continue
            waiting.append(device)
        if places < len(waiting):
            chosen = world.choose([one.number for one in waiting], [one.job for one in waiting], int(places))
            waiting = [self.devices[number] for number in sorted(chosen)]
        for device in waiting:
            if world.battery is not None:
                device.joules -= self.training_joules(device)
            device.job += 1
            device.version = self.acted + 1
            self.receivers += 1
            takes = world.takes(device.number, device.job, self.now, device.speed)
            self.let(device, "training", self.now + takes)
        return bool(waiting)

    def happen(self) -> None:
        """Let everything happen that is due now."""
        for device in [one for one in self.devices if one.until == self.now]:
            if device.does == "training" and self.world.absent != "compute" and self.away(device):
                if self.world.absent == "abandon":
                    self.dropped.append((self.world.samples(device.number), self.training_joules(device)))
                self.leave(device, "away" if self.world.absent == "abandon" else "training")
            elif device.does in ("training", "absent"):
                self.let(device, "finished")
            else:
                if device.does == "sending":
                    self.here.append(device.upload)
                self.let(device, "nothing")

    def wishes(self) -> float:
        """When the server acts if nothing happens before."""
        world, finished = self.world, len(self.doing("finished"))
        usable = finished if world.uploads != "later" else max(finished, len(self.here))
        busy = len(self.doing("training", "sending"))
        if world.rule == "periodic":
            if self.due is None:
                self.due = (math.floor(max(self.now, self.model_time) / world.period + 1e-9) + 1) * world.period
            return self.due
        if world.rule in ("all", "deadline"):
            latest = NEVER if world.rule == "all" else max(self.now, self.model_time + world.period)
            return self.now if usable and not busy else latest
        return self.now if usable >= (1 if world.rule == "per_arrival" else world.buffer) else NEVER

    # -- one aggregation --------------------------------------------------------------------------------------------

    def until_it_acts(self) -> bool:
        """Let time pass until the server acts; False if it does not do so any more."""
        while True:
            busy = self.now < self.model_time
            act = self.model_time if busy else self.wishes()
            if not busy and act > self.now and self.hand_out():
                continue
            moment = min(device.until for device in self.devices)
            if min(moment, act) > self.world.horizon - (
                self.world.upload_time if self.world.uploads == "fixed" else 0.0
            ):
                if moment == act == NEVER and not (self.acted and self.doing("gone")):
                    self.refused = "nothing more will happen"
                return False
            if moment <= act:
                self.now = moment
                self.happen()
                continue
            self.now = act
            if busy:
                continue
            self.acts_here = self.acts_here + 1 if act == self.acted_at else 0
            self.acted_at = act
            if self.acts_here > 1000:
                self.refused = "never lets time pass"
                return False
            finished = self.doing("finished")
            for device in finished:
                if self.away(device):
                    self.leave(device, "absent")
                    self.due = None
            if self.doing("finished") or not finished or self.here or self.world.rule == "periodic":
                return True

    def link(self, device: int, tick: int, power: float, block: int | None) -> tuple[float, float, float]:
        """What a link carries in truth, what the server believes it does, and how likely it loses a packet."""
        blocks = range(self.world.blocks) if block is None else [block]
        pairs = [self.world.snr(device, tick, each) for each in blocks]
        true = sum(self.world.capacity(snr * power) for snr, _ in pairs) / len(pairs)
        believed = sum(self.world.capacity(snr * power) for _, snr in pairs) / len(pairs)
        return true, believed, sum(self.world.chance(snr * power) for snr, _ in pairs) / len(pairs)

    def aggregate(self) -> dict[str, Any] | None:
        world = self.world
        if not self.until_it_acts():
            return None
        tick, ready = self.acted + 1, self.doing("finished")
        found: dict[str, Any] = {"index": tick, "received": self.receivers, "acts": self.now}
        found["ready"] = [one.number for one in ready]
        fresh = [one for one in ready if one.job > one.counted]
        trained = sum(world.samples(one.number) for one in fresh) + sum(samples for samples, _ in self.dropped)
        joules = sum(self.training_joules(one) for one in fresh) + sum(joules for _, joules in self.dropped)
        self.dropped = []
        for one in fresh:
            one.counted = one.job
        rows = [
            {
                "device": one.number,
                "battery": self.charge(one) if world.battery is not None else None,
                "capacity": self.link(one.number, tick, 1.0, None)[1],
                "blocks": [self.link(one.number, tick, 1.0, block)[1] for block in range(world.blocks)],
            }
            for one in ready
        ]
        sending = [self.send(tick, pick) for pick in (world.decide(tick, rows) if rows else [])]
        silent = [each for each in sending if each["silent"]]
        sending = [each for each in sending if not each["silent"]]
        for each in sending:
            block = each.get("block")
            same = sum(other["symbols"] for other in sending if block is None or other["block"] == block)
            share = each["symbols"] / same / (1 if block is None else world.blocks) if same else 0.0
            share = each.get("share") or share
            each["lasts"] = each["taken"] / (share * world.symbol_rate) if each["taken"] else 0.0
        if world.uploads == "later":
            self.receivers, done = 0, self.now
            used = sorted(self.here, key=lambda each: each["device"])
            self.here = []
        else:
            self.receivers = 0
            longest = max((each["lasts"] for each in sending), default=0.0)
            done = self.now + (world.upload_time if world.uploads == "fixed" else longest)
            used = sorted(sending + silent, key=lambda each: each["device"])
        self.settle(ready, sending, done)
        return found | {
            "time": done,
            "picked": [each["device"] for each in used],
            "age": [tick - each["version"] for each in used],
            "symbols": [each["symbols"] for each in used],
            "sent_bits": [each["bits"] for each in used],
            "lost": [each["device"] for each in used if each["lost"]],
            "retransmitted": [each["device"] for each in used if each["retransmitted"]],
            "symbols_sent": sum(each["taken"] for each in used),
            "joules": joules + sum(each["taken"] * each["power"] * world.per_symbol for each in used),
            "samples_trained": trained,
            "samples_used": sum(
                world.samples(each["device"]) for each in used if not each["retransmitted"] and not each["silent"]
            ),
        }

    def send(self, tick: int, pick: dict[str, Any]) -> dict[str, Any]:
        """One device sends its update as was decided."""
        world, device = self.world, self.devices[pick["device"]]
        power, symbols = pick.get("power", 1.0), pick["symbols"]
        true, believed, chance = self.link(device.number, tick, power, pick.get("block"))
        budget, retransmitted = symbols * believed, device.tries > 0
        again = retransmitted and world.combines  # the same packet as before, whatever fits
        budget = device.budget if again else budget
        bits = world.size(budget)
        taken = min(bits / believed, symbols) if bits else 0.0
        if world.battery is not None and world.per_symbol * taken * power > device.joules * SLACK:
            quiet = {"bits": 0, "taken": 0.0, "lost": False, "keeps": False, "retransmitted": False, "silent": True}
            return {**pick, "version": device.version, "power": power, "symbols": symbols, **quiet}
        carried = symbols * true * SLACK
        if true >= believed and budget <= symbols * believed * SLACK + 1e-9:
            carried = NEVER  # it was made for this link
        if world.fails is not None and world.fails(device.number, tick, chance):
            carried = 0.0
        collected = carried + (device.collected if world.combines else 0.0)
        lost = bits > collected
        tries = device.tries + 1
        more = lost and tries < world.attempts
        device.tries, device.budget, device.collected = (tries, budget, collected) if more else (0, 0.0, 0.0)
        return {
            **pick,
            "version": device.version,
            "power": power,
            "symbols": symbols,
            "bits": bits,
            "taken": taken,
            "silent": False,
            "lost": lost,
            "keeps": more,
            "retransmitted": retransmitted,
        }

    def settle(self, ready: list[Device], sending: list[dict[str, Any]], done: float) -> None:
        """Devices go on."""
        self.acted, self.model_time, self.due = self.acted + 1, done, None
        how = {each["device"]: each for each in sending}
        for device in ready:
            mine = how.get(device.number)
            if mine is None:
                if not self.world.keep:
                    self.start_over(device)
                    device.speed = 1.0
                continue
            if self.world.battery is not None:
                device.joules -= mine["taken"] * mine["power"] * self.world.per_symbol
            if not mine["keeps"]:
                device.speed = mine.get("speed", 1.0)
            if self.world.uploads == "later":
                device.upload = mine
                self.let(device, "sending", self.now + mine["lasts"])
            elif not mine["keeps"]:
                self.start_over(device)
        for device in self.doing("training") if self.world.interrupt else []:
            self.dropped.append((self.world.samples(device.number), self.training_joules(device)))
            self.start_over(device)

    def start_over(self, device: Device) -> None:
        self.let(device, "nothing")
        device.tries, device.budget, device.collected = 0, 0.0, 0.0
