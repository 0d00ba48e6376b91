"""The native training kernel (native/module.cpp). Arrays are C-contiguous and of exactly these types: nothing is converted."""

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
