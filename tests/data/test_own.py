"""Data sets of the user's own: arrays in a file, pictures in a folder."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedtide
from fedtide import config
from fedtide.core import yaml12
from fedtide.data import load
from fedtide.data.dataset import check_dataset
from fedtide.errors import DataError, FedtideError, RunFolderError
from fedtide.runs import policy_files

RNG = np.random.default_rng(2)
BYTES = RNG.integers(0, 256, (12, 9, 8, 3), np.uint8)


def arrays(images=BYTES, **more):
    labels = np.arange(len(images)) % 3
    return {"x_train": images[:8], "y_train": labels[:8], "x_test": images[8:], "y_test": labels[8:], **more}


def write(path="mine.npz", **given):
    np.savez(path, **given)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (BYTES, BYTES.transpose(0, 3, 1, 2)),
        (np.ascontiguousarray(BYTES.transpose(0, 3, 1, 2)), BYTES.transpose(0, 3, 1, 2)),
        (BYTES[..., 0], BYTES[:, None, :, :, 0]),
        (BYTES[..., :1], BYTES[:, None, :, :, 0]),
    ],
)
def test_bytes_in_every_layout(images, expected):
    found = load("npz", path=Path(write(**arrays(images))))
    check_dataset(found)
    np.testing.assert_array_equal(found.train.images, expected[:8])
    np.testing.assert_array_equal(found.test.images, expected[8:])
    assert found.num_labels == 3
    floats = found.train.floats()
    np.testing.assert_allclose(floats.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(floats.std((0, 2, 3)), 1, rtol=1e-5)
    share = expected[:8] / 255
    mean, std = share.mean((0, 2, 3), keepdims=True), share.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(floats, (share - mean) / std, rtol=1e-4, atol=1e-5)


def test_floats_stay_as_they_are():
    images = RNG.random((12, 2, 7, 6))
    found = load("npz", path=Path(write(**arrays(images))))
    np.testing.assert_array_equal(found.train.images, images[:8].astype(np.float32))
    assert found.train.values is None


def test_a_channel_that_never_varies():
    found = load("npz", path=Path(write(**arrays(np.full((12, 5, 5), 7, np.uint8)))))
    assert (found.train.floats() == 0).all()


def test_axes_can_be_named_and_labels_counted():
    images = RNG.integers(0, 256, (12, 3, 4, 4), np.uint8)
    path = Path(write(**arrays(images)))
    assert load("npz", path=path, channels="first").train.images.shape == (8, 3, 4, 4)
    assert load("npz", path=path, channels="last", num_labels=9).train.images.shape == (8, 4, 3, 4)
    assert load("npz", path=path, channels="first", num_labels=9).num_labels == 9


@pytest.mark.parametrize("owners", [np.array([3, 3, 9, 9, 3, 9, 9, 7]), np.array(list("bbddbddc"))])
def test_owners_are_numbered(owners):
    found = load("npz", path=Path(write(**arrays(owners=owners))), num_train=6)
    assert found.owners.tolist() == [0, 0, 2, 2, 0, 2]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"x_train": BYTES}, "has x_train, and lacks y_train, x_test, y_test"),
        (arrays(BYTES.astype(np.int32)), r"images int32\[8, 3, 9, 8\] .*: give float32 or uint8"),
        (arrays(BYTES[:, 0, 0]), r"images \[8, 3\]: give at least one"),
        (arrays() | {"x_test": BYTES[:0]}, r"images \[0, 9, 8, 3\]"),
        (arrays() | {"y_train": np.arange(7)}, r"train has images uint8\[8, 3, 9, 8\] and labels int64\[7\]"),
        (arrays() | {"y_train": np.arange(8) - 1}, "labels from -1 to 6: give labels 0 to 6"),
        (arrays() | {"y_train": np.arange(8) + 250}, "num_labels=258: it must be a whole number from 1 to 256"),
        (arrays() | {"y_train": np.ones(8)}, r"labels float64\[8\]: give .* whole numbers"),
        (arrays() | {"x_test": BYTES[8:, :5]}, "give images of one shape"),
        (arrays() | {"x_test": BYTES[8:] / 255}, "test has float64 images and values of bytes: give uint8 images"),
        (arrays(BYTES[:, :3, :4]), "set channels=first or last"),
        (arrays(np.full((12, 5, 5), np.nan)), "NaN or infinity"),
        (arrays(np.full((12, 5, 5), 1e300)), "NaN or infinity"),
        (arrays(owners=np.arange(7)), "for each of the 8 training samples"),
        (arrays(owners=np.arange(8.0)), "a number or a word"),
        (arrays() | {"y_test": np.array([None] * 4)}, "cannot be read as arrays of numbers .*allow_pickle"),
    ],
)
def test_bad_arrays(given, reason):
    with pytest.raises(DataError, match=reason) as caught:
        load("npz", path=Path(write(**given)))
    assert "\n" not in str(caught.value)


def test_bad_files():
    with pytest.raises(DataError, match=r"file not found: gone\.npz"):
        load("npz", path=Path("gone.npz"))
    whole = Path(write(**arrays())).read_bytes()
    np.save("one.npy", BYTES)
    for data in (
        b"",
        b"nonsense",
        whole[: len(whole) // 2],
        Path("one.npy").read_bytes(),
        whole[:900] + b"x" + whole[901:],
    ):
        Path("bad.npz").write_bytes(data)
        with pytest.raises(DataError, match="cannot be read as arrays"):
            load("npz", path=Path("bad.npz"))
    with zipfile.ZipFile("bad.npz", "w") as archive:  # a header that speaks of petabytes
        for name in ("x_train", "y_train", "x_test", "y_test"):
            file = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                file, {"descr": "|u1", "fortran_order": False, "shape": (10**14, 4, 4)}
            )
            archive.writestr(f"{name}.npy", file.getvalue() + bytes(64))
    with pytest.raises(DataError, match="cannot be read as arrays"):
        load("npz", path=Path("bad.npz"))
    with pytest.raises(DataError, match="labels from 0 to 2: give labels 0 to 1"):
        load("npz", path=Path("mine.npz"), num_labels=2)


# --- pictures


def draw(folder: Path, count=3, size=(6, 5), mode="RGB", labels=("cat", "dog"), ends=(".png", ".JPG", ".jpeg")) -> Path:
    rng = np.random.default_rng(4)
    for part, labelled in ((part, label) for part in ("train", "test") for label in labels):
        (folder / part / labelled).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            shape = size[::-1] if mode == "L" else (*size[::-1], 3)
            picture = Image.fromarray(rng.integers(0, 256, shape, np.uint8))
            picture.save(folder / part / labelled / f"{number}{ends[number % len(ends)]}")
        (folder / part / labelled / ".DS_Store").write_bytes(b"x")
    return folder


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_a_folder_of_pictures(mode, channels):
    found = load("image_folder", path=draw(Path("mine"), mode=mode))
    check_dataset(found)
    assert found.train.images.shape == found.test.images.shape == (6, channels, 5, 6)
    assert found.train.labels.tolist() == [0, 1, 0, 1, 0, 1]  # in turn, so that the first so many are even
    assert found.num_labels == 2
    np.testing.assert_array_equal(
        found.train.images[1], np.asarray(Image.open("mine/train/dog/0.png")).reshape(5, 6, channels).transpose(2, 0, 1)
    )
    assert len(load("image_folder", path=Path("mine"), num_train=3, num_test=1).train.labels) == 3


def test_grey_and_coloured_pictures_together():
    draw(Path("mine"))
    Image.fromarray(np.full((5, 6), 9, np.uint8)).save("mine/train/dog/0.png")
    assert (load("image_folder", path=Path("mine")).train.images[1] == 9).all()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda: Image.new("RGB", (7, 5)).save("mine/test/dog/1.png"),
            "has 7 x 5 pixels, and the first picture 6 x 5: bring",
        ),
        (lambda: Path("mine/test/dog/0.png").write_bytes(b"x"), "0.png cannot be read as a picture"),
        (lambda: Path("mine/train/cat/0.png").write_bytes(b""), "cat/0.png cannot be read as a picture"),
        (
            lambda: Path("mine/test/dog/0.png").write_bytes(Path("mine/test/dog/0.png").read_bytes()[:60]),
            "as a picture",
        ),
        (lambda: Path("mine/test/cow").mkdir(), "test has the label 'cow', which train does not have: cat, dog"),
        (lambda: Path("mine/train").rename("mine/training"), "train is not there; lay the pictures out"),
    ],
)
def test_bad_folders(spoil, reason):
    draw(Path("mine"))
    spoil()
    with pytest.raises(DataError, match=reason) as caught:
        load("image_folder", path=Path("mine"))
    assert "\n" not in str(caught.value)


def test_a_picture_starts_no_other_program(monkeypatch):
    """What a file is called says nothing: Pillow hands PostScript to Ghostscript."""
    from PIL import EpsImagePlugin

    draw(Path("mine"))
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args, **more: started.append(args))
    Image.new("RGB", (6, 5)).save("mine/test/dog/0.png", "EPS")
    with pytest.raises(DataError, match=r"test/dog/0.png cannot be read as a picture"):
        load("image_folder", path=Path("mine"))
    assert not started
    for kind in ("BMP", "GIF", "TIFF", "WEBP"):
        Image.new("RGB", (6, 5)).save("mine/test/dog/0.png", kind)
        load("image_folder", path=Path("mine"))


@pytest.mark.parametrize("place", ["mine/train/cat/0.png", "mine/test/dog/3.png"])
def test_a_pipe_among_pictures_is_refused(place):
    draw(Path("mine"))
    Path(place).unlink(missing_ok=True)
    os.mkfifo(place)
    with pytest.raises(DataError, match=rf"{place} is a folder, a pipe or a device, not a file: remove it"):
        load("image_folder", path=Path("mine"))


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_grey_pictures_of_16_bits_keep_their_shades(kind, mode):
    draw(Path("mine"), mode=mode, ends=(".png",))
    shades = np.linspace(0, 65535, 30).reshape(5, 6)
    Image.fromarray(shades.astype(np.uint16)).save("mine/train/dog/0.png", kind)
    found = load("image_folder", path=Path("mine")).train.images[1]
    np.testing.assert_array_equal(found, np.broadcast_to(np.rint(shades.astype(np.uint16) / 257), found.shape))
    for odd in (np.full((5, 6), 70_000, np.int32), np.full((5, 6), 0.5, np.float32)):
        Image.fromarray(odd).save("mine/train/dog/0.png", "TIFF")
        with pytest.raises(DataError, match="save it with 8 or 16 bits each"):
            load("image_folder", path=Path("mine"))


def test_folders_without_pictures():
    for part in ("train", "test"):
        Path(f"mine/{part}/cat").mkdir(parents=True)
    with pytest.raises(DataError, match="train holds no picture"):
        load("image_folder", path=Path("mine"))


# --- as parts of a run

SMALL = {
    "fleet": {"num_devices": 3},
    "policy": {"limit": 2},
    "timeline": {"horizon": 1.0},
    "radio": {"num_symbols": 12000},
    "learning": {"model": "softmax", "local_epochs": 1},
}


def experiment(name, path):
    return config.experiment(SMALL, {"data": {"name": {"name": name, "path": path}, "partition": "iid"}})


@pytest.mark.parametrize("name", ["npz", "image_folder"])
def test_content_belongs_to_the_run(name, here, monkeypatch):
    if name == "npz":
        write("mine", **arrays())
        Path("mine.npz").rename("mine")
        change = lambda: Path("mine").write_bytes(other)  # type: ignore[has-type]  # noqa: E731
        Path("other.npz").write_bytes(b"")
        other = Path(write("other.npz", **arrays(255 - BYTES))).read_bytes()
    else:
        draw(Path("mine"))
        change = lambda: Image.new("RGB", (6, 5)).save("mine/test/dog/0.png")  # noqa: E731
    wanted = experiment(name, "mine")
    before = policy_files(wanted)
    assert set(before) == {"mine"}
    fedtide.simulate(wanted, "run")
    kept = Path("run/rounds.jsonl").read_bytes()
    Path("run/model.npy").unlink()
    fedtide.simulate(wanted, "run")
    assert Path("run/rounds.jsonl").read_bytes() == kept
    Path("run/model.npy").unlink()
    change()
    assert policy_files(wanted) != before
    with pytest.raises(RunFolderError, match="begun with another version of mine; restore"):
        fedtide.simulate(wanted, "run")


@pytest.mark.parametrize("name", ["npz", "image_folder"])
def test_found_beside_the_form(name, here, monkeypatch):
    Path("forms").mkdir()
    if name == "npz":
        write("forms/mine.npz", **arrays())
    else:
        draw(Path("forms/mine.npz"))
    tree = config.dump(experiment(name, "mine.npz"))
    Path("forms/mine.yaml").write_text(yaml12.to_yaml(tree))
    found = config.experiment(Path("forms/mine.yaml"))
    assert Path(found.part("data").args["path"]) == here / "forms" / "mine.npz"
    assert fedtide.simulate(found).rounds
    monkeypatch.chdir(here / "forms")
    assert fedtide.simulate(config.experiment(Path("mine.yaml"))).rounds


def test_a_path_must_be_given():
    with pytest.raises(FedtideError, match="path"):
        fedtide.simulate(config.experiment(SMALL, {"data": {"name": "npz"}}))
