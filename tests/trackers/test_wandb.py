"""Weights & Biases' offline files, read back with its own messages."""

from __future__ import annotations

import json
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedtide
from fedtide import config
from fedtide.config import nested_to_dotted
from fedtide.trackers import tracker_scalars

pytest.importorskip("wandb")

BLOCK, HEADER, FIRST = 32_768, 7, (1, 2)  # of the log format that its files have: checksum (4), length (2), type (1)


def records(path: Path) -> Iterator[Any]:
    """Read one offline file: blocks of records, the longer ones in pieces."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, piece = path.read_bytes(), HEADER, b""  # the file's own header is as long
    while at + HEADER <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        piece = (b"" if kind in FIRST else piece) + content[at + HEADER : at + HEADER + length]
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(piece)
        at += HEADER + length


def written(folder: Path) -> tuple[list[tuple[str, int, float]], list[dict[str, Any]], set[tuple[str, str]]]:
    """Return numbers (name, step, value), the configs, and the runs (id, project) of all offline files of a folder."""
    import wandb

    wandb.teardown()  # its service writes on for a moment after a run is finished
    numbers, configs, runs = [], [], set()
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                runs.add((record.run.run_id, record.run.project))
                configs.append(
                    {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.run.config.update}
                )
            elif kind == "history":
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                numbers += [(name, items["_step"], value) for name, value in items.items() if not name.startswith("_")]
    return numbers, configs, runs


def check_numbers(numbers: list[tuple[str, int, float]], result: fedtide.Result) -> None:
    rows = [(name, r.index, value) for r in result.rounds for name, value in tracker_scalars(r).items()]
    assert sorted(numbers) == sorted(rows)


def test_keys_and_numbers_are_there(session: Any, result: fedtide.Result, capfd: pytest.CaptureFixture[str]) -> None:
    session(["wandb"], result)
    assert session.warnings == []
    numbers, (found,), runs = written(session.folder)
    check_numbers(numbers, result)
    keys = json.loads(json.dumps(nested_to_dotted(config.dump(result.experiment)), default=str))
    assert {key: found[key] for key in keys} == keys
    assert [project for _, project in runs] == ["fedtide"]
    out, err = capfd.readouterr()
    assert out + err == ""


@pytest.mark.parametrize("again", [8, 5, 0], ids=["next", "repeats three", "from the beginning"])
def test_a_resumed_run_goes_on_without_doubles(session: Any, result: fedtide.Result, again: int) -> None:
    session(["wandb"], result, slice(8), finished=False)
    session(["wandb"], result, slice(again, None))
    session(["wandb"], result, slice(12, None))  # complete: nothing to add
    assert session.warnings == []
    numbers, configs, runs = written(session.folder)
    check_numbers(numbers, result)
    assert len(runs) == 1
    assert len(configs) == 2


def test_no_folder(session: Any, result: fedtide.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session.folder = None
    session([{"name": "wandb", "project": "mine"}], result)
    assert session.warnings == []
    numbers, _, runs = written(tmp_path)
    check_numbers(numbers, result)
    assert [project for _, project in runs] == ["mine"]


KILLED = """
import os, pickle, signal, sys, time
from pathlib import Path
from fedtide.trackers import Trackers
experiment, rounds = pickle.loads(sys.stdin.buffer.read())
trackers = Trackers(["wandb"], lambda line: sys.exit(line))
trackers.begin(experiment, Path(sys.argv[1]), 12)
for record in rounds:
    trackers.round(record)
sizes = [-1, 0]
while sizes[-1] != sizes[-2]:  # another process writes what it was told
    time.sleep(1.0)
    sizes.append(sum(file.stat().st_size for file in Path(sys.argv[1]).rglob("*") if file.is_file()))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("again", [8, 6])
def test_a_killed_run_lacks_nothing(session: Any, result: fedtide.Result, again: int) -> None:
    told = pickle.dumps((result.experiment, result.rounds[:8]))
    done = subprocess.run([sys.executable, "-c", KILLED, str(session.folder)], input=told, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    session(["wandb"], result, slice(again, None))
    numbers, _, runs = written(session.folder)
    check_numbers(list(set(numbers)), result)  # steps that were repeated are there twice
    assert len(runs) == 1
