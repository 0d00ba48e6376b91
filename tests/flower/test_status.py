"""How a federation does, as `fedtide deploy status`, the live page and Prometheus show it."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from memory_grid import Federation, terms

from fedtide import config
from fedtide.cli.main import app
from fedtide.deploy import status, trace
from fedtide.deploy.log import last_log_records, logged_run, server_error, server_log
from fedtide.deploy.status import Follower, metrics_server, refusal_reason, status_texts
from fedtide.errors import FedtideError, RunFolderError
from fedtide.pages.run import run_page_data
from fedtide.runs import RunFolder, read_rounds

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole run, in which node 101 sent its first packet again and again."""
    federation = Federation(terms(ban_after=None), tmp_path / "run")
    first: list[Any] = []

    def repeat(node: Any, order: Any, reply: Any) -> list[tuple[float, Any]]:
        if order.metadata.message_type != "train":
            first.append(reply.content["upload"]["packet"])
            reply.content["upload"]["packet"] = first[0]
        return [(1.0, reply)]

    federation.node(0).act = repeat
    with logged_run(tmp_path / "run"):
        federation.coordinator().run()
    return tmp_path / "run"


def test_the_status_is_what_the_records_say(folder: Path) -> None:
    found, rounds = Follower(folder).look(), read_rounds(folder)
    assert found.complete
    assert not found.problem
    assert (found.periods, found.total) == (8, 8)
    assert found.picked == sum(len(each.picked) for each in rounds)
    assert found.arrived == sum(each.num_arrived for each in rounds)
    assert (found.bits_up, found.bits_down) == (rounds[-1].ledger.bits, rounds[-1].ledger.bits_down)
    refused = [each.why for period in trace.read_trace(folder).periods for each in period.refused]
    assert refused
    assert sum(found.refused.values()) == len(refused)
    assert found.refused == Counter(map(refusal_reason, refused))
    assert found.nodes == 6
    before = "a packet that was sent before"
    assert status_texts(found)[f"refused: {before}"] == str(refused.count(before))
    assert any(each.endswith(f"refused: {before}") for each in found.warnings)


def test_it_is_followed_as_it_grows_and_when_it_is_cut_back(folder: Path) -> None:
    lines = {name: (folder / name).read_bytes().splitlines(keepends=True) for name in ("rounds.jsonl", "trace.jsonl")}

    def write(count: int, half: bytes = b"") -> None:
        (folder / "rounds.jsonl").write_bytes(b"".join(lines["rounds.jsonl"][:count]) + half)
        (folder / "trace.jsonl").write_bytes(b"".join(lines["trace.jsonl"][: count + 1]) + half)

    write(3, b'{"half')
    follower = Follower(folder)
    assert follower.look().periods == 3
    write(5)
    assert follower.look() == Follower(folder).look()._replace(since=pytest.approx(follower.look().since, abs=5))
    assert follower.look().periods == 5
    write(2)  # a coordinator goes on from an earlier period
    fresh = Follower(folder).look()
    assert follower.look().picked == fresh.picked
    assert follower.look().periods == 2


