"""`fedtide report`, `fedtide explore`, and following a run under way."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedtide import config
from fedtide.errors import FedtideError
from fedtide.pages.live import _server
from fedtide.runs import RunFolder

Followed = tuple[Path, ThreadingHTTPServer, int]  # the run, the server, and the lock of whoever works on the run


def _fedtide(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fedtide", *map(str, words)], capture_output=True, text=True)


def test_report_writes_one_file(made_run: Callable[..., Path], tmp_path: Path) -> None:
    to = tmp_path / "page.html"
    done = _fedtide("report", made_run(), "-o", to)
    assert (done.returncode, done.stdout) == (0, "")
    assert to.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{no}"], 4, "not found"),
        (["{empty}"], 4, "neither a run folder"),
        (["{run}", "{empty}"], 4, "name only runs, or one study"),
        (["{run}"] * 33, 2, "33 runs"),
        (["{run}", "-o", "{empty}"], 2, "is a folder"),
        (["{run}", "-o", "{no}/page.html"], 4, "cannot be written"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], code: int, said: str, made_run: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"run": made_run(), "empty": tmp_path / "empty", "no": tmp_path / "no"}
    done = _fedtide("report", *(each.format(**places) for each in words))
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_explore_says_where_the_page_is(made_run: Callable[..., Path]) -> None:
    done = _fedtide("explore", made_run(), "--no-browser")
    assert done.returncode == 0
    found = re.search(r"file://(\S+)", done.stderr)
    assert found
    path = Path(found[1])
    assert path.read_bytes().startswith(b"<!doctype html>")
    shutil.rmtree(path.parent)


@pytest.fixture
def followed(made_run: Callable[..., Path], tmp_path: Path) -> Iterator[Followed]:
    """A server of a run that has not ended, as far as its folder says."""
    folder = tmp_path / "going"
    shutil.copytree(made_run(), folder)
    (folder / "model.npy").unlink()
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)  # as a process at work has it
    made = _server([folder])
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield folder, made, lock
    os.close(lock)
    made.shutdown()
    thread.join()
    made.server_close()


def _asked(made: ThreadingHTTPServer, path: str, **headers: str) -> tuple[int, bytes]:
    link = http.client.HTTPConnection("127.0.0.1", made.server_address[1], timeout=30)
    link.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = link.getresponse()
    found = answer.status, answer.read()
    link.close()
    return found


def test_the_server_answers_this_machine_and_says_what_is_new(
    followed: Followed, made_run: Callable[..., Path]
) -> None:
    folder, made, _ = followed
    assert made.server_address[0] == "127.0.0.1"
    assert b"connect-src 'self'" in _asked(made, "/")[1]
    code, content = _asked(made, "/data")
    tree = json.loads(content)
    assert (code, tree["runs"][0]["complete"]) == (200, False)
    assert _asked(made, "/data", X_Seen=tree["live"]) == (304, b"")
    assert _asked(made, "/../../etc/passwd")[0] == 404
    assert _asked(made, "/", Host="example.org:80")[0] == 403
    shutil.copy(made_run() / "model.npy", folder)
    code, content = _asked(made, "/data", X_Seen=tree["live"])
    assert (code, json.loads(content)["runs"][0]["complete"]) == (200, True)


def test_the_page_follows(followed: Followed, made_run: Callable[..., Path], browser: Any) -> None:
    folder, made, _ = followed
    browser.get_log("browser")
    browser.get(f"http://127.0.0.1:{made.server_address[1]}/")
    assert browser.find_element("id", "live").text == "following the run: aggregation 20 of 20"
    shutil.copy(made_run() / "model.npy", folder)
    browser.set_script_timeout(20)
    browser.execute_async_script(
        """const [done] = arguments, wait = () =>
        document.getElementById("live").textContent === "the run is complete" ? done() : setTimeout(wait, 50); wait()"""
    )
    assert "aggregation 20," in browser.find_element("id", "now").text
    assert browser.find_element("css selector", "#run0 .facts").text.endswith("simulated · complete")
    first = browser.find_element("css selector", "#run0 .numbers dt")
    assert first.get_attribute("textContent") == "final test accuracy"
    assert not browser.get_log("browser")


def test_the_page_notices_that_a_run_was_stopped(followed: Followed, browser: Any) -> None:
    _, made, lock = followed
    browser.get_log("browser")
    browser.get(f"http://127.0.0.1:{made.server_address[1]}/")
    facts = browser.find_element("css selector", "#run0 .facts")
    assert facts.text.endswith("under way, at time 5 T_max")
    fcntl.flock(lock, fcntl.LOCK_UN)
    browser.set_script_timeout(20)
    browser.execute_async_script(
        """const [done] = arguments, wait = () =>
        document.getElementById("live").textContent.startsWith("following") ? setTimeout(wait, 50) : done(); wait()"""
    )
    assert browser.find_element("id", "live").text.startswith("the run has stopped before its end")
    assert facts.text.endswith("not complete, at time 5 T_max")
    browser.execute_script("window.asked = 0; window.fetch = () => { window.asked += 1; return Promise.reject(); }")
    browser.execute_async_script("setTimeout(arguments[0], 1700)")
    assert browser.execute_script("return window.asked") == 0
    assert not browser.get_log("browser")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port},evil.example", "localhost:evil", "127.0.0.1", "127.0.0.1:{port}:80", "[::1]:{port}", ""]
)
def test_another_host_is_not_answered(host: str, followed: Followed) -> None:
    _, made, _ = followed
    port = made.server_address[1]
    assert _asked(made, "/", Host=host.format(port=port))[0] == 403
    assert _asked(made, "/", Host=f"localhost:{port}")[0] == 200


def _said(made: ThreadingHTTPServer, words: bytes) -> bytes:
    """Send bytes as they are and return the answer."""
    with socket.create_connection(("127.0.0.1", made.server_address[1]), timeout=10) as link:
        link.sendall(words)
        found = b""
        while more := link.recv(65536):
            found += more
    return found


@pytest.mark.parametrize(
    "words",
    [
        b"GET HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        b"GET  HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\xff<script>\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        b"<IMG> / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["no path", "empty path", "HTTP/0.9", "no HTTP", "POST", "a method", "a version", "two hosts", "a long line"],
)
def test_a_wrong_question_gets_a_plain_answer(
    words: bytes, followed: Followed, capfd: pytest.CaptureFixture[str]
) -> None:
    _, made, _ = followed
    answer = _said(made, words.replace(b"{port}", str(made.server_address[1]).encode()))
    assert re.match(rb"HTTP/1\.0 [45]\d\d ", answer), answer[:80]
    assert b"Content-Type: text/plain" in answer
    assert b"frame-ancestors 'none'" in answer
    assert b"<" not in answer
    assert capfd.readouterr().err == ""


def test_every_answer_has_the_headers_that_keep_others_out(followed: Followed) -> None:
    _, made, _ = followed
    for path in ("/", "/data", "/nothing"):
        link = http.client.HTTPConnection("127.0.0.1", made.server_address[1], timeout=30)
        link.request("GET", path)
        answer = link.getresponse()
        content = answer.read().decode()
        link.close()
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert policy.endswith("; frame-ancestors 'none'")
        assert (path == "/") == ("script-src 'sha256-" in policy)
        if path == "/":  # what the page says of itself, and more
            assert f'content="{policy.removesuffix("; frame-ancestors " + repr("none"))}"' in content
        wanted = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
        assert {name: answer.headers[name] for name in wanted} == wanted
        assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_idle_connections_keep_nobody_out_and_end(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _, made, _ = followed
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", made.server_address[1]), timeout=10) for _ in range(100)]
    assert _asked(made, "/data")[0] == 200
    assert threading.active_count() - before <= 33
    assert idle[0].recv(1) == b""  # the oldest was hung up on
    for number, each in enumerate(idle):  # some leave, some break the connection off
        if number % 2:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.close()
    monkeypatch.setattr(made.RequestHandlerClass, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", made.server_address[1]), timeout=10) as silent:
        assert silent.recv(1) == b""
    assert capfd.readouterr().err == ""


def test_a_connection_that_breaks_off_is_no_news(followed: Followed, capfd: pytest.CaptureFixture[str]) -> None:
    _, made, _ = followed
    port = made.server_address[1]
    for words in (b"", b"GET", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port):
        for _ in range(3):
            link = socket.create_connection(("127.0.0.1", port), timeout=10)
            link.sendall(words)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.close()  # with a reset
    assert _asked(made, "/data")[0] == 200
    assert capfd.readouterr().err == ""


def _live(*folders: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "fedtide", "explore", "--live", "--no-browser", *map(str, folders)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_live_of_too_many_runs_is_refused(made_run: Callable[..., Path]) -> None:
    done = _live(*[made_run()] * 33)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "33 runs: a page shows 1 to 32" in done.stderr


def test_live_of_a_run_that_nobody_works_on_and_that_has_nothing_yet_is_refused(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", config.experiment({})).close()
    done = _live(tmp_path / "run")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "has no finished aggregation and no process is working on it" in done.stderr


def test_live_of_what_cannot_be_shown_is_refused(made_run: Callable[..., Path], tmp_path: Path) -> None:
    shutil.copytree(made_run(), tmp_path / "run")
    with open(tmp_path / "run" / "rounds.jsonl", "r+b") as file:
        file.write(b"x")
    done = _live(tmp_path / "run")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "rounds.jsonl is damaged" in done.stderr


def test_a_port_in_use_is_named(made_run: Callable[..., Path]) -> None:
    with _server([made_run()]) as first, pytest.raises(FedtideError, match=r"--port \d+ cannot be used .*another port"):
        _server([made_run()], first.server_address[1])


def test_a_study_is_followed_to_its_end(tmp_path: Path, browser: Any) -> None:
    """The page is loaded anew with every run, at the same address, and says how far the study is."""
    from fedtide.pages.live import LivePages
    from fedtide.pages.study import follow_study
    from fedtide.studies.store import Store
    from stored import put, two_variants

    study, store = two_variants(), Store(tmp_path / "results")
    *early, last = study.runs
    for run in early:
        put(store, run, "avx2")
    made = _server([tmp_path], 0, LivePages(*follow_study(study, store.folder)))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        browser.get_log("browser")
        browser.get(f"http://127.0.0.1:{made.server_address[1]}/#x=bits")
        assert browser.find_element("id", "live").text == "following the study: 5 of 6 runs"
        put(Store(store.folder), last, "avx2")
        deadline = time.monotonic() + 30
        said = "return (document.getElementById('live') || {}).textContent"  # the page may just be loading anew
        while browser.execute_script(said) != "the study is complete":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert browser.current_url.endswith("#x=bits")
        assert browser.find_element("id", "x").get_attribute("value") == "bits"
        assert not browser.get_log("browser")
    finally:
        made.shutdown()
        thread.join()
        made.server_close()
