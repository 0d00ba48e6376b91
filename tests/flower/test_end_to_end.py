"""Real SuperLinks, SuperNodes and ServerApps on loopback. Slow: stock Flower starts a process for every message."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide import config
from fedtide.deploy import trace
from fedtide.deploy.credentials import make_credentials
from fedtide.deploy.demo import Federation
from fedtide.deploy.replay import replay
from fedtide.deploy.settings import Deployment, Terms, write_app
from fedtide.deploy.watchdog import _federation_processes
from fedtide.runs import is_complete, read_rounds

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from soak import Proxy  # type: ignore[import-not-found]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc"),
]

BASE: dict[str, Any] = {
    "seed": 5,
    "data": {"name": "synthetic", "num_train": 1400, "num_test": 200, "partition": "shards", "num_shards": 28},
    "policy": {"limit": 4},
    "radio": {"num_symbols": 40_000},
    "learning": {"model": "softmax", "local_epochs": 1, "batch_size": 20, "learning_rate": 0.05},
}


def terms(num_devices: int, period: float, periods: int, min_nodes: int) -> Terms:
    tree = {
        "fleet": {"num_devices": num_devices, "max_duration": 4 * period},
        "timeline": {"period": period, "horizon": period * periods},
    }
    return Terms(config.experiment(BASE, tree), Deployment(min_nodes=min_nodes, poll=0.5, deadline=1.0))


def wait_for(what: str, condition: Callable[[], bool], seconds: float, home: Path) -> None:
    """Wait, and show the logs if it was in vain."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            logs = "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in home.parent.rglob("*.log"))
            pytest.fail(f"{what} did not happen in {seconds:.0f} s\n{logs}")
        time.sleep(0.3)


def server_apps(home: Path) -> list[int]:
    """Return the processes that run a ServerApp."""
    found = []
    for pid in _federation_processes(home):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found += [pid] if any(word.endswith(b"flwr-serverapp") for word in words[:2]) else []
    return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process and what it started, as a power cut would."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    doomed = [process.pid]
    for pid in doomed:  # it grows while it is read
        doomed += [child for child, parent in parents.items() if parent == pid]
    for pid in reversed(doomed):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(10)


def check_replay(folder: Path, periods: int) -> trace.Trace:
    """Check that the run is whole and that its trace gives the same bits."""
    assert len(read_rounds(folder)) == periods
    recorded = trace.read_trace(folder)
    assert len(recorded.periods) == periods
    result = replay(folder)
    assert result.first_difference is None
    assert result.compared == periods
    assert np.array_equal(result.model, np.load(folder / "model.npy"))
    return recorded


def test_six_nodes_and_one_is_killed(tmp_path: Path) -> None:
    periods, run = 6, tmp_path / "run"
    app = write_app(tmp_path / "app", terms(7, 12.0, periods, 6), run)
    with Federation(tmp_path / "home") as federation:
        federation.start_superlink()
        nodes = [federation.start_node(f"node-{k}", {"partition-id": k, "pace": 0.5 * k}) for k in range(6)]
        federation.flwr("run", str(app), "here")
        wait_for("the second period", lambda: len(read_rounds(run)) >= 2, 120, federation.home)
        kill(nodes[0])  # SIGKILL, with all that it had started
        federation.start_node("node-0-again", {"partition-id": 0})
        wait_for("the end", lambda: is_complete(run), 180, federation.home)
    assert _federation_processes(federation.home) == []
    recorded = check_replay(run, periods)
    assert sum(len(each.arrived) for each in recorded.periods) >= 4
    holders = {node for each in recorded.periods for node, data in zip(each.node, each.data, strict=True) if data == 0}
    assert recorded.periods[-1].nodes["6"] in holders  # the newcomer has trained on the same data


