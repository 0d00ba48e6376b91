"""The kernel (native/module.cpp) and codecs. Arrays are C-contiguous and of exactly these types: nothing is converted."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.types import Floats, Ints, Vector

Layer: TypeAlias = tuple[int, int, int, int, float]  # kind, size, kernel, padding, p
Words: TypeAlias = npt.NDArray[np.uint64]
Images: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.uint8]  # [n channels height width]

def isas() -> list[str]:
    """Instruction paths that this machine and build offer, fastest first."""

def train(
    layers: Sequence[Layer],
    images: Images,
    labels: npt.NDArray[np.uint8],  # [n]
    values: npt.NDArray[np.float32] | None,  # what each byte of each channel stands for [channels 256]; None: float32
    start: Vector,  # [r d]
    learning_rate: Floats,  # [r]
    keys: npt.NDArray[np.uint64],  # of the dropout masks [r]
    visited: Ints,  # sample numbers, one job after the other [s]
    visited_start: Ints,  # where each job's begin [r+1]
    bounds: Ints,  # of the mini-batches, counted within the job, one job after the other
    bounds_start: Ints,  # where each job's begin [r+1]
    proximal: float,
    momentum: float,
    correction: Vector | None,  # added to the gradient of every step [r d]; None: nothing
    threads: int,
    isa: str,  # "": the fastest
    fast: bool = False,  # convolutions with fewer operations, which round otherwise
) -> Vector:
    """Train every job and return the updates [r d]. Raise ValueError for what the kernel refuses."""

def evaluate(
    layers: Sequence[Layer],
    images: Images,
    labels: npt.NDArray[np.uint8],
    values: npt.NDArray[np.float32] | None,
    model: Vector,  # [d]
    threads: int,
    isa: str,
    fast: bool = False,
) -> tuple[int, float]:
    """Return how many samples the model labels right and the sum of its losses in nats."""

def descend(
    centred: Ints,  # c b - sum b of each row [m c]
    size: int,
    starts: npt.NDArray[np.bool_],  # which rows are members at first, size of them [n m]
    enough: int,  # no set is below: the first start that reaches it is the last
) -> tuple[Ints, int]:
    """Swap from the greedy set and then from every start; return the first best set, ascending, and ||sum||^2 of it."""

def disturb(
    centred: Ints,  # [m c]
    size: int,
    start: npt.NDArray[np.bool_],  # one row [1 m]
    enough: int,
    seed: int,
    steps: int,  # members that are compared with up to 32 others, at most
) -> tuple[Ints, int]:
    """Swap at random and descend again, over and over; return the best set, ascending, and ||sum||^2 of it."""

def sample(
    centred: Ints,  # those that are members at first come first [m c]
    size: int,
    enough: int,
    block: int,  # others that a member is compared with at once, a multiple of 8
    visits: int,  # of members, at most
    kept: int,  # swaps that did not help, of which pairs are tried
) -> tuple[Ints, int]:
    """Swap among the first rows and the others, looking at a part of all swaps; return the set, ascending, and ||sum||^2."""

def branch(
    centred: Ints,  # [m c]
    size: int,
    reached: int,
    enough: int,  # no set is below
    steps: int,  # nodes at most
) -> tuple[Ints, int, int, int]:
    """Search a tree for sets below reached; return one or none, what it reaches, what is proved, and the steps."""

def separate(
    centred: Ints,  # [m c]
    size: int,
    rounds: int,
) -> tuple[int, int]:
    """Return the least u . sum over all sets for a whole-numbered u of the search's own choosing, and ||u||^2."""

def lead(key: Words, index: Words, place: int) -> Words:
    """Lead keys on by an index that stands at this place of an address; columns are equally long or of one number."""

def units(key: Words, device: Words, draw: Words, both: bool) -> tuple[Floats, Floats | None]:
    """Return two numbers in [0, 1) at each address (native/columns.cpp), or one and None."""

def draw_labels(key: int, device: Words, size: Ints, mass: float, ends: Floats) -> Ints:
    """Draw so many labels of each device from an urn, and return how often each was drawn [m c]."""

# The codecs (native/bind_codec.cpp); tests/twins has the same in Python. Refusals are numbered in native/codec.h; 0: none.

def index_bits(num_positions: int, num_kept: int) -> int:
    """Return the bits of one index set."""

def rank(chosen: npt.NDArray[np.uint8]) -> bytes:
    """Return the number of a set, given as 0 or 1 for every position [d], the lowest byte first."""

def unrank(number: bytes, num_kept: int, num_positions: int) -> npt.NDArray[np.uint8] | None:
    """Return which positions are in the set with this number [d], or None if no set has it."""

def sparse_encode(
    updates: Sequence[Vector],  # r of [d]
    num_kept: Sequence[int],  # [r]
    num_levels: int,
    element_bits: int,
    draws: Sequence[object],  # the capsules of bit generators, one for each update [r]
    threads: int,
) -> list[bytes]:
    """Return the payload of every update."""

def sparse_decode(
    payloads: Sequence[bytes],
    num_kept: Sequence[int],
    num_parameters: int,
    num_levels: int,
    element_bits: int,
    threads: int,
) -> tuple[Vector, list[int]]:
    """Return the updates [r d] and what is wrong with each payload [r]."""

def dead_zone_least_bits(num_parameters: int) -> float:
    """Return the length of the code of zeros."""

def dead_zone_encode(
    updates: Sequence[Vector], whole_bits: Sequence[int], draws: Sequence[object], threads: int
) -> list[tuple[bytes, int]]:
    """Return the payload of every update and its bits; no bits: nothing fits."""

def dead_zone_decode(
    payloads: Sequence[bytes], payload_bits: Sequence[int], num_parameters: int, threads: int
) -> tuple[Vector, list[int]]:
    """Return the updates [r d] and what is wrong with each payload [r]."""

def qsgd_encode(
    updates: Sequence[Vector], budgets: Sequence[float], num_levels: int, draws: Sequence[object], threads: int
) -> list[tuple[bytes, int]]:
    """Return the payload of every update and its bits."""

def qsgd_decode(
    payloads: Sequence[bytes],
    payload_bits: Sequence[int],
    num_nonzero: Sequence[int],
    num_parameters: int,
    threads: int,
) -> tuple[Vector, list[int]]:
    """Return the updates [r d] and what is wrong with each payload [r]."""
