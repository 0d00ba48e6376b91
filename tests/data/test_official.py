"""Sets that are read from their official files, by small files in the same formats."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import set_files as files
from fedtide import config
from fedtide.data import cifar, load, mnist, speech
from fedtide.data.dataset import check_dataset
from fedtide.data.fetch import fetched_folder_digest
from fedtide.errors import DataError, FedtideError
from fedtide.studies.run import _data_key
from fedtide.studies.spec import spec_run_name
from set_files import COUNTS, GREY, LABELS, PIXELS


def one_line(caught):
    assert "\n" not in str(caught.value)


@pytest.fixture
def mats(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "SVHN_MD5", files.svhn(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["emnist", "femnist", "cifar100", "svhn", "speech_commands"])
def test_a_folder_must_be_named_and_hold_the_files(name, tmp_path):
    with pytest.raises(DataError, match=r"is not downloaded: get .* data\.folder=PATH") as caught:
        load(name)
    one_line(caught)
    with pytest.raises(DataError, match="does not exist; name the folder that holds"):
        load(name, folder=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"expected|get") as caught:
        load(name, folder=tmp_path)
    one_line(caught)


# --- EMNIST


@pytest.mark.parametrize("inner", [".", "gzip", "EMNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_emnist(tmp_path, inner, packed):
    (tmp_path / inner).mkdir(parents=True, exist_ok=True)
    files.emnist(tmp_path / inner)
    if not packed:
        for path in (tmp_path / inner).glob("*.gz"):
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()
    found = load("emnist", folder=tmp_path)
    check_dataset(found)
    assert found.num_labels == 47
    np.testing.assert_array_equal(found.train.images[:, 0], GREY["train"])  # upright
    np.testing.assert_array_equal(found.test.labels, LABELS["test"])


def test_emnist_letters_count_from_zero(tmp_path):
    files.emnist(tmp_path, "letters", first=1)
    found = load("emnist", folder=tmp_path, split="letters", num_train=5)
    assert (found.num_labels, found.train.labels.tolist()) == (26, [0, 1, 2, 3, 4])
    files.emnist(tmp_path, "letters")
    with pytest.raises(DataError, match="train has labels from 0 to 255: give labels 0 to 25"):
        load("emnist", folder=tmp_path, split="letters")


def test_emnist_zip_is_checked(tmp_path, monkeypatch):
    files.emnist_zip(tmp_path)
    with pytest.raises(DataError, match=rf"gzip.zip is corrupt or another file: MD5 \w+, expected {mnist.EMNIST_MD5}"):
        load("emnist", folder=tmp_path)
    monkeypatch.setattr(mnist, "EMNIST_MD5", files.md5(tmp_path / "gzip.zip"))
    check_dataset(load("emnist", folder=tmp_path))
    with pytest.raises(DataError, match="is damaged"):
        load("emnist", folder=tmp_path, split="digits")
    (tmp_path / "gzip.zip").write_bytes(b"PK")
    monkeypatch.setattr(mnist, "EMNIST_MD5", files.md5(tmp_path / "gzip.zip"))
    with pytest.raises(DataError, match="is damaged"):
        load("emnist", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("train-images-idx3", b"nonsense", "not an IDX file"),
        (
            "train-images-idx3",
            gzip.compress(b"x" * 50, mtime=0)[:-9],
            "damaged gzip data",
        ),
        ("train-images-idx3", files.idx_bytes(LABELS["train"].astype(np.uint8)), r"images \[24\], not \[n 28 28\]"),
        ("train-images-idx3", files.idx_bytes(GREY["test"]), r"images uint8\[12, 1, 28, 28\] and labels uint8\[24\]"),
        (
            "train-labels-idx1",
            files.idx_bytes(np.full(24, 47, np.uint8)),
            "labels from 47 to 47: give labels 0 to 46",
        ),
    ],
)
def test_emnist_files_that_are_wrong(tmp_path, name, data, reason):
    files.emnist(tmp_path)
    (tmp_path / f"emnist-balanced-{name}-ubyte.gz").write_bytes(data)
    with pytest.raises(DataError, match=reason) as caught:
        load("emnist", folder=tmp_path)
    one_line(caught)


# --- CIFAR-100


@pytest.mark.parametrize("end", [".bin", ""])
@pytest.mark.parametrize("layout", ["plain", "inner", "archive"])
@pytest.mark.parametrize(("labels", "factor"), [("fine", 9), ("coarse", 1)])
def test_cifar100(tmp_path, monkeypatch, end, layout, labels, factor):
    if layout == "archive":
        digest = files.md5(files.cifar100_archive(tmp_path, end))
        monkeypatch.setattr(
            cifar, "CIFAR100_VERSIONS", tuple(each._replace(md5=digest) for each in cifar.CIFAR100_VERSIONS)
        )
    else:
        inner = tmp_path / ("cifar-100-binary" if end else "cifar-100-python") if layout == "inner" else tmp_path
        inner.mkdir(exist_ok=True)
        files.cifar100(inner, end)
    found = load("cifar100", folder=tmp_path, labels=labels)
    check_dataset(found)
    assert found.num_labels == (100 if labels == "fine" else 20)
    np.testing.assert_array_equal(found.train.images, PIXELS["train"])
    np.testing.assert_array_equal(found.test.labels, LABELS["test"] * factor)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "test: truncated: 0 bytes"),
        (files.cifar100_bytes("test")[:-1], "expected whole records of 3074"),
        (bytes([0, 100]) + bytes(3072), "test has labels from 100 to 100: give labels 0 to 99"),
    ],
)
def test_cifar100_that_is_wrong(tmp_path, data, reason):
    files.cifar100(tmp_path)
    (tmp_path / "test.bin").write_bytes(data)
    with pytest.raises(DataError, match=reason) as caught:
        load("cifar100", folder=tmp_path)
    one_line(caught)


def test_a_cifar100_archive_is_checked(tmp_path, monkeypatch):
    path = files.cifar100_archive(tmp_path)
    with pytest.raises(DataError, match="is corrupt or another file: MD5"):
        load("cifar100", folder=tmp_path)
    path.write_bytes(path.read_bytes()[:2000])
    monkeypatch.setattr(cifar, "CIFAR100_VERSIONS", (cifar.CIFAR100_VERSIONS[0]._replace(md5=files.md5(path)),))
    with pytest.raises(DataError, match=r"is damaged|holds no train and test"):
        load("cifar100", folder=tmp_path)


# --- SVHN


def test_svhn(mats):
    found = load("svhn", folder=mats, num_test=5)
    check_dataset(found)
    np.testing.assert_array_equal(found.train.images, PIXELS["train"])
    assert found.test.labels.tolist() == [0, 1, 2, 3, 4]  # the files have 10 for zero


def test_svhn_that_is_wrong(mats, monkeypatch):
    from scipy.io import savemat

    path = mats / "test_32x32.mat"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(DataError, match="is corrupt or another file: MD5"):
        load("svhn", folder=mats)
    labels = np.ones((12, 1), np.uint8)
    images = PIXELS["test"].transpose(2, 3, 1, 0)
    for content, reason in [
        (whole[: len(whole) // 2], "cannot be read"),
        (b"", "cannot be read"),
        ({"X": images}, "cannot be read .KeyError"),
        ({"X": images, "y": labels[:5]}, r"and labels uint8\[5\]"),
    ]:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            savemat(path, content)
        monkeypatch.setattr(cifar, "SVHN_MD5", cifar.SVHN_MD5 | {path.name: files.md5(path)})
        with pytest.raises(DataError, match=reason) as caught:
            load("svhn", folder=mats)
        one_line(caught)


# --- FEMNIST


def test_femnist(tmp_path):
    files.femnist(tmp_path)
    found = load("femnist", folder=tmp_path)
    check_dataset(found)
    by_writer = [at for half in (range(12), range(12, 24)) for writer in range(3) for at in half if at % 3 == writer]
    np.testing.assert_array_equal(found.train.images[:, 0], GREY["train"][by_writer])  # 9 before 10
    assert found.owners.tolist() == [at % 3 for at in by_writer]
    assert (found.num_labels, len(found.test.labels)) == (62, COUNTS["test"])
    assert load("femnist", folder=tmp_path, num_train=6).owners.tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("inner", [".", "all_data"])
def test_femnist_before_it_is_divided(tmp_path, inner):
    (tmp_path / inner).mkdir(exist_ok=True)
    (tmp_path / inner / "all_data_0.json").write_text(json.dumps(files.leaf("train", 0, 24)))
    found = load("femnist", folder=tmp_path, test_share=0.3)  # the last two of each writer's eight
    assert len(found.train.labels) == 18
    np.testing.assert_array_equal(found.test.images[:, 0], GREY["train"][[18, 21, 19, 22, 20, 23]])
    assert np.bincount(found.owners).tolist() == [6, 6, 6]
    with pytest.raises(DataError, match="raise test_share"):
        load("femnist", folder=tmp_path, test_share=0.1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"users": ["a"', "is damaged or not a LEAF file"),
        ("[1]", "is damaged or not a LEAF file"),
        ('{"users": ["a"], "user_data": {}}', "is damaged or not a LEAF file"),
        ('{"users": [], "user_data": {}}', "holds no samples"),
        (
            '{"users": ["a"], "user_data": {"a": {"x": [[1, 2]], "y": [1]}}}',
            r"x\.0\.1 Input should be less than or",
        ),
        ('{"users": ["a"], "user_data": {"a": {"x": [["q"]], "y": [1]}}}', "Input should be a valid number"),
        (
            json.dumps({"users": ["a"], "user_data": {"a": {"x": [[0.5] * 784], "y": 5}}}),
            "Input should be a valid array",
        ),
        (
            json.dumps({"users": ["a"], "user_data": {"a": {"x": [[10**400]], "y": [1]}}}),
            "Input should be a finite number",
        ),
        (
            json.dumps({"users": ["a"], "user_data": {"a": {"x": [[0.5] * 784], "y": [62]}}}),
            "Input should be less than 62",
        ),
        (
            json.dumps({"users": ["a"], "user_data": {"a": {"x": [[1.5] * 784], "y": [1]}}}),
            "Input should be less than or equal to 1",
        ),
    ],
)
def test_femnist_that_is_wrong(tmp_path, text, reason):
    (tmp_path / "all_data_0.json").write_text(text)
    with pytest.raises(DataError, match=reason) as caught:
        load("femnist", folder=tmp_path)
    one_line(caught)


# --- Speech Commands


def test_speech_commands(tmp_path):
    files.speech(tmp_path)
    found = load("speech_commands", folder=tmp_path)
    check_dataset(found)
    assert found.num_labels == 3
    assert found.train.images.shape == (24, 1, 40, 98)
    assert len(found.test.labels) == 12
    assert found.train.labels.tolist() == [0, 1, 2] * 8  # in turn
    assert found.owners.tolist() == np.repeat([0, 0, 1, 1, 2, 2, 3, 3], 3).tolist()
    assert abs(found.train.images.mean()) < 1e-4
    assert found.train.images.std() == pytest.approx(1, rel=1e-4)
    means = np.stack([found.train.images[found.train.labels == label].mean(0).ravel() for label in range(3)])
    flat = found.test.images.reshape(12, -1)
    assert np.argmin(((flat[:, None] - means) ** 2).sum(-1), axis=1).tolist() == found.test.labels.tolist()


def test_labels_and_speakers_need_no_recording_read(tmp_path, monkeypatch):
    files.speech(tmp_path)
    whole = load("speech_commands", folder=tmp_path, num_train=5)
    assert len(whole.train.images) == 5
    monkeypatch.setattr(speech, "_log_mel", None)
    found = load("speech_commands", folder=tmp_path, num_train=5, images=False)
    assert found.train.labels.tolist() == whole.train.labels.tolist()
    assert found.owners.tolist() == whole.owners.tolist()
    assert found.train.images.shape == whole.train.images.shape


@pytest.mark.parametrize("hertz", [100, 440, 1000, 3000, 7000])
def test_a_tone_is_loudest_in_its_band(hertz):
    """Mel bands are evenly spaced in 2595 log10(1 + f/700), from 20 Hz to 8 kHz."""
    sound = np.frombuffer(files.tone(hertz), "<i2") / 32768
    spectrum = speech._log_mel(sound)
    assert spectrum.shape == (40, 98)
    mel = [2595 * np.log10(1 + each / 700) for each in (20, 8000, hertz)]
    position = (mel[2] - mel[0]) / (mel[1] - mel[0]) * 41 - 1
    assert abs(int(spectrum[:, 50].argmax()) - position) <= 1
    assert (spectrum[:, 50] > spectrum[:, 50].max() - 5).sum() < 8


def test_every_band_hears_something():
    assert (speech.BANDS.sum(axis=1) > 0).all()
    assert speech.BANDS.max() <= 1


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda at: (at / "testing_list.txt").unlink(), "testing_list.txt cannot be read .FileNotFoundError"),
        (
            lambda at: (at / "testing_list.txt").write_bytes(b"\xff\xfe"),
            "testing_list.txt cannot be read .UnicodeDecodeError",
        ),
        (lambda at: (at / "testing_list.txt").write_text("yes/gone.wav"), "gone.wav is listed and not there"),
        (lambda at: (at / "testing_list.txt").write_text(""), "is left for training, or for the test"),
        (lambda at: (at / "no/00000001_nohash_1.wav").write_bytes(b"RIFF"), r"recording \(it ends too soon\)"),
        (
            lambda at: files.wav(at / "no/00000001_nohash_1.wav", b"", rate=8000),
            "8000 Hz, 1 channels, 16 bits; expected",
        ),
        (lambda at: files.wav(at / "no/00000001_nohash_1.wav", b"", channels=2), "2 channels"),
        (lambda at: [shutil.rmtree(at / word) for word in ("yes", "no", "stop")], "0 folders with 0 wav files"),
    ],
)
def test_speech_that_is_wrong(tmp_path, spoil, reason):
    files.speech(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=reason) as caught:
        load("speech_commands", folder=tmp_path)
    one_line(caught)


@pytest.mark.parametrize(("name", "make"), [("femnist", files.femnist), ("speech_commands", files.speech)])
def test_what_varies_from_folder_to_folder_belongs_to_a_study(tmp_path, name, make):
    for each in ("one", "other"):
        (tmp_path / each).mkdir()
        make(tmp_path / each)
    one, other = (config.experiment({"data": {"name": name, "folder": tmp_path / each}}) for each in ("one", "other"))
    nowhere = config.experiment({"data": {"name": name, "folder": tmp_path / "nowhere"}})
    assert spec_run_name(one) == spec_run_name(other) != spec_run_name(nowhere)  # wherever it lies
    assert _data_key(one) == _data_key(one)
    before, loading = spec_run_name(one), _data_key(one)
    path = next(path for path in sorted((tmp_path / "one").rglob("*")) if path.suffix in (".json", ".wav"))
    path.write_bytes(path.read_bytes() + b" ")
    assert spec_run_name(one) != before
    assert _data_key(one) != loading


@pytest.mark.parametrize("name", ["emnist", "femnist", "cifar100", "speech_commands"])
def test_too_few_samples(name, tmp_path: Path):
    write, args = files.WRITERS[name]
    write(tmp_path)
    with pytest.raises(FedtideError, match="num_train = 25: must be from 1 to 24"):
        load(name, **args(tmp_path), num_train=25)


@pytest.mark.parametrize(("name", "write"), [("femnist", files.femnist), ("speech_commands", files.speech)])
def test_a_pipe_among_the_files_is_refused(tmp_path, name, write):
    write(tmp_path)
    for path in [each for each in tmp_path.rglob("*") if each.suffix in (".json", ".wav")]:
        path.unlink()
        os.mkfifo(path)
    for read in (lambda: load(name, folder=tmp_path), lambda: fetched_folder_digest(name, tmp_path)):
        with pytest.raises(DataError, match="is a folder, a pipe or a device, not a file"):
            read()
