"""What the tables of the other files do not hold: found by trying them from outside."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import fedtide
from fedtide import witness
from fedtide.records import folder as run_folder
from helpers import run, small

COMBINE = "def mine(model, starts, updates, weights, age):\n"
MEAN = "    mean = model + (weights[:, None] * updates).sum(0)\n"
HIDDEN = {
    "a cache that is written to": (
        "@functools.lru_cache\ndef buffer(n):\n    return np.zeros(n)\n"
        f"{COMBINE}{MEAN}    b = buffer(len(model))\n    b += 0.001\n    return mean + b\n"
    ),
    "a context variable": (
        f"N = contextvars.ContextVar('n', default=0)\n{COMBINE}{MEAN}    N.set(N.get() + 1)\n"
        "    return mean * (1.5 if N.get() % 4 == 0 else 1)\n"
    ),
    "a queue": (
        f"Q = queue.Queue()\n{COMBINE}{MEAN}    Q.put(1)\n    return mean * (1.5 if Q.qsize() % 4 == 0 else 1)\n"
    ),
    "dice that were seeded": f"np.random.seed(1)\n{COMBINE}{MEAN}    return mean * np.random.uniform(0.9, 1)\n",
}


def with_combiner(folder: Path, source: str) -> fedtide.Experiment:
    """Write a combiner to a file of its own; modules are known by their path."""
    folder.mkdir()
    (folder / "mine.py").write_text(f"import contextvars, functools, queue\nimport numpy as np\n{source}")
    return small({"policy": {"combiner": f"{folder / 'mine.py'}:mine"}})


@pytest.mark.parametrize("what", HIDDEN)
def test_watching_a_policy_does_not_change_its_numbers(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often a run is saved: what is asked again is asked of a copy."""
    alone = run(with_combiner(tmp_path / "a", HIDDEN[what]))
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", -1.0)
    watched = run(with_combiner(tmp_path / "b", HIDDEN[what]), tmp_path / "run")
    assert np.array_equal(alone.model, watched.model)


def test_a_copy_that_does_not_answer_is_not_waited_for() -> None:
    lock = threading.Lock()
    lock.acquire()
    assert witness._in_a_copy(lambda: str(lock.acquire()), 0.2) is None
    assert witness._in_a_copy(lambda: "yes", 5.0) == "yes"
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(witness._in_a_copy(lambda: "", 5.0)))
    thread.start()
    thread.join()
    assert answers == [""]
