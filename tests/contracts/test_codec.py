"""What every codec promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from helpers import EXAMPLES
from promises import without_memory
from with_memory import REMEMBERING

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in builtin_parts("codec")),
    ("with memory", {}),
    ("sparse_quantized", {"num_levels": 1}),
    ("sparse_quantized", {"num_levels": 255}),
    ("sparse_quantized", {"num_levels": 4, "element_bits": 3}),
    ("qsgd", {"num_levels": 1}),
    ("sign", {"scaled": False}),
    ("error_feedback", {"inner": "sign"}),
    ("error_feedback", {"inner": "qsgd", "inner_args": {"num_levels": 16}}),
    ("ef21", {"inner": "dead_zone"}),
    ("private", {"inner": "qsgd", "clip": 0.1, "noise": 0.01}),
    (f"{EXAMPLES}/my_codec.py:RandomSigns", {}),
]
WITHOUT_BUDGET = {"ideal", "private"}  # declared: a yardstick, not a radio; and what is around it
NOISY = {"private"}

codecs = pytest.mark.parametrize(("name", "args"), CASES)


def make(name: str, args: dict[str, Any]) -> Any:
    return REMEMBERING["codec"]() if name == "with memory" else registry.resolve("codec", name, args)


def encode(codec: Any, update: Any, budget: float, rng: Any) -> Any:
    """Encode as a device does that remembers nothing yet."""
    return without_memory(codec, len(update), method="encode")(update, budget, rng)


@codecs
def test_contract(name: str, args: dict[str, Any]) -> None:
    codec = make(name, args)

    @settings(max_examples=40)
    @given(st.integers(1, 200), st.floats(0, 3000), st.integers(0, 2**32), st.sampled_from([1e-30, 1e-3, 1.0, 1e6]))
    def check(d: int, budget: float, seed: int, scale: float) -> None:
        update = (scale * np.random.default_rng(seed).standard_normal(d)).astype(np.float32)
        before = update.copy()
        update.flags.writeable = False
        packet = encode(codec, update, budget, np.random.default_rng(seed))
        assert np.array_equal(update, before)
        assert packet.num_parameters == d
        assert packet.num_kept == codec.num_kept(d, budget)
        assert 0 <= packet.num_kept <= d
        if name not in WITHOUT_BUDGET:
            assert packet.bits <= budget
        received = codec.decode(packet)
        assert received.shape == (d,)
        assert received.dtype == np.float32
        assert np.isfinite(received).all()
        assert np.count_nonzero(received) <= packet.num_kept
        again = encode(codec, update, budget, np.random.default_rng(seed))
        assert (again.bits, again.num_kept) == (packet.bits, packet.num_kept)
        assert np.array_equal(codec.decode(again), received)

    check()


@codecs
@pytest.mark.parametrize("budget", [0.0, 33.0, 100.0, 1e6])
def test_zero_stays_zero(name: str, args: dict[str, Any], budget: float) -> None:
    if name in NOISY:
        pytest.skip("noise is added to whatever there is")
    codec = make(name, args)
    received = codec.decode(encode(codec, np.zeros(40, np.float32), budget, np.random.default_rng(0)))
    assert not received.any()


@codecs
def test_more_bits_carry_at_least_as_much(name: str, args: dict[str, Any]) -> None:
    kept = [make(name, args).num_kept(300, budget) for budget in np.linspace(0, 33 * 300, 400)]
    assert np.all(np.diff(kept) >= 0)
    assert kept[-1] == 300


@codecs
def test_what_arrives_points_where_the_update_points(name: str, args: dict[str, Any]) -> None:
    codec, rng = make(name, args), np.random.default_rng(0)
    update = rng.standard_normal(100).astype(np.float32)
    mean = np.mean([codec.decode(encode(codec, update, 400.0, rng)) for _ in range(300)], axis=0)
    assert mean @ update / np.linalg.norm(mean) / np.linalg.norm(update) > 0.75
