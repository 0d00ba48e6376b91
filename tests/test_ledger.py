"""What a run spends: every column of the ledger by hand, the same after a resume, and left out where it is not known."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.runs import Ledger, RoundRecord
from fedtide.studies.metrics import metric_named
from fedtide.studies.results import RunResult, results_from_rounds
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


def test_time_on_the_air_and_energy_by_prices() -> None:
    rounds = run(COUNTED)
    last = rounds[-1].ledger
    assert last.air_time == pytest.approx(last.symbols / 5000.0, rel=1e-12)
    assert last.joules == pytest.approx(0.001 * last.symbols + 0.25 * last.samples_trained, rel=1e-12)
    assert last.symbols > 0
    plain = run()
    assert [each.ledger._replace(air_time=0.0, joules=0.0) for each in rounds] == [each.ledger for each in plain]
    assert plain[-1].ledger.air_time == plain[-1].ledger.joules == 0


def test_energy_is_asked_of_every_ready_device() -> None:
    epochs = {"learning": {"local_epochs": 2}}
    rounds = run(epochs, energy=ByDevice())
    visits = 2 * build(small(epochs), dataset=small_dataset()).fleet.num_samples
    for each, joules in zip(rounds, steps(rounds, "joules"), strict=True):
        wanted = sum(k * visits[k] for k in each.ready) + 10 * sum(each.symbols)
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
