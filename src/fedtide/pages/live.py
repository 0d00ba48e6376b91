"""A run under way, followed in a browser: a server on this machine alone, which reads the run's folder and changes nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedtide.core.faults import explain
from fedtide.pages.run import live_data, live_page

HERE = "127.0.0.1"
WATCHED = ("checkpoint.npz", "model.npy")  # what a run writes when it has something new


def serve(folders: Sequence[Path], port: int, tell: Callable[[str], None]) -> None:
    """Serve the page of these runs until someone interrupts. port: 0 for any that is free. tell: gets the address."""
    with server(folders, port) as made:
        tell(f"http://{HERE}:{made.server_address[1]}/")
        made.serve_forever(poll_interval=0.2)


def server(folders: Sequence[Path], port: int = 0) -> ThreadingHTTPServer:
    """Return a server of these runs' page, bound to this machine alone and not started."""

    class Handler(_Handler):
        kept = _Kept(list(folders))

    made = ThreadingHTTPServer((HERE, port), Handler)
    made.daemon_threads = True
    return made


def tag_of(folders: Sequence[Path]) -> str:
    """Return a word that is another one when a run has something new."""
    seen = []
    for path in (folder / name for folder in folders for name in WATCHED):
        try:
            found = os.stat(path)
            seen.append(f"{found.st_mtime_ns:x}.{found.st_size:x}")
        except OSError:
            seen.append("0")
    return "-".join(seen)


class _Kept:
    """What was made last, so that several who look make it once."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders, self.lock, self.made = folders, threading.Lock(), dict[tuple[str, str], bytes]()

    def get(self, what: str, make: Callable[[Sequence[Path], str], str]) -> bytes:
        with self.lock:
            tag = tag_of(self.folders)
            if (what, tag) not in self.made:
                self.made = {key: each for key, each in self.made.items() if key[1] == tag}
                self.made[what, tag] = make(self.folders, tag).encode()
            return self.made[what, tag]


class _Handler(BaseHTTPRequestHandler):
    kept: _Kept

    def do_GET(self) -> None:
        # A page of elsewhere that lets its name point here is not answered.
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (HERE, "localhost"):
            return self._answer(403, b"this server answers this machine only\n", "text/plain")
        try:
            if self.path == "/":
                return self._answer(200, self.kept.get("page", live_page), "text/html; charset=utf-8")
            if self.path != "/data":
                return self._answer(404, b"there is only /\n", "text/plain")
            if self.headers.get("X-Seen") == tag_of(self.kept.folders):
                return self._answer(304, b"", "application/json")
            return self._answer(200, self.kept.get("data", live_data), "application/json")
        except ConnectionError:  # whoever asked has gone
            return None
        except Exception as error:  # the next question may be answered: a folder is written to meanwhile
            return self._answer(503, f"{explain(error)[0]}\n".encode(), "text/plain; charset=utf-8")

    def _answer(self, code: int, content: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each question."""
