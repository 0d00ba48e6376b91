"""A small image set that needs no download: learnable, not trivial, and quick to make.

Every label has a shape of its own, three soft strokes. An image is that shape shifted, dimmed and partly covered, with
a stroke that belongs to no label and grain on the ink. The background is constant, as MNIST's is, so that ties in
max-pooling happen here too.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from fedtide.core.memory_budget import require_memory
from fedtide.data.dataset import check_data_range
from fedtide.parts.arguments import arg
from fedtide.rng import stream
from fedtide.types import Dataset, Floats, Rng, Samples

_STROKES: Final = 3  # per shape
_POINTS: Final = 12  # dots that make up a stroke
_DISTRACTORS: Final = 40  # strokes that say nothing
_GRAIN: Final = 0.25  # standard deviation of the ink
_MEAN, _STD = 0.1307, 0.3081  # as for MNIST: a constant background of -0.424


def synthetic(
    seed: int, num_train: int, num_test: int, num_labels: int = 10, side: int = 28, channels: int = 1
) -> Dataset:
    """Return num_train + num_test images float32 [n channels side side], labels as even as can be in random order.

    The training images do not depend on num_test, nor the test images on num_train.
    """
    check_data_range("num_labels", num_labels, 1, 256)
    for name, value, least in (
        ("num_train", num_train, 1),
        ("num_test", num_test, 1),
        ("side", side, 8),
        ("channels", channels, 1),
    ):
        check_data_range(name, value, least)
    require_memory(
        32.0 * (num_train + num_test) * channels * side**2,  # eight copies on the way to the last one
        f"drawing {num_train:,} training and {num_test:,} test images",
        "lower data.num_train or data.num_test",
    )
    rng = stream(seed, "synthetic", 0)
    shapes = _strokes(rng, num_labels, _STROKES, side)
    tints = rng.uniform(0.4, 1.0, (num_labels, channels))
    distractors = _strokes(rng, _DISTRACTORS, 1, side)
    train, test = (
        _draw(stream(seed, "synthetic", part), num, shapes, tints, distractors)
        for part, num in ((1, num_train), (2, num_test))
    )
    return Dataset("synthetic", train, test, num_labels, f"synthetic, seed {seed}")


def synthetic_shapes(
    seed: Annotated[int, arg("seed of the images", key="seed")] = 0,
    num_train: Annotated[int | None, arg("training images (2000)", key="data.num_train")] = 2000,
    num_test: Annotated[int | None, arg("test images (500)", key="data.num_test")] = 500,
) -> Dataset:
    """Images of ten made-up shapes, drawn from the seed: learnable, not trivial and fast to make."""
    return synthetic(seed, 2000 if num_train is None else num_train, 500 if num_test is None else num_test)


def _strokes(rng: Rng, num: int, strokes: int, side: int) -> Floats:
    """Return num drawings of soft strokes [num side side], 0 (most of it, exactly) to 1."""
    ends = rng.uniform(0.2, 0.8, (num, strokes, 3, 2)) * side  # start, bend, end of a quadratic curve
    t = np.linspace(0, 1, _POINTS)
    blend = np.stack([(1 - t) ** 2, 2 * t * (1 - t), t**2])  # [3 points]
    dots = np.einsum("nsec,ep->nspc", ends, blend).reshape(num, strokes * _POINTS, 2)
    pixel = np.arange(side) + 0.5
    width = side / 28 * 1.3
    near = np.exp(-((pixel - dots[..., None]) ** 2) / (2 * width**2))  # [num dots 2 side]
    ink = np.einsum("npy,npx->npyx", near[:, :, 0], near[:, :, 1]).max(axis=1)
    return np.where(ink > 0.3, ink, 0.0)


def _draw(rng: Rng, num: int, shapes: Floats, tints: Floats, distractors: Floats) -> Samples:
    """Return num images [num channels side side] of the shapes [c side side] in their tints [c channels]."""
    side, reach = shapes.shape[-1], max(1, shapes.shape[-1] // 12)
    labels = rng.permutation(np.arange(num) % len(shapes))
    ink = _shifted(shapes, labels, rng.integers(-reach, reach + 1, (num, 2)))
    ink *= rng.uniform(0.6, 1.0, num).astype(np.float32)[:, None, None]
    ink *= ~_patch(rng, num, side)
    stray = _shifted(distractors, rng.integers(len(distractors), size=num), rng.integers(-reach, reach + 1, (num, 2)))
    ink = np.maximum(ink, stray * np.float32(0.5))
    ink *= 1 + np.float32(_GRAIN) * rng.standard_normal(ink.shape, np.float32)
    tinted = ink[:, None] * tints[labels].astype(np.float32)[:, :, None, None]
    pixels = np.rint(np.clip(tinted, 0, 1) * 255) / 255
    return Samples(((pixels - _MEAN) / _STD).astype(np.float32), labels.astype(np.uint8))


def _shifted(drawings: Floats, which: npt.NDArray[np.int64], shift: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Return drawings[which] [num side side], moved by shift [num 2] pixels, zeros coming in."""
    side, reach = drawings.shape[-1], int(np.abs(shift).max())
    padded = np.pad(drawings.astype(np.float32), ((0, 0), (reach, reach), (reach, reach)))
    rows = np.arange(side) + reach - shift[:, :1]
    columns = np.arange(side) + reach - shift[:, 1:]
    moved: npt.NDArray[np.float32] = padded[which[:, None, None], rows[:, :, None], columns[:, None, :]]
    return moved


def _patch(rng: Rng, num: int, side: int) -> npt.NDArray[np.bool_]:
    """Return where each image is covered: a square of a quarter of the side, anywhere [num side side]."""
    corner = rng.integers(0, side - side // 4 + 1, (num, 2, 1))
    within = (np.arange(side) >= corner) & (np.arange(side) < corner + side // 4)
    covered: npt.NDArray[np.bool_] = within[:, 0, :, None] & within[:, 1, None, :]
    return covered