def test_lateness_comes_from_the_trace(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]

    def write() -> None:
        (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    for line in lines:
        line.pop("timing", None)
    write()
    assert status_texts(Follower(folder).look())["late"] == "not recorded"
    for line, late in zip(lines[-2:], (4.0, 1.5), strict=True):
        line["timing"] = {"late": late, "skipped": 1, "uploads": 0.2, "work": 0.1, "overslept": late, "disk": 0.0}
    write()
    found = Follower(folder).look()
    assert (found.late, found.late_most, found.late_sum, found.skipped) == (1.5, 4.0, 5.5, 2)
    assert status_texts(found)["late"] == "1.5 s, at most 4.0 s (last: overslept)"


def test_reasons_can_be_counted_however_nodes_lie(folder: Path) -> None:
    assert (
        refusal_reason("a packet of 5000 bytes for a grant of 3.2e+04 bits")
        == "a packet of # bytes for a grant of # bits"
    )
    path = folder / "trace.jsonl"
    *lines, last = path.read_text().splitlines()
    tree = json.loads(last)
    tree["refused"] = [{"device": 0, "node": 1, "why": "x" * count} for count in range(1, 60)]
    path.write_text("\n".join([*lines, json.dumps(tree)]) + "\n")
    found = Follower(folder).look().refused
    assert len(found) <= 21
    assert found["other"] >= 30


def test_a_federation_that_stands_still_is_told(folder: Path) -> None:
    (folder / "model.npy").unlink()
    assert "no coordinator is at work" in Follower(folder).look().problem
    held = RunFolder.open(folder, config.experiment(folder / "experiment.yaml"))
    try:
        working = Follower(folder).look()
        assert working.running
        assert not working.problem
        assert working.memory is None or working.memory > 10_000_000
        os.utime(folder / "rounds.jsonl", (time.time() - 100,) * 2)
        assert "the last period was 100 s ago, more than 60 s" in Follower(folder).look().problem
    finally:
        held.close()


def test_the_command(folder: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["deploy", "status", str(folder)], catch_exceptions=False).output
    assert re.search(r"periods: +8 of 8", told)
    tree = json.loads(CliRunner().invoke(app, ["deploy", "status", str(folder), "--json"]).output)
    assert tree["arrived"] == Follower(folder).look().arrived
    (folder / "trace.jsonl").unlink()
    with pytest.raises(RunFolderError, match="holds a simulation"):
        Follower(folder)


def test_the_live_page_follows_a_federation_that_is_going_on(tmp_path: Path) -> None:
    shown = []

    def look(record: Any) -> None:
        (run,) = json.loads(run_page_data([tmp_path / "run"], "tag"))["runs"]
        shown.append((run["going"], run["facts"]))

    Federation(terms(), tmp_path / "run", on_round=look).coordinator().run()
    assert [int(facts[-1].rpartition("time ")[2].split()[0]) for _, facts in shown] == [
        10 * each for each in range(1, 9)
    ]
    assert all(going and "nodes with a seat: 6" in facts for going, facts in shown)


# -- logs -----------------------------------------------------------------------------------------------------------


def test_the_log_is_lines_of_json(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def serve() -> None:
        with logged_run(run):
            logging.getLogger("fedtide.deploy").warning("node %s failed:\n%s", 5, 'a "word"')
            raise FedtideError("no room")

    with pytest.raises(FedtideError):
        serve()
    first, second = (json.loads(line) for line in server_log(run).read_text().splitlines())
    assert first["message"] == 'node 5 failed:\na "word"'
    assert first["event"] == "node %s failed:\n%s"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert second["level"] == "ERROR"
    assert server_error(run) == "no room"
    with open(server_log(run), "a") as file:
        file.write("no json\n5\n{}\n")
    assert server_error(run) == "no room"
    assert [each[20:] for each in last_log_records(run, 1)] == ["no room"]


# -- Prometheus -----------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("prometheus_client")
    with metrics_server(tmp_path / "run", "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_run_that_has_not_begun_is_not_ready(served: str) -> None:
    for path in ("metrics", "health", "ready"):
        code, text = get(f"{served}/{path}")
        assert code == 503
        assert "is not a run folder" in text
    assert get(f"{served}/other")[0] == 404


def test_metrics_health_and_readiness(folder: Path, served: str) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    code, text = get(f"{served}/metrics")
    assert code == 200
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for f in text_string_to_metric_families(text)
        for sample in f.samples
    }
    now = Follower(folder).look()
    assert found["fedtide_periods_total",] == 8
    assert found["fedtide_accuracy",] == pytest.approx(now.accuracy)
    assert found["fedtide_bytes_up_total",] == now.bits_up / 8
    assert found["fedtide_updates_arrived_total",] == now.arrived
    assert (
        found["fedtide_replies_refused_total", "a packet that was sent before"]
        == now.refused["a packet that was sent before"]
    )
    assert get(f"{served}/health") == (200, "ok\n")
    assert get(f"{served}/ready") == (200, "ok\n")
    (folder / "model.npy").unlink()
    assert get(f"{served}/health")[0] == 503


def test_the_dashboard_asks_for_metrics_that_there_are(folder: Path, served: str) -> None:
    dashboard = json.loads((ROOT / "examples" / "federation" / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    there = {line.split("{")[0].split()[0] for line in get(f"{served}/metrics")[1].splitlines() if line[0] != "#"}
    there |= {name for name, *_ in status._GAUGES} | {
        f"{name}_total" for name, *_ in status._COUNTERS
    }  # some are optional
    names = {name for expr in asked for name in re.findall(r"fedtide_\w+", expr)}
    assert names <= there
    assert len(names) >= 10


def test_a_port_that_is_taken_is_told(served: str, tmp_path: Path) -> None:
    with pytest.raises(FedtideError, match="choose another --host or --port"):
        metrics_server(tmp_path, "127.0.0.1", int(served.rpartition(":")[2]))
