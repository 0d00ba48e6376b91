from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.codec.base import (
    HEADER_BYTES,
    Codec,
    Packet,
    PacketError,
    index_bits,
    join_bits,
    received_packet,
    split_bits,
)
from fedtide.codec.baselines import Qsgd, Sign, TopK
from fedtide.codec.dead_zone import DeadZone
from fedtide.codec.sparse_quantized import Ideal, SparseQuantized, _bit_count, _level_bits
from fedtide.errors import FedtideError

RNG = np.random.default_rng
CODECS: list[Codec] = [SparseQuantized(), DeadZone(), Ideal(), TopK(), TopK(32), Qsgd(), Sign()]
codecs = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: type(codec).__name__)


def packet_of(codec: Codec, d: int = 100, budget: float = 400.0) -> Packet:
    return codec.encode(RNG(0).standard_normal(d).astype(np.float32), budget, RNG(1))


def resealed(packet: Packet, at: int, value: bytes) -> Packet:
    """Return the packet with some bytes replaced and the checksum put right."""
    raw = bytearray(packet.data)
    raw[at : at + len(value)] = value
    raw[24:28] = zlib.crc32(raw[28:], zlib.crc32(raw[:24])).to_bytes(4, "little")
    return packet._replace(data=bytes(raw))


@given(st.lists(st.integers(0, 70).flatmap(lambda w: st.tuples(st.integers(0, 2**w - 1), st.just(w))), max_size=6))
def test_join_and_split(fields: list[tuple[int, int]]) -> None:
    numbers, widths = [number for number, _ in fields], [width for _, width in fields]
    payload, bits = join_bits(numbers, widths)
    assert len(payload) == (bits + 7) // 8
    assert split_bits(payload, widths) == numbers


@codecs
def test_the_bytes_alone_are_enough(codec: Codec) -> None:
    packet = packet_of(codec)
    arrived = received_packet(packet.data, 100)
    assert arrived == packet
    np.testing.assert_array_equal(codec.decode(Packet(100, -7, -7, packet.data)), codec.decode(packet))


@codecs
def test_overhead_is_the_header_and_at_most_seven_bits(codec: Codec) -> None:
    packet = packet_of(codec)
    assert 8 * HEADER_BYTES <= packet.overhead_bits < 8 * HEADER_BYTES + 8
    assert packet.bits + packet.overhead_bits == 8 * len(packet.data)


@codecs
def test_every_flipped_bit_and_every_cut_is_noticed(codec: Codec) -> None:
    packet = packet_of(codec, 30, 200.0)
    for bit in range(8 * len(packet.data)):
        raw = bytearray(packet.data)
        raw[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PacketError):
            codec.decode(packet._replace(data=bytes(raw)))
    for size in range(len(packet.data)):
        with pytest.raises(PacketError):
            codec.decode(packet._replace(data=packet.data[:size]))
    with pytest.raises(PacketError, match="announces"):
        codec.decode(packet._replace(data=packet.data + b"\0"))


@codecs
@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (0, b"XX", "begins with"),
        (2, b"\x02", "version 2"),
        (3, b"\x63", "codec 99"),
        (4, (101).to_bytes(4, "little"), "101 parameters"),
        (4, b"\xff\xff\xff\xff", "4294967295 parameters"),
        (8, b"\xff\xff\xff\xff", "elements"),
        (8, (101).to_bytes(4, "little"), "elements"),
        (12, b"\xff\xff\xff\xff", "announces"),
    ],
)
def test_forged_headers_are_refused(codec: Codec, at: int, value: bytes, says: str) -> None:
    with pytest.raises(PacketError, match=says):
        codec.decode(resealed(packet_of(codec), at, value))


@codecs
def test_a_packet_for_another_model_is_refused(codec: Codec) -> None:
    with pytest.raises(PacketError, match="a model of 99"):
        codec.decode(packet_of(codec)._replace(num_parameters=99))


def test_packet_errors_are_the_users_kind_of_error() -> None:
    assert issubclass(PacketError, FedtideError)


@pytest.mark.parametrize("norm", [0x7F800000, 0x7FC00000, 0x7FFFFFFF])
def test_infinite_and_nan_norms_are_refused(norm: int) -> None:
    codec, d = SparseQuantized(), 50
    packet = packet_of(codec, d, 32.0 + 4 * d)  # r = d: no index set, the norm comes first
    levels = split_bits(packet.data[28:], [31, 4 * d])[1]
    with pytest.raises(PacketError, match="finite"):
        codec.decode(resealed(packet, 28, join_bits([norm, levels], [31, 4 * d])[0]))


def test_levels_beyond_nu_are_refused() -> None:
    codec, d = SparseQuantized(), 50
    packet = packet_of(codec, d, 32.0 + 4 * d)
    with pytest.raises(PacketError, match="levels"):
        codec.decode(resealed(packet, 28, join_bits([0x3F800000, 5, 0], [31, 4, 4 * d - 4])[0]))


def test_readers_of_other_levels_refuse() -> None:
    with pytest.raises(PacketError, match="settings"):
        SparseQuantized(5).decode(packet_of(SparseQuantized(4)))


@given(st.integers(1, 50_000), st.floats(0, 2.1), st.sampled_from([1, 2, 3, 4, 15, 255, 32767]), st.integers(0, 2**32))
def test_the_papers_codec_sends_no_more_than_the_formula_counts(d: int, share: float, nu: int, seed: int) -> None:
    """Length <= f(r) <= budget with the r of eq:bitQuota, and within two bits of f(r)."""
    codec, budget = SparseQuantized(nu), share * (d * _level_bits(nu) + 40)
    packet = codec.encode(RNG(seed).standard_normal(d).astype(np.float32), budget, RNG(seed))
    assert packet.bits <= budget
    assert packet.num_kept == codec.num_kept(d, budget)
    if packet.num_kept:
        count = float(_bit_count(d, packet.num_kept, _level_bits(nu)))
        assert count - 1 - 1e-6 <= packet.bits <= count
        assert packet.bits == index_bits(d, packet.num_kept) + 31 + packet.num_kept * _level_bits(nu)
    decoded = codec.decode(packet)
    assert np.count_nonzero(decoded) <= packet.num_kept


@pytest.mark.parametrize("r", [1, 2, 600, 5000, 18427, 21839, 21840])
def test_budgets_at_the_very_edge(r: int) -> None:
    codec, d = SparseQuantized(), 21840
    update = RNG(0).standard_normal(d).astype(np.float32)
    count = float(_bit_count(d, r, 4))
    for budget in (count, np.nextafter(count, 0), np.floor(count), np.ceil(count)):
        packet = codec.encode(update, float(budget), RNG(0))
        assert packet.bits <= budget
        assert packet.num_kept == codec.num_kept(d, float(budget))


def test_too_few_bits_per_element_saturate() -> None:
    """Three bits hold -4..3: a positive element that has the whole norm comes back as three quarters of it."""
    codec = SparseQuantized(4, element_bits=3)
    for value, expected in ((-2.0, -2.0), (2.0, 1.5)):
        packet = codec.encode(np.array([value], np.float32), 40.0, RNG(0))
        np.testing.assert_allclose(codec.decode(packet), [expected], rtol=1e-6)
