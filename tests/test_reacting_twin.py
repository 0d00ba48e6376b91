"""Runs and plans of a world that reacts, against an independent slow loop on random worlds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import fedtide
import reacting_parts as parts
from fedtide import Experiment, columns
from fedtide.engine import planned
from fedtide.engine.system import System, build
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.report.plan import plan_system
from helpers import small, small_dataset
from twins.slow_engine import Run, World

DATASET = small_dataset()
HERE = Path(parts.__file__)
NUM_PARAMETERS = 195  # softmax on 8 x 8 images of 3 labels
MODEL_BITS = 32 * NUM_PARAMETERS
THRESHOLD = 0.4  # of the modem that loses packets
TRIES = {"drop": 1, "resend": 3, "harq": 3}

WORLDS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "rule": st.sampled_from(["periodic", "buffered", "per_arrival", "all", "deadline"]),
        "count": st.integers(2, 7),
        "limit": st.integers(1, 4),
        "keep": st.booleans(),
        "interrupt": st.booleans(),
        "absent": st.sampled_from(["compute", "fetch", "abandon"]),
        "comes_and_goes": st.booleans(),
        "concurrency": st.none() | st.integers(1, 7),
        "release": st.sampled_from(["finish", "aggregation"]),
        "uploads": st.sampled_from(["fixed", "wait", "later"]),
        "upload_time": st.sampled_from([0.0, 0.25]),
        "retransmission": st.sampled_from([*TRIES]),
        "blocks": st.sampled_from([1, 2]),
        "joint": st.booleans(),
        "errors": st.booleans(),
        "battery": st.sampled_from([None, 1.0, 4.0]),
        "harvest": st.sampled_from([0.0, 0.4]),
    }
)


def experiment(world: dict[str, Any]) -> fedtide.Experiment:
    """The experiment of a world."""
    count, later = world["count"], world["uploads"] == "later"
    tree: dict[str, Any] = {
        "seed": world["seed"],
        "fleet": {
            "num_devices": count,
            "max_duration": 1.5,
            "duration": f"{HERE}:trains",
            "unpicked": "keep" if world["keep"] else "restart",
            "interrupt": world["interrupt"],
            "absent": world["absent"],
            "concurrency": min(world["concurrency"], count) if world["concurrency"] else None,
            "release": world["release"],
            "selector": f"{HERE}:places",
            "joules_per_sample": 0.05,
            "battery_joules": world["battery"],
            "harvest_joules": world["harvest"],
        },
        "timeline": {
            "name": world["rule"],
            "period": 0.75,
            "buffer_size": 2,
            "horizon": 7.0,
            "uploads": world["uploads"],
            "upload_time": world["upload_time"] if world["uploads"] == "fixed" else 0.0,
        },
        "radio": {
            "channel": f"{HERE}:links",
            "csi": f"{HERE}:estimates",
            "modem": {"name": "waterfall", "threshold": THRESHOLD} if world["errors"] else "shannon",
            "num_symbols": 700.0,
            "num_blocks": world["blocks"],
            "max_power": 2.0,
            "symbol_rate": 2000.0,
            "joules_per_symbol": 0.0004,
            "allocation": "equal_symbols",
            "retransmission": "drop" if later else world["retransmission"],
        },
        "policy": {
            "limit": min(world["limit"], count),
            "scheduler": {"name": f"{HERE}:decides", "joint": world["joint"]},
        },
        "codec": {"name": "top_k"},
        "learning": {"trainer": "native"},
    }
    if world["comes_and_goes"]:
        tree["fleet"]["availability"] = f"{HERE}:there"
    return small(tree)


def twin(world: dict[str, Any], system: System) -> Run:
    """The slow run of a world."""
    e, seed = system.experiment, world["seed"]
    fleet, radio = e.fleet, e.radio
    size = registry.resolve("codec", "top_k", {}).planned_bits
    comes_and_goes = world["comes_and_goes"]

    def takes(device: int, job: int, time: float, speed: float) -> float:
        work = parts.training_time(seed, device, job) / speed
        if not comes_and_goes or world["absent"] != "compute":
            return work
        begin = parts.next_there(seed, device, time)
        end = begin + work
        ready = parts.next_there(seed, device, end) if math.isfinite(end) else end
        return work if (begin, ready) == (time, end) else ready - time

    def snr(device: int, tick: int, block: int) -> tuple[float, float]:
        tick += block << 40
        return parts.true_snr(seed, device, tick), parts.believed_snr(seed, device, tick)

    def fails(device: int, tick: int, chance: float) -> bool:
        return bool(columns.uniform(seed, "packet", np.array([device]), tick)[0] < chance)

    def decide(tick: int, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        limit = min(e.policy.limit, len(rows))
        return parts.decision(seed, tick, rows, limit, system.num_symbols, world["joint"], radio.joules_per_symbol)

    def choose(device: list[int], job: list[int], free: int) -> list[int]:
        return [device[at] for at in parts.choice(seed, device, job, free)]

    return Run(
        World(
            count=fleet.num_devices,
            horizon=e.timeline.horizon,
            rule=world["rule"],
            period=e.timeline.period,
            buffer=e.timeline.buffer_size,
            takes=takes,
            back=(lambda device, time: parts.next_there(seed, device, time)) if comes_and_goes else None,
            snr=snr,
            blocks=radio.num_blocks,
            capacity=lambda snr: math.log2(1 + snr),
            fails=fails if world["errors"] else None,
            chance=lambda snr: 1 - math.exp(-THRESHOLD / snr),
            decide=decide,
            choose=choose,
            symbols=system.num_symbols,
            symbol_rate=radio.symbol_rate,
            size=lambda budget: size(NUM_PARAMETERS, budget),
            samples=lambda device: int(system.fleet.num_samples[device]),
            uploads=e.timeline.uploads,
            upload_time=e.timeline.upload_time,
            keep=world["keep"],
            interrupt=world["interrupt"],
            absent=world["absent"],
            concurrency=fleet.concurrency,
            release=world["release"],
            attempts=TRIES[radio.retransmission.name] if radio.retransmission.name != "drop" else 1,
            combines=radio.retransmission.name == "harq",
            per_symbol=radio.joules_per_symbol,
            per_sample=fleet.joules_per_sample,
            battery=fleet.battery_joules,
            harvest=fleet.harvest_joules,
        )
    )


def with_tries(e: fedtide.Experiment) -> fedtide.Experiment:
    """Three attempts at the most."""
    name = e.radio.retransmission.name
    if name == "drop":
        return e
    return fedtide.experiment(e, {"radio": {"retransmission": {"name": name, "attempts": TRIES[name]}}})


COUNTED = ("symbols_sent", "samples_trained", "samples_used", "joules", "air_time", "bits_down")


@settings(max_examples=80, phases=[Phase.explicit, Phase.generate])  # a smaller world takes minutes to find
@given(WORLDS)
def test_runs_and_plans_agree_with_a_slow_loop(world: dict[str, Any]) -> None:
    if world["battery"] is None and world["harvest"]:
        world["harvest"] = 0.0
    e = with_tries(experiment(world))
    if system := built(e):
        compare(world, e, system)


def built(e: Experiment) -> System | None:
    """The system of a world that reacts and is not refused before it begins."""
    try:
        system = build(e, dataset=DATASET)
    except FedtideError as error:
        if "of one training" in str(error) or "never fill the buffer" in str(error):
            return None
        raise
    return system if system.world is not None else None


def compare(world: dict[str, Any], e: Experiment, system: System) -> None:
    slow = twin(world, system)
    expected: list[dict[str, Any]] = []
    while (each := slow.aggregate()) is not None:
        expected.append(each)
        assert len(expected) < 2000
    if not expected and not slow.refused:
        slow.refused = "does not act before timeline.horizon"
    if not any(each["ready"] for each in expected):
        slow.refused = slow.refused or "nobody had finished"
    if slow.refused:
        with pytest.raises(FedtideError, match=slow.refused):
            list(planned(system))
        with pytest.raises(FedtideError, match=slow.refused):
            fedtide.simulate(e, dataset=DATASET)
        return
    found, result = list(planned(system)), fedtide.simulate(e, dataset=DATASET)
    assert len(found) == len(result.rounds) == len(expected)
    rows = plan_system(system).rows
    spent = dict.fromkeys(COUNTED, 0.0)
    for want, plan, record, row in zip(expected, found, result.rounds, rows, strict=True):
        assert plan.grant is not None
        assert plan.lost is not None
        picked = plan.candidates.device[plan.grant.picked]
        # the plan and the run, to the bit
        assert plan.time == record.time
        assert picked.tolist() == record.picked
        assert plan.candidates.age[plan.grant.picked].tolist() == record.age
        assert plan.grant.symbols.tolist() == record.symbols
        assert picked[plan.lost].tolist() == record.lost
        assert plan.candidates.device.tolist() == record.ready
        assert row["capacity"] == record.capacity
        assert row["joules"] == pytest.approx(want["joules"], rel=1e-9, abs=1e-12)
        # the run and its twin
        assert record.index == want["index"]
        assert record.time == pytest.approx(want["time"], rel=1e-9)
        if e.timeline.uploads != "later":
            assert record.ready == want["ready"]
        for name in ("picked", "age", "sent_bits", "lost", "retransmitted"):
            assert list(getattr(record, name)) == want[name], (name, want["index"])
        assert record.symbols == pytest.approx(want["symbols"])
        for name in ("symbols_sent", "samples_trained", "samples_used", "joules"):
            spent[name] += want[name]
        spent["air_time"] += want["symbols_sent"] / e.radio.symbol_rate
        spent["bits_down"] += want["received"] * MODEL_BITS
        for name in COUNTED:
            assert getattr(record.ledger, name) == pytest.approx(spent[name], rel=1e-9), (name, want["index"])
