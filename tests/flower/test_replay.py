"""A trace played again: the same bits, and what-ifs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from memory_grid import Federation, terms

from fedtide.deploy import trace
from fedtide.deploy.replay import replay
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs import is_complete, read_rounds


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation in which a node dies, comes back, and uploads get lost."""
    folder = tmp_path_factory.mktemp("federation") / "run"
    prices = {"radio": {"symbol_rate": 1e4, "joules_per_symbol": 1e-3}, "fleet": {"joules_per_sample": 0.01}}
    federation = Federation(terms({"timeline": {"horizon": 160.0}, **prices}), folder)
    federation.clock.at(15.0, lambda: federation.grid.kill(federation.node(0)))
    federation.clock.at(35.0, lambda: federation.grid.restart(federation.node(0)))
    federation.node(1).act = lambda node, message, reply: [(9.0, reply)]  # always too late
    federation.coordinator().run()
    return folder


def test_the_same_bits(run: Path, tmp_path: Path) -> None:
    result = replay(run, out=tmp_path / "again")
    assert result.first_difference is None
    assert result.compared == 16
    assert np.array_equal(result.model, np.load(run / "model.npy"))
    assert result.rounds == read_rounds(run) == read_rounds(tmp_path / "again")
    assert all(
        result.rounds[-1].ledger._replace(control_bits=1.0, co2_grams=1.0)
    )  # all else was spent, and counted alike
    assert is_complete(tmp_path / "again")


@pytest.mark.parametrize("capacity", ["measured", "reported"])
@pytest.mark.parametrize("scheduler", ["best_channel_best_norm", "age_based"])
def test_the_same_bits_whatever_the_link_and_scheduler(tmp_path: Path, capacity: str, scheduler: str) -> None:
    federation = Federation(
        terms({"policy": {"scheduler": scheduler}}, capacity=capacity), tmp_path / "run", durations=()
    )
    for part in range(6):
        federation.grid.join(5 - part, 3.0 + 6 * part, capacity=2.0 + part)
    model = federation.coordinator().run()
    result = replay(tmp_path / "run")
    assert result.first_difference is None
    assert np.array_equal(result.model, model)


def test_private_histograms_replay_too(tmp_path: Path) -> None:
    model = Federation(terms(epsilon=0.2), tmp_path / "run").coordinator().run()
    result = replay(tmp_path / "run")
    assert result.first_difference is None
    assert np.array_equal(result.model, model)


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": {"scheduler": "random"}},
        {"policy": {"scheduler": "best_channel_best_norm", "limit": 2}},
        {"policy": {"age_base": 0.5, "limit": 2}},
        {"codec": {"name": "ideal"}},
        {"radio": {"num_symbols": 3000}},
        {"learning": {"learning_rate": 0.01}},
    ],
)
def test_what_if(run: Path, changes: dict[str, dict[str, object]]) -> None:
    result = replay(run, changes)
    assert result.compared == 0
    assert len(result.rounds) == 16
    assert not np.array_equal(result.model, np.load(run / "model.npy"))
    recorded = trace.read_trace(run).periods
    assert [each.ready for each in result.rounds] == [each.ready for each in recorded]
    failed = [set(each.picked) - set(each.arrived) for each in recorded]
    assert any(failed)
    for record, lost in zip(result.rounds, failed, strict=True):
        assert all(weight == 0 for k, weight in zip(record.picked, record.weight, strict=True) if k in lost)


def test_who_is_picked_in_outage_is_silent(tmp_path: Path) -> None:
    keys = {
        "radio": {"modem": {"name": "gap", "min_snr_db": 12.0}},
        "policy": {"scheduler": "best_channel", "limit": 2},
    }
    Federation(terms(keys), tmp_path / "run").coordinator().run()
    assert replay(tmp_path / "run").first_difference is None
    result = replay(tmp_path / "run", {"policy": {"scheduler": "random", "limit": 6}})
    in_outage = [
        weight for record in result.rounds for c, weight in zip(record.capacity, record.weight, strict=True) if not c
    ]
    assert in_outage
    assert not any(in_outage)


def test_what_happened_cannot_be_changed(run: Path) -> None:
    for changes in ({"seed": 4}, {"fleet": {"num_devices": 7}}, {"radio": {"snr_db": 3.0}}):
        with pytest.raises(FedtideError, match="part of what happened"):
            replay(run, changes)


def test_a_forged_trace_is_noticed(run: Path, tmp_path: Path) -> None:
    """Whoever can seal a trace can forge it: then the bits tell."""
    (tmp_path / "experiment.yaml").write_bytes((run / "experiment.yaml").read_bytes())
    recorded = trace.read_trace(run)
    period = recorded.periods[4]
    period.learning_rate[period.ready.index(period.arrived[0])] *= 2
    trace.write_trace(tmp_path, recorded)
    assert replay(tmp_path).first_difference == 5


def test_only_a_trace_can_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"holds no trace\.jsonl"):
        replay(tmp_path)


def test_a_replay_needs_no_flower() -> None:
    code = "import sys; sys.modules['flwr'] = None; import fedtide.deploy.replay"
    subprocess.run([sys.executable, "-c", code], check=True)
