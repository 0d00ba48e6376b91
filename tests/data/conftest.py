"""Tiny sets of official files with checksums of their own, and a mirror on this machine that serves them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fedtide.data.fetch import OfficialFile
from fedtide.data.mnist import MNIST
from set_files import idx_bytes, official


class Tiny(NamedTuple):
    """An MNIST of six training and four test images."""

    files: tuple[OfficialFile, ...]
    raws: dict[str, bytes]  # by name
    pixels: list[np.ndarray]  # training, test [n 28 28]
    labels: list[np.ndarray]


@pytest.fixture
def tiny() -> Tiny:
    rng = np.random.default_rng(5)
    pixels = [rng.integers(0, 256, (n, 28, 28), np.uint8) for n in (6, 4)]
    labels = [rng.integers(0, 10, n, np.uint8) for n in (6, 4)]
    made = map(idx_bytes, (pixels[0], labels[0], pixels[1], labels[1]))
    raws = dict(zip((file.name for file in MNIST.files), made, strict=True))
    return Tiny(official(raws), raws, pixels, labels)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache folder: a new one for every test."""
    monkeypatch.setenv("FEDTIDE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Mirror(NamedTuple):
    address: str
    files: dict[str, bytes]  # what it serves, by path; what it does not have is 404
    asked: list[str]


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    files: dict[str, bytes] = {}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            data = files.get(self.path)
            self.send_response(404 if data is None else 200)
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Mirror(f"http://127.0.0.1:{server.server_port}", files, asked)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def said() -> list[str]:
    return []
