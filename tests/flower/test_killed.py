"""A real demo that is killed at some stage of its start-up leaves no process, no port and no temporary file behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc"),
]


def flower_processes(place: Path) -> dict[int, str]:
    """Return the processes whose FLWR_HOME lies below a place, each with its command."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={place}/".encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("number", "stage", "code"),
    [
        (signal.SIGKILL, "flwr-serverapp", -9),
        (signal.SIGTERM, "flower-superlink", None),
    ],
)
def test_a_killed_demo(tmp_path: Path, number: signal.Signals, stage: str, code: int | None) -> None:
    program = str(Path(sys.executable).parent / "fedtide")
    words = [program, "deploy", "demo", "--synthetic", "--nodes", "2", "--periods", "2", "--out", str(tmp_path / "run")]
    home = tmp_path / "temporary"
    home.mkdir()
    with subprocess.Popen(
        [*words, "data.num_train=600", "data.num_test=50", "learning.model=softmax"],
        env={**os.environ, "TMPDIR": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as demo:
        until = time.monotonic() + 90
        while not any(stage in command for command in flower_processes(home).values()):
            assert demo.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        demo.send_signal(number)
        _, told = demo.communicate(timeout=60)
    assert b"Traceback" not in told
    if code is None:
        assert demo.returncode in (130, 143)
    else:
        assert demo.returncode == code
    until = time.monotonic() + 20
    while flower_processes(home) or list(home.iterdir()):
        assert time.monotonic() < until, (flower_processes(home), list(home.iterdir()))
        time.sleep(0.1)
