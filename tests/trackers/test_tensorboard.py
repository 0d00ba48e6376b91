"""TensorBoard's event files, read back with tensorboardX's own messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.trackers import tracker_scalars

pytest.importorskip("tensorboardX")


def events(folder: Path) -> Iterator[Any]:
    """Read event files in the order of their names, as TensorBoard does: length, checksum, message, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            yield Event.FromString(content[at + 12 : at + 12 + length])
            at += length + 16


def shown(folder: Path) -> tuple[dict[tuple[str, int], float], list[str]]:
    """Return what TensorBoard shows: scalars by name and step, and texts. A new start drops what came at or after it."""
    from tensorboardX.proto.event_pb2 import SessionLog

    numbers: dict[tuple[str, int], float] = {}
    texts: list[str] = []
    for event in events(folder):
        if event.session_log.status == SessionLog.START:
            numbers = {key: value for key, value in numbers.items() if key[1] < event.step}
        for value in event.summary.value:
            if value.HasField("simple_value"):
                key = (value.tag, event.step)
                assert key not in numbers, f"{key} is there twice"
                numbers[key] = value.simple_value
            else:
                texts += [text.decode() for text in value.tensor.string_val]
    return numbers, texts


def expected(result: fedtide.Result) -> dict[tuple[str, int], float]:
    pairs = {(name, r.index): value for r in result.rounds for name, value in tracker_scalars(r).items()}
    return {key: float(np.float32(value)) for key, value in pairs.items()}  # simple_value is a float32


def test_every_number_is_there(session: Any, result: fedtide.Result) -> None:
    session(["tensorboard"], result)
    numbers, texts = shown(session.folder / "tensorboard")
    assert numbers == expected(result)
    assert len(texts) == 1
    assert "num_devices: 6" in texts[0]
    assert session.warnings == []
    walltimes = [event.wall_time for event in events(session.folder / "tensorboard")]
    assert min(walltimes) > 1.6e9  # the world's, not the simulated


def test_it_can_be_read_while_the_run_is_on(session: Any, result: fedtide.Result) -> None:
    from fedtide.trackers import Trackers

    trackers = Trackers(["tensorboard"], session.warnings.append)
    trackers.begin(result.experiment, session.folder, 12)
    for record in result.rounds[:3]:
        trackers.round(record)
    numbers, _ = shown(session.folder / "tensorboard")
    assert {step for _, step in numbers} == {1, 2, 3}
    trackers.end(None)


@pytest.mark.parametrize("again", [8, 5, 0], ids=["next", "repeats three", "from the beginning"])
def test_a_resumed_run_goes_on_without_doubles(session: Any, result: fedtide.Result, again: int) -> None:
    session(["tensorboard"], result, slice(8), finished=False)
    session(["tensorboard"], result, slice(again, None))
    session(["tensorboard"], result, slice(12, None))  # complete: nothing to add
    numbers, _ = shown(session.folder / "tensorboard")
    assert numbers == expected(result)
    assert session.warnings == []


def test_another_place(session: Any, result: fedtide.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session([{"name": "tensorboard", "logdir": str(tmp_path / "logs")}], result)
    assert shown(tmp_path / "logs")[0] == expected(result)
    assert not (session.folder / "tensorboard").exists()
    monkeypatch.chdir(tmp_path)
    session.folder = None
    session(["tensorboard"], result)
    (folder,) = (tmp_path / "runs").iterdir()
    assert shown(folder)[0] == expected(result)


def test_a_place_that_cannot_be_written(session: Any, result: fedtide.Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    session([{"name": "tensorboard", "logdir": str(tmp_path / "file")}], result)
    assert len(session.warnings) == 1
    assert "in round (" in session.warnings[0]


def test_one_tracker_for_two_runs(session: Any, result: fedtide.Result, tmp_path: Path) -> None:
    from fedtide.trackers.adapters import TensorBoard

    tracker = TensorBoard()
    for name in ("one", "other"):
        session.folder = tmp_path / name
        session([tracker], result)
        assert shown(tmp_path / name / "tensorboard")[0] == expected(result)
