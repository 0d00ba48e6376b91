"""Nodes that lie or send rubbish: refused with a line that names them, and the round goes on."""

from __future__ import annotations

import logging
import math
import random
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from memory_grid import Federation, Node, terms

from fedtide.codec.base import HEADER_BYTES
from fedtide.deploy import trace
from fedtide.deploy.protocol import Refused, TrainOrder, UploadOrder, read_ready, read_upload
from fedtide.deploy.replay import replay
from fedtide.deploy.settings import Deployment
from fedtide.engine.system import build
from fedtide.rng import stream
from fedtide.runs import is_complete

LONG = {"timeline": {"horizon": 200.0}}
ORDER = TrainOrder(device=2, version=7, nonce="n" * 32, learning_rate=0.1, want_norm=True)
READY: dict[str, Any] = {
    "device": 2,
    "version": 7,
    "nonce": "n" * 32,
    "num_samples": 10,
    "label_counts": [4, 6, 0],
    "data": 2,
    "isa": "avx2",
    "capacity": 3.0,
    "update_sq_norm": 1.5,
}
SETTINGS = Deployment(capacity="reported", max_samples=1000)


def ready(**changes: Any) -> RecordDict:
    tree = {key: value for key, value in {**READY, **changes}.items() if value is not None}
    return RecordDict({"ready": ConfigRecord(tree)})


def test_an_honest_row_is_read() -> None:
    row = read_ready(ready(), ORDER, 3, 6, SETTINGS)
    assert row.label_counts == [4, 6, 0]
    assert (row.num_samples, row.capacity, row.update_sq_norm, row.data) == (10, 3.0, 1.5, 2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"device": 3}, "another order: device"),
        ({"version": 6}, "another order: version"),
        ({"version": True}, "version=True"),
        ({"nonce": "m" * 32}, "nonce is something else"),
        ({"num_samples": 0}, "num_samples"),
        ({"num_samples": 10.0}, "num_samples"),
        ({"num_samples": 2000, "label_counts": [2000, 0, 0]}, "num_samples is 2000"),
        ({"num_samples": 11}, "adds up to 10"),
        ({"label_counts": [10]}, "1 entries for 3"),
        ({"label_counts": [-5, 15, 0]}, r"label_counts\.0=-5"),
        ({"label_counts": [2**60, 10 - 2**60, 0]}, r"label_counts\.0=1152921504606846976"),
        ({"label_counts": [4.0, 6.0, 0.0]}, r"label_counts\.0=4\.0: input should be a valid integer"),
        ({"label_counts": "10"}, "label_counts='10': input should be a valid list"),
        ({"label_counts": None}, "label_counts is missing"),
        ({"capacity": math.nan}, "capacity"),
        ({"capacity": math.inf}, "capacity"),
        ({"capacity": -1.0}, "capacity"),
        ({"capacity": 1e9}, "capacity"),
        ({"capacity": None}, "capacity"),
        ({"update_sq_norm": math.nan}, "update_sq_norm"),
        ({"update_sq_norm": 1e30}, "update_sq_norm"),
        ({"update_sq_norm": "1"}, "update_sq_norm"),
        ({"data": 6}, "data"),
        ({"data": -2}, "data"),
        ({"isa": "x" * 100}, "isa"),
        ({"isa": "a\nb"}, "isa"),
    ],
)
def test_rows_that_cannot_be(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        read_ready(ready(**changes), ORDER, 3, 6, SETTINGS)


def test_a_million_wrong_counts_are_refused_at_the_first() -> None:
    begun = time.process_time()
    with pytest.raises(Refused, match=r"label_counts\.0=0\.5") as failure:
        read_ready(ready(label_counts=[0.5] * 10**6), ORDER, 3, 6, SETTINGS)
    assert len(str(failure.value)) < 200
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("content", [RecordDict(), RecordDict({"ready": ArrayRecord([np.zeros(3)])})])
def test_rows_that_are_no_rows(content: RecordDict) -> None:
    with pytest.raises(Refused, match="no record 'ready'"):
        read_ready(content, ORDER, 3, 6, SETTINGS)


# -- packets --------------------------------------------------------------------------------------------------------

SIZE, BITS = 7850, 9000.0
GRANT = UploadOrder(device=2, version=7, nonce="n" * 32, tick=9, bits=BITS)
SYSTEM = build(terms().experiment)


def packet_bytes(size: int = SIZE, bits: float = BITS, scale: float = 0.01, seed: int = 1) -> bytes:
    update = (stream(seed, "synthetic").standard_normal(size) * scale).astype(np.float32)
    return SYSTEM.codec.encode(update, bits, stream(seed, "compress", 2, 9)).data


def resealed(data: bytes) -> bytes:
    """Return the bytes with a checksum that fits."""
    fields, payload = data[: HEADER_BYTES - 4], data[HEADER_BYTES:]
    return fields + struct.pack("<I", zlib.crc32(payload, zlib.crc32(fields))) + payload


def upload(packet: Any, **changes: Any) -> RecordDict:
    record = {"device": 2, "version": 7, "tick": 9, "nonce": "n" * 32, "packet": packet, **changes}
    return RecordDict({"upload": ConfigRecord(record)})


def read(content: RecordDict) -> np.ndarray:
    return read_upload(content, GRANT, SYSTEM.codec, SIZE, Deployment())[1]


def test_an_honest_packet_is_read() -> None:
    assert read(upload(packet_bytes())).any()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (upload("text"), "packet='text': input should be a valid bytes"),
        (upload(b""), "shorter than its header"),
        (upload(packet_bytes(), tick=8), "another order: tick"),
        (upload(packet_bytes(), nonce="m" * 32), "nonce is something else"),
        (upload(packet_bytes(size=100)), "for 100 parameters"),
        (upload(packet_bytes(bits=2 * BITS)), "for a grant of 9000"),
        (upload(packet_bytes() + bytes(10**6)), "bytes for a grant of 9000"),
        (upload(packet_bytes(scale=1e6)), "max_update_norm"),
        (upload(packet_bytes()[:-1]), "announces"),
        (RecordDict(), "no record 'upload'"),
    ],
)
def test_packets_that_cannot_be(content: RecordDict, why: str) -> None:
    with pytest.raises(Refused, match=why):
        read(content)


