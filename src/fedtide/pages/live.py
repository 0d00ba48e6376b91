"""Follow runs or a study in a browser: a server for this machine only, which reads their folders and changes nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedtide.core.faults import explain_fault
from fedtide.errors import FedtideError
from fedtide.pages.html import html_security_policy
from fedtide.pages.run import run_page, run_page_data
from fedtide.runs import run_folder_in_use

_LOOPBACK = "127.0.0.1"
_WATCHED = ("checkpoint.npz", "model.npy")  # written when a run has something new
_MOST_CONNECTIONS: Final = 32  # at a time; the oldest is closed for a new one
_TIMEOUT_SECONDS: Final = 10.0  # of silence on a connection, which then ends
_NO_FRAMES: Final = "frame-ancestors 'none'"  # a page cannot set it in its own head
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LivePages(NamedTuple):
    """What is served of some folders: a page, the data that it asks for later, and a tag that changes when there is news."""

    page: Callable[[Sequence[Path], str], str] = run_page
    data: Callable[[Sequence[Path], str], str] = run_page_data
    tag: Callable[[Sequence[Path]], str] = lambda folders: _tag_of(folders)


_RUN_PAGES: Final = LivePages()


def serve_live(folders: Sequence[Path], port: int, tell: Callable[[str], None], pages: LivePages = _RUN_PAGES) -> None:
    """Serve the page of these folders until it is interrupted. port: 0 for any free one. tell: called with the address."""
    with _server(folders, port, pages) as bound:
        pages.page(folders, "")  # an error is raised here, not only shown in the browser
        tell(f"http://{_LOOPBACK}:{bound.server_address[1]}/")
        bound.serve_forever(poll_interval=0.2)


def _server(folders: Sequence[Path], port: int = 0, pages: LivePages = _RUN_PAGES) -> ThreadingHTTPServer:
    """Return a server of these folders' page, bound to this machine only and not started."""

    class Handler(_Handler):
        cache = _Cache(list(folders), pages)

    try:
        return _Server((_LOOPBACK, port), Handler)
    except OSError as error:
        raise FedtideError(
            f"--port {port} cannot be used ({error.strerror}); choose another port, or 0 for a free one"
        ) from None


def _tag_of(folders: Sequence[Path]) -> str:
    """Return an entity tag: it changes when a run has something new, or when its process ends."""
    parts = []
    for folder in folders:
        for path in (folder / name for name in _WATCHED):
            try:
                found = os.stat(path)
                parts.append(f"{found.st_mtime_ns:x}.{found.st_size:x}")
            except OSError:
                parts.append("0")
        parts.append(str(int(run_folder_in_use(folder))))
    return "-".join(parts)


class _Cache:
    """The newest page and data, made once for all who ask."""

    def __init__(self, folders: list[Path], pages: LivePages) -> None:
        self.folders, self.pages = folders, pages
        self.lock, self.made = threading.Lock(), dict[tuple[str, str], str]()

    def get(self, what: str, make: Callable[[Sequence[Path], str], str]) -> str:
        with self.lock:
            tag = self.pages.tag(self.folders)
            if (what, tag) not in self.made:
                self.made = {key: made for key, made in self.made.items() if key[1] == tag}
                self.made[what, tag] = make(self.folders, tag)
            return self.made[what, tag]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = _MOST_CONNECTIONS  # of the socket: with its default of 5, clients wait for seconds

    def __init__(self, *args: Any) -> None:
        self._open: dict[Any, None] = {}  # connections, the oldest first
        self._lock = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= _MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread wakes up and closes it
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not report broken connections."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    cache: _Cache
    timeout = _TIMEOUT_SECONDS

    def do_GET(self) -> None:
        if self.request_version == "HTTP/0.9":  # has no Host header
            self.request_version = self.protocol_version
            return self._answer(400, "not an HTTP/1 request\n")
        # DNS rebinding: a foreign page whose name points here is refused.
        port = self.connection.getsockname()[1]
        known = [[f"{name}:{port}"] for name in (_LOOPBACK, "localhost")]
        if self.headers.get_all("Host") not in (known if port != 80 else [*known, [_LOOPBACK], ["localhost"]]):
            return self._answer(403, "this server answers this machine only\n")
        try:
            if self.path == "/":
                return self._answer(200, self.cache.get("page", self.cache.pages.page), "text/html")
            if self.path != "/data":
                return self._answer(404, "not found: the page is at /\n")
            if self.headers.get("X-Seen") == self.cache.pages.tag(self.cache.folders):
                return self._answer(304, "")
            return self._answer(200, self.cache.get("data", self.cache.pages.data), "application/json")
        except (ConnectionError, TimeoutError):  # the client has gone
            raise
        except Exception as error:  # the folder is being written to: the next request may succeed
            return self._answer(503, f"{explain_fault(error)[0]}\n")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request in plain text, without repeating it."""
        self.close_connection = True
        if self.request_version == "HTTP/0.9":
            self.request_version = self.protocol_version
        self._answer(code, "this server answers GET / and GET /data only\n")

    def _answer(self, code: int, content: str, kind: str = "text/plain") -> None:
        body = content.encode("utf-8", "replace")
        own = html_security_policy(content) if kind == "text/html" else "default-src 'none'"
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", f"{own}; {_NO_FRAMES}")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""

    def version_string(self) -> str:
        """Hide the program and its version."""
        return "server"