def test_tls_keys_strangers_and_a_server_that_is_killed(tmp_path: Path) -> None:
    periods, run = 6, tmp_path / "run"
    app = write_app(tmp_path / "app", terms(4, 12.0, periods, 2), run)
    credentials = make_credentials(tmp_path / "keys", ["localhost", "127.0.0.1"], 3)
    with Federation(tmp_path / "home", credentials) as federation:
        federation.start_superlink()
        for _, public in credentials.nodes[:2]:
            federation.flwr("supernode", "register", str(public), "here")
        first = federation.start_node("node-0", {"partition-id": 0}, credentials.nodes[0][0])
        federation.start_node("node-1", {"partition-id": 1}, credentials.nodes[1][0])
        # strangers: a key that nobody registered, and no key at all
        federation.start_node("stranger-2", {"partition-id": 2}, credentials.nodes[2][0])
        federation.start_node("stranger-3", {"partition-id": 2})
        federation.flwr("run", str(app), "here")
        wait_for("the second period", lambda: len(read_rounds(run)) >= 2, 120, federation.home)
        before = (run / "rounds.jsonl").read_bytes()
        kill(federation.superlink)
        for pid in server_apps(federation.home):
            os.kill(pid, signal.SIGKILL)
        wait_for("the ServerApp's end", lambda: not server_apps(federation.home), 20, federation.home)
        kill(first)
        federation.start_superlink()
        federation.flwr("run", str(app), "here")
        again: list[subprocess.Popen[bytes]] = []

        def is_back() -> bool:
            """Flower refuses the key until it has noticed that its node is dead: start it until it is accepted."""
            if not again or again[-1].poll() is not None:
                again.append(federation.start_node("node-0-again", {"partition-id": 0}, credentials.nodes[0][0]))
            return "SuperNode ID" in (federation.home / "node-0-again.log").read_text()

        wait_for("the first node's return", is_back, 120, federation.home)
        wait_for("the end", lambda: is_complete(run), 180, federation.home)
        after = (run / "rounds.jsonl").read_bytes()
    assert _federation_processes(federation.home) == []
    assert after.startswith(before)  # nothing lost
    recorded = check_replay(run, periods)
    seen = {node for each in recorded.periods for node in each.nodes.values()}
    assert len(seen) == 2  # the strangers never took a seat, and the key kept its number
    for stranger in ("stranger-2", "stranger-3"):
        assert "SuperNode ID" not in (federation.home / f"{stranger}.log").read_text()
    assert any(each.arrived for each in recorded.periods)


PERIOD = 6.0


def fault_terms(min_nodes: int) -> Terms:
    """Return a federation of four in which the server never waits for uploads beyond three fifths of a period."""
    wanted = terms(4, PERIOD, 100, min_nodes)
    return wanted._replace(deployment=wanted.deployment.model_copy(update={"deadline": 0.6}))


CLOCK_IS_OFF = """
import datetime, sys, time
seconds, read = float(sys.argv.pop(1)), time.time
time.time = lambda: read() + seconds
from flwr.supercore import date
now = date.now
date.now = lambda: now() + datetime.timedelta(seconds=seconds)
from fedtide.__main__ import main
main()
"""


def start_thin(federation: Federation, part: int, address: str, clock: float = 0.0) -> subprocess.Popen[bytes]:
    """Start a thin node whose clock is so many seconds ahead."""
    program = ["python", "-c", CLOCK_IS_OFF, str(clock)] if clock else ["fedtide"]
    return federation.start(f"node-{part}", [*program, "deploy", "node", address, "-c", f"partition-id={part}"])


def wait_until(federation: Federation, run: Path, rounds: int) -> None:
    wait_for(f"period {rounds}", lambda: len(read_rounds(run)) >= rounds, 90, federation.home)