def fuzzed(dice: random.Random, honest: bytes) -> Any:
    """Return something that is not an honest packet."""
    kind = dice.randrange(8)
    if kind == 0:
        return dice.randbytes(dice.randrange(2000))
    if kind == 1:
        return honest[: dice.randrange(len(honest))]
    if kind == 2:
        return honest + dice.randbytes(dice.randrange(1, 3000))
    if kind == 3:
        return dice.choice(["x", 1, 1.5, [1, 2], [b"a"]])
    changed = bytearray(honest)
    if kind in (4, 5):
        for _ in range(dice.randrange(1, 6)):
            changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        if kind == 4:
            return bytes(changed)
        changed[dice.randrange(HEADER_BYTES - 4)] ^= 0xFF  # the header lies, with a checksum that fits
        return resealed(bytes(changed))
    # an absurd or infinite norm, with a checksum that fits: set the bits around where it lies
    for position in range(HEADER_BYTES, len(changed)):
        changed[position] |= dice.choice([0x7F, 0xFF])
    return resealed(bytes(changed))


def test_a_thousand_fuzzed_packets_of_one_grant() -> None:
    dice, honest = random.Random(2), packet_bytes()
    for _ in range(1000):
        with pytest.raises(Refused):
            read(upload(fuzzed(dice, honest)))


