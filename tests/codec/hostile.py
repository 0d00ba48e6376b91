"""Broken packets by the million: `python tests/codec/hostile.py 1000000 [seed]`.

A decoder returns an update or raises PacketError, whatever it is given.
"""

from __future__ import annotations

import resource
import sys
import time
import zlib

import numpy as np

from fedtide.codec.base import Codec, Packet, PacketError
from fedtide.codec.baselines import Qsgd, Sign, TopK
from fedtide.codec.dead_zone import DeadZone
from fedtide.codec.sparse_quantized import Ideal, SparseQuantized

CODECS: list[Codec] = [
    SparseQuantized(),
    SparseQuantized(4, 3),
    SparseQuantized(32767),
    DeadZone(),
    DeadZone(),
    Ideal(),
    TopK(),
    TopK(32),
    Qsgd(),
    Qsgd(1),
    Sign(),
    Sign(scaled=False),
]
SIZES = [1, 2, 3, 7, 11, 65, 130]


def honest(rng: np.random.Generator) -> list[tuple[Codec, Packet]]:
    """Return packets of every codec for small updates and all sorts of budgets."""
    made = []
    for codec in CODECS:
        for d in SIZES:
            for budget in (0, 40, 6 * d, 33 * d):
                update = (rng.standard_normal(d) * 10.0 ** rng.integers(-40, 38)).astype(np.float32)
                made.append((codec, codec.encode(np.nan_to_num(update), budget, rng)))
    return made


def broken(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the packet with a few faults; in most cases the checksum is put right again, as an attacker would."""
    raw = bytearray(data)
    inside = len(raw) > 28 and rng.random() < 0.5  # damage the payload only, so that it is read to its depths
    for _ in range(0 if inside else rng.integers(1, 4)):
        kind, at = rng.integers(0, 8), int(rng.integers(0, len(raw))) if raw else 0
        if kind == 0:
            del raw[at:]
        elif kind == 1:
            raw += rng.bytes(int(rng.integers(1, 40)))
        elif kind == 2 and len(raw) > 28:
            raw[28:] = rng.bytes(len(raw) - 28)
        elif kind == 3 and len(raw) >= 16:
            field = int(rng.choice([4, 8, 12, 16, 20]))
            value = int(rng.choice([0, 1, 64, 65, 2**31, 2**32 - 1, rng.integers(0, 2**32)]))
            raw[field : field + 4] = value.to_bytes(4, "little")
        elif kind == 4 and len(raw) >= 16:
            raw[12:16] = max(8 * (len(raw) - 28) - int(rng.integers(0, 8)), 0).to_bytes(4, "little")
        elif raw:
            raw[at % len(raw)] ^= 1 << int(rng.integers(0, 8))
    if inside and rng.random() < 0.4:
        keep = int(rng.integers(0, len(raw) - 28))
        raw[28 + keep :] = rng.bytes(len(raw) - 28 - keep)
    for _ in range(rng.integers(1, 4) if inside else 0):
        raw[int(rng.integers(28, len(raw)))] ^= 1 << int(rng.integers(0, 8))
    if inside:
        raw[-1] &= 0xFF << -int.from_bytes(raw[12:16], "little") % 8 & 0xFF
    if inside or (len(raw) >= 28 and rng.random() < 0.85):
        raw[24:28] = zlib.crc32(raw[28:], zlib.crc32(raw[:24])).to_bytes(4, "little")
    return bytes(raw)


def attack(count: int, seed: int = 0) -> dict[str, float]:
    """Decode so many broken packets; return how many passed, were refused, and the longest time of one in seconds."""
    rng = np.random.default_rng(seed)
    packets = honest(rng)
    passed = refused = 0
    longest = 0.0
    for _ in range(count):
        codec, packet = packets[rng.integers(len(packets))]
        forged = packet._replace(data=broken(packet.data, rng))
        begin = time.perf_counter()
        try:
            update = codec.decode(forged)
        except PacketError:
            refused += 1
        else:
            passed += 1
            assert update.shape == (packet.num_parameters,)
            assert update.dtype == np.float32
            assert np.isfinite(update).all()
        longest = max(longest, time.perf_counter() - begin)
    return {"passed": passed, "refused": refused, "longest": longest}


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    began = time.perf_counter()
    found = attack(total, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(found, f"{time.perf_counter() - began:.0f} s, at most {memory:.0f} MB for everything")
