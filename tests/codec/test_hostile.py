from __future__ import annotations

import importlib.util
import tracemalloc
from pathlib import Path

import numpy as np

spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
assert spec is not None
assert spec.loader is not None
hostile = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hostile)


def test_broken_packets_are_updates_or_packet_errors() -> None:
    """The first of the million inputs of `python tests/codec/hostile.py 1000000`."""
    hostile.attack(300, seed=1)  # whatever is cached
    tracemalloc.start()
    found = hostile.attack(3000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["refused"] > 1500
    assert found["passed"] > 100
    assert peak < 4_000_000


def test_every_payload_of_the_paper_size_takes_bounded_time() -> None:
    """Random payloads under a right header: the worst index sets and codes that anyone can send."""
    rng = np.random.default_rng(0)
    for codec in (hostile.SparseQuantized(), hostile.DeadZone(), hostile.TopK(), hostile.Qsgd(), hostile.Sign()):
        packet = codec.encode(rng.standard_normal(21840).astype(np.float32), 19_000.0, rng)
        for fill in (b"\0", b"\xff", None):
            size = len(packet.data) - 28
            payload = rng.bytes(size) if fill is None else fill * size
            payload = payload[:-1] + bytes([payload[-1] & 0xF0])
            header = packet.data[:24]
            data = header + hostile.zlib.crc32(payload, hostile.zlib.crc32(header)).to_bytes(4, "little") + payload
            try:
                update = codec.decode(packet._replace(data=data))
            except hostile.PacketError:
                continue
            assert np.isfinite(update).all()
