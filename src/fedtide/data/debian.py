"""Files out of a Debian package, fetched by apt-get without root and read in memory. Nothing is installed or executed."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fedtide.data.idx import IdxFile
from fedtide.data.packages import Run, only, read_tar, run_client
from fedtide.data.source import Fetch
from fedtide.errors import DataError

MAGIC: Final = b"!<arch>\n"
HEADER: Final = 60  # bytes before each member of an ar archive
DEB_LIMIT: Final = 256 << 20  # bytes of a package


def debian(package: str, run: Run = run_client) -> Fetch:
    """Return a source that takes files, gzipped or not, out of a package by their names."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, bytes]:
        client = shutil.which("apt-get")
        if client is None:
            raise DataError("apt-get is not installed")
        with tempfile.TemporaryDirectory(prefix="fedtide-") as name:
            folder = Path(name)
            run([client, "download", "--quiet", "--option", "Acquire::Retries=1", package], folder)
            path = only(folder, "*.deb")
            if path.stat().st_size > DEB_LIMIT:
                raise DataError(f"{path.name} has {path.stat().st_size} bytes, which is more than it should")
            return read_tar(io.BytesIO(data_member(path.read_bytes())), path.name, files)

    return fetch


def data_member(deb: bytes) -> bytes:
    """Return the member data.tar.* of a package, which is an ar archive; DataError if there is none, or not whole."""
    if not deb.startswith(MAGIC):
        raise DataError(f"not a Debian package: it begins with {deb[:8].hex() or 'nothing'}")
    at = len(MAGIC)
    while at + HEADER <= len(deb):
        header, start = deb[at : at + HEADER], at + HEADER
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
