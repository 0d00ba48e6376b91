"""Unless they are told otherwise, trackers write files and nothing goes over the network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedtide.trackers import TRACKERS

OFFLINE = """
import sys
from pathlib import Path
from fedtide import config
from fedtide.runs import Ledger, RoundRecord
from fedtide.trackers import Trackers
trackers = Trackers(sys.argv[2:], lambda line: sys.exit(line))
trackers.begin(config.experiment({}), Path(sys.argv[1]), 1)
lists = [[0], [0], [1], [2.0], [3.0], [4.0], [5.0], [6], [7]]
trackers.round(RoundRecord(1, 0.1, *lists, 0.0, None, [1.0], 0.5, 1.0, None, Ledger()))
trackers.end(None)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_nothing_goes_over_the_network(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = ["strace", "--seccomp-bpf", "-f", "-qq", "-e", "trace=connect,sendto", "-o", str(trace)]
    probe = subprocess.run([*command, "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("strace may not trace here")
    done = subprocess.run(
        [*command, sys.executable, "-c", OFFLINE, str(tmp_path), *TRACKERS], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [line for line in trace.read_text().splitlines() if "AF_INET" in line] == []
