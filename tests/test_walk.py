"""The walk of one update, measured: how deep the stack is when a device trains, and how many files one aggregation runs through."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fedtide
from fedtide.__main__ import main
from fedtide.core import signals

PACKAGE = str(Path(fedtide.__file__).parent)
MOST_FRAMES, MOST_FILES = 9, 25  # of our own
MOST_FILES_OF_A_CHECKPOINT = 3  # on top; when one is due is a matter of the clock
MOST_FRAMES_OF_A_RUN = 6  # from `simulate` on
ARGUMENTS = [
    *("run", "data.name=synthetic", "data.num_train=400", "data.num_test=50", "learning.model=softmax"),
    *("timeline.horizon=1", "fleet.num_devices=8", "policy.limit=3"),
]


def is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGE)


class Walk:
    """Notes the deepest own stack at a training, and the own files that each aggregation executes."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.files: list[set[str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not is_ours(frame):
            return
        name, file = frame.f_code.co_name, Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()
        if name == "step" and file == "engine/step.py":
            self.files.append(set())
        if self.files:
            self.files[-1].add(file)
        if name == "train" and file == "learning/native.py":
            stack: list[str] = []
            walk: FrameType | None = frame
            while walk is not None:
                if is_ours(walk):
                    stack.append(f"{Path(walk.f_code.co_filename).relative_to(PACKAGE)}:{walk.f_code.co_name}")
                walk = walk.f_back
            self.stack = max(self.stack, stack[::-1], key=len)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    found = Walk()
    arguments = [*ARGUMENTS, "--out", str(tmp_path_factory.mktemp("walk") / "run"), "--threads", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fedtide", *arguments])
        for name in ("install_signals", "leave_signals"):  # signals stay as the tests have them
            patch.setattr(signals, name, lambda: None)
        sys.setprofile(found)
        try:
            with contextlib.suppress(SystemExit):
                main()
        finally:
            sys.setprofile(None)
    return found


def test_few_frames_from_main_to_the_kernel(walk: Walk) -> None:
    assert walk.stack[0] == "__main__.py:main"
    assert "engine/loop.py:run" in walk.stack
    assert len(walk.stack) <= MOST_FRAMES, walk.stack
    assert len(walk.stack) - walk.stack.index("engine/simulate.py:simulate") <= MOST_FRAMES_OF_A_RUN, walk.stack


def test_few_files_run_in_one_aggregation(walk: Walk) -> None:
    """From one step to the next: scores, records and sinks included; the first and the last do more than aggregate."""
    middle = walk.files[1:-1]
    assert len(middle) >= 2
    for files in middle:
        most = MOST_FILES + (MOST_FILES_OF_A_CHECKPOINT if "core/files.py" in files else 0)
        assert len(files) <= most, sorted(files)


def test_the_measure_sees_what_it_should(walk: Walk) -> None:
    assert {"engine/step.py", "learning/native.py", "runs/folder.py"} <= set.union(*walk.files)
