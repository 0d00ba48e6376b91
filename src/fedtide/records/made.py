"""The record of one aggregation, made of what happened in it: the only place where one is made."""

from __future__ import annotations

from typing import NamedTuple

from fedtide.policy.label_variance import label_variance
from fedtide.records.costs import Costs
from fedtide.records.round import Ledger, RoundRecord
from fedtide.server.step import Info


class Scores(NamedTuple):
    """How the model after an aggregation does; None where it was not evaluated, or the loss is not finite."""

    accuracy: float | None = None
    loss: float | None = None
    train_loss: float | None = None


def round_record(info: Info, scores: Scores, ledger: Ledger, costs: Costs, names_ready: bool = True) -> RoundRecord:
    """Return the record. ledger: what was spent before. names_ready: say who was ready, not only how many.

    A picked device that sent nothing has no bits; one whose update did not arrive weighs nothing.
    """
    rows, grant = info.rows, info.grant
    picked = rows.device[grant.picked].tolist()
    packets = [info.sent.get(device) for device in picked]
    weight = dict(zip(rows.device[info.arrived].tolist(), info.weights.tolist(), strict=True))
    sending = [position for position, packet in zip(grant.picked.tolist(), packets, strict=True) if packet]
    return RoundRecord(
        index=info.tick.index,
        time=info.tick.time,
        ready=rows.device.tolist() if names_ready else [],
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
        weight=[weight.get(device, 0.0) for device in picked],
        test_accuracy=scores.accuracy,
        test_loss=scores.loss,
        train_loss=scores.train_loss,
        ledger=costs.after(ledger, info, sum(packet.bits for packet in packets if packet), sending),
        lost=[device for device in picked if device in info.sent and device not in weight],
        metrics=grant.metrics,
        unnamed=0 if names_ready else len(rows.device),
    )
