"""Runs whose clock follows decisions: stopped and resumed they end with the same bytes; what ends early has ended."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fedtide
import reacting_parts as parts
from fedtide.config import all_keys
from fedtide.engine import planned
from fedtide.engine.system import build
from fedtide.runs import RoundRecord, is_complete, read_rounds
from helpers import small, small_dataset

DATASET = small_dataset()
HERE = Path(parts.__file__)
# Stale devices, more of them than may send, and links that are worse than believed: updates are lost.
WORLD: dict[str, Any] = {
    "learning": {"trainer": "native"},
    "fleet": {"num_devices": 8, "joules_per_sample": 0.01},
    "policy": {"limit": 2},
    "radio": {"csi": "noisy", "symbol_rate": 4000.0, "joules_per_symbol": 1e-4},
    "timeline": {"horizon": 3.0, "buffer_size": 3},
}
KEEP = {"fleet": {"unpicked": "keep"}}
AWAY: dict[str, Any] = {"availability": f"{HERE}:there"}
DECIDES = {"policy": {"scheduler": {"name": f"{HERE}:decides", "joint": True}}, "radio": {"max_power": 2.0}}


@dataclass(frozen=True)
class Sooner:
    """Acts at every period, and sooner while the accuracy is high."""

    period: float = 0.4
    needs_progress = True

    def when(self, situation: Any) -> float:
        good = situation.progress.get("test_accuracy", 0.0) >= 0.4
        due = situation.last + self.period * (0.5 if good else 1.0)
        return max(situation.time, due) if situation.tick < 11 else math.inf


@dataclass(frozen=True)
class AsDecided:
    """Acts after a time that the scheduler's last metrics say."""

    needs_progress = True

    def when(self, situation: Any) -> float:
        return max(situation.time, situation.last + 0.1 + 0.1 * situation.progress.get("joint", 2.0))


CASES: dict[str, dict[str, Any]] = {
    "fleet.unpicked=keep": KEEP,
    "fleet.interrupt=True": {"fleet": {"interrupt": True}, "timeline": {"period": 0.4, "horizon": 5.0}},
    "fleet.absent=fetch": {"fleet": {"absent": "fetch", **AWAY}},
    "fleet.absent=abandon": {"fleet": {"absent": "abandon", **AWAY}},
    "fleet.concurrency=3": {"fleet": {"concurrency": 3}},
    "fleet.release=aggregation": {"fleet": {"concurrency": 4, "release": "aggregation", "unpicked": "keep"}},
    "fleet.selector=fewest_jobs": {"fleet": {"concurrency": 3, "selector": "fewest_jobs"}},
    "fleet.battery_joules=2": {"fleet": {"battery_joules": 0.2, "harvest_joules": 0.1}},
    "timeline.uploads=wait": {"timeline": {"uploads": "wait"}},
    "timeline.uploads=later": {"timeline": {"uploads": "later"}},
    "timeline.uploads=later, buffered": {"timeline": {"uploads": "later", "name": "buffered"}},
    "timeline.overrun=refuse": {"timeline": {"uploads": "wait", "overrun": "refuse"}, "radio": {"symbol_rate": 1e6}},
    "timeline.name=all": {"timeline": {"name": "all", "horizon": 12.0}},
    "timeline.name=deadline": {"timeline": {"name": "deadline", "period": 0.4, "horizon": 5.0}},
    "timeline.name=sampled_staleness": {"timeline": {"name": "sampled_staleness"}},
    "timeline.name=per_arrival": {"timeline": {"name": "per_arrival"}, **KEEP},
    "timeline.name=own": {"timeline": {"name": f"{__file__}:Sooner"}, **KEEP},
    "radio.retransmission=resend": {"radio": {"retransmission": "resend"}},
    "radio.retransmission=harq": {"radio": {"retransmission": "harq"}, **KEEP},
    "radio.num_blocks=3": {**DECIDES, **KEEP, "radio": {"max_power": 2.0, "num_blocks": 3, "modem": "waterfall"}},
    "metrics of a scheduler": {**DECIDES, **KEEP, "timeline": {"name": f"{__file__}:AsDecided"}},
    "Decision": {**DECIDES, "timeline": {"uploads": "later"}},
    "learning.target_accuracy": {"learning": {"target_accuracy": 0.9}},
    "learning.patience": {"learning": {"patience": 50}, **KEEP},
    "learning.work=uniform_epochs": {"learning": {"work": "uniform_epochs"}, **KEEP},
    "learning.seed_by=job": {"learning": {"seed_by": "job"}, "radio": {"coherence_time": 0.4}, **KEEP},
    "learning.seed_by=job, later": {"learning": {"seed_by": "job"}, "timeline": {"uploads": "later"}},
    "learning.seed_by=job, planned": {"learning": {"seed_by": "job"}},
    "learning.evaluate_every": {"learning": {"evaluate_every": 0.7}, **KEEP},
}
PLAIN = ("timeline.name=sampled_staleness", "learning.target_accuracy", "learning.seed_by=job, planned")


