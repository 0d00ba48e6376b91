"""Which node plays which device of the fleet. A seat outlives its node: whoever takes it next plays the same device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedtide.deploy.protocol import ReadyReply, TrainOrder


@dataclass
class Seat:
    """One device number and what is known of the node that plays it."""

    device: int
    node: int | None = None
    life: str = ""  # when the node's present life began; another one means that it restarted and forgot
    state: Literal["idle", "working", "ready"] = "idle"
    order: TrainOrder | None = None  # what it works on, or has finished
    sent_at: float = 0.0
    ready: ReadyReply | None = None
    ready_at: float = 0.0
    failures: int = 0  # in a row
    retry_at: int = 0  # not before this tick
    refused: int = 0  # in a row
    packets: set[bytes] = field(default_factory=set)  # digests of what was accepted, to notice a replay

    def rest(self) -> None:
        """Forget the order: the node works on nothing that could be used."""
        self.state, self.order, self.ready = "idle", None, None


class Seats:
    """All N seats."""

    def __init__(self, num_devices: int, known: Mapping[int, int]) -> None:
        self.all = [Seat(device, known.get(device)) for device in range(num_devices)]
        self.banned: set[int] = set()  # nodes

    @property
    def nodes(self) -> dict[int, int]:
        """Return who sits where: device -> node."""
        return {seat.device: seat.node for seat in self.all if seat.node is not None}

    def place(self, present: Mapping[int, str]) -> list[Seat]:
        """Give new nodes a seat: one that was never taken, else one whose node is gone. Return seats that changed hands.

        Nodes without a seat wait until one becomes free. A node that restarted with its key keeps its seat, but has
        forgotten what it held.
        """
        changed = []
        for seat in self.all:
            life = seat.life if seat.node is None else present.get(seat.node, seat.life)
            if seat.life and life != seat.life:
                changed.append(seat)
            seat.life = life
        waiting = sorted(set(present) - set(self.nodes.values()) - self.banned)
        free = [seat for seat in self.all if seat.node is None]
        free += [seat for seat in self.all if seat.node is not None and seat.node not in present]
        for node, seat in zip(waiting, free, strict=False):
            seat.node, seat.life = node, present[node]
            seat.failures = seat.retry_at = seat.refused = 0
            changed.append(seat)
        for seat in changed:
            seat.rest()
        return changed

    def ban(self, seat: Seat) -> None:
        """Ignore the node in this seat from now on."""
        if seat.node is not None:
            self.banned.add(seat.node)
        seat.node, seat.life = None, ""
        seat.rest()
