"""How a federation does, read from its run folder while it goes on: for people, for the live page, and for Prometheus.

Nothing is asked of the coordinator, which does not know that it is watched, and nothing in the folder is changed.
"""

from __future__ import annotations

import json
import os
import re
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from fedtide.deploy import trace
from fedtide.deploy.log import last_log_records
from fedtide.deploy.settings import acts_as_it_sees_fit
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs import RoundRecord, is_complete, read_run_header, run_folder_in_use

_MOST_REASONS: Final = 20  # for refused replies; a node that lies could make up more
_NUMBER: Final = re.compile(r"[-+]?\d[\w.+-]*")
_PATIENCE_PERIODS, _LEAST_PATIENCE = 3, 60.0  # without a period, and seconds, until a federation counts as stalled
_LAST_WARNINGS: Final = 5


class Status(NamedTuple):
    """A federation at this moment. Counts are over all periods."""

    folder: str
    running: bool  # a coordinator is at work
    complete: bool
    periods: int
    total: int | None  # periods in all; None: the server acts as it sees fit
    period: float  # seconds
    since: float | None  # seconds since the last period was saved
    accuracy: float | None  # the latest
    nodes: int  # that have a seat
    ready: int  # in the last period
    picked: int
    arrived: int
    refused: dict[str, int]  # replies, by reason
    bits_up: float
    bits_down: float
    late: float | None  # seconds by which the last period was late; None: not recorded
    late_most: float
    late_sum: float
    late_why: str  # of the last period
    skipped: int  # periods that had passed already and were left out
    memory: int | None  # bytes that the coordinator takes; None: not known here
    warnings: tuple[str, ...]  # the last ones

    @property
    def problem(self) -> str:
        """Say what is wrong with it; "" if nothing is."""
        if self.complete:
            return ""
        if not self.running:
            return "no coordinator is at work: `flwr run` the app again, which continues at the next period"
        patience = max(_PATIENCE_PERIODS * self.period, _LEAST_PATIENCE)
        if self.since is not None and self.since > patience:
            return f"the last period was {self.since:.0f} s ago, more than {patience:.0f} s"
        return ""


@dataclass
class _Lines:
    """Follows a file of lines that grows."""

    path: Path
    _at: int = 0
    _last: bytes = b""  # the last line that was read

    def were_cut(self) -> bool:
        """Say whether lines that were read are not there any more."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._at - len(self._last))
                return file.read(len(self._last)) != self._last
        except FileNotFoundError:
            return self._at > 0

    def new(self) -> list[bytes]:
        """Return the whole lines that have come since."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._at)
                content = file.read()
        except FileNotFoundError:
            return []
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        self._at += sum(map(len, lines))
        self._last = lines[-1] if lines else self._last
        return lines


@dataclass
class _Seen:
    """What was read of a federation's files so far."""

    rounds: _Lines
    periods: _Lines
    record: RoundRecord | None = None  # the last one
    period: dict[str, Any] = field(default_factory=dict)  # the last line of the trace
    accuracy: float | None = None
    sums: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    late_sum: float = 0.0
    late_most: float = 0.0

    def read_on(self) -> None:
        for line in self.rounds.new():
            self.record = record = RoundRecord.from_json(line.decode())
            self.accuracy = self.accuracy if record.test_accuracy is None else record.test_accuracy
            self.sums.update(picked=len(record.picked), arrived=record.num_arrived)
        for line in self.periods.new():
            self.period = json.loads(line)
            timing = self.period.get("timing", {})
            self.late_sum += timing.get("late", 0.0)
            self.late_most = max(self.late_most, timing.get("late", 0.0))
            self.sums.update(skipped=timing.get("skipped", 0))
            for refusal in self.period.get("refused", ()):  # the header has none
                reason = refusal_reason(refusal["why"])
                self.refused[reason if reason in self.refused or len(self.refused) < _MOST_REASONS else "other"] += 1


