"""A federation for some minutes on this machine: drift of its ticks, memory of its server, cost of an update, and the replay.

python benchmarks/soak.py --minutes 60                              twelve nodes, a tick every ten seconds
python benchmarks/soak.py --minutes 3 --nodes 24 --period 5         every node uploads in every period
python benchmarks/soak.py --minutes 3 --nodes 4 --idle              what nodes cost that wait
python benchmarks/soak.py --minutes 10 --stock                      with Flower's own SuperNodes
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config
from fedtide.deploy import trace
from fedtide.deploy.demo import Federation
from fedtide.deploy.log import server_error
from fedtide.deploy.replay import replay
from fedtide.deploy.settings import Deployment, Terms, write_app
from fedtide.deploy.watchdog import _federation_processes
from fedtide.runs import is_complete, read_rounds

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def terms(nodes: int, period: float, minutes: float, poll: float) -> Terms:
    """Return a federation in which everyone who is ready uploads."""
    count = max(2, round(60 * minutes / period))
    tree: dict[str, Any] = {
        "seed": 7,
        "data": {"name": "synthetic", "num_train": 40 * nodes, "num_test": 200, "num_shards": 4 * nodes},
        "fleet": {"num_devices": nodes, "max_duration": 4 * period},
        "timeline": {"period": period, "horizon": period * count},
        "policy": {"limit": nodes},
        "radio": {"num_symbols": 4_000 * nodes},
        "learning": {"model": "softmax", "local_epochs": 1, "batch_size": 20, "learning_rate": 0.05},
    }
    return Terms(config.experiment(tree), Deployment(min_nodes=nodes, poll=poll, deadline=0.7))


class Proxy:
    """Passes bytes between nodes and the SuperLink, and counts them. While it is `cut`, nothing passes and nothing is closed."""

    def __init__(self, target: str) -> None:
        self.up, self.down, self.cut = 0, 0, False
        host, _, port = target.rpartition(":")
        started = threading.Event()

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 16):
                    while self.cut:
                        await asyncio.sleep(0.1)
                    setattr(self, way, getattr(self, way) + len(data))
                    writer.write(data)
                    await writer.drain()
            writer.close()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection(host, int(port))
            except OSError:  # the SuperLink has ended
                writer.close()
                return
            await asyncio.gather(pass_on(reader, back, "up"), pass_on(there, writer, "down"))

        async def main() -> None:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self.address = "127.0.0.1:" + str(server.sockets[0].getsockname()[1])
            started.set()
            await server.serve_forever()

        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
        started.wait(10)


def usage(home: Path) -> dict[str, tuple[float, float]]:
    """Return seconds of CPU and megabytes of each kind of process, those that they started and waited for included."""
    found: dict[str, tuple[float, float]] = {}
    for pid in _federation_processes(home):
        with contextlib.suppress(OSError, IndexError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            name = next((Path(word.decode()).name for word in words[1:3] if b"/" in word), "other")
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            seconds = sum(int(each) for each in stat[11:15]) / _TICKS
            memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6
            before = found.get(name, (0.0, 0.0))
            found[name] = (before[0] + seconds, before[1] + memory)
    return found


def main() -> None:
    """Run it and print what was seen, as JSON."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--minutes", type=float, default=60.0)
    parse.add_argument("--nodes", type=int, default=12)
    parse.add_argument("--period", type=float, default=10.0)
    parse.add_argument("--look", type=float, default=1.0)
    parse.add_argument("--poll", type=float, default=0.5)
    parse.add_argument("--stock", action="store_true")
    parse.add_argument("--memory", action="store_true", help="the SuperLink's database in memory, not SQLite on disk")
    parse.add_argument("--idle", action="store_true")
    parse.add_argument("--keep", type=Path, help="keep the run folder and logs here")
    args = parse.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedtide-soak-") as temporary:
        base = args.keep.absolute() if args.keep else Path(temporary)
        print(json.dumps(soak(args, base), indent=2))


