"""What the extension offers to codecs, in Python: the same functions with the same arguments, and the same answers.

Generators stand in the place of their capsules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from fedtide.codec import base
from fedtide.codec import baselines as qsgd_codec
from fedtide.codec import dead_zone as dead_zone_codec
from fedtide.codec import sparse_quantized as sparse_codec
from fedtide.types import Rng, Vector
from twins import dead_zone, qsgd, sparse_quantized, subsets
from twins.refused import Refused

index_bits = subsets.index_bits


def rank(chosen: np.ndarray) -> bytes:
    number = subsets.rank(np.flatnonzero(chosen), len(chosen))
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def unrank(number: bytes, num_kept: int, num_positions: int) -> np.ndarray | None:
    kept = subsets.unrank(int.from_bytes(number, "little"), num_kept, num_positions)
    if kept is None:
        return None
    chosen = np.zeros(num_positions, np.uint8)
    chosen[kept] = 1
    return chosen


def sparse_encode(
    updates: Sequence[Vector],
    num_kept: Sequence[int],
    num_levels: int,
    element_bits: int,
    draws: Sequence[Rng],
    threads: int,
) -> list[bytes]:
    rows = zip(updates, num_kept, draws, strict=True)
    return [sparse_quantized.encode(update, r, num_levels, element_bits, rng) for update, r, rng in rows]


def sparse_decode(
    payloads: Sequence[bytes],
    num_kept: Sequence[int],
    num_parameters: int,
    num_levels: int,
    element_bits: int,
    threads: int,
) -> tuple[Vector, list[int]]:
    given = [
        (payload, r, num_parameters, num_levels, element_bits) for payload, r in zip(payloads, num_kept, strict=True)
    ]
    return _each(sparse_quantized.decode, given, num_parameters)


dead_zone_least_bits = dead_zone.least_bits


def dead_zone_encode(
    updates: Sequence[Vector], whole_bits: Sequence[int], draws: Sequence[Rng], threads: int
) -> list[tuple[bytes, int]]:
    return [dead_zone.encode(*given) for given in zip(updates, whole_bits, draws, strict=True)]


def dead_zone_decode(
    payloads: Sequence[bytes], payload_bits: Sequence[int], num_parameters: int, threads: int
) -> tuple[Vector, list[int]]:
    given = [(payload, bits, num_parameters) for payload, bits in zip(payloads, payload_bits, strict=True)]
    return _each(dead_zone.decode, given, num_parameters)


def qsgd_encode(
    updates: Sequence[Vector], budgets: Sequence[float], num_levels: int, draws: Sequence[Rng], threads: int
) -> list[tuple[bytes, int]]:
    rows = zip(updates, budgets, draws, strict=True)
    return [qsgd.encode(update, budget, num_levels, rng) for update, budget, rng in rows]


def qsgd_decode(
    payloads: Sequence[bytes],
    payload_bits: Sequence[int],
    num_nonzero: Sequence[int],
    num_parameters: int,
    threads: int,
) -> tuple[Vector, list[int]]:
    given = [(*row, num_parameters) for row in zip(payloads, payload_bits, num_nonzero, strict=True)]
    return _each(qsgd.decode, given, num_parameters)


def _each(
    decode: Callable[..., Vector], given: Sequence[tuple[Any, ...]], num_parameters: int
) -> tuple[Vector, list[int]]:
    rows, refused = np.zeros((len(given), num_parameters), np.float32), [0] * len(given)
    for at, arguments in enumerate(given):
        try:
            rows[at] = decode(*arguments)
        except Refused as refusal:
            refused[at] = refusal.reason
    return rows, refused


@contextmanager
def in_python() -> Iterator[None]:
    """Let the codecs use the twins in the place of the extension."""
    twin = __import__("sys").modules[__name__]
    cached = (base.index_bits, dead_zone_codec._least_bits)
    for function in cached:
        function.cache_clear()
    modules = (base, dead_zone_codec, qsgd_codec, sparse_codec)
    inputs = patch.object(base, "_native_inputs", lambda updates, rngs: (updates, rngs))
    patches = [*(patch.object(module, "native", twin) for module in modules), inputs]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
        for function in cached:
            function.cache_clear()