class Follower:
    """Follows a federation's run folder; only what is new since the last look is read."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._experiment, self._seen = folder, read_run_header(folder).experiment, self._nothing(folder)
        if not (folder / trace.NAME).exists():
            raise RunFolderError(f"{folder} holds a simulation: `fedtide show {folder}` says how it did")

    @staticmethod
    def _nothing(folder: Path) -> _Seen:
        return _Seen(_Lines(folder / "rounds.jsonl"), _Lines(folder / trace.NAME))

    def look(self) -> Status:
        """Return how it does now."""
        if self._seen.rounds.were_cut() or self._seen.periods.were_cut():  # a coordinator has begun again
            self._seen = self._nothing(self._folder)
        seen = self._seen
        seen.read_on()
        last, timing, keys = seen.record, seen.period.get("timing", {}), self._experiment.timeline
        causes = {name: timing[name] for name in ("uploads", "work", "overslept", "disk", "silent") if name in timing}
        try:
            since = max(time.time() - (self._folder / "rounds.jsonl").stat().st_mtime, 0.0)
        except OSError:
            since = None
        return Status(
            folder=str(self._folder),
            running=run_folder_in_use(self._folder),
            complete=is_complete(self._folder),
            periods=last.index if last else 0,
            total=None if acts_as_it_sees_fit(self._experiment) else round(keys.horizon / keys.period),
            period=keys.period,
            since=since,
            accuracy=seen.accuracy,
            nodes=len(seen.period.get("nodes", ())),
            ready=last.num_ready if last else 0,
            picked=seen.sums["picked"],
            arrived=seen.sums["arrived"],
            refused=dict(seen.refused),
            bits_up=last.ledger.bits if last else 0.0,
            bits_down=last.ledger.bits_down if last else 0.0,
            late=timing.get("late"),
            late_most=seen.late_most,
            late_sum=seen.late_sum,
            late_why=max(causes, key=causes.__getitem__) if timing.get("late") and causes else "",
            skipped=seen.sums["skipped"],
            memory=_coordinator_memory(self._folder),
            warnings=tuple(last_log_records(self._folder, _LAST_WARNINGS)),
        )


def refusal_reason(why: str) -> str:
    """Return why a reply was refused without its numbers, so that reasons can be counted."""
    return _NUMBER.sub("#", why)[:80]


def _coordinator_memory(folder: Path) -> int | None:
    """Return how many bytes the process takes that has locked a run folder; None where that cannot be found out."""
    try:
        lock = os.stat(folder / ".lock")
        place = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        pid = next(words[4] for words in held if words[1] == "FLOCK" and words[5] == place)
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, StopIteration, IndexError, ValueError):
        return None


def lasting_texts(status: Status) -> dict[str, str]:
    """Return what does not depend on when it is asked, as people read it, by name."""
    names = ("nodes with a seat", "late", "periods skipped", "replies refused")
    return {name: text for name, text in status_texts(status).items() if name in names or name.startswith("refused: ")}


def status_texts(status: Status) -> dict[str, str]:
    """Return how a federation does as people read it, by name."""
    of = f" of {status.total}" if status.total else ""
    since = "" if status.since is None or status.complete else f", the last {status.since:.0f} s ago"
    late = "not recorded" if status.late is None else f"{status.late:.1f} s, at most {status.late_most:.1f} s"
    texts = {
        "state": status.problem or ("complete" if status.complete else "running"),
        "periods": f"{status.periods}{of}{since}",
        "accuracy": "-" if status.accuracy is None else f"{status.accuracy:.4f}",
        "nodes with a seat": str(status.nodes),
        "ready in the last period": str(status.ready),
        "updates arrived": f"{status.arrived:,} of {status.picked:,}",
        "late": late + (f" (last: {status.late_why})" if status.late_why else ""),
        "periods skipped": str(status.skipped),
        "Mbit up and down": f"{status.bits_up / 1e6:.3g} and {status.bits_down / 1e6:.3g}",
        "replies refused": str(sum(status.refused.values())),
        "memory of the coordinator": "-" if status.memory is None else f"{status.memory / 1e6:.0f} MB",
    }
    return texts | {f"refused: {reason}": str(count) for reason, count in status.refused.items()}


# -- for Prometheus: /metrics, /health, /ready ----------------------------------------------------------------------

_GAUGES: Final[tuple[tuple[str, str, Callable[[Status], float | None]], ...]] = (
    ("fedtide_running", "1 while a coordinator is at work", lambda status: status.running),
    ("fedtide_complete", "1 once the run is complete", lambda status: status.complete),
    ("fedtide_period_seconds", "Seconds between two aggregations", lambda status: status.period),
    ("fedtide_last_period_age_seconds", "Seconds since the last period was saved", lambda status: status.since),
    ("fedtide_accuracy", "Latest test accuracy", lambda status: status.accuracy),
    ("fedtide_nodes", "Nodes that have a seat", lambda status: status.nodes),
    ("fedtide_nodes_ready", "Nodes that were ready in the last period", lambda status: status.ready),
    ("fedtide_last_late_seconds", "Seconds by which the last period was late", lambda status: status.late),
    ("fedtide_memory_bytes", "Resident memory of the coordinator", lambda status: status.memory),
)
_COUNTERS: Final[tuple[tuple[str, str, Callable[[Status], float | None]], ...]] = (
    ("fedtide_periods", "Periods", lambda status: status.periods),
    ("fedtide_periods_skipped", "Periods that had passed already and were left out", lambda status: status.skipped),
    (
        "fedtide_late_seconds",
        "Seconds by which periods were late, in all",
        lambda status: None if status.late is None else status.late_sum,
    ),
    ("fedtide_updates_picked", "Updates that were asked for", lambda status: status.picked),
    ("fedtide_updates_arrived", "Updates that were aggregated", lambda status: status.arrived),
    ("fedtide_bytes_up", "Bytes of updates", lambda status: status.bits_up / 8),
    ("fedtide_bytes_down", "Bytes of models", lambda status: status.bits_down / 8),
)


class _Collector:
    """Gives prometheus_client what a run folder holds at the moment of a scrape."""

    def __init__(self, look: Callable[[], Status]) -> None:
        self._look = look

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = self._look()
        for family, numbers in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, about, value in numbers:
                if (found := value(status)) is not None:
                    yield family(name, about, value=float(found))
        refused = CounterMetricFamily("fedtide_replies_refused", "Replies that were not believed", labels=["reason"])
        for reason, count in status.refused.items():
            refused.add_metric([reason], count)
        yield refused


def metrics_app(folder: Path) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI app: /metrics; /health, 503 if the federation has stalled; /ready, 503 until nodes have a seat."""
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError:
        raise FedtideError("this needs prometheus-client: pip install 'fedtide[metrics]'") from None
    follow = cache(lambda: Follower(folder))  # the run may not have begun
    lock, registry = threading.Lock(), CollectorRegistry(auto_describe=False)
    registry.register(_Collector(lambda: follow().look()))
    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def answer(status: str, text: str) -> list[bytes]:
            start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{text}\n".encode()]

        try:
            with lock:
                if environ["PATH_INFO"] == "/metrics":
                    return list(metrics(environ, start_response))
                if environ["PATH_INFO"] not in ("/health", "/ready"):
                    return answer("404 Not Found", "there are /metrics, /health and /ready")
                status = follow().look()
        except Exception as error:  # not begun, or being written to: the next request may succeed
            return answer("503 Service Unavailable", " ".join(str(error).split()))
        problem = status.problem
        if environ["PATH_INFO"] == "/ready" and not problem and not status.nodes:
            problem = "no node has a seat yet"
        return answer("503 Service Unavailable" if problem else "200 OK", problem or "ok")

    return app


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds of silence on a connection

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


def metrics_server(folder: Path, host: str, port: int) -> WSGIServer:
    """Return a server of a run folder's metrics, bound and not started. port: 0 for any free one."""
    app = metrics_app(folder)
    try:
        return make_server(host, port, app, server_class=_Server, handler_class=_Quiet)
    except OSError as error:
        raise FedtideError(
            f"{host}:{port} cannot be served ({error.strerror}): choose another --host or --port"
        ) from error