def soak(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    """Run a federation and return what was seen."""
    run = base / "run"
    app = write_app(base / "app", terms(args.nodes, args.period, args.minutes, args.poll), run)
    with Federation(base / "home") as federation:
        federation.start_superlink(":flwr-in-memory:" if args.memory else None)
        proxy = Proxy(federation.address)
        direct, federation.address = federation.address, proxy.address
        if args.stock:
            for part in range(args.nodes):
                federation.start_node(f"node-{part}", {"partition-id": part})
        else:
            words = [word for part in range(args.nodes) for word in ("-c", f"partition-id={part}")]
            federation.start("nodes", ["fedtide", "deploy", "node", proxy.address, "--look", str(args.look), *words])
        federation.address = direct
        time.sleep(15)
        if args.idle:
            return {"nodes": args.nodes, "look": args.look, "stock": args.stock, **_idle(proxy, federation, args)}
        federation.flwr("run", str(app), "here")
        memory, before, bytes_before, began = [], {}, (0, 0), time.monotonic()
        while not is_complete(run):
            if problem := server_error(run):
                sys.exit(problem)
            if time.monotonic() - began > 60 * args.minutes * 2 + 300:
                sys.exit(f"it does not end; see {base}")
            rounds = len(read_rounds(run)) if run.exists() else 0
            now = usage(federation.home)
            if rounds >= 2:  # by then everyone has loaded
                before, bytes_before = before or now, bytes_before if before else (proxy.up, proxy.down)
                memory += [now["flwr-serverapp"][1]] if "flwr-serverapp" in now else []
                after, bytes_after = now, (proxy.up, proxy.down)
            time.sleep(2)
    periods = trace.read_trace(run).periods
    counted = periods[2:]
    updates = sum(len(each.arrived) for each in counted)
    late = np.array([each.timing.late for each in periods if each.timing])
    tenth = max(1, len(memory) // 10)
    answers = [at - each.wall for each in counted for at in each.arrived_at]
    result = replay(run)
    return {
        "nodes": args.nodes,
        "periods": len(periods),
        "seconds": round(periods[-1].wall - periods[0].wall, 1),
        "period": args.period,
        "late": {"mean": late.mean().round(3), "largest": late.max().round(3), "last": late[-1].round(3)},
        "skipped": sum(each.timing.skipped for each in periods if each.timing),
        "drift": round(periods[-1].wall - periods[0].wall - args.period * (len(periods) - 1), 3),
        "updates": updates,
        "updates_per_second": round(updates / max(periods[-1].wall - periods[1].wall, 1e-9), 2),
        "missed": sum(len(each.picked) - len(each.arrived) for each in counted),
        "answer_seconds": [round(float(np.quantile(answers or [0], q)), 2) for q in (0.5, 0.95, 1.0)],
        "server_megabytes": [round(float(np.median(part)), 1) for part in (memory[tenth : 2 * tenth], memory[-tenth:])],
        "cpu_ms_per_update": {
            name: round(1000 * (seconds - before.get(name, (0.0, 0.0))[0]) / max(updates, 1), 1)
            for name, (seconds, _) in after.items()
        },
        "kilobytes_per_update": [
            round((b - a) / 1000 / max(updates, 1), 1) for a, b in zip(bytes_before, bytes_after, strict=True)
        ],
        "replayed_to_the_bit": result.first_difference is None and result.compared == len(periods),
    }


def _idle(proxy: Proxy, federation: Federation, args: argparse.Namespace) -> dict[str, Any]:
    before, begun = usage(federation.home), (proxy.up, proxy.down, time.monotonic())
    time.sleep(60 * args.minutes)
    minutes, after = (time.monotonic() - begun[2]) / 60, usage(federation.home)
    return {
        "kilobytes_per_node_and_minute": [
            round((now - then) / 1000 / minutes / args.nodes, 1)
            for now, then in zip((proxy.up, proxy.down), begun, strict=False)
        ],
        "cpu_ms_per_node_and_minute": {
            name: round(1000 * (seconds - before.get(name, (0.0, 0.0))[0]) / minutes / args.nodes, 1)
            for name, (seconds, _) in after.items()
        },
    }


if __name__ == "__main__":
    main()