def test_fuzzed_packets_change_nothing_but_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Four hostile nodes, 30 grants each: they are believed no more than nodes whose uploads never come."""
    tree = {"timeline": {"period": 10.0, "horizon": 300.0}, "fleet": {"num_devices": 5}, "policy": {"limit": 5}}
    data = {"num_train": 50, "num_test": 10, "num_shards": 5}
    wanted = terms(tree, {"data": data, "radio": {"num_symbols": 1500}}, ban_after=None, poll=2.5)
    dice = random.Random(1)

    def hostile(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            return [(3.0, reply)]
        record = dict(reply.content["upload"])
        record["packet"] = fuzzed(dice, record["packet"])
        return [(0.5, Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=message))]

    def silent(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        return [(3.0, reply)] if message.metadata.message_type == "train" else []

    models = []
    for name, act in (("silent", silent), ("hostile", hostile)):
        federation = Federation(wanted, tmp_path / name, durations=(3.0,) * 5)
        for position in range(4):
            federation.node(position).act = act
        with caplog.at_level(logging.WARNING):
            models.append(federation.coordinator().run())
    assert np.array_equal(*models)
    periods = trace.read_trace(tmp_path / "hostile").periods
    assert sum(len(each.refused) for each in periods) == 120
    lines = caplog.text.splitlines()
    for position in range(4):
        assert sum(f"node {101 + position} (device {position}) refused" in line for line in lines) == 30
    assert all(each.arrived == [4] for each in periods)


def hostile_run(folder: Path, act: Any, **settings: Any) -> list[trace.Period]:
    federation = Federation(terms(LONG, **settings), folder)
    federation.node(0).act = act
    federation.coordinator().run()
    assert is_complete(folder)
    assert replay(folder).first_difference is None
    return trace.read_trace(folder).periods


def test_a_replayed_packet(tmp_path: Path) -> None:
    """An old packet in a new envelope is noticed, and so is an old envelope."""
    first: list[bytes] = []

    def again(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            return [(3.0, reply)]
        first.append(reply.content["upload"]["packet"])
        record = {**dict(reply.content["upload"]), "packet": first[0]}
        return [(0.5, Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=message))]

    periods = hostile_run(tmp_path / "packet", again, ban_after=None)
    assert sum(0 in each.arrived for each in periods) == 1
    assert "a packet that was sent before" in {refusal.why for each in periods for refusal in each.refused}

    envelopes: list[RecordDict] = []

    def old_envelope(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            return [(3.0, reply)]
        envelopes.append(reply.content)
        return [(0.5, Message(envelopes[0], reply_to=message))]

    periods = hostile_run(tmp_path / "envelope", old_envelope, ban_after=None)
    assert sum(0 in each.arrived for each in periods) == 1


def test_a_reply_in_another_nodes_name(tmp_path: Path) -> None:
    def disguised(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        reply.metadata.__dict__["_src_node_id"] = 102
        return [(0.5, reply)]

    periods = hostile_run(tmp_path / "run", disguised, ban_after=None)
    assert all(0 not in each.ready for each in periods)
    assert "the reply comes from node 102" in {refusal.why for each in periods for refusal in each.refused}


def test_a_node_that_goes_on_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def liar(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            return [(3.0, reply)]
        record = {**dict(reply.content["upload"]), "packet": b"rubbish"}
        return [(0.5, Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=message))]

    with caplog.at_level(logging.WARNING):
        periods = hostile_run(tmp_path / "run", liar, ban_after=3)
    assert "node 101 (device 0) is ignored from now on" in caplog.text
    assert sum(len(each.refused) for each in periods) == 3
    assert 0 not in periods[-1].ready
    assert "0" not in periods[-1].nodes


def test_replies_that_flower_cannot_unpack(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One damaged reply does not keep the others from being read."""
    federation = Federation(terms(LONG, ban_after=None), tmp_path / "run")
    node, grid = federation.node(0), federation.grid
    poison: set[str] = set()
    pull = grid.pull_messages

    def damaged(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        poison.add(message.metadata.message_id)
        return [(3.0, reply)]

    def pull_messages(ids: Any) -> list[Message]:
        wanted = set(ids)
        for at, _, reply in grid.pending:
            key = reply.metadata.reply_to_message_id
            if key in wanted & poison and at <= federation.clock():
                raise ValueError("unexpected end of data")
        return pull(wanted)

    node.act, grid.pull_messages = damaged, pull_messages  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        federation.coordinator().run()
    assert is_complete(tmp_path / "run")
    periods = trace.read_trace(tmp_path / "run").periods
    assert all(0 not in each.ready for each in periods)
    assert sum(len(each.arrived) for each in periods) > 20
    assert "node 101 (device 0) refused: a reply that cannot be unpacked" in caplog.text


def test_a_reply_without_content(tmp_path: Path) -> None:
    def empty(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        bare = Message(RecordDict(), reply_to=message)
        bare.__dict__["_content"] = None
        return [(1.0, bare)]

    periods = hostile_run(tmp_path / "run", empty, ban_after=None)
    assert {refusal.why for each in periods for refusal in each.refused} == {"the reply is empty"}
