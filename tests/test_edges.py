"""Edge servers with a cloud above them: the limits, a slow twin, handover, records, resumed runs."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import edge_cells
import fedtide
from aggregation import cohort, stepped
from fedtide import runs
from fedtide.aggregate.averages import AverageModels
from fedtide.aggregate.hierarchical import Hierarchical, cloud_average, idle_edges_warning
from fedtide.engine.preflight import preflight_memory
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.report.plan_text import plan_facts
from fedtide.types import Candidates
from helpers import EXAMPLES, FakeTrainer, run, small, small_dataset

CELLS = f"{edge_cells.__file__}:Walkers"
NEVER = 10**9


def edges(**more: Any) -> dict[str, Any]:
    return {"policy": {"aggregator": {"name": "hierarchical", **more}}}


def flat(name: str) -> dict[str, Any]:
    return {"policy": {"aggregator": name}}


def state_of(folder: Path) -> Any:
    """Return the server's state at the end of a run."""
    saved = runs.read_run(folder).checkpoint
    assert saved is not None
    return saved.state


# Limits.


INNER = [
    "average_models",
    "average_deltas",
    "buffered_mean",
    "server_momentum",
    "fadas",
    "median",
    "krum",
    "asyncfeded",
]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("inner", INNER)
def test_one_edge_is_the_flat_system_to_the_bit(inner: str, every: int) -> None:
    one, other = run(small(flat(inner))), run(small(edges(edges=1, every=every, inner=inner)))
    assert one.model.tobytes() == other.model.tobytes()
    assert [each.test_loss for each in one.rounds] == [each.test_loss for each in other.rounds]
    assert [each.ledger for each in one.rounds] == [each.ledger for each in other.rounds]


@pytest.mark.parametrize(
    "tree",
    [
        {"codec": {"name": "top_k"}},
        {"codec": {"name": "error_feedback"}},
        {"codec": {"name": "dead_zone"}},
        {"timeline": {"uploads": "later"}, "radio": {"symbol_rate": 400.0}},
        {"fleet": {"unpicked": "keep"}},
        {"framework": "fedasync", "timeline": {"horizon": 1.0}},
        {"policy": {"scheduler": "best_channel_best_norm"}},
    ],
)
def test_one_edge_is_flat_with_other_codecs_and_clocks(tree: dict[str, Any]) -> None:
    one, other = run(small(tree, flat("average_models"))), run(small(tree, edges(edges=1, every=2)))
    assert one.model.tobytes() == other.model.tobytes()
    assert [each.picked for each in one.rounds] == [each.picked for each in other.rounds]


EVERYONE = {
    "framework": "fedavg",
    "fleet": {"num_devices": 8},
    "policy": {"limit": 8, "weighting": "uniform"},
    "codec": {"name": "ideal"},
}


def test_averaged_at_every_tick_edges_of_equal_weight_are_the_flat_system() -> None:
    """sum_e p_e sum_k in e (w_k / w_e) x_k = sum_k w_k x_k where p_e = w_e: all upload, and all hold as much."""
    one, other = run(small(EVERYONE, flat("average_models"))), run(small(EVERYONE, edges(edges=4, every=1)))
    assert len(one.rounds) == 3
    np.testing.assert_allclose(one.model, other.model, rtol=0, atol=1e-6)


def test_a_caller_may_replace_the_aggregator_of_a_system() -> None:
    experiment = small(EVERYONE, edges(edges=2))
    system = build(experiment, dataset=small_dataset())
    system = system._replace(policy=system.policy._replace(aggregator=AverageModels()))
    result = simulate(experiment, system=system, trainer=FakeTrainer())
    assert result.model.tobytes() == run(small(EVERYONE, flat("average_models"))).model.tobytes()


