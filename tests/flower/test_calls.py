"""How much of our own code runs in one period of a federation: the run configuration is read once, not once per message."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from memory_grid import Federation, terms

import fedtide
from fedtide.deploy import apps

MOST_CALLS = 1300  # of functions in src/fedtide, in a period with three uploads, nodes and server together
SOURCE = str(Path(fedtide.__file__).parent)


def calls_of_a_period(folder: Path) -> Counter[str]:
    """Return how often each of our functions is called in the fifth period; comprehensions are none."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
            found[f"{code.co_filename.removeprefix(SOURCE)}:{code.co_name}"] += 1

    def on_round(record: Any) -> None:
        if record.index == 4:
            sys.setprofile(count)
        if record.index == 5:
            sys.setprofile(None)
            assert len(record.picked) == 3

    try:
        Federation(terms(), folder, (3.0,) * 6, on_round).coordinator().run()
    finally:
        sys.setprofile(None)
    return found


def test_a_period_takes_few_calls(tmp_path: Path) -> None:
    found = calls_of_a_period(tmp_path / "run")
    assert 100 < found.total() <= MOST_CALLS, found.most_common(20)


def test_reading_the_configuration_with_every_message_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps, "_made_worker", apps._made_worker.__wrapped__)
    assert calls_of_a_period(tmp_path / "run").total() > MOST_CALLS
