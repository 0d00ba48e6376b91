"""The node's side: own data, terms, pace, and what is told to the server."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from memory_grid import Federation, terms

from fedtide.deploy import trace
from fedtide.deploy.apps import client_app
from fedtide.deploy.node import Worker, node_loader
from fedtide.deploy.protocol import (
    MIN_CAPACITY,
    TrainOrder,
    UploadOrder,
    measured_capacity,
    model_record,
    read_model,
)
from fedtide.deploy.replay import replay
from fedtide.deploy.settings import deployment, from_run_config, to_run_config
from fedtide.engine.system import build, make_trainer
from fedtide.errors import FedtideError
from fedtide.types import Job
from helpers import small, small_dataset

OWN = f"{Path(__file__).parent / 'own_loader.py'}:own"


def test_a_device_trains_as_in_the_simulator() -> None:
    wanted = terms()
    system = build(wanted.experiment)
    trainer = make_trainer(system)
    model = trainer.initial_model(3)
    job = Job(4, 7, model, 0.05, system.dataset.train, system.fleet.partition[4])
    update, _ = Worker(wanted, 4).train(model, 4, 7, 0.05)
    assert np.array_equal(update, trainer.train([job])[0])


def test_own_data_with_a_loader_of_ones_own(tmp_path: Path) -> None:
    model = Federation(terms(loader=OWN), tmp_path / "run").coordinator().run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert periods[0].num_samples == [12, 19]
    result = replay(tmp_path / "run")
    assert result.first_difference is None
    assert np.array_equal(result.model, model)


def test_an_unknown_loader_or_part() -> None:
    with pytest.raises(FedtideError, match="loader='nope' is not known"):
        node_loader("nope")
    with pytest.raises(FedtideError, match="partition-id=6"):
        _ = Worker(terms(), 6).data


def test_terms_travel_unchanged() -> None:
    wanted = terms(epsilon=0.3, capacity="measured")
    assert from_run_config(to_run_config(wanted)) == wanted
    with pytest.raises(FedtideError, match="fedtide deploy app"):
        from_run_config({"experiment": "{}"})
    with pytest.raises(FedtideError, match="deadline=2"):
        deployment({"deadline": 2})


def test_orders_travel_unchanged() -> None:
    order = TrainOrder(device=3, version=9, nonce="abc", learning_rate=0.1)
    model = np.arange(5, dtype=np.float32)
    content = order.content(model=model_record(model))
    assert TrainOrder.read(content) == order
    assert np.array_equal(read_model(content["model"]), model)


def train_order(device: int, model: np.ndarray) -> RecordDict:
    order = TrainOrder(device=device, version=1, nonce="n", learning_rate=0.05)
    return order.content(model=model_record(model))


def grant(version: int, bits: float) -> RecordDict:
    return UploadOrder(device=2, version=version, nonce="m", tick=4, bits=bits).content()


def test_the_node_holds_its_update_until_it_is_asked(tmp_path: Path) -> None:
    wanted = terms()
    context = Context(1, 7, {"partition-id": 2, "pace": 0.3}, RecordDict(), to_run_config(wanted))
    model = make_trainer(build(wanted.experiment)).initial_model(3)
    order = Message(train_order(2, model), 7, "train")
    order.metadata.__dict__["_message_id"] = "a"
    begun = time.monotonic()
    ready = client_app(order, context).content["ready"]
    assert time.monotonic() - begun >= 0.3
    assert sum(ready["label_counts"]) == ready["num_samples"] == 40
    assert "update_sq_norm" not in ready
    replies = []
    for bits in (9000.0, 9000.0):
        asked = Message(grant(1, bits), 7, "query.upload")
        asked.metadata.__dict__["_message_id"] = "b"
        replies.append(client_app(asked, context).content["upload"]["packet"])
    assert replies[0] == replies[1]  # addressed by (seed, device, tick): asking twice changes nothing
    stale = Message(grant(2, 9000.0), 7, "query.upload")
    with pytest.raises(FedtideError, match="this node holds"):
        client_app(stale, context)


@pytest.mark.parametrize("modem", ["shannon", "nr"])
def test_links_that_nobody_used_yet_count_as_at_the_average_snr(modem: str) -> None:
    system = build(small({"radio": {"modem": modem}}), dataset=small_dataset())
    found = measured_capacity(system, {3: 1e3}, 1.0, 8.0)
    average = system.modem(np.array([10**1.3]))
    assert np.array_equal(found[:3], np.repeat(average, 3))
    assert average[0] > 3
    assert found[3] == 1e3 / system.num_symbols
    weak = build(small({"radio": {"modem": "nr", "snr_db": -20.0}}), dataset=small_dataset())
    assert measured_capacity(weak, {}, 1.0, 8.0)[0] == MIN_CAPACITY  # in outage on average, and still tried
