"""The table of ready devices that a scheduler sees."""

from __future__ import annotations

from collections.abc import Mapping

from fedtide.core.lasting import Column
from fedtide.types import Candidates, Floats, Ints


def candidates(
    num_devices: int,
    tick: int,
    device: Ints,
    start: Ints,
    num_samples: Ints,
    label_counts: Ints,
    believed: Floats,
    uploads: Ints | Column,
    reports: Mapping[str, Floats] | None = None,
) -> Candidates:
    """Make the rows of the devices [m] ready at a tick, each with the version it started from; uploads so far are [N].

    believed: what the server takes the links' capacity for [m]. reports: what the devices say before they are scheduled, by
    column.
    """
    return Candidates(
        num_devices=num_devices,
        device=device,
        num_samples=num_samples,
        label_counts=label_counts,
        age=tick - start,  # a_k(t) = t - s_k(t) (eq:definition-alu)
        missed=tick - uploads[device],
        capacity=believed,
        tick=tick,
        **(reports or {}),
    )