def stop_after(index: int) -> Any:
    def on_round(record: RoundRecord, total: int) -> None:
        if record.index == index:
            raise KeyboardInterrupt

    return on_round


def result_of(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "rounds.jsonl").read_bytes(), (folder / "model.npy").read_bytes()


def run(tree: dict[str, Any], folder: Path | None = None, **more: Any) -> fedtide.Result:
    return fedtide.simulate(small(WORLD, tree), folder, dataset=DATASET, **more)


@pytest.mark.parametrize("case", CASES)
def test_stopped_and_resumed_it_ends_with_the_same_bytes(tmp_path: Path, case: str) -> None:
    tree = CASES[case]
    whole = run(tree, tmp_path / "whole")
    assert len(whole.rounds) > 7
    assert (build(small(WORLD, tree), dataset=DATASET).world is None) == (case in PLAIN)
    for index in (1, 4, 7):
        with pytest.raises(KeyboardInterrupt):
            run(tree, tmp_path / "parts", on_round=stop_after(index))
        assert len(read_rounds(tmp_path / "parts")) == index
    run(tree, tmp_path / "parts", threads=2)
    assert result_of(tmp_path / "parts") == result_of(tmp_path / "whole")
    eager = run(tree, tmp_path / "eager", eager=True)
    assert result_of(tmp_path / "eager") == result_of(tmp_path / "whole")
    assert eager.rounds == whole.rounds


def test_every_new_key_has_a_case() -> None:
    """Keys that make a world react, or end a run early, are tested by being in the list."""
    new = [
        *("fleet.unpicked", "fleet.interrupt", "fleet.absent", "fleet.concurrency", "fleet.release", "fleet.selector"),
        *("fleet.battery_joules", "timeline.uploads", "timeline.overrun", "radio.retransmission", "radio.num_blocks"),
        *("learning.target_accuracy", "learning.patience", "learning.work", "learning.seed_by"),
    ]
    assert set(new) <= set(all_keys())
    assert set(new) <= {case.partition("=")[0] for case in CASES}


@pytest.mark.parametrize(
    ("tree", "last"),
    [
        ({"learning": {"target_accuracy": 0.2}}, 1),
        ({"learning": {"target_accuracy": 0.2}, **KEEP}, 1),
        ({"learning": {"patience": 1, "learning_rate": 1e-9}, **KEEP}, 2),
    ],
)
def test_a_run_that_ends_early_is_complete(tmp_path: Path, tree: dict[str, Any], last: int) -> None:
    result = run(tree, tmp_path)
    assert [record.index for record in result.rounds] == list(range(1, last + 1))
    assert is_complete(tmp_path)
    before = result_of(tmp_path)
    told: list[Any] = []
    again = run(tree, tmp_path, on_round=lambda *row: told.append(row))
    assert not told
    assert again.rounds == result.rounds
    assert result_of(tmp_path) == before


def test_a_run_that_stopped_at_its_last_round_is_completed(tmp_path: Path) -> None:
    """The target was reached, and the process ended before the final model was written."""
    tree: dict[str, Any] = {"learning": {"target_accuracy": 0.2}, **KEEP}
    run(tree, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "parts", on_round=stop_after(1))
    run(tree, tmp_path / "parts")
    assert result_of(tmp_path / "parts") == result_of(tmp_path / "whole")


def test_a_timeline_that_looks_at_progress_acts_sooner_and_cannot_be_planned() -> None:
    tree = CASES["timeline.name=own"]
    rounds = run(tree).rounds
    steps = [after.time - before.time for before, after in itertools.pairwise(rounds)]
    sooner = [(before.test_accuracy or 0.0) >= 0.4 for before in rounds[:-1]]
    assert {True, False} == set(sooner)
    assert steps == pytest.approx([0.2 if soon else 0.4 for soon in sooner])
    found = list(planned(build(small(WORLD, tree), dataset=DATASET)))
    assert [each.grant for each in found] == [None]


def test_the_number_of_aggregations_is_not_known_beforehand() -> None:
    totals: set[int] = set()
    run(KEEP, on_round=lambda record, total: totals.add(total))
    assert totals == {0}
