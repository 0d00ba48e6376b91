"""What operators do: another version of fedtide goes on with a run, and nodes leave."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_grid import Federation, terms

from fedtide.deploy import demo, trace
from fedtide.deploy.settings import from_run_config, to_run_config
from fedtide.errors import FedtideError
from fedtide.runs import read_rounds

VERSION = "fedtide.deploy.settings.__version__"


class Stopped(Exception):
    pass


def half(folder: Path) -> None:
    """Run four of eight periods."""

    def stop(record: Any) -> None:
        if record.index == 4:
            raise Stopped

    with pytest.raises(Stopped):
        Federation(terms(), folder, on_round=stop).coordinator().run()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("here", ["1.0.0", "1.0.9", "1.1.0rc1", "2.0.0"])
def test_a_patch_goes_on_and_another_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str
) -> None:
    folder = tmp_path / "run"
    half(folder)
    before = contents(folder)
    monkeypatch.setattr(VERSION, here)
    again = Federation(terms(), folder).coordinator()
    if here.startswith("1.0."):
        again.run()
        assert len(read_rounds(folder)) == 8
        return
    with pytest.raises(FedtideError) as refused:
        again.run()
    assert f"{folder} was begun with fedtide 1.0." in str(refused.value)
    assert f"this is {here}" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert contents(folder) == before


def test_a_finished_run_can_be_read_by_any_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Federation(terms(), tmp_path / "run").coordinator().run()
    monkeypatch.setattr(VERSION, "7.0.0")
    assert np.array_equal(Federation(terms(), tmp_path / "run").coordinator().run(), model)


def test_another_format_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    half(folder)
    lines = (folder / trace.NAME).read_bytes().replace(b'{"format":1', b'{"format":2', 1)
    (folder / trace.NAME).write_bytes(lines)
    with pytest.raises(FedtideError, match=r"damaged or of another version \(line 1: ") as refused:
        Federation(terms(), folder).coordinator().run()
    assert "\n" not in str(refused.value)


def test_nodes_and_server_must_be_of_one_release(monkeypatch: pytest.MonkeyPatch) -> None:
    made = to_run_config(terms())
    monkeypatch.setattr(VERSION, "1.1.0")
    with pytest.raises(FedtideError, match=r"the app was made with fedtide 1\.0\.\w+, and this is 1\.1\.0") as refused:
        from_run_config(made)
    assert "\n" not in str(refused.value)
    assert from_run_config(to_run_config(terms())) == terms()


def test_the_seat_of_a_node_that_left_is_free_at_once(tmp_path: Path) -> None:
    """Flower lists a SuperNode no more from the moment that it says goodbye."""
    federation = Federation(terms(), tmp_path / "run")

    def leave() -> None:
        del federation.grid.nodes[101]
        federation.grid.join(0, 3.0, 900)

    federation.clock.at(25.0, leave)
    federation.coordinator().run()
    periods = trace.read_trace(tmp_path / "run").periods
    assert periods[1].nodes["0"] == 101  # at 20 s
    assert periods[2].nodes["0"] == 900  # at 30 s
    assert any(0 in period.arrived for period in periods[3:])


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc")
def test_a_real_node_says_that_it_leaves(tmp_path: Path) -> None:
    """SIGTERM, as systemd and containers send it: the SuperLink knows long before the 50 s after which it would notice."""

    def listed(federation: demo.Federation) -> list[str]:
        found = json.loads(federation.flwr("supernode", "list", "here", "--format", "json"))
        return [node["status"] for node in found["nodes"]]

    def wait_until(wanted: bool, seconds: float) -> float:
        begun = time.monotonic()
        while ("online" in listed(federation)) != wanted:
            assert time.monotonic() - begun < seconds, listed(federation)
            time.sleep(0.2)
        return time.monotonic() - begun

    with demo.Federation(tmp_path / "home") as federation:
        federation.start_superlink()
        node = federation.start_node("node-0", {"partition-id": 0})
        wait_until(True, 60)
        node.terminate()
        assert wait_until(False, 40) < 30
        node.wait(20)
        killed = federation.start_node("node-1", {"partition-id": 1})
        wait_until(True, 60)
        killed.kill()
        killed.wait(10)
        time.sleep(2)
        assert "online" in listed(federation)  # nobody said goodbye
