"""What one period of a federation leaves behind: a round like a simulation's, and a line of the trace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fedtide.codec.base import Packet
from fedtide.drivers.simulate import evaluate, samples_per_training
from fedtide.flower.trace import Period, Refusal
from fedtide.learning.trainer import Trainer
from fedtide.policy.label_variance import label_variance
from fedtide.records import Ledger, RoundRecord
from fedtide.server.step import ServerState
from fedtide.system import System
from fedtide.types import Candidates, Grant, Vector

if TYPE_CHECKING:  # seats need Flower, a replay does not
    from fedtide.flower.seats import Seat


class Got(NamedTuple):
    """An update that arrived."""

    packet: Packet
    update: Vector  # [d]
    at: float  # seconds since the beginning


class Aggregation(NamedTuple):
    """One period, as it went."""

    tick: int
    rows: Candidates  # [m]
    grant: Grant
    got: Mapping[int, Got]  # by device
    weight: Mapping[int, float]  # by device


def round_record(
    system: System, trainer: Trainer, state: ServerState, ledger: Ledger, result: Aggregation, time: float
) -> RoundRecord:
    """Return the round; a picked device whose update did not arrive has sent nothing and weighs nothing."""
    rows, grant = result.rows, result.grant
    picked = rows.device[grant.picked].tolist()
    packets = [result.got[device].packet if device in result.got else None for device in picked]
    test, train_loss = evaluate(system, trainer, state, system.ticks[result.tick - 1])
    samples = samples_per_training(system, rows.num_samples)
    came = [position for position, packet in zip(grant.picked, packets, strict=True) if packet]
    return RoundRecord(
        index=result.tick,
        time=time,
        ready=rows.device.tolist(),
        picked=picked,
        age=rows.age[grant.picked].tolist(),
        capacity=rows.capacity[grant.picked].tolist(),
        symbols=grant.symbols.tolist(),
        budget_bits=grant.bits.tolist(),
        sent_bits=[packet.bits if packet else 0 for packet in packets],
        overhead_bits=[packet.overhead_bits if packet else 0 for packet in packets],
        num_kept=[packet.num_kept if packet else 0 for packet in packets],
        label_variance=label_variance(rows.label_counts[grant.picked]),
        proved_minimal=grant.proved_minimal,
        weight=[result.weight.get(device, 0.0) for device in picked],
        test_accuracy=test.accuracy if test else None,
        test_loss=test.loss if test and math.isfinite(test.loss) else None,
        train_loss=train_loss,
        ledger=Ledger(
            symbols=ledger.symbols + float(grant.symbols.sum()),
            bits=ledger.bits + sum(packet.bits for packet in packets if packet),
            samples_used=ledger.samples_used + int(samples[came].sum()),
            samples_trained=ledger.samples_trained + int(samples.sum()),
        ),
    )


def trace_period(
    result: Aggregation, seats: Sequence[Seat], refused: Sequence[Refusal], wall: float, model: str
) -> Period:
    """Return the line of the trace; nodes and rates are filled in by who knows them."""
    rows, grant = result.rows, result.grant
    orders = [seat.order for seat in seats if seat.order]
    reports = [seat.ready for seat in seats if seat.ready]
    came = sorted(device for device in result.got if device in result.weight)
    return Period(
        tick=result.tick,
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
        picked=rows.device[grant.picked].tolist(),
        symbols=grant.symbols.tolist(),
        bits=grant.bits.tolist(),
        arrived=came,
        arrived_at=[result.got[device].at for device in came],
        refused=list(refused),
        model=model,
        nodes={},
        rate={},
    )
