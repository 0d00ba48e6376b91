"""The bits of the native kernel, pinned: whatever makes it faster must round as before, on every instruction path.

Stored runs, golden records and resumes rest on them. The digests were made with GCC on x86-64 Linux; the inputs are plain
arithmetic, so that no generator of random numbers matters. A compiler that fuses other multiplications and additions gives
other bits, and may. If they change on purpose, say so in the changelog: every stored result of the path is then of an
older kernel.
"""

from __future__ import annotations

import hashlib
import platform
import sys

import numpy as np
import pytest

from fedtide.extension import native as extension
from fedtide.learning import native
from fedtide.learning.model import MODELS, ChannelDropout, Conv2d, Linear, MaxPool2d, Model, ReLU, num_parameters
from fedtide.learning.native import _lower

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the digests are of x86-64 Linux"
)

# Pools of 1, 2 and 3, paddings, odd widths, a convolution without ReLU, more channels than a vector has lanes.
MIXED = Model(
    (2, 19, 17),
    (
        *(Conv2d(7, 3, 1), MaxPool2d(2), ReLU()),
        *(Conv2d(18, 2), ChannelDropout(0.25)),
        *(Conv2d(5, 3, 2), ReLU(), MaxPool2d(3)),
        *(Linear(9), ReLU(), Linear(6)),
    ),
)
# What `fast` computes in another way: odd sides and channels, dropped channels, a pool of 3, no pool.
ODD = Model(
    (9, 19, 17),
    (
        *(Conv2d(21, 3, 1), ReLU(), MaxPool2d(2)),
        *(Conv2d(10, 3, 1), ChannelDropout(0.25), MaxPool2d(2), ReLU()),
        *(Conv2d(11, 3, 2), Conv2d(5, 2), ReLU(), MaxPool2d(3)),
        Linear(6),
    ),
)
CASES = {
    # name: (model, images are bytes, samples, batch, proximal, momentum, with a correction, fast)
    "paper": (MODELS["paper_cnn"]((1, 28, 28), 10), False, 71, 67, 0.02, 0.0, False, False),
    "paper, steered": (MODELS["paper_cnn"]((1, 28, 28), 10), True, 23, 10, 0.5, 0.9, True, False),
    "small": (MODELS["small_cnn"]((3, 32, 32), 10), True, 21, 19, 0.0, 0.0, False, False),
    "lenet": (MODELS["lenet"]((3, 32, 32), 10), True, 21, 19, 0.1, 0.0, False, False),
    "mixed": (MIXED, False, 15, 4, 0.1, 0.0, True, False),
    "small, fast": (MODELS["small_cnn"]((3, 32, 32), 10), True, 21, 19, 0.0, 0.0, False, True),
    "odd, fast": (ODD, False, 15, 4, 0.1, 0.9, True, True),
    "mlp": (MODELS["mlp"]((1, 28, 28), 10), False, 12, 5, 0.0, 0.5, False, False),
}
BITS = {
    "avx512": {
        "paper": "2d926c5f39da7011614255bbffb0fd0c",
        "paper, steered": "483e574c9845c6b9823ae70ad7851166",
        "small": "f4b12f2923fef90ac6fd95baf2d5f104",
        "lenet": "56a8ec86e96ecececafec65e7fa55ff3",
        "mixed": "91d1aee664a05255b05b9767d47a6f3e",
        "small, fast": "2e568e1218a3263d76930ca4a8ad7f53",
        "odd, fast": "89de8b14bbcd2153027bd319dab8286f",
        "mlp": "efa466bb0a94c2876a80131f01e78b34",
    },
    "avx2": {
        "paper": "196d313af77d76c9fb6c6d4707735212",
        "paper, steered": "5ad210704d0fe7f30930ed6e18cf2a53",
        "small": "a709e0e66fed3ebf43cd193975167de5",
        "lenet": "efb61951c42799dbb401fe0c55061e5a",
        "mixed": "9c8b8138c1d16183b2ebc77ab6b77753",
        "small, fast": "9dbb9488c226dacb5ac15956bc6cd097",
        "odd, fast": "65c3c7790da4b5fc41e5e54dd557eb1a",
        "mlp": "48eda88e06c495fe36d6b5cdcaef4e73",
    },
    "baseline": {
        "paper": "ed0014e7286579a6eec04e2e0cdf7f3c",
        "paper, steered": "57ebab92a63db873d0658690f75226be",
        "small": "c6908b8b44b79a2be756e9d874b46546",
        "lenet": "a945ae768b26f9ea3759ba2b36f2bb03",
        "mixed": "481de0abaa171ba9b384afea3828acb3",
        "small, fast": "afc470aceb8a475a30e25cfb0eb48286",
        "odd, fast": "0cbafed44ad0d546d3540c5494907a2f",
        "mlp": "fb6bbf62b0dd6c507bb5909538928291",
    },
}


def scattered(count: int, salt: int) -> np.ndarray:
    """Return numbers in [-0.5, 0.5) without a pattern, as float32 exactly."""
    words = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(salt * 40503)) % np.uint64(
        2**32
    )
    words = (words ^ (words >> np.uint64(15))) * np.uint64(2246822519) % np.uint64(2**32)
    return ((words >> np.uint64(8)).astype(np.float64) / 2**24 - 0.5).astype(np.float32)


def digest(kernel, isa: str, name: str) -> str:
    """Return a digest of the updates of two jobs and of the scores of the first one's model, on one thread."""
    model, as_bytes, count, batch, proximal, momentum, corrected, fast = CASES[name]
    d, layers = num_parameters(model), _lower(model)
    shape = (count, *model.input_shape)
    images = 4 * scattered(int(np.prod(shape)), 1).reshape(shape)
    images[np.abs(images) < 0.8] = -0.5
    values = None
    if as_bytes:
        images = ((images + 2) * 63).astype(np.uint8)
        values = (np.arange(model.input_shape[0] * 256, dtype=np.float32) / 128 - 1).reshape(-1, 256)
    labels = (np.arange(count) * 7 % 6).astype(np.uint8)
    start = (scattered(2 * d, 2) / 4).reshape(2, d)
    bounds = np.array([*range(0, count, batch), count], np.int64)
    order = (np.arange(count) * 11 + 3) % count if count % 11 else np.arange(count)
    updates = kernel.train(
        layers=layers,
        images=images,
        labels=labels,
        values=values,
        start=start,
        learning_rate=np.array([0.05, 0.01]),
        keys=np.array([3, 2**63 + 5], np.uint64),
        visited=np.concatenate([order, order[::-1]]).astype(np.int64),
        visited_start=np.array([0, count, 2 * count], np.int64),
        bounds=np.concatenate([bounds, bounds]),
        bounds_start=np.array([0, len(bounds), 2 * len(bounds)], np.int64),
        proximal=proximal,
        momentum=momentum,
        correction=scattered(2 * d, 3).reshape(2, d) / 64 if corrected else None,
        threads=1,
        isa=isa,
        fast=fast,
    )
    assert np.isfinite(updates).all()
    assert np.abs(updates).max() > 1e-3
    correct, loss = kernel.evaluate(layers, images, labels, values, start[0] + updates[0], 1, isa, fast)
    return hashlib.sha256(updates.tobytes() + f"{correct} {loss.hex()}".encode()).hexdigest()[:32]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("isa", native.isas())
def test_bits_are_those_of_the_first_version(isa, name):
    assert digest(extension, isa, name) == BITS[isa][name]
