"""`fedtide report`, `fedtide explore`, and following a run under way."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedtide.pages.live import server


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
        (["{no}"], 4, "there is no"),
        (["{empty}"], 4, "no run folder"),
        (["{run}", "{empty}"], 4, "name one run, two runs, or a study"),
        (["{run}", "{run}", "{run}"], 2, "3 runs"),
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
def followed(made_run: Callable[..., Path], tmp_path: Path) -> Iterator[tuple[Path, ThreadingHTTPServer]]:
    """A server of a run that has not ended, as far as its folder says."""
    folder = tmp_path / "going"
    shutil.copytree(made_run(), folder)
    (folder / "model.npy").unlink()
    made = server([folder])
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield folder, made
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
    followed: tuple[Path, ThreadingHTTPServer], made_run: Callable[..., Path]
) -> None:
    folder, made = followed
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


def test_the_page_follows(
    followed: tuple[Path, ThreadingHTTPServer], made_run: Callable[..., Path], browser: Any
) -> None:
    folder, made = followed
    browser.get_log("browser")
    browser.get(f"http://127.0.0.1:{made.server_address[1]}/")
    assert browser.find_element("id", "live").text == "following the run"
    shutil.copy(made_run() / "model.npy", folder)
    browser.set_script_timeout(20)
    browser.execute_async_script(
        """const [done] = arguments, wait = () =>
        document.getElementById("live").textContent === "the run is complete" ? done() : setTimeout(wait, 50); wait()"""
    )
    assert "aggregation 20," in browser.find_element("id", "now").text
    assert not browser.get_log("browser")
