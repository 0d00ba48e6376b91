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


@pytest.mark.integration
def test_ticks_under_faults(tmp_path: Path) -> None:
    """Nodes are stopped, the SuperLink hangs, both servers are killed: every tick is on time, and the trace is whole."""
    period, run = 6.0, tmp_path / "run"
    wanted = terms(4, period, 100, 4)
    wanted = wanted._replace(deployment=wanted.deployment.model_copy(update={"deadline": 0.6}))
    app = write_app(tmp_path / "app", wanted, run)

    def wait_until(rounds: int) -> None:
        wait_for(f"period {rounds}", lambda: len(read_rounds(run)) >= rounds, 90, federation.home)

    def signal_all(processes: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
        for process in processes:
            process.send_signal(number)

    with Federation(tmp_path / "home") as federation:
        federation.start_superlink()
        node = ["fedtide", "deploy", "node", federation.address]
        nodes = [federation.start(f"node-{k}", [*node, "-c", f"partition-id={k}"]) for k in range(4)]
        federation.flwr("run", str(app), "here")
        wait_until(2)
        for stopped, until in ((nodes[:1], 4), (nodes, 5), ([federation.superlink], 7)):
            signal_all(stopped, signal.SIGSTOP)
            wait_until(until)
            signal_all(stopped, signal.SIGCONT)
        wait_until(8)
        before = (run / "rounds.jsonl").read_bytes()
        for pid in server_apps(federation.home):
            os.kill(pid, signal.SIGKILL)
        wait_for("the ServerApp's end", lambda: not server_apps(federation.home), 20, federation.home)
        federation.flwr("run", str(app), "here")
        wait_until(9)
        kill(federation.superlink)
        wait_for("the ServerApp's end", lambda: not server_apps(federation.home), 20, federation.home)
        federation.start_superlink()
        federation.flwr("run", str(app), "here")
        wait_for(
            "an update", lambda: any(each.arrived for each in trace.read_trace(run).periods[9:]), 150, federation.home
        )
    assert (run / "rounds.jsonl").read_bytes().startswith(before)
    recorded = trace.read_trace(run).periods
    result = replay(run)
    assert result.first_difference is None
    assert result.compared == len(recorded)
    found = [each.timing for each in recorded if each.timing]
    assert len(found) == len(recorded)
    assert all(each.late < period and each.skipped == 0 for each in found)
    due = np.array([each.wall - timing.late for each, timing in zip(recorded, found, strict=True)])
    steps = np.diff(due)
    assert np.isclose(steps, period, atol=1e-3).sum() >= len(steps) - 2  # all but those after a server's new start
    assert max(steps) < 2 * period + 10
    assert any(each.arrived for each in recorded[:8])
