"""Nodes that lie or send rubbish: refused with a line that names them, and the round goes on."""

from __future__ import annotations

import itertools
import logging
import math
import random
import statistics
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from memory_grid import Federation, Node, terms

from fedtide.codec.base import HEADER_BYTES
from fedtide.deploy import trace
from fedtide.deploy.protocol import Refused, TrainOrder, UploadOrder, capped_counts, read_ready, read_upload
from fedtide.deploy.replay import replay
from fedtide.deploy.settings import Deployment
from fedtide.engine.system import build
from fedtide.rng import stream
from fedtide.runs import is_complete, read_rounds

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
    return read_upload(content, GRANT, SYSTEM.codec, SIZE, Deployment().max_update_norm)[1]


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


def test_a_ban_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    """The node stays away from its seat, and the run replays to the bit."""

    def liar(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            return [(3.0, reply)]
        record = {**dict(reply.content["upload"]), "packet": b"rubbish"}
        return [(0.5, Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=message))]

    def stop(record: Any) -> None:
        if record.index == 10:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    federation = Federation(terms(LONG, ban_after=2), folder, on_round=stop)
    federation.node(0).act = liar
    with pytest.raises(KeyboardInterrupt):
        federation.coordinator().run()
    assert [node for period in trace.read_trace(folder).periods for node in period.banned or []] == [101]
    federation.on_round = None
    federation.node(0).seen.clear()
    federation.coordinator().run()
    assert not federation.node(0).seen
    periods = trace.read_trace(folder).periods
    assert all("0" not in period.nodes for period in periods[10:])
    assert sum(len(period.refused) for period in periods) == 2
    assert replay(folder).first_difference is None


# ---- how much data a node says that it has


def claiming(counts: Callable[[int], list[int]]) -> Any:
    """Return a node that reports other label counts, each time it is asked: the so-manieth time gives them."""
    asked = itertools.count(1)

    def act(node: Node, message: Message, reply: Message) -> list[tuple[float, Message]]:
        if message.metadata.message_type == "train":
            told = counts(next(asked))
            record = {**dict(reply.content["ready"]), "label_counts": told, "num_samples": sum(told)}
            return [(3.0, Message(RecordDict({"ready": ConfigRecord(record)}), reply_to=message))]
        return [(0.5, reply)]

    return act


@pytest.mark.parametrize(("ratio", "most"), [(3.0, 120), (1.5, 60), (None, 900_000)])
def test_a_node_that_claims_a_huge_data_set(tmp_path: Path, ratio: float | None, most: int) -> None:
    """Each of the six has 40 samples. At most three of five weights are the liar's, where it said 20,000 times as much."""
    periods = hostile_run(tmp_path / "run", claiming(lambda _: [90_000] * 10), max_samples_ratio=ratio)
    rows = [
        (samples, counts)
        for period in periods[3:]
        for device, samples, counts in zip(period.ready, period.num_samples, period.label_counts, strict=True)
        if device == 0
    ]
    assert len(rows) > 5
    assert all(samples == sum(counts) == most for samples, counts in rows)
    rounds = read_rounds(tmp_path / "run")
    shares = [
        dict(zip(each.picked, each.weight, strict=True)).get(0, 0.0) for each in rounds[3:] if len(each.picked) == 3
    ]
    assert max(shares) > 0
    assert (max(shares) <= (ratio or 0) / ((ratio or 0) + 2) + 1e-9) == (ratio is not None)


def test_the_first_counts_are_binding_also_after_a_restart(tmp_path: Path) -> None:
    def stop(record: Any) -> None:
        if record.index == 8:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    federation = Federation(terms(LONG), folder, on_round=stop)
    federation.node(0).act = claiming(
        lambda time: [4] * 10 if time == 1 else [40 if label == time % 10 else 0 for label in range(10)]
    )
    with pytest.raises(KeyboardInterrupt):
        federation.coordinator().run()
    federation.on_round = None
    federation.coordinator().run()
    periods = trace.read_trace(folder).periods
    told = [
        row for period in periods for device, row in zip(period.ready, period.label_counts, strict=True) if device == 0
    ]
    assert len(told) > 10
    assert all(row == [4] * 10 for row in told)
    assert sum("0" in (period.enrolled or {}) for period in periods) == 1
    assert replay(folder).first_difference is None


@given(
    st.lists(st.lists(st.integers(0, 2**53), min_size=3, max_size=3).filter(any), min_size=1, max_size=6),
    st.floats(0.01, 100),
)
def test_capped_counts_keep_order_and_honest_rows(rows: list[list[int]], ratio: float) -> None:
    of_all = [sum(row) for row in rows]
    most = max(math.floor(ratio * statistics.median(of_all)), 1)
    for before, after in zip(rows, capped_counts(rows, of_all, ratio), strict=True):
        assert sum(after) == min(sum(before), most)
        assert after == before if sum(before) <= most else all(0 <= a <= b for a, b in zip(after, before, strict=True))
    assert capped_counts(rows, of_all, None) == rows


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