class Only:
    """Picks those of some devices that are ready."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def __call__(self, candidates: Candidates, limit: int, rng: Any) -> Any:
        return np.flatnonzero(np.isin(candidates.device, self.device))


def alone(tree: dict[str, Any], device: Any) -> fedtide.Result:
    """Return the flat run in which nobody but these devices uploads."""
    experiment = small(tree, flat("average_models"))
    system = build(experiment, dataset=small_dataset())
    system = system._replace(policy=system.policy._replace(scheduler=Only(device)))
    return simulate(experiment, system=system, trainer=FakeTrainer())


ASYNCHRONOUS = {
    "fleet": {"num_devices": 9},
    "policy": {"limit": 9, "age_base": 0.7},
    "codec": {"name": "ideal"},
    "timeline": {"period": 0.25},
}


@pytest.mark.parametrize(("tree", "num_edges", "exact"), [(EVERYONE, 2, True), (ASYNCHRONOUS, 3, False)])
def test_never_averaged_edges_are_federations_of_their_own(
    tree: dict[str, Any], num_edges: int, exact: bool, tmp_path: Path
) -> None:
    experiment = small(tree, edges(edges=num_edges, every=NEVER))
    result = run(experiment, tmp_path / "run")
    state = state_of(tmp_path / "run")
    models = state.models[state.version].reshape(num_edges, -1)
    dealt = state.memory["edges"]["attached"]
    assert np.bincount(dealt).tolist() == [len(dealt) // num_edges] * num_edges
    for edge in range(num_edges):
        expected = alone(tree, np.flatnonzero(dealt == edge)).model
        if exact:
            assert models[edge].tobytes() == expected.tobytes()
        np.testing.assert_allclose(models[edge], expected, rtol=0, atol=2e-6)
    assert len({own.tobytes() for own in models}) == num_edges
    np.testing.assert_allclose(result.model, models.mean(axis=0), atol=1e-6)  # all hold as much


# The slow twin: a plain double loop, of ticks and of edges.


def twin(experiment: fedtide.Experiment, num_edges: int, every: int, attached: Any) -> tuple[list[Any], Any]:
    """Return the edges' models at the end and their mean, where all who are ready upload as they are.

    attached: (device, time) -> edge.
    """
    system, trainer = build(experiment, dataset=small_dataset()), FakeTrainer()
    samples, base = system.fleet.num_samples, experiment.policy.age_base
    rate = experiment.learning.learning_rate
    first = trainer.initial_model(experiment.seed).astype(np.float64)
    versions: dict[int, list[Any]] = {1: [first] * num_edges}
    born = {1: 0.0}
    last = {k: attached(k, 0.0) for k in range(system.fleet.num_devices)}
    models, mean = list(versions[1]), first
    for tick in system.ticks:
        for edge in range(num_edges):
            total, moved = 0.0, np.zeros_like(first)
            for k, start in zip(tick.ready.tolist(), tick.start.tolist(), strict=True):
                if attached(k, tick.time) != edge:
                    continue
                begun = versions[start][attached(k, born[start])].astype(np.float32)
                job: Any = (k, start, begun, rate)
                weight = samples[k] * base ** (tick.index - start)
                moved = moved + weight * (begun.astype(np.float64) + trainer.train([job])[0])
                total += weight
            if total:
                models[edge] = moved / total
        for k in tick.ready.tolist():
            last[k] = attached(k, tick.time)
        mean = sum(samples[k] * models[edge] for k, edge in last.items()) / samples.sum()
        if tick.index % every == 0:
            models = [mean] * num_edges
        versions[tick.index + 1], born[tick.index + 1] = list(models), tick.time
    return models, mean


@pytest.mark.parametrize("every", [1, 4, 7])  # 12 ticks
@pytest.mark.parametrize(
    ("num_cells", "speed", "seed"), [(1, 0.4, 1), (2, 0.0, 2), (3, 0.4, 3), (4, 3.0, 4), (5, 1.3, 5)]
)
def test_cells_against_the_slow_twin(tmp_path: Path, num_cells: int, every: int, speed: float, seed: int) -> None:
    tree = {
        "seed": seed,
        "data": {"size_spread": 0.5},
        "learning": {"schedule": "constant"},
        "radio": {"coverage": {"name": CELLS, "num_cells": num_cells, "speed": speed}},
    }
    experiment = small(ASYNCHRONOUS, tree, edges(every=every))
    cells = edge_cells.Walkers(num_cells, speed)
    result = run(experiment, tmp_path / "run")
    state = state_of(tmp_path / "run")
    expected, mean = twin(
        experiment, num_cells, every, lambda k, time: int(cells.cell(seed, np.array([k]), np.array([time]))[0])
    )
    models = state.models[state.version].reshape(num_cells, -1)
    np.testing.assert_allclose(models, np.stack(expected), atol=5e-6)
    np.testing.assert_allclose(result.model, mean, atol=5e-6)
    assert [each.metrics["cloud_average"] for each in result.rounds] == [
        float(each.index % every == 0) for each in result.rounds
    ]


def test_a_device_that_changes_cells_uploads_to_another_edge_than_it_began_from() -> None:
    experiment = small(ASYNCHRONOUS, {"radio": {"coverage": CELLS}}, edges(every=NEVER))
    cells, uploads = edge_cells.Walkers(), run(experiment).uploads()
    born = {1: 0.0, **{each.index + 1: each.time for each in run(experiment).rounds}}
    began = [
        int(cells.cell(0, k, born[index - age]))
        for k, index, age in zip(uploads["device"], uploads["index"], uploads["age"], strict=True)
    ]
    handed_over = np.array(began) != np.array(uploads["edge"])
    assert 0 < handed_over.sum() < len(handed_over)


class Listening(FakeTrainer):
    """Keeps what it was given."""

    def train(self, jobs: Any) -> Any:
        self.given = [*getattr(self, "given", []), *jobs]
        return super().train(jobs)


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"timeline": {"uploads": "later"}, "radio": {"symbol_rate": 4000.0}},
        {"timeline": {"uploads": "wait"}, "fleet": {"unpicked": "keep"}, "radio": {"symbol_rate": 4000.0}},
        {"timeline": {"name": "buffered", "buffer_size": 2}, "fleet": {"concurrency": 5}},
        {"framework": "fedasync", "policy": {"limit": 1}},
        {"radio": {"csi": "noisy", "retransmission": "harq"}, "codec": {"name": "sparse_quantized"}},
    ],
)
def test_devices_begin_from_the_edge_of_their_cell_whatever_the_clock(
    tree: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = small(ASYNCHRONOUS, tree, {"radio": {"coverage": CELLS}}, edges(every=4))
    trainer, real, made = Listening(), Hierarchical.averaged, dict[int, Any]()

    def averaged(self: Hierarchical, tick: int, model: Any, samples: Any) -> Any:
        answer = real(self, tick, model, samples)
        made[tick + 1] = answer[0].reshape(3, -1).copy()
        return answer

    monkeypatch.setattr(Hierarchical, "averaged", averaged)
    rounds = run(experiment, trainer=trainer).rounds
    made[1] = np.tile(trainer.initial_model(0), (3, 1))
    born = {1: 0.0, **{each.index + 1: each.time for each in rounds}}
    cells, others = edge_cells.Walkers(), 0
    for job in trainer.given:
        edge = int(cells.cell(0, job.device, born[job.version]))
        assert np.array_equal(job.start, made[job.version][edge])
        others += not np.array_equal(job.start, made[job.version][(edge + 1) % 3])
    assert others > 5


# The aggregator by itself.


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**32))
def test_every_edge_runs_the_inner_aggregator_on_its_own_arrivals(num_edges: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = (
        Hierarchical(edges=num_edges, inner="server_momentum", num_devices=30),
        Hierarchical(edges=1, inner="server_momentum", num_devices=30),
    )
    model = rng.standard_normal(num_edges * 5).astype(np.float32)
    one: tuple[Any, Any] = model, None
    other: list[tuple[Any, Any]] = [(own, None) for own in model.reshape(num_edges, -1)]
    for _ in range(3):
        starts, updates = rng.standard_normal((2, r, 5)).astype(np.float32)
        edge = rng.integers(0, num_edges, r)
        who = cohort(rng.dirichlet(np.ones(r)), rng.integers(0, 5, r))
        one = stepped(parts[0], one[1], one[0], starts, updates, who._replace(edge=edge), lot=2)
        for each in range(num_edges):
            at = np.flatnonzero(edge == each)
            if len(at):
                share = who.weights[at] / who.weights[at].sum()
                own = cohort(share, who.age[at])
                other[each] = stepped(parts[1], other[each][1], other[each][0], starts[at], updates[at], own)
        np.testing.assert_allclose(one[0].reshape(num_edges, -1), np.stack([own for own, _ in other]), atol=1e-5)


def test_an_edge_without_arrivals_keeps_its_model_and_memory() -> None:
    part = Hierarchical(edges=3, inner="server_momentum", num_devices=30)
    model, update = np.arange(6, dtype=np.float32), np.ones((1, 2), np.float32)
    who = cohort(np.ones(1), np.zeros(1, np.int64))._replace(edge=np.array([1]))
    new, memory = stepped(part, None, model, model[2:4][None], update, who)
    assert np.array_equal(new, [0, 1, 3, 4, 4, 5])
    assert np.array_equal(memory["inner_momentum"], [[0, 0], [1, 1], [0, 0]])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any), st.integers(0, 2**32))
def test_the_cloud_weighs_edges_by_their_samples(samples: list[int], seed: int) -> None:
    models = np.random.default_rng(seed).standard_normal((len(samples), 7)).astype(np.float32)
    expected = np.average(models.astype(np.float64), axis=0, weights=samples)
    np.testing.assert_allclose(cloud_average(models.reshape(-1), np.array(samples)), expected, atol=1e-6)
    same = np.tile(models[0], len(samples))
    assert np.array_equal(cloud_average(same, np.array(samples)), models[0])  # to the bit


@pytest.mark.parametrize(("num_devices", "num_edges"), [(10, 3), (10_000, 7), (5, 5)])
def test_without_cells_devices_are_dealt_out_evenly_by_seed(num_devices: int, num_edges: int) -> None:
    part = functools.partial(Hierarchical, edges=num_edges, num_devices=num_devices)
    everyone = np.arange(num_devices)
    dealt = part(seed=1).edge(everyone, 0.0)
    assert np.ptp(np.bincount(dealt, minlength=num_edges)) <= 1
    assert np.array_equal(dealt, part(seed=1).edge(everyone, 9.0))
    assert not np.array_equal(dealt, part(seed=2).edge(everyone, 0.0))


def test_fewer_edges_than_cells_have_neighbouring_cells_each() -> None:
    part = Hierarchical(edges=2, coverage=edge_cells.Walkers(num_cells=7), num_devices=30)
    assert part.edge(np.arange(7), 0.0).tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_the_cloud_averages_though_nothing_arrives(tmp_path: Path) -> None:
    experiment = small(EVERYONE, edges(edges=2, every=3))
    system = build(experiment, dataset=small_dataset())

    class NobodyAtTheThird:
        def __call__(self, candidates: Candidates, limit: int, rng: Any) -> Any:
            return np.arange(0 if candidates.tick == 3 else len(candidates.device))

    system = system._replace(policy=system.policy._replace(scheduler=NobodyAtTheThird()))
    result = simulate(experiment, tmp_path / "run", system=system, trainer=FakeTrainer())
    assert [len(each.picked) for each in result.rounds] == [8, 8, 0]
    state = state_of(tmp_path / "run")
    one, other = state.models[state.version].reshape(2, -1)
    assert np.array_equal(one, other)
    assert result.rounds[-1].metrics["edge_spread"] > 0


# Records, folders, what is refused.


def test_records_say_where_each_upload_went(tmp_path: Path) -> None:
    experiment = small(ASYNCHRONOUS, {"radio": {"coverage": CELLS}}, edges(every=2))
    result = run(experiment, tmp_path / "run")
    cells = edge_cells.Walkers()
    for record in result.rounds:
        where = cells.cell(0, np.array(record.picked, np.int64), np.full(len(record.picked), record.time))
        assert record.edge == where.tolist()
    read = fedtide.load(tmp_path / "run")
    assert read.rounds == result.rounds
    assert read.model.tobytes() == result.model.tobytes()
    assert read.model.shape == (30,)
    assert {*np.unique(read.uploads()["edge"])} == {0, 1, 2}
    assert "edge" not in (run(small()).uploads())
    assert '"edge"' not in run(small()).rounds[0].to_json()


def test_a_record_with_too_few_edges_is_refused() -> None:
    record = run(small(edges(edges=2))).rounds[-1]
    with pytest.raises(ValueError, match=r"entries of edge and \d uploads"):
        runs.RoundRecord.from_json(record._replace(edge=[0]).to_json())


def test_plans_tell_where_uploads_go() -> None:
    tree = (ASYNCHRONOUS, {"radio": {"coverage": CELLS}, "learning": {"trainer": "native"}}, edges(every=4))
    plan, rounds = fedtide.plan(small(*tree)), run(small(*tree)).rounds
    assert [row["edge"] for row in plan.rows] == [each.edge for each in rounds]
    counts = np.bincount([edge for each in rounds for edge in each.edge], minlength=3).tolist()
    assert plan.summary["uploads_per_edge"] == counts
    assert plan.summary["cloud_averages"] == len(rounds) // 4
    told = plan_facts(plan)["edge servers"]
    assert told == f"3, with {', '.join(map(str, counts))} uploads; {len(rounds) // 4} cloud averages"
    assert "uploads_per_edge" not in fedtide.plan(small({"learning": {"trainer": "native"}})).summary


def test_a_run_warns_of_edges_that_hear_nobody() -> None:
    tree = {"policy": {"limit": 1, "scheduler": "best_channel"}, "timeline": {"period": 0.5, "horizon": 1.0}}
    lines: list[str] = []
    run(small(tree, edges(edges=6)), warn=lines.append)
    assert len(lines) == 1
    assert re.match(r"no update arrives at [45] of 6 edge servers \(\d, .*\): .*; raise policy.limit", lines[0])
    assert "\n" not in lines[0]
    assert idle_edges_warning([3, 1]) is None
    assert "(0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 5 more)" in str(idle_edges_warning([0] * 15 + [1]))


def test_a_hundred_thousand_devices(tmp_path: Path) -> None:
    tree = {
        "data": {"partition": {"name": "virtual_iid", "samples_per_device": 4}},
        "fleet": {"num_devices": 100_000},
        "policy": {"limit": 40, "scheduler": "random"},
        "timeline": {"period": 0.5, "horizon": 2.0},
    }
    run(small(tree, edges(edges=7, every=2)), tmp_path / "run")
    memory = state_of(tmp_path / "run").memory["edges"]
    assert memory["uploads"].sum() == 4 * 40
    assert np.array_equal(memory["samples"], 4 * np.bincount(memory["attached"]))


def test_the_example_runs() -> None:
    result = fedtide.simulate(EXAMPLES / "edges.yaml", threads=1)
    frame = result.frame()
    assert frame["metrics/cloud_average"].sum() == 10
    assert frame["test_accuracy"].iloc[-1] > 0.6
    spread = frame["metrics/edge_spread"]
    assert spread[4] > spread[5] > 0  # right after an average the edges are closer


def test_models_of_edges_that_do_not_fit_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    system, trainer = build(small(edges(edges=6)), dataset=small_dataset()), FakeTrainer()
    monkeypatch.setattr("fedtide.core.memory_budget._available_bytes", lambda: 2_000)
    with pytest.raises(FedtideError, match=r"6 edge servers: .* 30 parameters in each version would need 2.16 kB"):
        preflight_memory(system, trainer, trainer.initial_model(0))


class Stopped(Exception):
    pass


LATER = {"timeline": {"uploads": "later"}, "radio": {"symbol_rate": 4000.0}}


@pytest.mark.parametrize(("inner", "tree"), [("average_models", {}), ("server_adam", {}), ("average_deltas", LATER)])
def test_a_stopped_run_goes_on_to_the_same_bytes(inner: str, tree: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(ASYNCHRONOUS, tree, {"radio": {"coverage": CELLS}}, edges(every=5, inner=inner))

    def stop(record: Any, total: int) -> None:
        if record.index == 7:
            raise Stopped

    run(experiment, tmp_path / "whole")
    with pytest.raises(FedtideError, match="Stopped"):
        run(experiment, tmp_path / "half", on_round=stop)
    assert not fedtide.load(tmp_path / "half").complete
    assert fedtide.load(tmp_path / "half").model.shape == (30,)
    run(experiment, tmp_path / "half")
    for name in ("rounds.jsonl", "model.npy"):
        assert (tmp_path / "half" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


REFUSED = [
    ({}, r"one edge server per cell, and radio.coverage has no cells: give policy.aggregator.edges"),
    ({"edges": 7}, r"policy.aggregator.edges=7 is more than fleet.num_devices=6: .*; lower it"),
    ({"edges": 0}, r"edges=0 cannot be"),
    ({"edges": 2, "every": 0}, r"every=0 cannot be"),
    ({"edges": 2, "inner": "mifa"}, r"inner='mifa' keeps the last update of every device"),
    ({"edges": 2, "inner": "ca2fl"}, r"inner='ca2fl' keeps the last update of every device"),
    ({"edges": 2, "inner": {"name": "server_adam", "inner": "fedat"}}, r"has one inside that keeps models of tiers"),
    ({"edges": 2, "inner": "scaffold"}, r"one part of method=scaffold"),
    ({"edges": 2, "inner": {"name": "hierarchical", "edges": 2}}, r"inside itself"),
]


@pytest.mark.parametrize(("given_args", "message"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(given_args: dict[str, Any], message: str) -> None:
    with pytest.raises(FedtideError, match=message) as caught:
        run(small(edges(**given_args)))
    assert "\n" not in str(caught.value)


def test_edges_are_not_inside_a_server_optimizer_nor_over_the_air_nor_on_real_devices() -> None:
    from fedtide.deploy.settings import check_deployment_timeline

    inside = {"policy": {"aggregator": {"name": "server_adam", "inner": {"name": "hierarchical", "edges": 2}}}}
    with pytest.raises(FedtideError, match="put this one inside it"):
        run(small(inside))
    with pytest.raises(FedtideError, match=r"policy.aggregator=.*hierarchical.* needs them one by one"):
        run(small(edges(edges=2), {"radio": {"access": "over_the_air"}, "codec": {"name": "ideal"}}))
    with pytest.raises(FedtideError, match="hierarchical has edge servers, and nodes know one server"):
        check_deployment_timeline(small(edges(edges=2)))


def test_more_edges_than_cells_and_cells_that_there_are_not() -> None:
    with pytest.raises(FedtideError, match=r"edges=4 is more than the 3 cells of radio.coverage"):
        run(small({"radio": {"coverage": CELLS}}, edges(edges=4)))
    astray = f"{edge_cells.__file__}:Astray"
    with pytest.raises(FedtideError, match=r"cell\(seed, device, time\) must give one whole number from 0 to 2"):
        run(small({"radio": {"coverage": astray}}, edges()))
