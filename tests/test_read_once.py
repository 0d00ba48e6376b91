"""Commands read each file of a run folder at most once."""

from __future__ import annotations

import builtins
import io
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import fedtide
from fedtide.cli.main import app

FILES = ("experiment.yaml", "versions.json", "checkpoint.npz", "rounds.jsonl", "model.npy")
KEYS = {
    "data": {"name": "synthetic", "num_train": 240, "num_test": 40, "partition": "iid"},
    "fleet": {"num_devices": 6},
    "timeline": {"horizon": 2.0},
    "policy": {"limit": 3},
    "learning": {"model": "softmax"},
}


def stop(record: Any, total: int) -> None:
    if record.index == 4:
        raise KeyboardInterrupt


def half(folder: Path) -> Path:
    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(KEYS, folder, on_round=stop)
    return folder


def whole(folder: Path) -> Path:
    fedtide.simulate(KEYS, folder)
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file of a run folder is opened to be read."""
    found: Counter[str] = Counter()

    def counting(real: Callable[..., Any], writes: Callable[[Any], bool]) -> Callable[..., Any]:
        def opened(path: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            name = os.path.basename(path) if isinstance(path, str | os.PathLike) else ""
            found[name] += name in FILES and not writes(mode)
            return real(path, mode, *args, **kwargs)

        return opened

    real_open = counting(io.open, lambda mode: not str(mode).startswith("r"))
    monkeypatch.setattr(builtins, "open", real_open)
    monkeypatch.setattr(io, "open", real_open)
    monkeypatch.setattr(os, "open", counting(os.open, lambda flags: bool(flags & (os.O_WRONLY | os.O_RDWR))))
    return found


@pytest.mark.parametrize("make", [half, whole])
@pytest.mark.parametrize("command", ["resume", "show", "report"])
def test_each_file_is_read_at_most_once(tmp_path: Path, reads: Counter[str], command: str, make: Any) -> None:
    folder = make(tmp_path / "run")
    reads.clear()
    more = ["-o", str(tmp_path / "page.html")] if command == "report" else []
    done = CliRunner().invoke(app, [command, str(folder), *more])
    assert done.exit_code == 0, done.output
    needed = FILES if make is whole else FILES[:4]
    assert {name: reads[name] for name in FILES} == {name: int(name in needed) for name in FILES}


@pytest.mark.parametrize("make", [half, whole])
def test_loading_reads_each_file_once(tmp_path: Path, reads: Counter[str], make: Any) -> None:
    folder = make(tmp_path / "run")
    reads.clear()
    assert fedtide.load(folder).complete == (make is whole)
    assert max(reads.values()) == 1
