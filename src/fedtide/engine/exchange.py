"""The devices as the server meets them: simulated, recorded and real ones differ in their `Exchange` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fedtide.codec.base import Packet, Sent
from fedtide.types import Candidates, Floats, Grant, Ints, Link, Memory, Tick, Vector, Vectors

if TYPE_CHECKING:
    from fedtide.engine.step import ServerState


class ReadyDevices(NamedTuple):
    """Who is ready at a tick."""

    rows: Candidates  # [m]
    link: Link | None = None  # as it is, not as it is estimated [m]; None: real devices
    kept: Any = None  # what an exchange wants to be handed back when uploads are announced


class Announced(NamedTuple):
    """What is known of the uploads of a grant before they are added up."""

    arriving: Ints  # positions within the candidates of those whose updates will arrive, ascending [r]
    lots: Sequence[Any]  # what `Exchange.send` is called with, one after the other; all of them are the r arriving ones
    devices: Mapping[str, Mapping[int, Memory]] = {}  # what simulated devices remember now
    sent: Mapping[int, Packet | Sent] = {}  # by device number, what is on its way already
    # (updates [r d], weights [r]) -> sum_k w_k u_k as it is heard [d], of updates that are sent at once, in one lot
    heard: Callable[[Vectors, Floats], Vector] | None = None
    control_bits: float = 0.0  # what was agreed on before, besides what the ready devices reported
    again: Ints = np.zeros(0, np.int64)  # positions within the candidates of those that send a lost packet once more
    keeps: Ints | None = None  # positions of those that keep their update to send it again; None: nobody
    memory: Mapping[str, Memory] = {}  # what the server has of packets that are not complete
    server_update: Vector | None = None  # of the server's own training, for aggregators that need it [d]


class Delivered(NamedTuple):
    """The updates of one lot. All of them are finite, which the exchange has checked."""

    updates: Vectors  # as the server decodes them [l d]
    sent: Mapping[int, Packet | Sent]  # by device number
    devices: Mapping[str, Mapping[int, Memory]] = {}  # what simulated devices remember now


class Exchange(Protocol):
    """The devices, as the server meets them."""

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Return who is ready, with what each reports."""
        ...

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Tell devices what they were granted; return whose updates will arrive."""
        ...

    def send(self, state: ServerState, tick: Tick, lot: Any) -> Delivered:
        """Have the devices of a lot train and send their updates. state.devices: what devices remember by now."""
        ...


class Landing(Protocol):
    """Devices whose uploads may be in at a later tick than the one that granted them."""

    def landed(self, state: ServerState, tick: Tick, link: Link) -> ReadyDevices:
        """Return those whose uploads are in, over the links that they were sent [m]."""
        ...
