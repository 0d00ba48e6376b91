"""Ctrl-C, SIGTERM and SIGHUP at any moment: a documented exit code, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
SMALL = ["data.name=synthetic", "data.num_train=200", "data.num_test=50", "data.num_shards=20", "fleet.num_devices=6",
         "policy.limit=2", "learning.model=softmax", "learning.local_epochs=1"]  # fmt: skip
# Sends a signal to itself at the first call of a function in a file.
AT_A_CALL = """
import os, sys
file, name, number, *sys.argv[1:] = sys.argv[1:]
def look(frame, event, arg):
    if event == "call" and frame.f_code.co_name == name and frame.f_code.co_filename.endswith(file):
        sys.setprofile(None)
        os.kill(os.getpid(), int(number))
sys.setprofile(look)
from fedtide.__main__ import main
main()
"""
PARTS, RUN = ["parts", "scheduler", "--json"], ["run", *SMALL, "timeline.horizon=1", "-o", "r"]
MOMENTS = {
    "fedtide.cli is imported": ("fedtide/cli/main.py", "<module>", PARTS),
    "between the handlers and the border": ("cli/command.py", "main", PARTS),
    "a command is left": ("click/core.py", "__exit__", PARTS),
    "on the way out": ("core/signals.py", "leave_signals", PARTS),
    "the interpreter ends": ("threading.py", "_shutdown", PARTS),
    "the output is flushed": ("cli/console.py", "flush_console", PARTS),
    "a run folder is opened": ("runs/folder.py", "open", RUN),
    "a run is finished": ("runs/folder.py", "finish", RUN),
    "the figure is drawn": ("plot/run.py", "run_figure", RUN),
}


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _heard() -> None:
    """Do not ignore Ctrl-C: shells ignore it for what runs in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_at_a_moment(moment: str, number: signal.Signals) -> None:
    file, name, words = MOMENTS[moment]
    command = [sys.executable, "-c", AT_A_CALL, file, name, str(int(number)), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=_heard, check=False)
    assert done.returncode == 128 + number
    assert len(done.stderr.splitlines()) <= 1
    assert "Traceback" not in done.stderr


def test_a_signal_while_python_is_taken_down() -> None:
    """Python has put the default handlers back by then, which kill."""
    script = (
        "import os, sys\nfrom fedtide import __main__\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, own=os.getpid()):\n"
        "        kill(own, 15)\n"
        "sys.last = Last()\n__main__.main()\n"
    )
    assert subprocess.run([sys.executable, "-c", script, "--version"], timeout=60, check=False).returncode == 0


def test_a_signal_within_an_exec() -> None:
    """Python remembers that Ctrl-C came out of an exec, as of a dataclass that is made, and then ends by SIGINT."""
    script = (
        "import os\nfrom fedtide import __main__\nfrom fedtide.cli import main\n"
        "def app(**_):\n"
        "    try: exec('os.kill(os.getpid(), 15)')\n"
        "    except KeyboardInterrupt: raise SystemExit(143)\n"
        "main.app.main = app\n__main__.main()\n"
    )
    Path("as_module.py").write_text(script)
    assert subprocess.run([sys.executable, "-m", "as_module"], timeout=60, check=False).returncode == 143


def _in_hand(pid: int, number: int) -> bool:
    """Say whether a process has a handler of its own for a signal; Python itself has one for Ctrl-C, and is soon past it."""
    try:
        caught = Path(f"/proc/{pid}/status").read_text().split("SigCgt:")[1].split()[0]
    except (OSError, IndexError):
        return True
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1) and bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_many_times(number: signal.Signals) -> None:
    """To a whole process group, as a terminal sends it: to the workers of a study, too."""
    Path("study.yaml").write_text(
        "version: 1\nname: st\nseeds: 2\naxes: {policy.limit: [1, 2]}\n"
        "base: {data: {name: synthetic, num_train: 200, num_test: 50, num_shards: 20}, fleet: {num_devices: 6}, "
        "learning: {model: softmax, local_epochs: 1}, timeline: {horizon: 2}}\n"
    )

    def begin(store: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "fedtide", "study", "run", "study.yaml", "-j", "2", "-s", store]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                start_new_session=True, preexec_fn=_heard)  # fmt: skip

    begun = time.monotonic()
    assert begin("whole").communicate(timeout=60)
    whole = time.monotonic() - begun
    for part in range(5):
        process = begin(f"s{part}")
        time.sleep(whole * (0.1 + 0.18 * part))
        while process.poll() is None and not _in_hand(process.pid, number):  # Python itself starts first
            time.sleep(0.002)
        if process.poll() is None:
            os.killpg(process.pid, number)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (0, 128 + number)
        assert "Traceback" not in said
        assert "Warning" not in said
