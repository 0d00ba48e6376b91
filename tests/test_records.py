from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedtide import config
from fedtide.core.files import write_atomically
from fedtide.engine.step import initial_state
from fedtide.errors import RunFolderError
from fedtide.runs import (
    Ledger,
    RoundRecord,
    RunFolder,
    is_complete,
    read_rounds,
    read_run,
    read_run_header,
)
from helpers import FakeTrainer, run, small

EXPERIMENT = small({"timeline": {"horizon": 2.0}})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


# ---- a run folder is complete


def test_everything_is_there(tmp_path: Path) -> None:
    result = run(EXPERIMENT, tmp_path / "deep" / "run")
    folder = tmp_path / "deep" / "run"
    assert set(contents(folder)) == {"experiment.yaml", "versions.json", "rounds.jsonl", "checkpoint.npz", "model.npy"}
    assert read_run_header(folder).experiment == EXPERIMENT
    assert read_rounds(folder) == result.rounds
    assert np.array_equal(np.load(folder / "model.npy"), result.model)
    assert is_complete(folder)
    saved = json.loads((folder / "versions.json").read_text())
    assert {"python", "fedtide", "numpy", "files"} <= set(saved)
    assert config.experiment(yaml.safe_load((folder / "experiment.yaml").read_text())) == EXPERIMENT


def test_a_folder_changes_nothing_about_the_result(tmp_path: Path) -> None:
    with_folder, without = run(EXPERIMENT, tmp_path / "run"), run(EXPERIMENT)
    assert with_folder.rounds == without.rounds
    assert np.array_equal(with_folder.model, without.model)


def test_one_line_per_round_with_what_the_issue_asks_for(tmp_path: Path) -> None:
    run(EXPERIMENT, tmp_path / "run")
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert len(lines) == 8
    assert list(json.loads(lines[0])) == [
        *(
            "format",
            "index",
            "time",
            "ready",
            "picked",
            "age",
            "capacity",
            "symbols",
            "budget_bits",
            "sent_bits",
            "overhead_bits",
            "num_kept",
        ),
        *("label_variance", "proved_minimal", "weight", "test_accuracy", "test_loss", "train_loss", "ledger"),
        *("lost", "metrics", "unnamed"),
    ]


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(numbers, max_size=3), st.none() | numbers, st.none() | st.booleans(), st.integers(0, 2**60))
def test_records_survive_json(values: list[float], score: float | None, proved: bool | None, count: int) -> None:
    n = len(values)
    record = RoundRecord(
        *(
            3,
            0.75,
            [1, 2, 5][:n],
            [1, 2, 5][:n],
            [0] * n,
            values,
            values,
            values,
            [7] * n,
            [9] * n,
            [1] * n,
            2.5,
            proved,
        ),
        *(values, score, score, None, Ledger(0.1, 0.2, count, count)),
    )
    assert RoundRecord.from_json(record.to_json()) == record
    assert "\n" not in record.to_json()


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    first = run(EXPERIMENT, tmp_path / "run")
    before = contents(tmp_path / "run")
    trainer = FakeTrainer()
    again = run(EXPERIMENT, tmp_path / "run", trainer=trainer)
    assert again.rounds == first.rounds
    assert trainer.jobs == []
    assert contents(tmp_path / "run") == before


# ---- folders that cannot be used: one line, and nothing lost


def refused(folder: Path, message: str, experiment: Any = EXPERIMENT) -> None:
    with pytest.raises(RunFolderError, match=message) as caught:
        run(experiment, folder)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


def test_another_experiments_folder(tmp_path: Path) -> None:
    run(EXPERIMENT, tmp_path / "run")
    before = contents(tmp_path / "run")
    refused(
        tmp_path / "run",
        "policy.limit is 3 there and 2 here",
        small({"timeline": {"horizon": 2.0}, "policy": {"limit": 2}}),
    )
    assert contents(tmp_path / "run") == before


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    refused(tmp_path, "is not empty and holds no run")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "File exists")
    refused(tmp_path / "file" / "below", "Not a directory")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder that nobody may write to")
def test_a_folder_that_cannot_be_made() -> None:
    refused(Path("/proc/fedtide"), "cannot be used")


