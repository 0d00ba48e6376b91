from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twins.qsgd import gamma_bits, gamma_decode, gamma_encode
from twins.refused import CODE, GOES_ON, LEVELS, Refused


def elias(number: int) -> str:
    """Elias's gamma code from its definition."""
    binary = bin(number)[2:]
    return "0" * (len(binary) - 1) + binary


@given(st.lists(st.integers(1, 2**21), max_size=40))
def test_gamma_code(numbers: list[int]) -> None:
    text = "".join(map(elias, numbers))
    code, bits = gamma_encode(np.array(numbers, np.int64))
    assert f"{code:0{bits}b}" * (bits > 0) == text
    assert gamma_bits(np.array(numbers, np.int64)).tolist() == [len(elias(each)) for each in numbers]
    assert gamma_decode(code, bits, len(numbers), 2**21).tolist() == numbers


@pytest.mark.parametrize(
    ("text", "count", "reason"),
    [
        ("0011", 1, CODE),
        ("0000", 1, CODE),
        ("11", 1, GOES_ON),
        ("00111", 1, LEVELS),
        ("1", 2, CODE),
    ],
)
def test_malformed_gamma_codes(text: str, count: int, reason: int) -> None:
    with pytest.raises(Refused) as refused:
        gamma_decode(int(text, 2), len(text), count, 6)
    assert refused.value.reason == reason
