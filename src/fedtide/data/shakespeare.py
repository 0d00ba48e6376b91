"""Shakespeare, one character after the other: 80 characters of a role are shown, the next one is asked for.

As in McMahan et al. 2017 and in LEAF an owner is a speaking role of a play. The first four fifths of what it says are for
training, the rest is for the test, and no window of characters lies in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.arguments import arg
from fedtide.core.ram import need
from fedtide.data.obtain import Say, to_stderr
from fedtide.data.roles import ALPHABET, roles
from fedtide.data.texts import load_plays
from fedtide.errors import FedtideError
from fedtide.types import Dataset, Ints, Samples

Codes: TypeAlias = npt.NDArray[np.uint8]

UNKNOWN: Final = len(ALPHABET)  # the code of every character that is not in the alphabet
NUM_LABELS: Final = UNKNOWN + 1
TRAINED: Final = 0.8  # share of a role's characters, from its first one on
NUM_TEST: Final = 10_000  # windows, unless another number is asked for: a recurrent model takes its time over each


def of_shakespeare(
    folder: Annotated[Path | None, arg("where the texts or their archive lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("training windows, evenly over the roles (all)", key="data.num_train")] = None,
    num_test: Annotated[int | None, arg("test windows, evenly over the roles (10000)", key="data.num_test")] = None,
    window: Annotated[int, arg("characters that are shown", ge=1, le=10_000)] = 80,
    stride: Annotated[int, arg("characters from one window of a role to its next", ge=1, le=10**8)] = 10,
    min_chars: Annotated[int, arg("characters from which a role counts", ge=1, le=10**8)] = 1000,
    say: Annotated[Say, arg("told what is fetched", key="run.say")] = to_stderr,
    images: Annotated[bool, arg("false: labels are enough", key="run.images")] = True,
) -> Dataset:
    """Next characters of Shakespeare's 37 plays: 639 speaking roles as owners, windows of 80 characters."""
    if window + 1 > int(TRAINED * min_chars):
        raise FedtideError(
            f"window={window} and min_chars={min_chars}: a role of {min_chars} characters has {int(TRAINED * min_chars)} to "
            f"train on, which no window and its next character fit into; use a smaller window or a larger min_chars"
        )
    texts, source = load_plays(folder, say)
    spoken = [encoded(line) for text in texts for line in roles(text).values() if len(line) >= min_chars]
    if not spoken:
        raise FedtideError(f"min_chars={min_chars}: no role says as much; use a smaller min_chars, such as 1000")
    parts = [_Part.of(spoken, window, stride, trained) for trained in (True, False)]
    if not len(parts[1].start):
        raise FedtideError(f"window={window}: no role has so many characters to test on; use a smaller window")
    most = min(NUM_TEST, len(parts[1].start))
    train, test = (
        parts[0].thinned(num_train, "num_train"),
        parts[1].thinned(most if num_test is None else num_test, "num_test"),
    )
    need(
        2.0 * window * (len(train.start) + len(test.start)) if images else 0.0,
        f"cutting out {len(train.start):,} windows of {window} characters",
        "lower data.num_train, or use a larger stride",
    )
    codes = np.concatenate(spoken)
    made = [_samples(codes, part.start, window, images) for part in (train, test)]
    return Dataset("shakespeare", made[0], made[1], NUM_LABELS, source, train.owner)


def encoded(text: str) -> Codes:
    """Return the codes of characters [n]: their places in the alphabet, or UNKNOWN."""
    table = np.full(256, UNKNOWN, np.uint8)
    table[np.frombuffer(ALPHABET.encode("ascii"), np.uint8)] = np.arange(len(ALPHABET))
    codes: Codes = table[np.frombuffer(text.encode("latin-1", "replace"), np.uint8)]
    return codes


class _Part(NamedTuple):
    """Windows of the training or of the test part, role after role."""

    start: Ints  # of the first character, counted from the first role's first one [n]
    owner: Ints  # the role [n]

    @classmethod
    def of(cls, spoken: Sequence[Codes], window: int, stride: int, trained: bool) -> _Part:
        """Return those that lie, with the character behind them, within one part of one role."""
        starts, owners, begin = [], [], 0
        for owner, codes in enumerate(spoken):
            cut = int(TRAINED * len(codes))
            first, end = (begin, begin + cut) if trained else (begin + cut, begin + len(codes))
            starts.append(np.arange(first, end - window, stride))
            owners.append(np.full(len(starts[-1]), owner))
            begin += len(codes)
        return cls(np.concatenate(starts), np.concatenate(owners))

    def thinned(self, num: int | None, name: str) -> _Part:
        """Return num of the windows, of each role its share; None: all."""
        if num is None:
            return self
        if not 1 <= num <= len(self.start):
            raise FedtideError(f"{name} = {num}: must be from 1 to {len(self.start)}")
        kept = np.arange(num) * len(self.start) // num
        return _Part(self.start[kept], self.owner[kept])


def _samples(codes: Codes, start: Ints, window: int, images: bool) -> Samples:
    """Return the windows that begin at start [n] as codes [n 1 1 window], each with the character behind it as its label."""
    labels = codes[start + window]
    if images:
        shown = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(codes, window)[start])[:, None, None]
    else:
        shown = np.broadcast_to(np.uint8(0), (len(start), 1, 1, window))
    return Samples(shown, labels, np.arange(256, dtype=np.float32)[None])  # a code stands for itself
