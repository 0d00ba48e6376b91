"""The client of `flower_job.py`, a module of its own as Ray's actors import it."""

from __future__ import annotations

import functools

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from job import JOB, Data, load
from network import CNN, client_tensors, train

client_app = ClientApp()


@functools.cache
def kept() -> tuple[Data, CNN]:
    """Return what an actor keeps between clients; it has one thread."""
    torch.set_num_threads(1)
    return load(), CNN()


@client_app.train()
def fit(message: Message, context: Context) -> Message:
    data, module = kept()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(module, *client_tensors(data, int(context.node_config["partition-id"])))
    metrics = MetricRecord({"num-examples": JOB.samples_per_client})
    return Message(RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics}), reply_to=message)
