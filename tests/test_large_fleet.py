"""Large fleets: what an aggregation costs follows the ready devices, on the machine and on the disk."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
import large_run
from fedtide import columns, rng
from fedtide.core import files
from fedtide.core.versioned import VersionedArray
from fedtide.engine.system import make_trainer
from fedtide.errors import RunFolderError
from fedtide.runs import folder as run_folder
from fedtide.runs import read_rounds, read_run
from fedtide.runs.checkpoint import _archive, _widened, narrow_for_checkpoint, read_checkpoint
from helpers import FakeTrainer
from large_run import Enough, experiment, system, until


def simulated(made: fedtide.Experiment, folder: Path | None = None, **kwargs: Any) -> fedtide.Result:
    return fedtide.simulate(made, folder, system=system(made), trainer=FakeTrainer(), **kwargs)


class Counted:
    """What is drawn, and how much memory an aggregation takes, from the tenth aggregation on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers = self.streams = 0
        self.bytes: list[int] = []
        units, stream = columns._units, rng.stream

        def counted_units(*args: Any) -> Any:
            found = units(*args)
            self.numbers += found[0].size
            return found

        def counted_stream(*args: Any) -> Any:
            self.streams += 1
            return stream(*args)

        monkeypatch.setattr(columns, "_units", counted_units)
        for module in ("engine.ticks", "engine.step", "engine.devices"):
            monkeypatch.setattr(f"fedtide.{module}.stream", counted_stream)

    def __call__(self, record: Any, total: int) -> None:
        if record.index == 10:
            self.numbers = self.streams = 0
            tracemalloc.start()
        elif record.index > 10:
            self.bytes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()
        if record.index == 60:
            tracemalloc.stop()
            raise Enough


@pytest.mark.parametrize("kept", [False, True])
def test_an_aggregation_costs_what_its_ready_devices_cost(tmp_path: Path, kept: bool) -> None:
    """Bytes and draws, not seconds: one device is ready, of a thousand or of fifty thousand."""
    found = []
    for count in (1_000, 50_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fedtide.runs.folder.CHECKPOINT_SECONDS", 1e9)  # which hold a number for every device
            seen = Counted(patch)
            with pytest.raises(Enough):
                simulated(experiment("per_arrival", count), tmp_path / str(count) if kept else None, on_round=seen)
        found.append(seen)
    small, large = found
    assert small.numbers == large.numbers == 50
    assert small.streams == large.streams > 0
    assert (
        np.median(np.diff(large.bytes)) <= 1.1 * np.median(np.diff(small.bytes)) + 500
    )  # what stays: its record, its model
    assert max(large.bytes) <= 1.1 * max(small.bytes) + 2_000  # and what it takes meanwhile


def test_it_would_be_seen_if_it_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    real = VersionedArray.put
    monkeypatch.setattr(VersionedArray, "put", lambda self, *args: real(VersionedArray(self[:]), *args))
    with pytest.raises(AssertionError):
        test_an_aggregation_costs_what_its_ready_devices_cost(Path("unused"), False)


def test_records_of_a_large_fleet_count_the_ready_devices(tmp_path: Path) -> None:
    made = experiment("periodic", 20_000)
    result = simulated(made, tmp_path / "run")
    ready = [len(tick.ready) for tick in system(made).ticks]
    assert max(ready) > 5_000
    assert [each.num_ready for each in result.rounds] == ready
    assert not any(each.ready for each in result.rounds)
    assert result.rounds == read_rounds(tmp_path / "run") == read_run(tmp_path / "run").rounds
    assert result.frame()["num_ready"].tolist() == ready
    lines = (tmp_path / "run" / "rounds.jsonl").read_bytes().splitlines()
    assert max(map(len, lines)) < 2_000
    named = simulated(experiment("periodic", 20_000), None)
    assert named.rounds == result.rounds


def test_a_small_fleet_is_recorded_by_name(tmp_path: Path) -> None:
    result = simulated(experiment("periodic", 10_000, 0.5), tmp_path / "run")
    assert [len(each.ready) for each in result.rounds] == [each.num_ready for each in result.rounds]


def test_the_checkpoint_of_a_large_fleet_is_small_and_whole(tmp_path: Path) -> None:
    made = experiment("periodic", 20_000)
    with pytest.raises(Enough):
        simulated(made, tmp_path / "run", on_round=until(6))
    saved = read_checkpoint(tmp_path / "run", made)
    assert saved
    held, uploads = np.ones(20_000, np.int64), np.zeros(20_000, np.int64)
    for tick, record in zip(system(made).ticks, read_rounds(tmp_path / "run"), strict=False):
        held[tick.ready] = tick.index + 1
        uploads[record.picked] += 1
    np.testing.assert_array_equal(np.asarray(saved.state.held), held)
    np.testing.assert_array_equal(np.asarray(saved.state.uploads), uploads)
    assert {*saved.state.models} == {*held.tolist()} | {7}
    assert (tmp_path / "run" / "checkpoint.npz").stat().st_size < 2 * 20_000 + 10_000
    with np.load(tmp_path / "run" / "checkpoint.npz") as file:
        arrays = {name: file[name] for name in file.files}
    for broken in (
        {"behind": arrays["behind"].astype(np.int32)},
        {"behind": arrays["behind"] + np.uint8(9)},
        {"uploads": held[:3]},
    ):
        np.savez(tmp_path / "run" / "checkpoint.npz", **{**arrays, **broken})
        with pytest.raises(RunFolderError, match="damaged"):
            read_run(tmp_path / "run")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("timeline", "rounds", "kills"), [("periodic", 8, (1, 3, 6)), ("per_arrival", 400, (5, 120, 260))]
)
def test_killed_and_resumed_at_a_hundred_thousand_devices(
    tmp_path: Path, timeline: str, rounds: int, kills: tuple[int, ...]
) -> None:
    """Real processes and a real SIGKILL; in the end every file is to the byte as if nothing had happened."""
    folder, words = tmp_path / "killed", [sys.executable, large_run.__file__]
    for after in kills:
        process = subprocess.Popen([*words, str(folder), timeline, "100000", str(rounds)])
        while process.poll() is None and _lines(folder) < after:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert after <= _lines(folder) < rounds
    for each in (folder, tmp_path / "whole"):
        subprocess.run([*words, str(each), timeline, "100000", str(rounds)], check=True)
    assert len(read_rounds(folder)) == rounds
    assert contents(folder) == contents(tmp_path / "whole")


