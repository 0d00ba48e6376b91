"""The codecs of the extension against their twins in Python: the same bytes, the same updates, the same refusals."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.codec.base import Codec, Packet, PacketError, index_bits, rank_positions, unrank_positions
from fedtide.codec.baselines import Qsgd, TopK
from fedtide.codec.dead_zone import DeadZone
from fedtide.codec.sparse_quantized import SparseQuantized
from fedtide.extension import native
from odd_updates import KINDS, update_of
from twins import subsets
from twins.extension import in_python

spec = importlib.util.spec_from_file_location("hostile", Path(__file__).parents[1] / "codec" / "hostile.py")
assert spec is not None
assert spec.loader is not None
hostile = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hostile)

RNG = np.random.default_rng
SPARSE = [SparseQuantized(), SparseQuantized(4, 3), SparseQuantized(1), SparseQuantized(7, 20), SparseQuantized(32767)]
LENGTHS = st.one_of(st.integers(1, 20), st.integers(1, 400), st.integers(1, 30_000))


def check(codec: Codec, update: np.ndarray, budget: float, seed: int) -> Packet:
    """Encode and decode in both; return the packet."""
    rng, twin = RNG(seed), RNG(seed)
    packet = codec.encode(update, budget, rng)
    decoded = codec.decode(packet)
    with in_python():
        assert codec.encode(update, budget, twin) == packet
        assert codec.decode(packet).tobytes() == decoded.tobytes()
    assert rng.bit_generator.state == twin.bit_generator.state
    return packet


@settings(max_examples=150)
@given(st.sampled_from(SPARSE), LENGTHS, st.floats(0, 36), st.sampled_from(KINDS), st.integers(0, 99))
def test_the_papers_codec(codec: SparseQuantized, d: int, rate: float, kind: str, seed: int) -> None:
    packet = check(codec, update_of(kind, d, RNG(seed)), rate * d + seed, seed)
    assert packet.bits <= rate * d + seed


@pytest.mark.parametrize("codec", SPARSE)
@pytest.mark.parametrize("d", [1, 2, 3, 64, 65, 128, 21_840])
def test_the_papers_codec_at_the_ends(codec: SparseQuantized, d: int) -> None:
    kept = set()
    for budget in (0, 31.9, 33, 36, 40, 60.5, 32 * d, 80 * d):
        for update in (update_of("normal", d, RNG(d)), np.zeros(d, np.float32), np.full(d, -0.0, np.float32)):
            kept.add(check(codec, update, budget, 5).num_kept)
    assert {0, d} <= kept


@settings(max_examples=150)
@given(LENGTHS, st.floats(0, 36), st.sampled_from(KINDS), st.integers(0, 99))
def test_dead_zone(d: int, rate: float, kind: str, seed: int) -> None:
    check(DeadZone(), update_of(kind, d, RNG(seed)), rate * d + seed, seed)


@settings(max_examples=120)
@given(
    st.sampled_from([TopK(), TopK(32), Qsgd(), Qsgd(3), Qsgd(1)]),
    st.one_of(st.integers(1, 20), st.integers(1, 3000)),
    st.floats(0, 36),
    st.integers(0, 99),
)
def test_top_k_and_qsgd(codec: Codec, d: int, rate: float, seed: int) -> None:
    check(codec, update_of(KINDS[seed % len(KINDS)], d, RNG(seed)), rate * d + seed, seed)


def found_set(number: int, r: int, d: int) -> list[int] | None:
    try:
        return unrank_positions(number, r, d).tolist()
    except PacketError:
        return None


@settings(max_examples=150)
@given(st.one_of(st.integers(1, 700), st.integers(1, 70_000)), st.data())
def test_index_sets_and_forged_numbers(d: int, data: st.DataObject) -> None:
    r = data.draw(st.one_of(st.integers(0, d), st.integers(0, min(d, 40))))
    kept = np.sort(RNG(d).permutation(d)[:r])
    bits = index_bits(d, r)
    assert subsets.index_bits(d, r) == bits
    number = rank_positions(kept, d)
    assert subsets.rank(kept, d) == number
    assert found_set(number, r, d) == kept.tolist()
    for forged in (
        data.draw(st.integers(0, (1 << bits) - 1)),
        (1 << bits) - 1 - data.draw(st.integers(0, 1 << bits // 2)),
    ):
        expected = subsets.unrank(max(forged, 0), r, d)
        assert found_set(max(forged, 0), r, d) == (None if expected is None else expected.tolist())


def refusal(codec: Codec, packet: Packet) -> bytes | str:
    try:
        return codec.decode(packet).tobytes()
    except PacketError as error:
        return str(error)


def test_broken_packets_are_refused_in_the_same_words() -> None:
    rng, refused = RNG(11), set()
    packets = hostile.honest(rng)
    for _ in range(6000):
        codec, packet = packets[rng.integers(len(packets))]
        forged = packet._replace(data=hostile.broken(packet.data, rng))
        found = refusal(codec, forged)
        with in_python():
            assert refusal(codec, forged) == found
        refused.add(found if isinstance(found, str) else "")
    for words in (
        "norm is not",
        "index set is not",
        "levels beyond",
        "wrong length",
        "goes on after",
        "magnitude of",
        "does not hold",
    ):
        assert any(words in each for each in refused), words


@pytest.mark.parametrize("codec", [SparseQuantized(), DeadZone(), Qsgd()])
def test_threads_and_company_change_nothing(codec: SparseQuantized | DeadZone | Qsgd) -> None:
    updates = [update_of("heavy", 3000, RNG(k)) for k in range(9)]
    budgets = [0, 100, 500, 1000, 5000, 9000, 12_000.5, 96_000, 40]
    alone = [codec.encode(each, b, RNG(k)) for k, (each, b) in enumerate(zip(updates, budgets, strict=True))]
    for threads in (1, 2, 5, 64):
        assert codec.encode_many(updates, budgets, [RNG(k) for k in range(9)], threads) == alone
        for row, packet in zip(codec.decode_many(alone, threads), alone, strict=True):
            assert row.tobytes() == codec.decode(packet).tobytes()
    assert codec.encode_many([], [], []) == codec.decode_many([]) == []


def test_updates_that_share_a_generator_draw_from_it_in_turn() -> None:
    updates, codec, shared, twin = (
        [update_of("normal", 3000, RNG(k)) for k in range(6)],
        SparseQuantized(),
        RNG(1),
        RNG(1),
    )
    found = codec.encode_many(updates, [4000] * 6, [shared] * 6, 6)
    assert found == [codec.encode(each, 4000, twin) for each in updates]


def test_one_broken_packet_among_others_is_told() -> None:
    codec = SparseQuantized()
    good = codec.encode(update_of("normal", 130, RNG(0)), 300, RNG(0))
    with pytest.raises(PacketError, match="checksum"):
        codec.decode_many([good, good._replace(data=good.data[:-1] + b"\0"), good], 2)


@pytest.mark.parametrize("d", [1, 2, 7, 8, 127, 128, 129, 1000, 4097])
def test_draws_and_sums_are_numpys(d: int) -> None:
    """A permutation, then doubles; a sum of squares in NumPy's order. A generator that was used before goes on where it was."""
    for seed in range(20):
        rng, twin = RNG(seed), RNG(seed)
        rng.integers(9, size=seed, dtype=np.uint32), twin.integers(9, size=seed, dtype=np.uint32)  # half a word is left
        update = (RNG(seed).standard_cauchy(d) * 1e3).astype(np.float32)
        packet = SparseQuantized(5).encode(update, 36 + 2.5 * d, rng)
        with in_python():
            assert SparseQuantized(5).encode(update, 36 + 2.5 * d, twin) == packet


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("index_bits", (5, 6)),
        ("index_bits", (-1, 0)),
        ("unrank", (b"\1", 3, 2)),
        ("sparse_encode", ([np.zeros(3, np.float32)], [4], 4, 4, [RNG(0).bit_generator.capsule], 1)),
        ("sparse_encode", ([np.zeros(3, np.float32)], [2], 4, 65, [RNG(0).bit_generator.capsule], 1)),
        ("sparse_encode", ([np.zeros(3, np.float32)] * 2, [2], 4, 4, [RNG(0).bit_generator.capsule], 1)),
        ("sparse_decode", ([b""], [0], 3, 4, 4, 1)),
        ("sparse_decode", ([b""], [1], 0, 4, 4, 1)),
        ("dead_zone_decode", ([b"12345"], [40], 3, 1)),
        ("dead_zone_encode", ([], [], [], 1)),
        ("qsgd_encode", ([np.zeros(3, np.float32)], [32.0], 4, [RNG(0).bit_generator.capsule], 1)),
        ("qsgd_encode", ([np.zeros(3, np.float32)], [99.0], 1 << 21, [RNG(0).bit_generator.capsule], 1)),
        ("qsgd_decode", ([b"12345"], [40], [4], 3, 1)),
        ("dead_zone_least_bits", (0,)),
    ],
)
def test_the_extension_refuses_what_makes_no_sense(call: str, given: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"must|have|has|are"):
        getattr(native, call)(*given)


def test_a_payload_that_is_too_short_reads_as_zeros() -> None:
    rows, refused = native.sparse_decode([b""], [2], 70, 4, 4, 1)
    assert not rows.any()
    assert refused == [0]
