"""Worlds that react and cannot go on: one line with the part, the aggregation and the value, and nothing that was done is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import Decision
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.report.plan import plan_system
from fedtide.runs import is_complete, read_rounds
from fedtide.types import Job, Memory, Trained
from helpers import FakeTrainer, small, small_dataset

WORLD: dict[str, Any] = {
    "learning": {"trainer": "native"},
    "fleet": {"num_devices": 8, "unpicked": "keep"},
    "policy": {"limit": 3},
    "radio": {"num_blocks": 2, "symbol_rate": 1e4},
}
DATASET = small_dataset()


@dataclass(frozen=True)
class When:
    """Goes wrong after two aggregations."""

    answer: str = "never"

    def when(self, situation: Any) -> Any:
        now = situation.time
        if situation.tick < 2:
            return max(now, situation.last + 0.5)
        if self.answer == "raises":
            raise ZeroDivisionError
        answers = {"never": math.inf, "past": now - 1, "text": "soon", "nan": math.nan, "None": None, "now": now}
        return answers[self.answer]


def decides(candidates, limit, rng, what: str = "right"):  # type: ignore[no-untyped-def]
    """Goes wrong at the third aggregation."""
    k, n = np.arange(limit), candidates.uplink.symbols
    s, ones = np.full(limit, n / limit), np.ones(limit)
    if candidates.tick < 3:
        return Decision(k, s)
    wrong: dict[str, Any] = {
        "symbols": lambda: Decision(k, s * 1.01),
        "power": lambda: Decision(k, s, power=ones * 1.5),
        "no power": lambda: Decision(k, s, power=ones * 0),
        "block": lambda: Decision(k, s, block=k * 0 + 7),
        "half a block": lambda: Decision(k, s, block=ones * 0.5),
        "one block": lambda: Decision(k, s, block=k * 0),
        "share": lambda: Decision(k, s, share=ones * 0.9),
        "no share": lambda: Decision(k, s, share=ones * 0),
        "length": lambda: Decision(k, s[:-1]),
        "one": lambda: Decision(k, n),
        "nan": lambda: Decision(k, s * math.nan),
        "negative": lambda: Decision(k, -s),
        "bits": lambda: Decision(k, s, bits=s * 1e6),
        "speed": lambda: Decision(k, s, speed=ones * 2),
        "text": lambda: Decision(k, ["a"] * limit),  # type: ignore[arg-type]
        "twice": lambda: Decision(k * 0, s),
        "beyond": lambda: Decision(k + 100, s),
        "metrics": lambda: Decision(k, s, metrics={"x": math.nan}),
    }
    return wrong[what]()


def places(idle, count, rng, what: str = "right"):  # type: ignore[no-untyped-def]
    """Goes wrong once four trainings have begun."""
    k = np.arange(count)
    if idle.jobs.sum() < 4:
        return k
    return {"many": np.arange(count + 1), "twice": k * 0, "beyond": k + 100, "None": None, "right": k}[what]


def refused(tree: dict[str, Any], folder: Path) -> tuple[FedtideError, int]:
    """Run into an error; return it, and the number of aggregations that are saved then. A resume says the same."""
    e = small(WORLD, tree)
    with pytest.raises(FedtideError) as found:
        fedtide.simulate(e, folder, dataset=DATASET)
    assert "\n" not in str(found.value)
    count = len(read_rounds(folder)) if folder.exists() else 0
    assert not is_complete(folder)
    if count:
        with pytest.raises(FedtideError) as again:
            fedtide.simulate(e, folder, dataset=DATASET)
        assert str(again.value) == str(found.value)
        assert len(read_rounds(folder)) == count
    return found.value, count


@pytest.mark.parametrize(
    ("answer", "words", "code", "done"),
    [
        ("never", "does not act after aggregation 2 at time", 2, 2),
        ("past", "named time 0.0 after aggregation 2, and it is 1", 5, 2),
        ("text", "named time 'soon' after aggregation 2", 5, 2),
        ("nan", "named time nan after aggregation 2", 5, 2),
        ("None", "named time None after aggregation 2", 5, 2),
        ("now", "has acted 1000 times at time 1 (aggregation 1002): it never lets time pass", 5, 1002),
        ("raises", "raised ZeroDivisionError", 2, 2),
    ],
)
def test_a_timeline_that_cannot_be_followed(tmp_path: Path, answer: str, words: str, code: int, done: int) -> None:
    error, count = refused({"timeline": {"name": {"name": f"{__file__}:When", "answer": answer}}}, tmp_path / "run")
    assert words in str(error)
    assert f"timeline='{__file__}:When'" in str(error)
    assert (error.exit_code, count) == (code, done)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("symbols", "404 symbols in all: there are 400"),
        ("power", "power=1.5: it must be above 0 and at most 1"),
        ("no power", "power=0.0: it must be above 0 and at most 1"),
        ("block", "block=7: it must be from 0 to 1"),
        ("half a block", "block=array([0.5, 0.5, 0.5]): give 3 numbers"),
        ("one block", "400 symbols in block 0 in all: there are 200"),
        ("share", "2.7 share of the band in all: there are 1"),
        ("no share", "no share of the band at aggregation 3, and its upload never ends"),
        ("length", "symbols=array([133.33333333, 133.33333333]): give 3 numbers, one per picked device"),
        ("one", "symbols=400.0: give 3 numbers"),
        ("nan", "symbols=nan: it must be a finite number >= 0"),
        ("negative", "symbols=-133.33333333333334: it must be a finite number >= 0"),
        ("bits", "133333333.333 bits in 133.333333333 symbols, which carry"),
        ("speed", "speed=2.0: it must be above 0 and at most 1"),
        ("text", "symbols=['a', 'a', 'a']: give 3 numbers"),
        ("twice", "returned positions array([0, 0, 0]): some are duplicates"),
        ("beyond", "returned positions array([100, 101, 102]): they must lie in"),
        ("metrics", "metrics={'x': nan}: give finite numbers by name"),
    ],
)
def test_a_decision_that_cannot_be(tmp_path: Path, what: str, words: str) -> None:
    tree = {
        "policy": {"scheduler": {"name": f"{__file__}:decides", "what": what}},
        "timeline": {"uploads": "wait", "period": 0.5},
        "radio": {"num_symbols": 200},  # per quarter of a unit of time
    }
    error, count = refused(tree, tmp_path / "run")
    assert words in str(error)
    assert f"scheduler='{__file__}:decides'" in str(error)
    assert "aggregation 3" in str(error)
    assert (error.exit_code, count) == (5, 2)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("many", "there are 4, and at most"),
        ("twice", "some are duplicates"),
        ("beyond", "they must lie in 0.."),
        ("None", "returned positions None"),
    ],
)
def test_a_selector_that_cannot_be(tmp_path: Path, what: str, words: str) -> None:
    fleet = {"concurrency": 3, "selector": {"name": f"{__file__}:places", "what": what}}
    error, _ = refused({"fleet": fleet, "timeline": {"name": "all", "horizon": 9.0}}, tmp_path / "run")
    assert words in str(error)
    assert f"selector='{__file__}:places'" in str(error)
    assert "asked after aggregation" in str(error)
    assert error.exit_code == 5


@pytest.mark.parametrize(
    ("tree", "words", "code"),
    [
        ({"fleet": {"concurrency": 9}}, "fleet.concurrency=9 is more than the 8 devices", 2),
        ({"timeline": {"uploads": "wait"}, "radio": {"symbol_rate": 0.0}}, "needs radio.symbol_rate, which is 0", 2),
        (
            {"timeline": {"uploads": "later"}, "radio": {"retransmission": "harq"}},
            "timeline.uploads=later does not go with radio.retransmission",
            2,
        ),
        (
            {"timeline": {"uploads": "wait", "overrun": "refuse"}, "radio": {"symbol_rate": 100.0}},
            "longer than timeline.period=0.25",
            5,
        ),
        ({"timeline": {"name": "synchronous"}}, "timeline.name=synchronous plans its times before", 2),
        ({"timeline": {"name": "sampled_staleness"}}, "timeline.name=sampled_staleness plans its times before", 2),
        (
            {"timeline": {"name": "deadline", "period": 0.1}, "fleet": {"interrupt": True, "min_duration": 0.5}},
            "timeline.name=deadline has acted 29 times up to timeline.horizon=3, and nobody had finished",
            2,
        ),
        ({"fleet": {"battery_joules": 0.001, "joules_per_sample": 1.0}}, "raise fleet.battery_joules", 2),
        ({"fleet": {"battery_joules": 1.0}}, "fleet.battery_joules=1 is drained by nothing", 2),
        (
            {"timeline": {"name": "all", "horizon": 0.1}, "fleet": {"min_duration": 0.5}},
            "timeline.name=all does not act",
            2,
        ),
        (
            {"fleet": {"concurrency": 2, "release": "aggregation"}, "timeline": {"name": "buffered", "buffer_size": 3}},
            "2 devices never fill the buffer; lower it or raise fleet.concurrency",
            2,
        ),
    ],
)
def test_keys_that_cannot_be(tmp_path: Path, tree: dict[str, Any], words: str, code: int) -> None:
    error, _ = refused(tree, tmp_path / "run")
    assert words in str(error)
    assert error.exit_code == code


def test_no_concurrency_is_refused() -> None:
    with pytest.raises(FedtideError, match=r"fleet\.concurrency=0"):
        small(WORLD, {"fleet": {"concurrency": 0}})


def test_a_run_ends_when_nobody_can_ever_finish_again(tmp_path: Path) -> None:
    """Empty batteries are no fault of the timeline: what was done is a whole run."""
    tree = {
        "fleet": {"battery_joules": 0.5, "joules_per_sample": 0.02},
        "timeline": {"name": "buffered", "buffer_size": 3},
    }
    result = fedtide.simulate(small(WORLD, tree), tmp_path, dataset=DATASET)
    assert is_complete(tmp_path)
    assert result.rounds[-1].ledger.joules == pytest.approx(8 * 4 * 6 * 0.02, rel=0.3)


def test_who_cannot_pay_for_sending_is_silent_and_weighs_nothing() -> None:
    tree = {
        "fleet": {"battery_joules": 0.1, "unpicked": "restart"},
        "radio": {"joules_per_symbol": 0.0005, "num_blocks": 1},
    }
    e = small(WORLD, tree)
    rounds = fedtide.simulate(e, dataset=DATASET).rounds
    assert any(0 < len(record.silent) < len(record.picked) for record in rounds)
    assert all(record.silent == record.picked for record in rounds[-2:])  # the batteries are empty
    for record in rounds:
        weight = dict(zip(record.picked, record.weight, strict=True))
        assert all(weight[device] == 0 for device in record.silent)
        assert not record.num_arrived or sum(record.weight) == pytest.approx(1)
    assert rounds[-1].ledger.joules <= 8 * 0.1 * (1 + 1e-9)
    rows = plan_experiment_rows(e)
    assert [row["silent"] for row in rows] == [record.silent for record in rounds]


def plan_experiment_rows(e: fedtide.Experiment) -> list[dict[str, Any]]:
    return plan_system(build(e, dataset=DATASET)).rows


class Counting(FakeTrainer):
    """Remembers something with every training."""

    def init(self, num_parameters: int) -> Memory:
        return {"count": np.zeros(1)}

    def train(self, jobs: Sequence[Job]) -> Any:
        memory = [{"count": (job.memory or {"count": np.zeros(1)})["count"] + 1} for job in jobs]
        return Trained(super().train(jobs), memory)


@pytest.mark.parametrize(
    ("key", "tree"),
    [
        ("timeline.uploads=later", {"timeline": {"uploads": "later"}, "fleet": {"unpicked": "restart"}}),
        ("fleet.unpicked=keep", {}),
        ("radio.retransmission=resend", {"radio": {"retransmission": "resend"}, "fleet": {"unpicked": "restart"}}),
    ],
)
def test_a_trainer_that_trains_all_ready_devices_is_refused_where_updates_wait(key: str, tree: dict[str, Any]) -> None:
    with pytest.raises(FedtideError, match=f"by {key} its update waits to be sent"):
        fedtide.simulate(small(WORLD, tree), dataset=DATASET, trainer=Counting())


def test_it_trains_where_updates_do_not_wait() -> None:
    tree = {"fleet": {"unpicked": "restart", "concurrency": 4}}
    assert fedtide.simulate(small(WORLD, tree), dataset=DATASET, trainer=Counting()).rounds


# Rounds that wait for everyone.


def long_jobs(seed, device, job):  # type: ignore[no-untyped-def]
    return 0.4 + 0.3 * device + 0.1 * (job % 2)


def half_days(seed, device, time):  # type: ignore[no-untyped-def]
    """Odd devices are away for the first half of every unit of time."""
    away = (device % 2 == 1) & (time % 1 < 0.5)
    return np.where(away, np.floor(time) + 0.5, time)


@pytest.mark.parametrize("away", [False, True])
def test_rounds_that_wait_for_everyone_do_so(away: bool) -> None:
    """`synchronous` lasts as long as the slowest of a round, longer than fleet.max_duration if need be; nobody is stale."""
    fleet: dict[str, Any] = {"unpicked": "restart", "duration": f"{__file__}:long_jobs"}
    if away:
        fleet["availability"] = f"{__file__}:half_days"
    tree = {"fleet": fleet, "timeline": {"name": "synchronous", "horizon": 20.0}, "policy": {"limit": 8}}
    rounds = fedtide.simulate(small(WORLD, tree), dataset=DATASET).rounds
    before = 0.0
    assert len(rounds) > 4
    for number, record in enumerate(rounds, 1):
        here = [k for k in range(8) if not away or k % 2 == 0 or before % 1 >= 0.5 - 1e-9]
        assert record.ready == record.picked == here
        assert set(record.age) == {0}
        slowest = 0.4 + 0.3 * max(here)
        assert record.time - before >= slowest - 1e-9
        if not away:
            assert record.time - before == pytest.approx(slowest + 0.1 * (number % 2))
        before = record.time
