"""Stop a run anywhere, resume it: the same bytes as one that was never stopped."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedtide
import killed_run
from fedtide import runs
from fedtide.errors import RunFolderError
from fedtide.runs import RoundRecord, is_complete, read_rounds
from helpers import FakeTrainer, run, small, small_dataset

SCRIPT = Path(killed_run.__file__)


def result_of(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "rounds.jsonl").read_bytes(), (folder / "model.npy").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    killed_run.main(str(folder))
    return folder


def kill_at(folder: Path, written: float, seconds: float) -> None:
    """Start the run in another process and kill it so long after its rounds have grown to so many bytes."""
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(folder)])
    try:
        deadline = time.monotonic() + 60
        rounds = folder / "rounds.jsonl"
        while process.poll() is None and not (rounds.exists() and rounds.stat().st_size >= written):
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (-signal.SIGKILL, 0)


def test_sigkill_at_ten_random_moments(tmp_path: Path, undisturbed: Path) -> None:
    size = (undisturbed / "rounds.jsonl").stat().st_size
    moments = random.Random(2)
    killed_midway = 0
    for number in range(10):
        folder = tmp_path / str(number)
        kill_at(folder, moments.uniform(0, 0.9 * size), moments.uniform(0, 0.02))
        killed_midway += not is_complete(folder)
        done = len(read_rounds(folder))
        resumed = killed_run.main(str(folder))
        assert len(resumed.rounds) >= done > 0
        assert result_of(folder) == result_of(undisturbed)
        assert not list(folder.glob(".*.part"))
    assert killed_midway >= 5  # or the moments prove nothing


def test_killed_again_and_again(tmp_path: Path, undisturbed: Path) -> None:
    size = (undisturbed / "rounds.jsonl").stat().st_size
    for share in (0.2, 0.4, 0.7):
        kill_at(tmp_path / "run", share * size, 0.005)
    killed_run.main(str(tmp_path / "run"))
    assert result_of(tmp_path / "run") == result_of(undisturbed)


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    first = runs.RunFolder.open(tmp_path / "run", killed_run.EXPERIMENT)
    second = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path / "run")], capture_output=True, text=True)
    first.close()
    assert second.returncode != 0
    assert "is in use by another process" in second.stderr
    assert read_rounds(tmp_path / "run") == []


STOPPED = small({"timeline": {"horizon": 2.0}, "fleet": {"min_duration": 0.3}})


@pytest.mark.parametrize("stop_after", range(1, 8))
@pytest.mark.parametrize("every", [0.0, 1000.0])
def test_interrupt_after_any_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int, every: float
) -> None:
    """Devices are at work across every boundary; they go on from the versions they hold."""
    monkeypatch.setattr("fedtide.runs.folder.CHECKPOINT_SECONDS", every)

    def stop(record: RoundRecord, total: int) -> None:
        if record.index == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(STOPPED, tmp_path / "run", on_round=stop)
    assert len(read_rounds(tmp_path / "run")) == stop_after
    trainer = FakeTrainer()
    run(STOPPED, tmp_path / "run", trainer=trainer)
    run(STOPPED, tmp_path / "whole")
    assert result_of(tmp_path / "run") == result_of(tmp_path / "whole")
    again = sum(len(record.picked) for record in read_rounds(tmp_path / "run")[stop_after:])
    assert len(trainer.jobs) == again  # nothing that was saved is trained a second time


@pytest.mark.parametrize("framework", ["fedavg", "fedasync", "fedbuff"])
def test_every_framework_resumes(tmp_path: Path, framework: str) -> None:
    buffered = {"timeline": {"buffer_size": 3}} if framework == "fedbuff" else {}
    limit = {"policy": {"limit": 1}} if framework == "fedasync" else {}
    experiment = small({"framework": framework}, buffered, limit)

    def stop(record: RoundRecord, total: int) -> None:
        if record.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", on_round=stop)
    run(experiment, tmp_path / "run")
    run(experiment, tmp_path / "whole")
    assert result_of(tmp_path / "run") == result_of(tmp_path / "whole")


def test_torch_resumes_to_the_same_bits(tmp_path: Path) -> None:
    experiment = small({"learning": {"model": "mlp"}, "policy": {"scheduler": "best_channel_best_norm"}})

    def stop(record: RoundRecord, total: int) -> None:
        if record.index == 5:
            raise KeyboardInterrupt

    dataset = small_dataset()
    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(experiment, tmp_path / "run", dataset=dataset, on_round=stop)
    resumed = fedtide.simulate(experiment, tmp_path / "run", dataset=dataset, threads=2)
    whole = fedtide.simulate(experiment, tmp_path / "whole", dataset=dataset)
    assert result_of(tmp_path / "run") == result_of(tmp_path / "whole")
    assert np.array_equal(resumed.model, whole.model)


def test_resuming_after_a_failed_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds ran ahead of the checkpoint: they are cut off and played again."""
    monkeypatch.setattr("fedtide.runs.folder.CHECKPOINT_SECONDS", 0.0)
    real = runs.RunFolder.checkpoint

    def fails_late(self: runs.RunFolder) -> None:
        if self._state is not None and self._state.version > 4:
            raise RunFolderError("no space")
        real(self)

    monkeypatch.setattr(runs.RunFolder, "checkpoint", fails_late)
    with pytest.raises(RunFolderError):
        run(STOPPED, tmp_path / "run")
    monkeypatch.undo()
    assert len(read_rounds(tmp_path / "run")) == 4
    run(STOPPED, tmp_path / "run")
    run(STOPPED, tmp_path / "whole")
    assert result_of(tmp_path / "run") == result_of(tmp_path / "whole")


def test_a_run_does_not_go_on_where_the_bits_would_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instruction paths round differently: half a run on each would be a third result, and nobody would know."""
    experiment = small({"learning": {"trainer": "native"}})

    def stop(record: RoundRecord, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("FEDTIDE_ISA", "avx2")
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", on_round=stop)
    monkeypatch.setenv("FEDTIDE_ISA", "baseline")
    with pytest.raises(RunFolderError, match="set FEDTIDE_ISA=avx2"):
        run(experiment, tmp_path / "run")
    monkeypatch.setenv("FEDTIDE_ISA", "avx2")
    run(experiment, tmp_path / "run")
    monkeypatch.setenv("FEDTIDE_ISA", "baseline")
    runs.RunFolder.open(tmp_path / "run", experiment).close()  # a finished run may be looked at anywhere
