"""One server over several cells: plans and runs against a slow twin, symbols cell by cell, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedtide
from fedtide.deploy.settings import Deployment, Terms, check_terms
from fedtide.engine.system import build
from fedtide.engine.uplink import decided_grant
from fedtide.errors import FedtideError, TrainingError
from fedtide.radio.allocation import equal_bits
from fedtide.radio.modem import shannon_capacity
from fedtide.radio.sites import hexagonal_layout
from fedtide.report.plan import plan_system
from fedtide.types import Decision, Grant, UplinkView
from helpers import make_candidates, small, small_dataset
from twins.slow_cells import Network, hexagon_shifts

DATASET = small_dataset(num_train=240)
DECIDES = """
import numpy as np
from fedtide.types import Decision

def decide(candidates, limit, rng):
    m = len(candidates.device)
    picked = np.sort(rng.choice(m, min(limit, m), replace=False))
    device, cell, blocks = candidates.device[picked], candidates.cell[picked], candidates.uplink.snr.shape[1]
    block = device % blocks
    own, weight = block + blocks * cell, rng.random(len(picked)) + 0.1
    symbols = candidates.uplink.symbols / blocks * weight / np.bincount(own, weight)[own]
    return Decision(picked, symbols, power=0.2 + 0.1 * (device % 8), block=block if blocks > 1 else None)

