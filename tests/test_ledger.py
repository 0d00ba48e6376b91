"""What a run spends: every column of the ledger by hand, the same after a resume, and left out where it is not known."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fedtide
from fedtide.codec.base import Sent
from fedtide.engine.simulate import simulate
from fedtide.engine.step import Info
from fedtide.engine.system import build
from fedtide.runs import Ledger, RoundRecord
from fedtide.runs.record import Costs, Scores, record_costs, round_record
from fedtide.studies.metrics import metric_named
from fedtide.studies.results import RunResult, results_from_rounds
from fedtide.types import Candidates, Grant, Tick
from helpers import FakeTrainer, small, small_dataset
from stored import same

NUM_PARAMETERS = 30
COUNTED = {"radio": {"symbol_rate": 5000.0, "joules_per_symbol": 0.001}, "fleet": {"joules_per_sample": 0.25}}


@dataclass(frozen=True)
class Shared:
    """One transmission for all, of no length."""

    shared: ClassVar[bool] = True
    instant: ClassVar[bool] = True

    def __call__(self, seed: int, device: Any, time: Any, bits: float) -> Any:
        return np.zeros(len(device))


@dataclass(frozen=True)
class ByDevice:
    """Device k spends k J a sample and 10 a symbol."""

    def __call__(self, seed: int, device: Any, samples: Any, symbols: Any) -> Any:
        return device * samples + 10.0 * symbols


def run(*changes: Any, folder: Path | None = None, on_round: Any = None, **parts: Any) -> list[RoundRecord]:
    experiment = small(*changes)
    system = build(experiment, dataset=small_dataset())._replace(**parts)
    trainer = FakeTrainer(num_parameters=NUM_PARAMETERS)
    return simulate(experiment, folder, system=system, trainer=trainer, on_round=on_round).rounds


def steps(rounds: list[RoundRecord], name: str) -> list[float]:
    """Return what each round added."""
    return np.diff([0.0, *(getattr(each.ledger, name) for each in rounds)]).tolist()


def test_bits_down_are_a_model_for_everyone_who_is_ready() -> None:
    rounds = run()
    assert steps(rounds, "bits_down") == [32.0 * NUM_PARAMETERS * len(each.ready) for each in rounds]
    assert len({len(each.ready) for each in rounds}) > 1
    once = run(downlink=Shared())
    assert steps(once, "bits_down") == [32.0 * NUM_PARAMETERS * bool(each.ready) for each in once]


def taken(record: RoundRecord) -> float:
    """Return the symbols that the packets of a round take."""
    uploads = zip(record.sent_bits, record.capacity, record.symbols, strict=True)
    return sum(min(bits / capacity, symbols) for bits, capacity, symbols in uploads)


def test_ten_times_the_symbols_for_the_same_bits_cost_the_same() -> None:
    """A small model fits whatever is granted: what is idle costs neither airtime nor joules."""
    few, many = (run(COUNTED, {"radio": {"num_symbols": n}})[-1].ledger for n in (40_000, 400_000))
    assert many.symbols == pytest.approx(10 * few.symbols)
    assert many.bits == few.bits
    for name in ("symbols_sent", "air_time", "joules"):
        assert 0 < getattr(many, name) == pytest.approx(getattr(few, name))


def tick_of(sent: dict[int, Sent], again: tuple[int, ...] = ()) -> Info:
    """Return an aggregation in which devices 3 and 5 of 3, 4, 5 are granted 100 and 300 symbols of 2 and 4 bit."""
    three = np.array([3, 4, 5])
    rows = Candidates(
        6,
        three,
        np.array([1, 1, 1]),
        np.ones((3, 2), np.int64),
        np.zeros(3, np.int64),
        three,
        np.array([2.0, 1.0, 4.0]),
    )
    grant = Grant(np.array([0, 2]), np.array([100.0, 300.0]), np.array([200.0, 1200.0]))
    arrived = np.array([at for at, device in enumerate((3, 4, 5)) if device in sent], np.int64)
    weights = np.full(len(arrived), 1 / max(len(arrived), 1))
    return Info(
        Tick(1, 0.5, three, np.ones(3, np.int64)), rows, grant, sent, arrived, weights, 0.0, np.array(again, np.int64)
    )


def costs_of(*changes: Any) -> Costs:
    return record_costs(build(small(COUNTED, *changes), dataset=small_dataset()), NUM_PARAMETERS)


def test_packets_count_and_grants_do_not() -> None:
    costs, both = costs_of(), tick_of({3: Sent(5, 120, 8), 5: Sent(9, 1200, 8)})
    assert costs.after(Ledger(), both, 0.0, []).symbols_sent == 120 / 2 + 300
    beyond = tick_of({3: Sent(5, 10**6, 8)})  # a codec that ignores its budget takes its grant and no more
    assert costs.after(Ledger(), beyond, 0.0, []).symbols_sent == 100
    silent = costs.after(Ledger(), tick_of({}), 0.0, [])
    assert (silent.symbols, silent.symbols_sent, silent.air_time) == (400, 0, 0)
    assert silent.joules == 0.25 * silent.samples_trained > 0


def test_a_run_of_an_older_version_goes_on_counting_what_is_granted() -> None:
    costs, info, old = costs_of(), tick_of({3: Sent(5, 120, 8)}), Ledger(400.0, air_time=0.08, joules=1.0)
    assert not old.counts_sent
    after = costs.after(old, info, 0.0, [])
    assert after.symbols_sent is None
    assert after.air_time == pytest.approx(0.08 + 400 / 5000.0)
    assert after.joules == pytest.approx(1.0 + 0.001 * 400 + 0.25 * after.samples_trained)
    begun = Ledger(samples_trained=3, joules=0.75)  # nothing was granted so far
    assert costs.after(begun, info, 0.0, []).symbols_sent == 60


def test_who_sent_once_more_is_on_record() -> None:
    info = tick_of({5: Sent(9, 1200, 8)}, again=(2,))
    record = round_record(info, Scores(), Ledger(), costs_of())
    assert (record.retransmitted, record.silent, record.num_arrived) == ([5], [3], 1)
    frame = fedtide.Result(small(), [record], np.zeros(3, np.float32), {})
    assert [sum(frame.frame()[f"num_{name}"]) for name in ("arrived", "lost", "silent", "retransmitted")] == [
        1,
        0,
        1,
        1,
    ]
    assert [each.tolist() for each in (frame.uploads()["silent"], frame.uploads()["retransmitted"])] == [
        [True, False],
        [False, True],
    ]


def test_time_on_the_air_and_energy_by_prices() -> None:
    rounds = run(COUNTED)
    last = rounds[-1].ledger
    assert last.symbols_sent == pytest.approx(sum(map(taken, rounds)), rel=1e-12)
    assert 0 < last.symbols_sent < 0.99 * last.symbols
    assert last.air_time == pytest.approx(last.symbols_sent / 5000.0, rel=1e-12)
    assert last.joules == pytest.approx(0.001 * last.symbols_sent + 0.25 * last.samples_trained, rel=1e-12)
    plain = run()
    assert [each.ledger._replace(air_time=0.0, joules=0.0) for each in rounds] == [each.ledger for each in plain]
    assert plain[-1].ledger.air_time == plain[-1].ledger.joules == 0


def test_energy_is_asked_of_every_ready_device() -> None:
    epochs = {"learning": {"local_epochs": 2}}
    rounds = run(epochs, energy=ByDevice())
    visits = 2 * build(small(epochs), dataset=small_dataset()).fleet.num_samples
    for each, joules in zip(rounds, steps(rounds, "joules"), strict=True):
        wanted = sum(k * visits[k] for k in each.ready) + 10 * taken(each)
        assert joules == pytest.approx(wanted, rel=1e-9)


def test_a_resumed_run_counts_on(tmp_path: Path) -> None:
    whole = run(COUNTED, folder=tmp_path / "whole")

    def stop(record: RoundRecord, total: int) -> None:
        if record.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(COUNTED, folder=tmp_path / "cut", on_round=stop)
    assert run(COUNTED, folder=tmp_path / "cut") == whole
    names = ("whole/rounds.jsonl", "cut/rounds.jsonl")
    one, other = ((tmp_path / name).read_bytes() for name in names)
    assert one == other
    assert json.loads(one.splitlines()[-1])["ledger"]["joules"] == whole[-1].ledger.joules > 0


def stored(*changes: Any) -> RunResult:
    return results_from_rounds(small(*changes), run(*changes), NUM_PARAMETERS, None)


def test_stored_results_have_what_was_counted() -> None:
    plain, counted = stored(), stored(COUNTED)
    assert "bits_down" in plain.columns
    assert not {"air_time", "joules"} & {*plain.columns}
    assert {"bits_down", "air_time", "joules"} <= {*counted.columns}
    older = dataclasses.replace(
        plain, columns={name: each for name, each in plain.columns.items() if name != "bits_down"}
    )
    assert np.isnan(older.column("bits_down")).all()
    assert plain.column("air_time").tolist() == [0.0] * len(plain.columns["time"])
    assert same(older, plain)
    assert same(plain, older)
    more = {**plain.columns, "bits_down": 1 + plain.columns["bits_down"]}
    assert not same(plain, dataclasses.replace(plain, columns=more))
    metric = metric_named("joules_to_0.01")
    assert metric is not None
    assert metric(counted) > 0
    assert np.isnan(metric(plain))


def test_the_ledger_begins_with_nothing() -> None:
    assert not any(Ledger())