def _lines(folder: Path) -> int:
    path = folder / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize(
    ("timeline", "keys", "says"),
    [
        ("periodic", {"policy": {"aggregator": "mifa"}}, "=mifa remembers of 1,000 devices and 30"),
        ("periodic", {"policy": {"aggregator": "ca2fl"}}, "policy.aggregator=ca2fl remembers"),
        ("periodic", {"codec": {"name": "error_feedback"}}, "=error_feedback remembers of 40 devices and 30 parameters"),
        ("per_arrival", {}, "timeline.name=per_arrival with fleet.num_devices=1,000: the 1,001 versions of a model of 30"),
    ],
)  # fmt: skip
def test_memory_that_is_not_there_is_told_of_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeline: str, keys: dict[str, Any], says: str
) -> None:
    made, trainer = experiment(timeline, 1_000, **keys), FakeTrainer()
    built = system(made)
    monkeypatch.setattr("fedtide.core.memory_budget._available_bytes", lambda: 3_000)
    with pytest.raises(fedtide.FedtideError, match=rf"^[^\n]*{says}[^\n]* would need [^\n]*$"):
        fedtide.simulate(made, tmp_path / "run", system=built, trainer=trainer)
    assert not trainer.jobs
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    with pytest.raises(Enough):
        fedtide.simulate(made, tmp_path / "run", system=built, trainer=trainer, on_round=until(2))


def test_what_a_trainer_remembers_of_devices_is_told_of_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedtide.engine.preflight import preflight_memory
    from fedtide.methods import Scaffold

    made = experiment("periodic", 1_000, learning={"trainer": "scaffold"}, policy={"aggregator": "scaffold"})
    built = system(made)
    trainer = make_trainer(built)
    assert isinstance(trainer, Scaffold)
    monkeypatch.setattr("fedtide.core.memory_budget._available_bytes", lambda: 25_000)
    with pytest.raises(fedtide.FedtideError, match=r"learning.trainer=scaffold remembers of 40 devices"):
        preflight_memory(built, trainer, trainer.initial_model(0))


def test_an_archive_is_what_numpy_writes() -> None:
    rows = [np.arange(5, dtype=np.float32) * each for each in range(3)]
    arrays = {"version": 3, "name": "a", "models": np.stack(rows), "held": np.arange(4, dtype=np.uint8)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    assert bytes(_archive({**arrays, "models": rows})) == buffer.getvalue()


@pytest.mark.parametrize(("most", "kind"), [(0, "u1"), (255, "u1"), (256, "u2"), (65_536, "u4"), (2**32, "i8")])
def test_narrow_columns_come_back(most: int, kind: str) -> None:
    values = np.array([0, most, most // 2])
    assert narrow_for_checkpoint(values).dtype == np.dtype(kind)
    assert _widened(narrow_for_checkpoint(values), 3).tolist() == values.tolist()


@pytest.mark.parametrize(("large", "count"), [(0, 2), (10**9, 8)])
def test_large_checkpoints_come_further_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int, count: int
) -> None:
    made, written, real = experiment("periodic", 50), [], files.write_atomically

    def write(path: Path, content: Any) -> None:
        written.append(path.name)
        real(path, content)

    for name, value in (("CHECKPOINT_SECONDS", 0.0), ("_LARGE_BYTES", large), ("_CHECKPOINT_TIMES", 1e9)):
        monkeypatch.setattr(run_folder, name, value)
    monkeypatch.setattr(run_folder, "write_atomically", write)
    simulated(made, tmp_path / "run")
    assert written.count("checkpoint.npz") in (count, count + 1)  # the last round's, and once more at the end
