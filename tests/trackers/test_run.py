"""A run with trackers is the run without them, to the byte, also when it was interrupted and goes on."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

import fedtide
from fedtide.trackers import TRACKERS, Trackers
from helpers import run, small

BYTES = ("rounds.jsonl", "model.npy", "experiment.yaml")


def tracked(
    wanted: list[Any], folder: Path, tables: Path, warnings: list[str], last: int = 99
) -> fedtide.Result | None:
    """Run in a folder with trackers; stop as Ctrl-C would after some aggregation."""
    experiment, trackers, began = small(), Trackers(wanted, warnings.append), []

    def on_round(record: Any, total: int) -> None:
        if not began:
            if not (folder / "mlflow").exists():
                shutil.copytree(tables, folder / "mlflow")
            began.append(trackers.begin(experiment, folder, total))
        trackers.round(record)
        if record.index == last:
            raise KeyboardInterrupt

    try:
        result = run(experiment, folder, on_round=on_round)
        trackers.end(result)
        return result
    except KeyboardInterrupt:
        return None
    finally:
        trackers.end(None)


def vandal(record: Any) -> None:
    record.picked.clear()
    record.ready.append(-1)
    record.weight[:] = [0.0]


def fails(record: Any) -> None:
    raise RuntimeError("no more")


@pytest.mark.parametrize("stops", [[], [1, 6]], ids=["at a stretch", "interrupted twice"])
def test_the_same_bytes(tmp_path: Path, tables: Path, stops: list[int]) -> None:
    for name in TRACKERS:
        pytest.importorskip({"tensorboard": "tensorboardX"}.get(name, name))
    levels = {name: logging.getLogger(name).level for name in ("", "mlflow", "alembic")}
    plain = run(small(), tmp_path / "plain")
    warnings: list[str] = []
    for stop in stops:
        assert tracked([*TRACKERS, vandal], tmp_path / "tracked", tables, warnings, stop) is None
    result = tracked([*TRACKERS, vandal, fails], tmp_path / "tracked", tables, warnings)
    assert result is not None
    assert result.rounds == plain.rounds
    for name in BYTES:
        assert (tmp_path / "tracked" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    (warning,) = warnings
    assert "tracker='fails' raised RuntimeError: no more in round (" in warning
    assert {name: logging.getLogger(name).level for name in levels} == levels
    again = run(small(), tmp_path / "tracked")  # what they wrote is no hindrance
    assert again.rounds == plain.rounds
