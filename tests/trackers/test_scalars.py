"""The numbers that all trackers show."""

from __future__ import annotations

import math

from fedtide.config import nested_to_dotted
from fedtide.runs import Ledger, RoundRecord
from fedtide.trackers import tracker_scalars

RECORD = RoundRecord(
    index=3,
    time=0.75,
    ready=[0, 2, 5],
    picked=[2, 5],
    age=[1, 4],
    capacity=[2.0, 3.0],
    symbols=[10.0, 30.0],
    budget_bits=[20.0, 90.0],
    sent_bits=[19.0, 88.0],
    overhead_bits=[8, 8],
    num_kept=[1, 2],
    label_variance=0.25,
    proved_minimal=None,
    weight=[0.5, 0.5],
    test_accuracy=0.9,
    test_loss=None,
    train_loss=None,
    ledger=Ledger(100.0, 200.0, 7, 9),
)


def test_every_number_has_its_name() -> None:
    assert tracker_scalars(RECORD) == {
        "spent/control_bits": 0.0,
        "spent/bits_down": 0.0,
        "spent/air_time": 0.0,
        "spent/joules": 0.0,
        "test/accuracy": 0.9,
        "uplink/symbols": 40.0,
        "uplink/bits": 107.0,
        "uplink/mean_capacity": 2.5,
        "devices/ready": 3.0,
        "devices/picked": 2.0,
        "devices/arrived": 2.0,
        "devices/lost": 0.0,
        "devices/silent": 0.0,
        "devices/retransmitted": 0.0,
        "devices/mean_age": 2.5,
        "devices/label_variance": 0.25,
        "time": 0.75,
        "spent/symbols": 100.0,
        "spent/bits": 200.0,
        "spent/samples_used": 7.0,
        "spent/samples_trained": 9.0,
    }


def test_what_became_of_the_uploads() -> None:
    found = tracker_scalars(RECORD._replace(num_kept=[0, 2], sent_bits=[0, 88.0], lost=[5], retransmitted=[5]))
    assert [found[f"devices/{name}"] for name in ("arrived", "lost", "silent", "retransmitted")] == [0, 1, 1, 1]
    sent = tracker_scalars(RECORD._replace(ledger=Ledger(100.0, 200.0, 7, 9, symbols_sent=90.0)))
    assert sent["spent/symbols_sent"] == 90.0


def test_what_nobody_sent_has_no_mean() -> None:
    nobody = RECORD._replace(picked=[], age=[], capacity=[], symbols=[], sent_bits=[], num_kept=[])
    names = tracker_scalars(nobody)
    assert not {"uplink/mean_capacity", "devices/mean_age"} & set(names)
    assert names["uplink/bits"] == names["devices/picked"] == 0.0


def test_metrics_of_ones_own() -> None:
    class WithMetrics(RoundRecord):
        metrics = {"joules": 2, "nan": math.nan, "who": "me", "none": None}  # type: ignore[dict-item]  # noqa: RUF012

    found = tracker_scalars(WithMetrics(*RECORD))
    assert found["metrics/joules"] == 2.0
    assert math.isnan(found["metrics/nan"])
    assert not {"metrics/who", "metrics/none"} & set(found)


def test_dotted_keys() -> None:
    assert nested_to_dotted({"a": {"b": {"c": 1}, "d": {}}, "e": [2]}) == {"a.b.c": 1, "a.d": {}, "e": [2]}
