"""Published systems as short files: each runs, is short, and goes the way its paper says."""

from __future__ import annotations

import ast
import functools
import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.core import yaml12
from fedtide.engine.making import load_dataset
from fedtide.engine.system import build
from fedtide.radio.modem import shannon_capacity
from fedtide.studies import spec
from fedtide.studies.run import missing_runs, run_study
from fedtide.studies.store import Store
from fedtide.types import UplinkView
from helpers import EXAMPLES, ROOT, make_candidates

FILES = EXAMPLES / "systems"
MOST_LINES = 40  # of a system's own Python, besides imports and blank lines


def load_module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BENCHMARK = load_module(ROOT / "benchmarks" / "systems.py")
NAMES = sorted(BENCHMARK.SYSTEMS)


SMALL_HORIZON = {  # for a handful of aggregations
    "alsa": 2.0,
    "amiri_analog": 6.0,
    "amiri_digital": 6.0,
    "chen": 12.0,
    "dinh": 8.0,
    "fedasync": 3.0,
    "fedbuff": 2.0,
    "fedcs": 6.0,
    "tifl": 5.0,
    "tran": 20.0,
    "yang": 8.0,
}


def small(name: str) -> fedtide.Experiment:
    return BENCHMARK.system(name, f"timeline.horizon={SMALL_HORIZON[name]}")


@functools.cache
def panels(name: str, seeds: tuple[int, ...]) -> Any:
    return BENCHMARK.SYSTEMS[name](seeds)


def lines(name: str, seeds: tuple[int, ...] = (0, 1, 2), panel: int = 0) -> dict[str, np.ndarray]:
    """Return what is measured with these seeds, by line of a panel."""
    return {line: np.asarray(y) for line, (_, y) in panels(name, seeds)[panel].lines.items()}


def own_lines(path: Path) -> int:
    """Count the lines of a file but for imports and blank lines."""
    text = path.read_text()
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    left_out = {line for node in imports for line in range(node.lineno, node.end_lineno + 1)}
    return sum(bool(line.strip()) for at, line in enumerate(text.splitlines(), 1) if at not in left_out)


@pytest.mark.parametrize("path", sorted(FILES.glob("*.py")), ids=lambda path: path.name)
def test_the_python_of_a_system_is_short(path: Path) -> None:
    assert own_lines(path) <= MOST_LINES


