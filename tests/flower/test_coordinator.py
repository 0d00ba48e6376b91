"""The two-phase flow on a virtual clock, and that it is the simulator's mathematics."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from memory_grid import Federation, terms

from fedtide.deploy import apps, trace
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.learning import native
from fedtide.runs import is_complete, read_rounds


def test_two_phases(tmp_path: Path) -> None:
    federation = Federation(terms(), tmp_path / "run")
    model = federation.coordinator().run()
    recorded = trace.read_trace(tmp_path / "run")
    rounds = read_rounds(tmp_path / "run")
    assert is_complete(tmp_path / "run")
    assert len(rounds) == len(recorded.periods) == 8
    assert np.array_equal(np.load(tmp_path / "run" / "model.npy"), model)
    # durations 3, 8 | 12, 18 | 25 | 33 in periods of 10: c = 1, 1, 2, 2, 3, 4; uploads take no time from training
    ready = [each.ready for each in recorded.periods]
    assert ready[0] == [0, 1]
    for period in recorded.periods:
        assert len(period.picked) == min(3, len(period.ready))
        assert period.arrived == period.picked
    kinds = [each.metadata.message_type for each in federation.node(0).seen]
    assert kinds.count("train") == 8  # one more each time it was ready, but none after the last period
    assert kinds.count("query.upload") == sum(0 in each.picked for each in recorded.periods)


def test_a_straggler_is_never_interrupted(tmp_path: Path) -> None:
    federation = Federation(terms(), tmp_path / "run", durations=(3.0, 8.0, 12.0, 18.0, 25.0, 75.0))
    federation.coordinator().run()
    assert [each.metadata.message_type for each in federation.node(5).seen].count("train") == 1
    last = trace.read_trace(tmp_path / "run").periods[-1]
    assert 5 in last.ready
    assert last.start[last.ready.index(5)] == 1


def test_the_same_bits_as_the_simulator(tmp_path: Path) -> None:
    """If all is well, a federation whose readiness is the simulator's gives the simulator's model and rounds."""
    federation_terms = terms({"radio": {"symbol_rate": 1e4, "joules_per_symbol": 1e-3}})
    system = build(federation_terms.experiment)
    simulated = simulate(federation_terms.experiment, system=system)
    # a little early: the models leave half a second after the tick, when the uploads are in
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    federation = Federation(federation_terms, tmp_path / "run", durations)
    model = federation.coordinator().run()
    rounds = read_rounds(tmp_path / "run")
    assert [each.ready for each in rounds] == [each.ready for each in simulated.rounds]
    assert rounds == simulated.rounds
    assert rounds[-1].ledger.joules > 0
    assert np.array_equal(model, simulated.model)


def test_norms_are_asked_for_when_the_scheduler_wants_them(tmp_path: Path) -> None:
    federation = Federation(terms({"policy": {"scheduler": "best_channel_best_norm"}}), tmp_path / "run")
    federation.coordinator().run()
    for period in trace.read_trace(tmp_path / "run").periods:
        assert period.update_sq_norm is not None
        assert len(period.update_sq_norm) == len(period.ready)


def test_measured_and_reported_links(tmp_path: Path) -> None:
    measured = Federation(terms(capacity="measured"), tmp_path / "measured")
    measured.coordinator().run()
    last = trace.read_trace(tmp_path / "measured").periods[-1]
    assert last.rate
    assert all(rate > 0 for rate in last.rate.values())
    reported = Federation(terms(capacity="reported"), tmp_path / "reported", durations=())
    for part in range(6):
        reported.grid.join(part, 3.0 + part, capacity=1.0 + part)
    reported.coordinator().run()
    for period in trace.read_trace(tmp_path / "reported").periods:
        assert period.capacity == [1.0 + device for device in period.ready]


@pytest.mark.skipif("baseline" not in native.isas(), reason="made on the baseline path")
def test_the_model_has_the_bits_it_always_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTIDE_ISA", "baseline")
    apps._made_worker.cache_clear()  # a node is on one path for life
    Federation(terms(), tmp_path / "run").coordinator().run()
    apps._made_worker.cache_clear()
    found = hashlib.sha256((tmp_path / "run" / "model.npy").read_bytes()).hexdigest()
    assert found == "8f957950c6d042d61899f5481dec202985c2a80a7f03e442353ba225141d9b53"
