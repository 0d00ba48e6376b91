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

def lead(key: Words, index: Words, place: int) -> Words:
    """Lead keys on by an index that stands at this place of an address; columns are equally long or of one number."""

def units(key: Words, device: Words, draw: Words, both: bool) -> tuple[Floats, Floats | None]:
    """Return two numbers in [0, 1) at each address (native/columns.cpp), or one and None."""

def draw_labels(key: int, device: Words, size: Ints, mass: float, ends: Floats) -> Ints:
    """Draw so many labels of each device from an urn, and return how often each was drawn [m c]."""
