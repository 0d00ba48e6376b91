"""What the server knows of a link: channel state information.

A csi is a callable (seed, tick, time, device [m], capacity [m]) -> Link(capacity [m], believed [m]) in bit/symbol: what the
links carry in truth, and what the server takes them for. A packet of more bits than its link carries does not arrive. If its
attribute `exact` is True, it is not asked: the server knows what the channel says it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from fedtide.types import Floats, Ints, Link
from fedtide.world.channel import Channel


class Csi(Protocol):
    """What the server knows of a link."""

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats, /) -> Link:
        """Return what these links carry and what the server takes them for [m]."""
        ...


@dataclass(frozen=True)
class Perfect:
    """The paper's: the server knows every link as it is."""

    exact: ClassVar[bool] = True

    def __call__(self, seed: int, tick: int, time: float, device: Ints, capacity: Floats) -> Link:
        """Return the capacity, known [m]."""
        return Link(capacity, capacity)


def exact(csi: Csi) -> bool:
    """Say whether the server knows what the channel says it knows."""
    return bool(getattr(csi, "exact", False))


@dataclass(frozen=True)
class Estimated:
    """A channel of which the server knows what a csi lets it know."""

    channel: Channel
    csi: Csi

    def __call__(self, seed: int, tick: int, time: float, device: Ints) -> Link:
        """Return the links [m]; what the channel itself says that the server believes does not count."""
        link = self.channel(seed, tick, time, device)
        return self.csi(seed, tick, time, device, link.capacity if isinstance(link, Link) else link)


CSIS = {
    "perfect": Perfect,
    "noisy": "fedtide.world.estimation:Noisy",
    "pilots": "fedtide.world.estimation:Pilots",
    "packet_error": "fedtide.world.packets:PacketError",
}
