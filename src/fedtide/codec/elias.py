"""Elias's gamma code (Elias 1975): a whole number l >= 1 as floor(log2 l) zeros and then l in binary."""

from __future__ import annotations

import numpy as np

from fedtide.codec.wire import PacketError
from fedtide.types import Ints


def gamma_bits(numbers: Ints) -> Ints:
    """Return the length of each number's code [n]: 2 floor(log2 l) + 1."""
    return np.asarray(2 * np.frexp(numbers)[1] - 1, np.int64)


def gamma_encode(numbers: Ints) -> tuple[int, int]:
    """Return the codes of numbers [n] one after the other, as one number, and how many bits it has."""
    widths = gamma_bits(numbers)
    ends, total = np.cumsum(widths), int(widths.sum())
    bits = np.zeros(total, np.uint8)
    for place in range(int(numbers.max()).bit_length() if len(numbers) else 0):  # the zeros before l are there already
        is_set = numbers >> place & 1 == 1
        bits[ends[is_set] - 1 - place] = 1
    return int.from_bytes(np.packbits(bits).tobytes(), "big") >> -total % 8, total


def gamma_decode(number: int, num_bits: int, count: int, most: int) -> Ints:
    """Return the `count` numbers of a code of num_bits; raise PacketError if it holds others, or one beyond `most`."""
    text = f"{number:0{num_bits}b}" if num_bits else ""
    longest, at, found = most.bit_length(), 0, []
    for _ in range(count):
        first = text.find("1", at, at + longest)
        end = 2 * first - at + 1
        if first < 0 or end > num_bits:
            raise PacketError(f"a packet's code does not hold {count} numbers of up to {longest} bits")
        found.append(int(text[first:end], 2))
        at = end
    if at != num_bits:
        raise PacketError("a packet's code goes on after the last element")
    if found and max(found) > most:
        raise PacketError(f"a packet has a level beyond {most}")
    return np.array(found, np.int64)