"""

NETWORKS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "rings": st.sampled_from([1, 2]),
        "wrap": st.booleans(),
        "sectors": st.sampled_from([1, 3]),
        "p0": st.sampled_from([None, -100.0, -60.0]),
        "alpha": st.sampled_from([0.0, 0.7, 1.0]),
        "decides": st.booleans(),
        "blocks": st.sampled_from([1, 2]),
        "expected": st.sampled_from(["none", "mean"]),
        "limit": st.integers(1, 30),
    }
)


def cells(coverage: dict[str, Any], **keys: Any) -> fedtide.Experiment:
    groups: dict[str, dict[str, Any]] = {
        "fleet": {"num_devices": 60},
        "radio": {"coverage": coverage, "channel": {"name": "rician", "k_factor": 1e12}, "num_symbols": 1000},
        "policy": {"limit": 20, "scheduler": "random"},
        "timeline": {"horizon": 1.5},
        "learning": {"trainer": "native"},
    }
    for key, value in keys.items():
        group, name = key.split("__")
        groups[group][name] = value
    return small(groups)


def both(experiment: fedtide.Experiment) -> tuple[list[dict[str, Any]], Any]:
    plan = plan_system(build(experiment, dataset=DATASET)).rows
    return plan, fedtide.simulate(experiment, dataset=DATASET).rounds


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NETWORKS)
def test_plan_and_run_meet_the_interference_of_a_double_loop(tmp_path: Path, world: dict[str, Any]) -> None:
    """Who is served by which cell, what it hears of the others, and which packets are lost by that."""
    seed, rings = world["seed"], world["rings"]
    radius = (rings + 0.5) * 500
    draws = np.random.default_rng(seed)
    devices: list[tuple[float, float]] = []
    shape = {"name": "hex_grid", "rings": rings, "wrap": world["wrap"], "sectors": world["sectors"]}
    sites = [tuple(place) for place in hexagonal_layout(rings, 500.0, True).sites]
    while len(devices) < 60:
        x, y = draws.uniform(-radius, radius, 2).round(1).tolist()
        if 40 <= min(math.hypot(x - a, y - b) for a, b in sites) <= 288:
            devices.append((x, y))
    (tmp_path / "spots.csv").write_text("device,x,y\n" + "".join(f"{k},{x},{y}\n" for k, (x, y) in enumerate(devices)))
    (tmp_path / "decides.py").write_text(DECIDES)
    control = {} if world["p0"] is None else {"p0_dbm": world["p0"], "alpha": world["alpha"]}
    coverage = {
        **shape,
        **control,
        "expected": world["expected"],
        "path_loss": {"name": "log_distance", "sigma_db": 0.0},
        "positions": str(tmp_path / "spots.csv"),
    }
    blocks = world["blocks"] if world["decides"] else 1
    experiment = cells(
        coverage,
        policy__scheduler=f"{tmp_path / 'decides.py'}:decide" if world["decides"] else "random",
        policy__limit=world["limit"],
        radio__num_blocks=blocks,
    )
    plan, rounds = both(experiment)
    shifts = hexagon_shifts(rings, 500.0) if world["wrap"] else [(0.0, 0.0)]
    symbols = build(experiment, dataset=DATASET).num_symbols
    twin = Network(sites, devices, shifts, world["sectors"], world["p0"], world["alpha"], symbols, blocks)
    seen = 0
    for row, record in zip(plan, rounds, strict=True):
        assert row["cell"] == record.cell
        assert row["interference"] == record.interference
        assert row["lost"] == record.lost
        power = [0.2 + 0.1 * (k % 8) if world["decides"] else 1.0 for k in record.picked]
        sends = [
            {
                "device": device,
                "taken": min(bits / rate, granted) if bits else 0.0,
                "power": own,
                "block": device % blocks if blocks > 1 else None,
            }
            for device, bits, rate, granted, own in zip(
                record.picked, record.sent_bits, record.capacity, record.symbols, power, strict=True
            )
        ]
        for at, device in enumerate(record.picked):
            assert record.cell[at] == twin.cell(device)
            met = twin.interference(device, sends)
            assert record.interference[at] == pytest.approx(met, rel=1e-9, abs=1e-12)
            strength = power[at] * twin.received(device, record.cell[at])
            expected = twin.expected(device) if world["expected"] == "mean" else 0.0
            believed = math.log2(1 + strength / (1 + expected))
            assert record.capacity[at] == pytest.approx(believed, rel=1e-4)
            carried = record.symbols[at] * math.log2(1 + strength / (1 + met))
            if abs(carried / max(record.sent_bits[at], 1) - 1) > 1e-3:
                assert (device in record.lost) == (record.sent_bits[at] > carried)
            seen += 1
    assert seen


def test_every_cell_has_its_own_symbols() -> None:
    plan, rounds = both(cells({"name": "hex_grid"}))
    for row, record in zip(plan, rounds, strict=True):
        assert row["symbols"] == record.symbols
        for cell in set(record.cell):
            here = np.array(record.cell) == cell
            capacity = np.array(record.capacity)[here]
            np.testing.assert_allclose(np.array(record.symbols)[here], equal_bits(capacity, 1000.0)[0])
        assert len(set(record.cell)) > 1


def test_a_decision_may_spend_the_symbols_of_every_cell_and_no_more() -> None:
    def decided(cell: list[int] | None, symbols: list[float], **more: Any) -> Grant:
        rows = make_candidates(np.ones(3))._replace(
            cell=None if cell is None else np.array(cell),
            uplink=UplinkView(np.ones((3, 2)), shannon_capacity, 100.0, 1.0, 1.0),
        )
        answer = Decision(np.arange(3), np.array(symbols), **more)
        return decided_grant(answer, 3, rows, 100.0, None, "scheduler")

    assert decided([0, 1, 1], [100.0, 60.0, 40.0]).symbols.tolist() == [100, 60, 40]
    with pytest.raises(TrainingError, match="101 symbols in cell 1 in all: there are 100; spend at most that"):
        decided([0, 1, 1], [100.0, 60.0, 41.0])
    with pytest.raises(TrainingError, match="200 symbols in all: there are 100"):
        decided(None, [100.0, 60.0, 40.0])
    with pytest.raises(TrainingError, match=r"1\.2 share of the band in cell 1 in all"):
        decided([0, 1, 1], [9.0, 9.0, 9.0], share=np.array([1.0, 0.6, 0.6]))
    with pytest.raises(TrainingError, match="60 symbols in block 1 in cell 1 in all: there are 50"):
        decided([0, 1, 1], [50.0, 30.0, 30.0], block=np.array([1, 1, 1]))
    assert len(decided([0, 1, 1], [50.0, 50.0, 50.0], block=np.array([1, 0, 1])).picked) == 3


def test_without_interference_nothing_is_lost_and_links_are_as_strong_as_alone() -> None:
    quiet, loud = ({"name": "hex_grid", "interferes": interferes} for interferes in (False, True))
    silent, heard = both(cells(quiet))[1], both(cells(loud))[1]
    assert not any(record.lost for record in silent)
    assert all(met == 0 for record in silent for met in record.interference)
    assert min(met for record in heard for met in record.interference) > 0
    assert np.mean([rate for record in heard for rate in record.capacity]) < np.mean(
        [rate for record in silent for rate in record.capacity]
    )


def test_a_margin_loses_less_and_carries_less() -> None:
    def lost(**more: Any) -> tuple[int, float]:
        rounds = both(cells({"name": "hex_grid", **more}, timeline__horizon=6.0))[1]
        return sum(len(record.lost) for record in rounds), sum(sum(record.budget_bits) for record in rounds)

    none, mean, wide = lost(expected="none"), lost(), lost(margin_db=6.0)
    assert none[0] > mean[0] > wide[0]
    assert none[1] > mean[1] > wide[1]


def test_power_control_saves_the_joules_of_sending() -> None:
    coverage: dict[str, Any] = {
        "name": "hex_grid",
        "interferes": False,
        "path_loss": {"name": "log_distance", "sigma_db": 0.0},
    }
    keys = {"radio__joules_per_symbol": 1.0, "policy__limit": 60}
    controlled = build(cells({**coverage, "p0_dbm": -90.0, "alpha": 0.8}, **keys), dataset=DATASET)
    rounds = fedtide.simulate(controlled.experiment, dataset=DATASET).rounds
    plan = plan_system(controlled)
    assert plan.summary["joules"] == pytest.approx(rounds[-1].ledger.joules)
    assert controlled.power is not None
    wanted = 0.0
    for record in rounds:
        device = np.array(record.picked)
        power = controlled.power(controlled.experiment.seed, device, np.zeros(len(device)))
        taken = np.minimum(np.array(record.sent_bits) / np.array(record.capacity), np.array(record.symbols))
        wanted += float(taken @ power)
    assert rounds[-1].ledger.joules == pytest.approx(wanted)
    assert wanted < rounds[-1].ledger.symbols_sent


@pytest.mark.parametrize("uploads", ["wait", "later"])
def test_where_uploads_take_time_plan_and_run_agree(uploads: str, tmp_path: Path) -> None:
    experiment = cells(
        {"name": "hex_grid", "p0_dbm": -80.0, "alpha": 0.8, "path_loss": {"name": "uma", "speed": 30.0}},
        timeline__uploads=uploads,
        timeline__horizon=4.0,
        radio__symbol_rate=3000.0,
        radio__joules_per_symbol=1e-3,
        fleet__battery_joules=5.0,
        fleet__harvest_joules=2.0,
    )
    plan, rounds = both(experiment)
    names = ("picked", "cell", "interference", "symbols", "sent_bits", "lost")
    assert [[row[name] for name in names] for row in plan] == [
        [list(getattr(record, name)) for name in names] for record in rounds
    ]
    assert any(record.cell for record in rounds)
    folder = tmp_path / "run"
    fedtide.simulate(experiment, folder, dataset=DATASET)
    stored = fedtide.load(folder).rounds
    assert [record.interference for record in stored] == [record.interference for record in rounds]


def test_uploads_of_a_cell_share_its_band() -> None:
    experiment = cells({"name": "hex_grid"}, timeline__uploads="wait", radio__symbol_rate=1e4, policy__limit=60)
    for record in fedtide.simulate(experiment, dataset=DATASET).rounds:
        assert record.time == pytest.approx(record.index * 0.25 + 0.1, abs=0.1 + 1e-9)


def test_records_and_frames_have_cells_only_where_there_are_several() -> None:
    several = fedtide.simulate(cells({"name": "hex_grid"}), dataset=DATASET)
    single = fedtide.simulate(cells({"name": "hex_grid", "rings": 0}), dataset=DATASET)
    assert {"cell", "interference"} <= {*several.uploads()}
    assert not {"cell", "interference"} & {*single.uploads()}
    assert "mean_interference" in several.frame()
    assert "mean_interference" not in single.frame()
    line = several.rounds[0].to_json()
    assert type(several.rounds[0]).from_json(line) == several.rounds[0]
    assert '"cell"' in line
    assert '"cell"' not in single.rounds[0].to_json()


def test_over_the_air_is_refused() -> None:
    experiment = cells({"name": "hex_grid"}, radio__access="over_the_air", radio__num_symbols=1e5)
    experiment = fedtide.experiment(experiment, {"codec": {"name": "ideal"}})
    with pytest.raises(FedtideError, match=r"does not go with the 7 cells of radio\.coverage=hex_grid"):
        build(experiment, dataset=DATASET)


def test_nodes_know_one_server() -> None:
    terms = Terms(cells({"name": "hex_grid"}), Deployment())
    with pytest.raises(FedtideError, match=r"radio\.coverage=hex_grid has cells that hear each other's devices"):
        check_terms(terms)


OWN = """
import numpy as np

