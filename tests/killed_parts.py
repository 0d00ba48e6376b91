"""Runs of tiny experiments that end with SIGKILL, one after the other: python killed_parts.py, an order per line of stdin.

Python and fedtide are started once; every run is a fork of that process, which kills itself at the moment that its order
names. The answer, a line of stdout, is how it ended: 0, or minus the signal.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

import fedtide
from fedtide.core import files
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from fedtide.runs import RoundRecord
from fedtide.runs import folder as run_folder
from fedtide.runs.folder import RunFolder
from helpers import small, small_dataset

# Stale devices, more of them than may send, and links that are worse than believed: updates are lost.
WORLD: dict[str, Any] = {
    "learning": {"trainer": "native"},
    "fleet": {"num_devices": 12},
    "policy": {"limit": 2},
    "radio": {"csi": "noisy"},
}
DATASET = small_dataset()


class Order(NamedTuple):
    """One run, or the rest of it."""

    tree: dict[str, Any]  # what is changed of the small experiment
    folder: str
    moment: str = ""  # one of MOMENTS; "": to the end
    after: int = 0  # the aggregation that the moment belongs to
    forgetful: bool = False  # resume without what the parts remember


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")


def in_a_line(after: int) -> None:
    """Half of the round's line is written."""
    real = RunFolder.append

    def append(self: RunFolder, record: RoundRecord, state: Any, *_: Any) -> None:
        if record.index == after:
            line = record.to_json().encode()
            file = self._rounds()
            file.write(line[: len(line) // 2])
            file.flush()
            die()
        real(self, record, state)

    RunFolder.append = append  # type: ignore[method-assign]


def in_a_checkpoint(after: int) -> None:
    """The round's line is written, and half of its checkpoint, aside."""

    def write(path: Path, content: bytes) -> None:
        files._aside_of(path).write_bytes(content[: len(content) // 2])
        die()

    _at_checkpoint(after, lambda: setattr(run_folder, "write_atomically", write))


def before_the_rename(after: int) -> None:
    """The round's checkpoint is written, and not in its place."""
    _at_checkpoint(after, lambda: setattr(os, "replace", lambda *_: die()))


def with_an_old_checkpoint(after: int) -> None:
    """The checkpoint is of the first round of this process, some rounds ago."""
    _after_append(after)


def after_a_round(after: int) -> None:
    """All of the round is saved."""
    run_folder.CHECKPOINT_SECONDS = -1.0
    _after_append(after)


MOMENTS: dict[str, Callable[[int], None]] = {
    each.__name__: each
    for each in (in_a_line, in_a_checkpoint, before_the_rename, with_an_old_checkpoint, after_a_round)
}


def _after_append(after: int) -> None:
    real = RunFolder.append

    def append(self: RunFolder, record: RoundRecord, state: Any, *_: Any) -> None:
        real(self, record, state)
        if record.index == after:
            die()

    RunFolder.append = append  # type: ignore[method-assign]


def _at_checkpoint(after: int, prepare: Callable[[], None]) -> None:
    run_folder.CHECKPOINT_SECONDS = -1.0  # after every round
    real = RunFolder.checkpoint

    def checkpoint(self: RunFolder) -> None:
        if self._state is not None and self._state.version == after + 1:
            prepare()
        real(self)

    RunFolder.checkpoint = checkpoint  # type: ignore[method-assign]


def forget() -> None:
    """Resume as if nothing had been remembered."""
    real = RunFolder.load

    def load(self: RunFolder) -> Any:
        state, ledger, rounds = real(self) or (None, None, None)
        assert state is not None
        return state._replace(memory={}, devices={}), ledger, rounds

    RunFolder.load = load  # type: ignore[method-assign]


def experiment(tree: dict[str, Any]) -> fedtide.Experiment:
    """Return the tiny experiment with some keys changed."""
    return small(WORLD, tree)


def run(order: Order) -> None:
    """Do what is ordered, in this very process."""
    os.fsync = lambda _: None  # what is written outlives a killed process; it is the machine that may not stop
    run_folder.CHECKPOINT_SECONDS = 1e9  # after the first round of this process and at the end
    if order.moment:
        MOMENTS[order.moment](order.after)
    if order.forgetful:
        forget()
    fedtide.simulate(experiment(order.tree), order.folder, dataset=DATASET)


def forked(order: Order) -> int:
    """Run an order in a fork of this process; return how that ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run(order)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Take orders. Whatever they import is imported here, once, as far as it starts no thread: a fork has none of them."""
    with tempfile.TemporaryDirectory() as folder:
        run(Order({}, folder))
    for line in sys.stdin:
        order = Order(**json.loads(line))
        trainer = order.tree.get("learning", {}).get("trainer")
        if trainer in builtin_parts("trainer"):
            registry.find_part("trainer", trainer, builtin_parts("trainer"))
        gc.freeze()
        print(forked(order), flush=True)


if __name__ == "__main__":
    main()
