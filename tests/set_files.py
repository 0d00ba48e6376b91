"""Small files in the formats of data sets that fedtide reads from a folder: 24 samples for training, 12 for the test."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import tarfile
import wave
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedtide.data.fetch import OfficialFile

COUNTS = {"train": 24, "test": 12}
RNG = np.random.default_rng(11)
PIXELS = {part: RNG.integers(0, 256, (count, 3, 32, 32), np.uint8) for part, count in COUNTS.items()}
GREY = {part: RNG.integers(0, 256, (count, 28, 28), np.uint8) for part, count in COUNTS.items()}
LABELS = {part: np.arange(count) % 10 for part, count in COUNTS.items()}


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def idx_bytes(array: np.ndarray) -> bytes:
    """Return the IDX bytes of an array."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def tarball(members: Mapping[str, bytes]) -> bytes:
    """Return a gzipped tar archive of these members."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def official(raws: Mapping[str, bytes]) -> tuple[OfficialFile, ...]:
    """Return what fedtide would know of these files."""
    return tuple(OfficialFile(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in raws.items())


def emnist(folder: Path, split: str = "balanced", first: int = 0) -> None:
    for part in COUNTS:
        images, labels = (folder / f"emnist-{split}-{part}-{end}-ubyte.gz" for end in ("images-idx3", "labels-idx1"))
        images.write_bytes(gzip.compress(idx_bytes(GREY[part].transpose(0, 2, 1)), mtime=0))
        labels.write_bytes(gzip.compress(idx_bytes((LABELS[part] + first).astype(np.uint8)), mtime=0))


def emnist_zip(folder: Path) -> None:
    emnist(folder)
    with zipfile.ZipFile(folder / "gzip.zip", "w") as archive:
        for path in sorted(folder.glob("*.gz")):
            archive.write(path, f"gzip/{path.name}")
            path.unlink()


def cifar100_bytes(part: str) -> bytes:
    fine, coarse = LABELS[part] * 9, LABELS[part]
    columns = [coarse[:, None], fine[:, None], PIXELS[part].reshape(-1, 3072)]
    return np.concatenate(columns, axis=1).astype(np.uint8).tobytes()


def cifar100_pickle(part: str) -> bytes:
    tree = {
        "data": PIXELS[part].reshape(-1, 3072),
        "fine_labels": [int(each) * 9 for each in LABELS[part]],
        "coarse_labels": LABELS[part].tolist(),
        "filenames": ["a.png"] * COUNTS[part],
    }
    return pickle.dumps(tree, 4)


def cifar100(folder: Path, end: str = ".bin") -> None:
    for part in COUNTS:
        (folder / f"{part}{end}").write_bytes((cifar100_bytes if end else cifar100_pickle)(part))


def cifar100_archive(folder: Path, end: str = ".bin") -> Path:
    inner = "cifar-100-binary" if end else "cifar-100-python"
    path = folder / f"{inner}.tar.gz"
    make = cifar100_bytes if end else cifar100_pickle
    path.write_bytes(tarball({f"{inner}/{part}{end}": make(part) for part in COUNTS}))
    return path


def svhn(folder: Path) -> dict[str, str]:
    """Write the files and return their MD5."""
    from scipy.io import savemat

    for part in COUNTS:
        labels = np.where(LABELS[part] == 0, 10, LABELS[part]).astype(np.uint8)[:, None]
        path = folder / f"{part}_32x32.mat"
        savemat(path, {"X": PIXELS[part].transpose(2, 3, 1, 0), "y": labels}, do_compression=True)
        path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(116) + path.read_bytes()[116:])  # without the time of day
    return {f"{part}_32x32.mat": md5(folder / f"{part}_32x32.mat") for part in COUNTS}


def leaf(part: str, start: int, stop: int) -> dict[str, Any]:
    """As LEAF writes it: writers w0, w1 and w2, in turn."""
    users: dict[str, dict[str, list[Any]]] = {}
    for at in range(start, stop):
        own = users.setdefault(f"w{at % 3}", {"x": [], "y": []})
        own["x"].append((GREY[part][at].ravel() / 255).tolist())
        own["y"].append(int(LABELS[part][at]))
    return {"users": list(users), "num_samples": [len(each["y"]) for each in users.values()], "user_data": users}


def femnist(folder: Path) -> None:
    for part in COUNTS:
        (folder / part).mkdir()
        half = COUNTS[part] // 2
        for number, bounds in ((10, (half, COUNTS[part])), (9, (0, half))):  # 9 comes before 10
            path = folder / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json"
            path.write_text(json.dumps(leaf(part, *bounds)))


def tone(hertz: float, seconds: float = 1.0, rate: int = 16_000) -> bytes:
    time = np.arange(round(seconds * rate)) / rate
    return (8000 * np.sin(2 * np.pi * hertz * time)).astype("<i2").tobytes()


def wav(path: Path, data: bytes, rate: int = 16_000, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(data)


def speech(folder: Path) -> None:
    """Three words of four speakers: of five recordings each, two train, one validates, two test; one more for training."""
    lists: dict[str, list[str]] = {"validation": [], "testing": []}
    for word, hertz in (("no", 300), ("stop", 900), ("yes", 2500)):
        for number in range(13):
            name = f"{word}/{number % 4:08x}_nohash_{number}.wav"
            wav(folder / name, tone(hertz + number, 1.0 if number else 0.7))
            if number >= 8:
                lists["testing" if number >= 9 else "validation"].append(name)
    wav(folder / "_background_noise_" / "white_noise.wav", tone(50))
    for which, names in lists.items():
        (folder / f"{which}_list.txt").write_text("\n".join(names) + "\n")


def npz(folder: Path) -> None:
    both = {f"{letter}_{part}": each[part] for part in COUNTS for letter, each in (("x", PIXELS), ("y", LABELS))}
    np.savez(folder / "mine.npz", **both)


def pictures(folder: Path) -> None:
    for part in COUNTS:
        for at, label in enumerate(LABELS[part]):
            (folder / part / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(PIXELS[part][at].transpose(1, 2, 0)).save(folder / part / str(label) / f"{at:03}.png")


# What writes the files of a set, and the arguments that it is then made with.
WRITERS: Mapping[str, tuple[Callable[[Path], Any], Callable[[Path], dict[str, Any]]]] = {
    "emnist": (emnist, lambda folder: {"folder": folder}),
    "femnist": (femnist, lambda folder: {"folder": folder}),
    "cifar100": (cifar100, lambda folder: {"folder": folder}),
    "svhn": (svhn, lambda folder: {"folder": folder}),
    "speech_commands": (speech, lambda folder: {"folder": folder}),
    "npz": (npz, lambda folder: {"path": folder / "mine.npz"}),
    "image_folder": (pictures, lambda folder: {"path": folder}),
}
