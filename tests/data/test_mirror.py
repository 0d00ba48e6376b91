from __future__ import annotations

import gzip
import http.client
import io
import threading
import time
import urllib.error
import urllib.request

import pytest

from fedtide.data import fetch as module
from fedtide.data.fetch import mirror, open_url
from fedtide.data.mnist import MIRRORS
from fedtide.errors import DataError


def test_it_asks_for_the_wanted_files_only(tiny):
    asked = []

    def serve(url):
        asked.append(url)
        return io.BytesIO(gzip.compress(tiny.raws[url.rsplit("/", 1)[1].removesuffix(".gz")]))

    got = mirror("https://example.org/mnist", serve)(tiny.files[1:3])
    assert asked == [f"https://example.org/mnist/{file.name}.gz" for file in tiny.files[1:3]]
    assert {name: gzip.decompress(data) for name, data in got.items()} == {
        file.name: tiny.raws[file.name] for file in tiny.files[1:3]
    }


def test_a_host_that_cannot_be_reached_is_asked_once(tiny):
    asked = []

    def fail(url):
        asked.append(url)
        raise urllib.error.URLError(OSError(-2, "Name or service not known"))

    with pytest.raises(OSError):
        mirror("https://example.org/mnist", fail)(tiny.files)
    assert len(asked) == 1


def test_an_endless_or_broken_answer_ends(tiny, monkeypatch):
    class Endless(io.RawIOBase):
        def read(self, size=-1):
            return bytes(size)

    with pytest.raises(DataError, match="longer than"):
        mirror("https://example.org", lambda _: Endless())(tiny.files)

    class Broken(io.RawIOBase):
        def read(self, size=-1):
            raise http.client.IncompleteRead(b"x")

    with pytest.raises(OSError, match="connection broke"):
        mirror("https://example.org", lambda _: Broken())(tiny.files)

    monkeypatch.setattr(module, "FILE_SECONDS", -1.0)
    with pytest.raises(TimeoutError, match="took longer"):
        mirror("https://example.org", lambda _: io.BytesIO(b"slow"))(tiny.files)


def test_mirrors_are_https_and_time_outs_short():
    assert all(base.startswith("https://") for base in MIRRORS)
    assert module.MIRROR_CONNECT_SECONDS <= 5


def test_open_url_hands_on_answers_and_errors(monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(b"hello"))
    assert open_url("https://example.org").read() == b"hello"
    for error in (urllib.error.URLError("no route"), ConnectionResetError("reset"), http.client.BadStatusLine("x")):

        def fail(url, timeout, error=error):
            raise error

        monkeypatch.setattr(urllib.request, "urlopen", fail)
        with pytest.raises(OSError):
            open_url("https://example.org")


def test_open_url_does_not_wait_for_a_silent_host(monkeypatch):
    release, closed = threading.Event(), threading.Event()

    class Late(io.BytesIO):
        def close(self):
            closed.set()

    def hang(url, timeout):
        release.wait(10)
        return Late()

    monkeypatch.setattr(urllib.request, "urlopen", hang)
    monkeypatch.setattr(module, "MIRROR_CONNECT_SECONDS", 0.05)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within"):
        open_url("https://example.org")
    assert time.monotonic() - began < 5
    release.set()
    assert closed.wait(5), "an answer that comes too late must be closed"
