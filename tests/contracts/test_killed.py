"""What every part of a run that may remember promises: killed at any moment and resumed, the run ends with the same bytes.

Real processes and a real SIGKILL, again and again in one folder. One that joins a table is tested by being there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import numpy as np
import pytest

import killed_parts
import remembering
from companions import with_companions
from fedtide.aggregate.base import as_aggregator
from fedtide.parts import checks, registry
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.runs import read_rounds
from fedtide.runs.checkpoint import read_checkpoint
from killed_parts import Order, experiment

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the runs are forks of one process")

# When it is killed, one after the other: moment, aggregation, whole rounds on disk then, and rounds of the checkpoint.
KILLS = [
    ("in_a_line", 2, 1, 1),
    ("in_a_checkpoint", 4, 4, 3),
    ("before_the_rename", 5, 5, 4),
    ("with_an_old_checkpoint", 8, 8, 5),
    ("after_a_round", 7, 7, 7),
]
REMEMBERING = [kind for kind, row in KINDS.items() if row.memory]
_AIR = {"radio": {"symbol_rate": 4000.0, "csi": "noisy"}}
CASES: dict[str, dict[str, Any]] = {
    "aggregator-nested": {"policy": {"aggregator": {"name": "server_yogi", "inner": "ca2fl"}}},
    "trainer-own": remembering.KEYS["trainer"],
    # worlds that react: where devices are, what they wait with, what is on its way and what the server has of packets
    "world-keep": {"fleet": {"unpicked": "keep", "concurrency": 8}, "timeline": {"uploads": "wait"}, **_AIR},
    "world-later": {"timeline": {"uploads": "later"}, **_AIR},
    "world-harq": {"radio": {"retransmission": "harq", "csi": "noisy"}},
    "world-battery": {"fleet": {"battery_joules": 0.2, "harvest_joules": 0.2, "joules_per_sample": 0.01}},
    # the trainers last: every fork of a process that has imported PyTorch costs more
    **{f"{kind}-{name}": with_companions(kind, name) for kind in REMEMBERING for name in builtin_parts(kind)},
}
del CASES["scheduler-oracle"]  # it remembers nothing and needs held-out samples: tests/test_outcome.py resumes it
del CASES["aggregator-aflguard"]  # the same
SLOW = ("trainer-dask",)  # every order starts worker processes
Run = Callable[[Order], int]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """How to run an order in a process of its own: returns how that ended."""
    words = [sys.executable, killed_parts.__file__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        given, answers = process.stdin, process.stdout

        def ask(order: Order) -> int:
            print(json.dumps(order._asdict()), file=given, flush=True)
            return int(answers.readline())

        yield ask
        given.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def remembers(case: str) -> bool:
    """Say whether the part that a case is about has memory."""
    kind, _, name = case.partition("-")
    if kind == "world":  # without it a run does not go on at all
        return False
    if kind == "aggregator" and name != "nested":  # all of them have `init`, and most begin with nothing
        return bool(as_aggregator(registry.resolve(kind, name, {})).init(np.zeros(4, np.float32), 2))
    return name in ("own", "nested") or checks.part_remembers(registry.find_part(kind, name, builtin_parts(kind)))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in CASES]
)
def test_killed_at_every_kind_of_moment_it_ends_with_the_same_bytes(tmp_path: Path, run: Run, case: str) -> None:
    tree, folder = CASES[case], tmp_path / "run"
    if tree.get("learning", {}).get("trainer") == "torch":
        pytest.importorskip("torch")
    wanted = experiment(tree)
    assert run(Order(tree, str(tmp_path / "whole"))) == 0
    for moment, after, written, saved in KILLS:
        assert run(Order(tree, str(folder), moment, after)) == -SIGKILL
        state = read_checkpoint(folder, wanted)
        assert state is not None
        assert (len(read_rounds(folder)), state.state.version - 1) == (written, saved), moment
    forgetful = tmp_path / "forgetful"
    if remembers(case):
        shutil.copytree(folder, forgetful)
    assert run(Order(tree, str(folder))) == 0
    assert contents(folder) == contents(tmp_path / "whole")
    if remembers(case):  # that comes from what was saved of it, or the runs prove nothing
        assert run(Order(tree, str(forgetful), forgetful=True)) == 0
        other, same = contents(forgetful), contents(folder)
        assert (other["rounds.jsonl"], other["model.npy"]) != (same["rounds.jsonl"], same["model.npy"])