def test_a_folder_that_cannot_be_locked(tmp_path: Path) -> None:
    stopped_run(tmp_path / "run")
    (tmp_path / "run" / ".lock").unlink()
    (tmp_path / "run" / ".lock").mkdir()
    refused(tmp_path / "run", "Is a directory")


def test_a_second_user_of_the_folder(tmp_path: Path) -> None:
    first = RunFolder.open(tmp_path / "run", EXPERIMENT)
    refused(tmp_path / "run", "in use by another process")
    first.close()
    run(EXPERIMENT, tmp_path / "run")


def stopped_run(folder: Path, rounds: int = 5) -> None:
    def stop(record: RoundRecord, total: int) -> None:
        if record.index == rounds:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(EXPERIMENT, folder, on_round=stop)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not a zip", b"nonsense", "truncate", "flip"])
def test_damaged_checkpoint(tmp_path: Path, damage: bytes | str) -> None:
    folder = tmp_path / "run"
    stopped_run(folder)
    path = folder / "checkpoint.npz"
    whole = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "flip":
        middle = whole.index(b"models.npy") + 300
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    else:
        path.write_bytes(damage)
    rounds = (folder / "rounds.jsonl").read_bytes()
    refused(folder, "is damaged")
    refused(folder, "is damaged")  # and not "in use": the lock was given back
    assert (folder / "rounds.jsonl").read_bytes() == rounds
    path.write_bytes(whole)
    assert run(EXPERIMENT, folder).rounds == run(EXPERIMENT).rounds


def test_checkpoint_of_another_experiment(tmp_path: Path) -> None:
    other = small({"timeline": {"horizon": 2.0}, "policy": {"limit": 2}})
    run(other, tmp_path / "other")
    stopped_run(tmp_path / "run")
    (tmp_path / "run" / "checkpoint.npz").write_bytes((tmp_path / "other" / "checkpoint.npz").read_bytes())
    refused(tmp_path / "run", "checkpoint of another experiment")


def test_rounds_shorter_than_the_checkpoint_says(tmp_path: Path) -> None:
    stopped_run(tmp_path / "run")
    path = tmp_path / "run" / "rounds.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    refused(tmp_path / "run", "damaged or was edited")
    path.unlink()
    refused(tmp_path / "run", "damaged or was edited")


def test_damaged_rounds_and_experiment(tmp_path: Path) -> None:
    stopped_run(tmp_path / "run")
    path = tmp_path / "run" / "rounds.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"index":2', b'"index"?2'))
    refused(tmp_path / "run", r"rounds\.jsonl is damaged")
    (tmp_path / "run" / "experiment.yaml").write_text("policy: {limit: zero}")
    refused(tmp_path / "run", "experiment.yaml is damaged")


def test_an_unfinished_last_line_is_not_a_round(tmp_path: Path) -> None:
    stopped_run(tmp_path / "run")
    with (tmp_path / "run" / "rounds.jsonl").open("ab") as file:
        file.write(b'{"index": 6, "ti')
    assert len(read_rounds(tmp_path / "run")) == 5
    assert run(EXPERIMENT, tmp_path / "run").rounds == run(EXPERIMENT).rounds


# ---- reading a folder: what does not fit together is not shown as a run


def test_a_whole_run_is_read(tmp_path: Path) -> None:
    result = run(EXPERIMENT, tmp_path / "run")
    before = contents(tmp_path / "run")
    found = read_run(tmp_path / "run")
    assert (found.experiment, found.rounds, found.num_parameters, found.complete) == (
        EXPERIMENT,
        result.rounds,
        30,
        True,
    )
    assert contents(tmp_path / "run") == before


def test_a_stopped_run_is_read_as_far_as_its_checkpoint(tmp_path: Path) -> None:
    stopped_run(tmp_path / "run", 4)
    rest = run(EXPERIMENT).rounds[4]
    with (tmp_path / "run" / "rounds.jsonl").open("a") as file:
        file.write(rest.to_json() + "\n" + rest.to_json()[:30])  # written, not saved yet, and the next one under way
    found = read_run(tmp_path / "run")
    assert (len(found.rounds), found.num_parameters, found.complete) == (4, 30, False)


