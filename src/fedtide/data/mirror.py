"""Files from a public mirror over HTTPS, which answers soon or is given up."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final, TypeAlias

from fedtide.data.idx import IdxFile
from fedtide.data.source import Fetch
from fedtide.errors import DataError

Open: TypeAlias = Callable[[str], IO[bytes]]

CONNECT_SECONDS: Final = 4.0  # to the first byte of an answer; also the longest silence in a download
FILE_SECONDS: Final = 120.0  # for one file


def open_url(url: str) -> IO[bytes]:
    """Return the answer to a GET, or raise OSError within CONNECT_SECONDS.

    The time-out of a socket covers neither the name look-up nor the sum over a host's addresses, so the request is
    made in a thread that is left behind when it is late.
    """
    import http.client
    import urllib.error
    import urllib.request

    answers: queue.SimpleQueue[IO[bytes] | OSError] = queue.SimpleQueue()
    late = threading.Event()

    def ask() -> None:
        try:
            answer = urllib.request.urlopen(url, timeout=CONNECT_SECONDS)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            answers.put(error if isinstance(error, OSError) else OSError(str(error)))
            return
        if late.is_set():
            answer.close()
        answers.put(answer)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        late.set()
        raise TimeoutError(f"no answer within {CONNECT_SECONDS:g} s") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def mirror(base: str, open_url: Open = open_url) -> Fetch:
    """Return a source that downloads base/NAME.gz, one file after the other; the first failure ends it."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, bytes]:
        return {file.name: download(f"{base}/{file.name}.gz", file.num_bytes, open_url) for file in files}

    return fetch


def download(url: str, limit: int, open_url: Open = open_url) -> bytes:
    """Return what lies at url, at most limit bytes of it."""
    return b"".join(pieces(url, limit, open_url, FILE_SECONDS))


def pieces(url: str, limit: int, open_url: Open, seconds: float) -> Iterator[bytes]:
    """Yield what lies at url piece by piece; raise if it has more than limit bytes or takes longer than so many seconds."""
    import http.client  # here, since planning needs no network

    deadline = time.monotonic() + seconds
    size = 0
    with open_url(url) as answer:
        while True:
            try:
                piece = answer.read(1 << 16)
            except http.client.HTTPException as error:
                raise OSError(f"{url}: the connection broke ({error!r})") from error
            if not piece:
                return
            yield piece
            size += len(piece)
            if size > limit + 1024:  # gzip adds a header to what it cannot make smaller
                raise DataError(f"{url} is longer than the {limit} bytes expected")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} took longer than {seconds:g} s")