def test_every_system_has_a_file_a_figure_and_a_section() -> None:
    sections = [line[3:] for line in (ROOT / "docs" / "systems.md").read_text().splitlines() if line.startswith("## ")]
    assert sections == NAMES
    assert sorted(path.stem for path in FILES.glob("*.yaml")) == NAMES
    assert all((ROOT / "docs" / "figures" / f"system-{name}.svg").exists() for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_as_planned_and_is_resumed_after_a_kill_to_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = small(name)
    monkeypatch.chdir(tmp_path)
    plan, whole = fedtide.plan(experiment), fedtide.simulate(experiment, "whole")
    assert len(whole.rounds) > 3
    assert np.isfinite(whole.model).all()
    if plan.summary["uploads"] is not None:
        assert [row["picked"] for row in plan.rows] == [list(record.picked) for record in whole.rounds]
        assert [row["capacity"] for row in plan.rows] == [list(record.capacity) for record in whole.rounds]
    Path("mine.yaml").write_text(yaml12.to_yaml(config.dump(experiment)))
    command = [sys.executable, str(ROOT / "tests" / "extending" / "slow_run.py"), "run", "mine.yaml"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as child:
        rounds, until = Path("run/rounds.jsonl"), time.monotonic() + 60
        while (not rounds.exists() or rounds.read_bytes().count(b"\n") < 2) and child.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert child.poll() is None, child.stderr.read().decode() if child.stderr else ""
        child.send_signal(signal.SIGKILL)
    assert not Path("run/model.npy").exists()
    fedtide.simulate(experiment, "run")
    for file in ("rounds.jsonl", "model.npy"):
        assert Path("run", file).read_bytes() == Path("whole", file).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_in_a_study_of_two_seeds(name: str, tmp_path: Path) -> None:
    study = spec.make_study("systems", {name: config.dump(small(name))}, [1, 2])
    store = Store(tmp_path / "results")
    assert len(missing_runs(study, store)) == 2
    assert run_study(study, store, workers=1) == []
    assert missing_runs(study, store) == []


# The direction of each, on a small instance.


def test_alsa_learns_from_more_data_than_random_and_the_best_channels() -> None:
    score, accuracy = (lines("alsa", (0, 1), panel) for panel in (0, 1))
    for other in ("random", "best channels"):
        assert (score["ALSA"] > score[other]).all()
        assert accuracy["ALSA"][5:].mean() > accuracy[other][5:].mean()


@pytest.mark.parametrize("name", ["amiri_analog", "amiri_digital"])
def test_analog_is_above_digital_in_equally_many_channel_uses(name: str) -> None:
    found = lines(name, (0,))
    last = {"amiri_analog": 3, "amiri_digital": 20}[
        name
    ]  # all channel uses but the fewest; all aggregations but the first
    analog, digital = (found[line][-last:] for line in ("analog (A-DSGD)", "digital (D-DSGD)"))
    assert (analog > digital + 0.01).all()


def test_the_projection_of_amiri_finds_a_sparse_sum_again() -> None:
    """Without noise approximate message passing recovers what the air added up; with more noise it is further off."""
    access = load_module(FILES / "amiri_analog.py").Projected(uses=0.5)
    rng = np.random.default_rng(0)
    updates = rng.standard_normal((4, 2000)) * (rng.random(2000) < 0.1)
    exact = updates.mean(axis=0)
    error = [
        np.linalg.norm(access(updates, np.full(4, 0.25), np.full(4, snr), np.random.default_rng(1)) - exact)
        for snr in (1e9, 10.0, 1.0)
    ]
    assert error[0] < 0.05 * np.linalg.norm(exact)
    assert error[0] < error[1] < error[2] < np.linalg.norm(exact)


def test_amiri_digital_sends_the_larger_of_both_tails_as_its_mean() -> None:
    codec = load_module(FILES / "amiri_digital.py").SparseBinary()
    update = np.array([0.1, -3.0, 2.0, 0.0, -5.0, 1.0, 0.2, 0.3], np.float32)
    budget = 32 + 5.0  # C(8, 2) = 28
    packet = codec.encode(update, budget, None)
    assert (packet.num_kept, packet.bits) == (2, 37)
    np.testing.assert_array_equal(codec.decode(packet), [0, -4, 0, 0, -4, 0, 0, 0])
    assert codec.encode(update, 34.0, None).num_kept == 0


def test_chen_joint_assignment_lets_more_samples_arrive_and_learns_more() -> None:
    share = lines("chen", (0, 1))
    assert (share["joint assignment"] > share["random assignment"] + 0.05).all()
    loss = lines("chen", (0, 1), panel=1)
    joint, drawn = (loss[line][:20] for line in ("joint assignment", "random assignment"))
    assert joint.mean() < drawn.mean()


def test_chen_power_spends_the_energy_of_an_upload_or_is_the_largest() -> None:
    """Theorem 2: P Z / (B log2(1 + P snr)) is the limit, unless P_max spends less."""
    made = load_module(FILES / "chen.py").JointAssignment(bits=1e5, watts=0.01, joules=0.004)
    snr = np.array([[0.05, 0.5, 2.0, 8.0, 100.0]])
    view = UplinkView(snr, shannon_capacity, 1e6, 1e6, 3.0)
    power = made.power(view)
    spent = 0.01 * power * 1e5 / (1e6 * np.log2(1 + power * snr))
    assert ((power == 3.0) & (spent < 0.004) | np.isclose(spent, 0.004, rtol=1e-3) | (power * snr < 1e-3)).all()
    assert (power[0, -1], power[0, 0] * snr[0, 0] < 1e-3) == (3.0, True)
    np.testing.assert_allclose(view.capacity(power), np.log2(1 + power * snr))  # a power for every block


def test_dinh_converges_faster_with_a_larger_eta_and_cost_is_least_in_between() -> None:
    loss = lines("dinh", (0, 1))
    small, middle, large = (loss[f"η = {eta}"][-1] for eta in ("0.3", "1", "3"))
    assert large < middle < small
    cost = lines("dinh", (0, 1), panel=1)["energy + κ time"]
    assert 0 < cost.argmin() < len(cost) - 1


def test_dinh_one_device_with_eta_1_descends_its_own_gradient() -> None:
    """The correction of FEDL is (eta - 1) times the gradient then; only the first round has no gradient yet."""
    words = ("fleet.num_devices=1", "policy.limit=1", "timeline.horizon=8", "learning.batch_size=2000")
    fedl = fedtide.simulate(BENCHMARK.system("dinh", *words, "learning.trainer.eta=1", "learning.local_epochs=1"))
    plain = fedtide.simulate(BENCHMARK.system("dinh", *words, "learning.trainer=native", "learning.local_epochs=1"))
    ahead = [record.test_loss for record in plain.rounds]
    behind = [record.test_loss for record in fedl.rounds]
    count = min(len(ahead), len(behind) - 1)
    assert count > 2
    np.testing.assert_allclose(behind[1 : count + 1], ahead[:count], rtol=1e-3)


def test_fedasync_with_adaptive_mixing_bears_staleness_better() -> None:
    found = lines("fedasync", (0, 1))
    fresh, _, stale = np.transpose([found["polynomial"], found["hinge"], found["constant"]])
    assert np.ptp(fresh) < 1e-6
    polynomial, hinge, constant = stale
    assert polynomial > constant + 0.05
    assert hinge > constant + 0.05
    assert found["polynomial"][1] > found["constant"][1]


def test_fedbuff_updates_are_as_stale_as_the_closed_forms_say() -> None:
    found = lines("fedbuff", (0, 1))
    np.testing.assert_allclose(found["free at finish"], found["(M-1)/K"], rtol=0.05)
    np.testing.assert_allclose(found["free at aggregation"], found["M/K - 1"], rtol=0.05)


def test_fedbuff_needs_fewer_uploads_than_rounds() -> None:
    found = lines("fedbuff", (0, 1), panel=1)
    assert found["FedBuff"].mean() > found["rounds of M"].mean() + 0.05


def test_fedcs_hears_more_clients_by_a_deadline_and_learns_faster() -> None:
    clients, accuracy = (lines("fedcs", (0, 1), panel) for panel in (0, 1))
    assert (clients["FedCS"] > clients["FedLim"]).all()
    assert (np.diff(clients["FedCS"]) > 0).all()
    assert accuracy["FedCS"].mean() > accuracy["FedLim"].mean() > accuracy["no deadline"].mean()


def test_fedcs_keeps_its_deadline() -> None:
    times = [row["time"] for row in fedtide.plan(BENCHMARK.system("fedcs")).rows]
    assert (np.diff([0.0, *times]) <= 1 + 1e-9).all()


def test_tifl_rounds_are_shorter_than_without_tiers() -> None:
    length, accuracy = (lines("tifl", (0, 1), panel) for panel in (0, 1))
    assert (length["TiFL uniform"] < length["no tiers"]).all()
    assert (length["TiFL fast"] < length["TiFL uniform"]).all()
    assert accuracy["TiFL uniform"].mean() > accuracy["no tiers"].mean()


def test_tifl_clients_of_a_round_are_of_one_tier() -> None:
    experiment = BENCHMARK.system("tifl")
    world = build(experiment, dataset=load_dataset(experiment, images=False)).world
    assert world is not None
    tier = world().selector.tier
    for row in fedtide.plan(experiment).rows:
        assert len(set(tier[row["picked"]])) == 1


def test_tran_rounds_are_shorter_and_cost_more_energy_the_more_time_is_worth() -> None:
    time, energy = (lines("tran", (0, 1), panel=panel)["jointly decided"] for panel in (0, 1))
    assert (np.diff(time) <= 0).all()
    assert (np.diff(energy) >= 0).all()
    assert time[0] > 2 * time[-1]
    assert energy[-1] > 2 * energy[0]


def test_tran_no_other_decision_costs_less() -> None:
    """The closed forms are minima: slower or faster CPUs and weaker or stronger signals make energy + kappa time larger."""
    module, rng = load_module(FILES / "tran.py"), np.random.default_rng(0)
    frequency = rng.uniform(1e9, 2e9, 6)
    rows = make_candidates(np.ones(6), label_counts=rng.integers(20, 60, (6, 3)))
    view = UplinkView(rng.uniform(1, 100, (6, 1)), shannon_capacity, 1e9, 1e6, 1.0)
    rows = rows._replace(uplink=view)
    cycles = 1e7 * rows.num_samples

    def spent(seed: int, device: Any, samples: Any, symbols: Any) -> Any:
        return 1e-28 * 1e7 * samples * frequency**2 + 0.2 * symbols / 1e6

    made = module.EnergyAndTime(0.5, 2e5, 1, lambda *_: cycles / frequency, spent, 0)

    def computing(speed: Any) -> float:
        return 1e-28 * (cycles * (speed * frequency) ** 2).sum() + 0.5 * (cycles / (speed * frequency)).max()

    def sending(nats: Any) -> float:
        power, time = 0.2 * np.expm1(nats) / view.snr[:, 0], 2e5 * np.log(2) / nats / 1e6
        return (time * (power + 0.5)).sum()

    speed, nats = made.speed(rows), made.nats(rows)
    assert 0 < speed.min() < speed.max() <= 1
    for factor in (0.8, 0.95, 1.05, 1.25):  # of all alike
        assert computing(np.minimum(speed * factor, 1)) >= computing(speed)
    for _ in range(200):
        assert computing(np.minimum(speed * rng.uniform(0.8, 1.25, 6), 1)) >= computing(speed)
        assert sending(np.minimum(nats * rng.uniform(0.8, 1.25, 6), np.log1p(view.snr[:, 0]))) >= sending(nats)


def test_yang_updates_are_younger_than_with_the_best_channels() -> None:
    age = lines("yang", (0, 1))
    by_age, by_channel = (age[line][10:] for line in ("age of update", "best channels"))
    count = min(len(by_age), len(by_channel))
    assert (by_age[:count] < by_channel[:count]).all()
    largest = [
        max(record.metrics["max_age"] for record in fedtide.simulate(BENCHMARK.system("yang", *words)).rounds)
        for words in ((), ("policy.scheduler.exponent=0",))
    ]
    assert 2 * largest[0] < largest[1]
