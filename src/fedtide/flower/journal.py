"""What one period of a federation leaves behind besides its record: a line of the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedtide.flower.trace import REMEMBERING, Period, Refusal
from fedtide.server.step import Info

if TYPE_CHECKING:  # a trace is made and read without Flower
    from fedtide.flower.conversation import Got
    from fedtide.flower.seats import Seat


def trace_period(
    info: Info,
    seats: Sequence[Seat],
    got: Mapping[int, Got],
    refused: Sequence[Refusal],
    wall: float,
    model: str,
    nodes: Mapping[int, int],
    rate: Mapping[int, float],
) -> Period:
    """Return the line of the trace. seats: as they were when the plan was made [m]; got: updates by device."""
    rows, grant = info.rows, info.grant
    orders = [seat.order for seat in seats if seat.order]
    reports = [seat.ready for seat in seats if seat.ready]
    came = rows.device[info.arrived].tolist()
    picked = rows.device[grant.picked].tolist()
    return Period(
        tick=info.tick.index,
        wall=wall,
        ready=rows.device.tolist(),
        start=[order.version for order in orders],
        node=[seat.node or 0 for seat in seats],
        data=[report.data for report in reports],
        isa=[report.isa for report in reports],
        ready_at=[seat.ready_at for seat in seats],
        learning_rate=[order.learning_rate for order in orders],
        num_samples=rows.num_samples.tolist(),
        label_counts=rows.label_counts.tolist(),
        capacity=rows.capacity.tolist(),
        update_sq_norm=None if rows.update_sq_norm is None else rows.update_sq_norm.tolist(),
        picked=picked,
        symbols=grant.symbols.tolist(),
        bits=grant.bits.tolist(),
        arrived=came,
        arrived_at=[got[device].at for device in came],
        refused=list(refused),
        model=model,
        nodes={str(device): node for device, node in nodes.items()},
        rate={str(device): each for device, each in rate.items()},
        loss=None if rows.loss is None else rows.loss.tolist(),
        lost=[device for device in picked if device in info.sent and device not in came] or None,
        forgot=_forgot(seats) or None,
    )


def _forgot(seats: Sequence[Seat]) -> dict[str, list[int]]:
    """Return which devices lost their memory, by kind of part."""
    found = {kind: [seat.device for seat in seats if seat.ready and kind in seat.ready.forgot] for kind in REMEMBERING}
    return {kind: devices for kind, devices in found.items() if devices}