def test_killed_before_the_first_checkpoint(tmp_path: Path) -> None:
    stopped_run(tmp_path / "run", 1)
    (tmp_path / "run" / "checkpoint.npz").unlink()
    found = read_run(tmp_path / "run")
    assert (len(found.rounds), found.num_parameters, found.complete) == (0, None, False)
    RunFolder.open(tmp_path / "new", EXPERIMENT).close()
    found = read_run(tmp_path / "new")
    assert (found.experiment, found.rounds, found.num_parameters, found.complete) == (EXPERIMENT, [], None, False)


def damage(folder: Path, what: str) -> None:
    """Harm a complete run."""
    rounds, model = folder / "rounds.jsonl", folder / "model.npy"
    lines = rounds.read_bytes().splitlines(keepends=True)
    first, second = lines[0], lines[1]
    ages = second.index(b'"ledger"')
    last = lines[-1].replace(b'"samples_trained":', b'"samples_trained":9')
    swapped = np.load(model) + 1
    acts = {
        "rounds cut": lambda: rounds.write_bytes(rounds.read_bytes()[:100]),
        "rounds gone": rounds.unlink,
        "a round twice": lambda: rounds.write_bytes(b"".join([first, *lines])),
        "a round lost, the length kept": lambda: rounds.write_bytes(
            b"".join([first, *lines[2:-1], lines[-1][:-2], b" " * len(second), b"}\n"])
        ),
        "another sum": lambda: rounds.write_bytes(b"".join([*lines[:-1], last[: len(lines[-1]) - 1], b"\n"])),
        "rounds no text": lambda: rounds.write_bytes(second[:ages] + b"\xff" + rounds.read_bytes()[ages + 1 :]),
        "another seed": lambda: (folder / "experiment.yaml").write_text(
            (folder / "experiment.yaml").read_text().replace("seed: 0", "seed: 1")
        ),
        "checkpoint and model gone": lambda: (model.unlink(), (folder / "checkpoint.npz").unlink()),
        "checkpoint gone": (folder / "checkpoint.npz").unlink,
        "model no array": lambda: model.write_bytes(b"nonsense"),
        "model pickled": lambda: np.save(model, np.array([{}]), allow_pickle=True),
        "model empty": lambda: model.write_bytes(b""),
        "another model": lambda: np.save(model, swapped),
        "a shorter model": lambda: np.save(model, swapped[1:]),
        "model header": lambda: model.write_bytes(model.read_bytes().replace(b"}", b"{", 1)),
    }
    acts[what]()


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("rounds cut", r"rounds\.jsonl is damaged or was edited: the 100 bytes .*; restore it or"),
        ("rounds gone", r"rounds\.jsonl is damaged or was edited: the 0 bytes"),
        ("a round twice", r"rounds\.jsonl is damaged or was edited"),
        (
            "a round lost, the length kept",
            r"rounds\.jsonl is damaged or was edited.* checksum is in the checkpoint; restore",
        ),
        ("another sum", r"rounds\.jsonl (does not match|is damaged)"),
        ("rounds no text", r"rounds\.jsonl is damaged .*; restore"),
        ("another seed", "checkpoint of another experiment .*; restore experiment.yaml"),
        ("checkpoint and model gone", r"holds 8 rounds but no checkpoint.* over: `fedtide resume .*run`"),
        ("checkpoint gone", r"8 rounds and a final model but no checkpoint.* over: remove .*model\.npy, then `fedtide"),
        ("model no array", r"model\.npy is damaged \(it is not a file of plain NumPy arrays\); remove it and"),
        ("model pickled", r"model\.npy is damaged \(it is not a file of plain NumPy arrays\); remove it and"),
        ("model empty", r"model\.npy is damaged .*; remove it and make it again"),
        ("another model", r"model\.npy is damaged \(it is not the model of the checkpoint\); remove it and"),
        ("a shorter model", r"model\.npy is damaged \(it is not the model of the checkpoint\)"),
        ("model header", r"model\.npy is damaged .*; remove it and make it again"),
    ],
)
def test_a_damaged_run_is_not_read_as_a_run(tmp_path: Path, what: str, says: str) -> None:
    run(EXPERIMENT, tmp_path / "run")
    damage(tmp_path / "run", what)
    before = contents(tmp_path / "run")
    with pytest.raises(RunFolderError, match=says) as caught:
        read_run(tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert "pickle" not in str(caught.value)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("what", ["checkpoint and model gone", "checkpoint gone", "model no array", "another model"])
def test_the_remedy_that_the_message_gives_works(tmp_path: Path, what: str) -> None:
    whole = run(EXPERIMENT, tmp_path / "run")
    before = contents(tmp_path / "run")
    damage(tmp_path / "run", what)
    (tmp_path / "run" / "model.npy").unlink(missing_ok=True)
    run(EXPERIMENT, tmp_path / "run")
    assert read_run(tmp_path / "run").rounds == whole.rounds
    assert contents(tmp_path / "run")["model.npy"] == before["model.npy"]


def test_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"no experiment\.yaml"):
        read_run_header(tmp_path)
    assert read_rounds(tmp_path) == []
    assert not is_complete(tmp_path)