def check_ticks(run: Path, restarts: int = 0) -> list[trace.Period]:
    """Check that every tick was on time, and that the trace gives the same bits."""
    recorded = trace.read_trace(run).periods
    result = replay(run)
    assert result.first_difference is None
    assert result.compared == len(recorded)
    found = [each.timing for each in recorded if each.timing]
    assert len(found) == len(recorded)
    assert all(each.late < PERIOD and each.skipped == 0 for each in found)
    due = np.array([each.wall - timing.late for each, timing in zip(recorded, found, strict=True)])
    steps = np.diff(due)
    assert (
        np.isclose(steps, PERIOD, atol=1e-3).sum() >= len(steps) - restarts
    )  # all but those after a server's new start
    assert max(steps) < 2 * PERIOD + 10
    return list(recorded)


@pytest.mark.integration
def test_ticks_under_faults(tmp_path: Path) -> None:
    """Nodes are stopped, the SuperLink hangs, both servers are killed: every tick is on time, and the trace is whole."""
    run = tmp_path / "run"
    app = write_app(tmp_path / "app", fault_terms(4), run)

    def signal_all(processes: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
        for process in processes:
            process.send_signal(number)

    with Federation(tmp_path / "home") as federation:
        federation.start_superlink()
        nodes = [start_thin(federation, k, federation.address) for k in range(4)]
        federation.flwr("run", str(app), "here")
        wait_until(federation, run, 2)
        for stopped, until in ((nodes[:1], 4), (nodes[:2], 6), (nodes, 7), ([federation.superlink], 9)):
            signal_all(stopped, signal.SIGSTOP)
            wait_until(federation, run, until)
            signal_all(stopped, signal.SIGCONT)
        wait_until(federation, run, 10)
        before = (run / "rounds.jsonl").read_bytes()
        for pid in server_apps(federation.home):
            os.kill(pid, signal.SIGKILL)
        wait_for("the ServerApp's end", lambda: not server_apps(federation.home), 20, federation.home)
        federation.flwr("run", str(app), "here")
        wait_until(federation, run, 11)
        kill(federation.superlink)
        wait_for("the ServerApp's end", lambda: not server_apps(federation.home), 20, federation.home)
        federation.start_superlink()
        federation.flwr("run", str(app), "here")
        wait_for(
            "an update", lambda: any(each.arrived for each in trace.read_trace(run).periods[11:]), 150, federation.home
        )
    assert (run / "rounds.jsonl").read_bytes().startswith(before)
    recorded = check_ticks(run, restarts=2)
    assert any(each.arrived for each in recorded[:8])


@pytest.mark.integration
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small disk")
def test_ticks_under_a_partition_a_full_disk_and_wrong_clocks(tmp_path: Path) -> None:
    """Two of three nodes are cut off, then the disk is full. One clock is 200 s late; one is too far ahead to be let in."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], check=True)
    try:
        run = disk / "run"
        app = write_app(tmp_path / "app", fault_terms(3), run)
        with Federation(tmp_path / "home") as federation:
            federation.start_superlink()
            proxy = Proxy(federation.address)
            start_thin(federation, 0, federation.address)
            start_thin(federation, 1, federation.address, 3600.0)  # Flower lets in who is 5 s ahead at most
            start_thin(federation, 2, proxy.address)
            start_thin(federation, 3, proxy.address, -200.0)
            federation.flwr("run", str(app), "here")
            wait_until(federation, run, 5)
            proxy.cut = True
            wait_until(federation, run, 8)
            proxy.cut = False
            wait_until(federation, run, 10)
            with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
                while True:
                    ballast.write(bytes(4096))
            began, saved = time.monotonic(), len(read_rounds(run))
            time.sleep(2.2 * PERIOD)
            assert len(read_rounds(run)) <= saved + 1  # one may have been on its way
            (disk / "ballast").unlink()
            assert "set this machine's clock" in (federation.home / "node-1.log").read_text()
            wait_until(federation, run, saved + int((time.monotonic() - began) / PERIOD) + 3)
        recorded = check_ticks(run)
        assert all(len(each.arrived) <= 1 for each in recorded[6:8])
        assert any(each.timing.unsaved >= 2 for each in recorded if each.timing)
        for part in (recorded[:5], recorded[9:]):
            assert {device for each in part for device in each.ready} == {0, 1, 2}
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
