"""What the server is made of, and what it carries from one aggregation to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from fedtide.core.lasting import Column, Table, column, counts, table
from fedtide.policy.combining import Combiner
from fedtide.policy.scheduling import Scheduler
from fedtide.policy.weighting import Weighting
from fedtide.types import Floats, Ints, Memory, Vector
from fedtide.world.allocation import Allocation

# What a device may report before the schedule is made, each a number of so many bits.
REPORT_BITS: Final = {"update_sq_norm": 32, "loss": 32}
SCALE_BITS: Final = 32  # what each of those that send at once reports of its update, for a common amplitude


class Policy(NamedTuple):
    """Who uploads and how what arrives is weighed and combined."""

    scheduler: Scheduler
    limit: int  # R
    weighting: Weighting
    combiner: Combiner

    @property
    def needs(self) -> tuple[str, ...]:
        """What the scheduler wants every ready device to report: names of columns of `Candidates`."""
        wanted = tuple(getattr(self.scheduler, "needs", ()))
        return wanted or (("update_sq_norm",) if getattr(self.scheduler, "needs_update_norm", False) else ())

    @property
    def needs_update_norm(self) -> bool:
        """Does the scheduler look at the updates themselves?"""
        return "update_sq_norm" in self.needs


class Rules(NamedTuple):
    """All that the server needs to know for one aggregation, besides its state."""

    policy: Policy
    allocation: Allocation
    num_symbols: float  # per tick
    seed: int
    # versions [r] -> learning rate of trainings from each [r], relative to the first one; None: it stays the same
    rates: Callable[[Ints], Floats] | None = None


class Arrived(NamedTuple):
    """The devices whose updates reached the server, one row each."""

    device: Ints  # [r]
    start: Ints  # version each began from [r]
    num_samples: Ints  # [r]


class ServerState(NamedTuple):
    """All that the server carries from one aggregation to the next, the devices still at work included."""

    version: int  # t: the number of the newest model, and of the aggregation to come
    models: Mapping[int, Vector]  # by version, those that someone still trains from
    held: Column  # which version each device trains from [N]
    uploads: Column  # how often each device was aggregated [N]
    memory: Mapping[str, Memory] = {}  # what the server's parts remember, by kind
    # what simulated devices remember, by kind and device, from the first time they are touched; real ones keep it themselves
    devices: Mapping[str, Mapping[int, Memory]] = {}


def begin(model: Vector, num_devices: int) -> ServerState:
    """At time 0 every device receives theta(1)."""
    held, uploads = np.ones(num_devices, np.int64), np.zeros(num_devices, np.int64)
    return ServerState(1, Table({1: model}), Column(held), Column(uploads))


def next_state(
    state: ServerState,
    ready: Ints,
    arrived: Ints,
    model: Vector,
    memory: Mapping[str, Memory],
    onward: Ints | None = None,
) -> ServerState:
    """Return the state with the next model, which every ready device [m] receives; the updates of some [r] are in it.

    onward: the version that each ready device goes on with [m], if it is not the next one for all.
    A model that nobody trains from any more is forgotten, unless it is the newest. The cost is that of the ready devices.
    """
    held, uploads, version = column(state.held), column(state.uploads), state.version + 1
    holders = held.tally  # counted here once, so that it goes on with every change
    before = counts(held[ready])
    held = held.put(ready, version if onward is None else onward)
    holders = held.tally
    unheld = [each for each in {*before, state.version} if each not in holders]
    models = table(state.models).after({version: model}, unheld)
    if len(models) != len(holders) + (version not in holders):  # someone else has changed who holds what
        models = models.after({}, [each for each in models if each not in holders and each != version])
    uploads = uploads.put(arrived, uploads[arrived] + 1)
    return ServerState(version, models, held, uploads, memory, state.devices)