def test_killed_before_the_experiment_was_written(tmp_path: Path) -> None:
    """versions.json comes first; a folder with it alone is a new one."""
    RunFolder.open(tmp_path / "run", EXPERIMENT).close()
    (tmp_path / "run" / "experiment.yaml").unlink()
    (tmp_path / "run" / ".x.fedtide-123-0123abcd.part").write_text("half")
    run(EXPERIMENT, tmp_path / "run")
    assert not list((tmp_path / "run").glob(".*.part"))


def test_a_changed_policy_file_is_noticed(tmp_path: Path) -> None:
    policy = tmp_path / "mine.py"
    policy.write_text("def first(candidates, limit, rng):\n    return range(limit)\n")
    experiment = small({"policy": {"scheduler": f"{policy}:first"}, "timeline": {"horizon": 2.0}})
    run(experiment, tmp_path / "run")
    policy.write_text("def first(candidates, limit, rng):\n    return range(limit)[::-1]\n")
    refused(tmp_path / "run", "another version of .*mine.py:first", experiment)


# ---- a full disk


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_write_atomically_keeps_the_old_file_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left on device"):
        write_atomically(tmp_path / "a", b"new")
    assert contents(tmp_path) == {"a": b"old"}
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("what", ["fsync", "replace"])
def test_full_disk_while_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr("fedtide.runs.folder.CHECKPOINT_SECONDS", 0.0)

    def fill(record: RoundRecord, total: int) -> None:
        if record.index == 5:
            monkeypatch.setattr(os, what, full)

    with pytest.raises(RunFolderError, match="No space left on device"):
        run(EXPERIMENT, tmp_path / "run", on_round=fill)
    monkeypatch.undo()
    assert len(read_rounds(tmp_path / "run")) >= 5
    trainer = FakeTrainer()
    assert run(EXPERIMENT, tmp_path / "run", trainer=trainer).rounds == run(EXPERIMENT).rounds
    assert min(version for _, version in trainer.jobs) > 1  # it went on, not over


def test_a_record_that_does_not_fit(tmp_path: Path) -> None:
    """A real failure of write(): the rounds are on a device that is full."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    folder = RunFolder.open(tmp_path / "run", EXPERIMENT)
    (tmp_path / "run" / "rounds.jsonl").symlink_to("/dev/full")
    record = RoundRecord(1, 0.25, *([[]] * 9), 0.0, None, [], None, None, None, Ledger())  # type: ignore[call-arg]
    state = initial_state(np.zeros(3, np.float32), 6)
    with pytest.raises(RunFolderError, match=r"No space left on device.*resume the run"):
        folder.append(record, state)
    folder.close()  # tries to write again, in vain and in silence


def test_checkpoint_holds_the_devices_in_flight(tmp_path: Path) -> None:
    stopped_run(tmp_path / "run")
    with RunFolderAt(tmp_path / "run") as folder:
        state, ledger, rounds = folder.load()
    assert state.version == 6
    assert len(rounds) == 5
    assert ledger == rounds[-1].ledger
    held = [1] * 6
    for each in rounds:
        for k in each.ready:
            held[k] = each.index + 1
    assert state.held.tolist() == held
    assert set(held) <= set(state.models)
    assert sum(state.uploads.tolist()) == sum(len(each.picked) for each in rounds)


class RunFolderAt:
    """A run folder for a `with` block."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder.open(path, EXPERIMENT)

    def __enter__(self) -> RunFolder:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.folder.close()


@pytest.mark.parametrize("name", ["experiment.yaml", "rounds.jsonl", "checkpoint.npz"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    run(EXPERIMENT, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(RunFolderError, match="pipe"):
        read_run(tmp_path / "run")