class Two:
    num_cells = {count}
    def __call__(self, seed, device, time):
        return np.full(len(device), 100.0)
    def cell(self, seed, device, time):
        return {cell}
    {interference}
"""


@pytest.mark.parametrize(
    ("count", "cell", "hears", "says"),
    [
        (0, "device % 2", "np.zeros(2)", "num_cells=0: it must be a whole number of at least 1"),
        (2, "device % 2", "", "num_cells=2 and no method interference; add it"),
        (2, "device % 3", "np.zeros(2)", "serves a device from cell 2: give one of 0 to 1"),
        (2, "device / 2", "np.zeros(2)", "give a number for each"),
        (2, "device % 2", "np.zeros(3)", "give 2 finite numbers >= 0"),
        (2, "device % 2", "np.full(2, np.nan)", "give 2 finite numbers >= 0"),
    ],
)
def test_a_coverage_of_ones_own(count: int, cell: str, hears: str, says: str, tmp_path: Path) -> None:
    method = f"def interference(self, seed, device, time, share): return {hears}" if hears else ""
    file = tmp_path / "own.py"
    file.write_text(OWN.format(count=count, cell=cell, interference=method))
    with pytest.raises(FedtideError, match=says):
        plan_system(build(cells({"name": f"{file}:Two"}), dataset=DATASET))


def test_a_good_coverage_of_ones_own_needs_no_more_than_the_contract(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    method = "def interference(self, seed, device, time, share): return np.bincount(1 - device % 2, share, 2)"
    file.write_text(OWN.format(count=2, cell="device % 2", interference=method))
    plan, rounds = both(cells({"name": f"{file}:Two"}))
    assert any(record.lost for record in rounds)
    assert [row["interference"] for row in plan] == [record.interference for record in rounds]


@pytest.mark.parametrize("says", ["np.full(len(device), np.nan)", "-device - 1.0", "np.ones(99)", "None", "'none'"])
def test_what_ones_own_expects_is_checked(says: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    method = f"""def interference(self, seed, device, time, share): return np.zeros(2)
    def expected_interference(self, seed, device, time): return {says}"""
    file.write_text(OWN.format(count=2, cell="device % 2", interference=method))
    with pytest.raises(TrainingError, match=r"expected_interference .* finite numbers >= 0, I/N for each device"):
        plan_system(build(cells({"name": f"{file}:Two"}), dataset=DATASET))


@pytest.mark.parametrize("modem", ["shannon", "nr", "gap"])
def test_rates_that_a_channel_gives_do_not_pass_a_modem_again(modem: str, tmp_path: Path) -> None:
    rows = [f"{device},0,{0.5 + device % 9}" for device in range(60)]
    (tmp_path / "rates.csv").write_text("\n".join(["device,time,value", *rows]))
    channel = {"name": "trace", "path": str(tmp_path / "rates.csv")}
    quiet = {"name": "hex_grid", "interferes": False}
    plan, rounds = both(cells(quiet, radio__channel=channel, radio__modem=modem))
    for row, record in zip(plan, rounds, strict=True):
        assert row["lost"] == record.lost == []
        np.testing.assert_allclose(record.capacity, 0.5 + np.array(record.picked) % 9)


def test_powers_of_ones_own_are_checked_and_a_number_by_that_name_is_no_power_control(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    method = "def power(self, seed, device, time): return np.full(len(device), np.nan)"
    file.write_text(OWN.format(count=1, cell="device", interference=method))
    with pytest.raises(TrainingError, match="give a finite number >= 0 for each, relative to full power"):
        plan_system(build(cells({"name": f"{file}:Two"}), dataset=DATASET))
    file.write_text(OWN.format(count=1, cell="device", interference="power = 23.0"))
    assert build(cells({"name": f"{file}:Two"}), dataset=DATASET).power is None


def test_edge_servers_over_cells_run_as_planned() -> None:
    experiment = fedtide.experiment(cells({"name": "hex_grid"}), {"policy": {"aggregator": "hierarchical"}})
    plan, rounds = both(experiment)
    assert [row["interference"] for row in plan] == [record.interference for record in rounds]
    assert any(record.edge for record in rounds)
    assert all(record.edge == record.cell for record in rounds)
