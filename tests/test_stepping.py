"""Ticks that are gone through and not listed: the same as the list, at any point, however they are asked for."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.engine.system import System, build
from fedtide.runs import run_identity
from fedtide.timeline import clock as timeline_clock
from fedtide.timeline.clock import Span, Ticks, VersionTimes, clock_span, start_times, ticks_since
from fedtide.timeline.timelines import Buffered, PerArrival, Periodic, Synchronous, _arrivals
from fedtide.types import Tick
from helpers import FakeTrainer, constant_clock, run, small, small_dataset, ticks_of

TIMELINES = [
    Periodic(0.3),
    Periodic(0.3, 0.1),
    Synchronous(1.0, 0.2),
    PerArrival(),
    PerArrival(0.05),
    Buffered(3),
    Buffered(2, 0.1),
]
# Sums of tenths and thirds come to lie on the horizon, or a last bit beside it.
durations = st.lists(
    st.one_of(st.floats(0.01, 3.0), st.sampled_from([0.1, 0.2, 0.3, 0.7, 1 / 3, 0.05, 1.1])), min_size=3, max_size=12
)
horizons = st.one_of(st.floats(0.5, 8.0), st.sampled_from([1.0, 2.1, 3.0, 0.3, 4.9, 7.0]))


def plain(ticks: Any) -> list[Any]:
    return [(each.index, each.time, each.ready.tolist(), each.start.tolist()) for each in ticks]


@given(st.sampled_from(TIMELINES), durations, horizons)
def test_how_long_a_timeline_is_without_going_through_it(timeline: Any, duration: list[float], horizon: float) -> None:
    listed = ticks_of(timeline, duration, horizon)
    told = timeline.span(constant_clock(duration, horizon), True)
    if told is None:
        assert isinstance(timeline, Buffered) or max(duration) > timeline.round_duration
    else:
        assert told == clock_span(listed)


@given(durations, st.sampled_from([0.0, 0.1, 1 / 3]), st.integers(0, 11), st.integers(1, 40))
def test_arrivals_that_fall_on_the_horizon_to_the_bit(
    duration: list[float], upload: float, device: int, number: int
) -> None:
    """The horizon is a device's arrival itself, added up one by one, or the number before or after it."""
    time = 0.0
    for _ in range(number):
        time = time + duration[device % len(duration)] + upload
    for horizon in (time, float(np.nextafter(time, 0)), float(np.nextafter(time, 1e9))):
        assert _arrivals(np.array(duration), upload, horizon) == clock_span(
            ticks_of(PerArrival(upload), duration, horizon)
        )


def test_nobody_arrives() -> None:
    assert _arrivals(np.array([3.0, np.inf]), 0.0, 2.0) == Span(0, 0.0)


@given(st.sampled_from(TIMELINES), durations, horizons, st.data())
def test_stepped_or_listed_it_is_the_same(
    timeline: Any, duration: list[float], horizon: float, data: st.DataObject
) -> None:
    clock = constant_clock(duration, horizon)
    listed = ticks_of(timeline, duration, horizon)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline_clock, "LISTED", data.draw(st.sampled_from([0, 1_000])))
        ticks = Ticks(lambda: timeline(clock), clock.num_devices, timeline.span(clock, data.draw(st.booleans())))
        assert len(listed) <= 2 or ticks._list is None
        assert (len(ticks), clock_span(ticks)) == (len(listed), clock_span(listed))
        for index in data.draw(
            st.lists(st.integers(-len(listed), len(listed) - 1), max_size=6) if listed else st.just([])
        ):
            assert plain([ticks[index]]) == plain([listed[index]])
        first, step = data.draw(st.integers(1, len(listed) + 1)), data.draw(st.sampled_from([None, 1, 2, -1]))
        assert plain(ticks_since(ticks, first)) == plain(ticks_since(listed, first)) == plain(listed[first - 1 :])
        assert plain(ticks[first - 1 :: step]) == plain(listed[first - 1 :: step])
        version = np.array(data.draw(st.lists(st.integers(1, len(listed) + 1), max_size=4)), np.int64)
        fresh = VersionTimes(Ticks(lambda: timeline(clock), clock.num_devices, timeline.span(clock, True)))
        for born in (fresh, VersionTimes(ticks), VersionTimes(listed)):
            np.testing.assert_array_equal(born[version], start_times(listed)[version])
        assert plain(ticks) == plain(listed)


def test_no_tick_beyond_the_end() -> None:
    ticks = Ticks(lambda: ticks_of(Periodic(0.5), [0.4], 2.0), 20_000, Span(4, 2.0))
    for index in (4, -5):
        with pytest.raises(IndexError, match="there are 4 ticks"):
            ticks[index]


FLEETS = [
    {"framework": framework, "timeline": {"buffer_size": 2, "upload_time": upload}, "fleet": {"duration": duration}}
    for framework in ("periodic", "fedavg", "fedasync", "fedbuff")
    for upload, duration in ((0.0, "uniform"), (0.04, "shifted_exponential"))
]


@pytest.mark.parametrize("tree", FLEETS, ids=lambda tree: f"{tree['framework']}-{tree['fleet']['duration']}")
def test_a_run_on_ticks_that_are_not_listed_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: dict[str, Any]
) -> None:
    """Stopped and resumed in the middle, too; and with the same identity, so that each goes on with the other's folder."""
    experiment = small(tree, {"learning": {"evaluate_every": 0.5}, "timeline": {"horizon": 6.0}})
    run(experiment, tmp_path / "listed")
    monkeypatch.setattr(timeline_clock, "LISTED", 0)
    run(experiment, tmp_path / "stepped")
    assert _built(experiment).ticks._list is None  # type: ignore[attr-defined]

    def stop(record: Any, total: int) -> None:
        if record.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "resumed", on_round=stop)
    run(experiment, tmp_path / "resumed")
    for name in ("rounds.jsonl", "model.npy", "checkpoint.npz", "versions.json"):
        found = {(tmp_path / each / name).read_bytes() for each in ("listed", "stepped", "resumed")}
        assert len(found) == 1, name
    assert json.loads((tmp_path / "listed" / "versions.json").read_text())["identity"]["timeline"].isalnum()


def _built(experiment: Any) -> System:
    return build(experiment, dataset=small_dataset())


def test_a_long_timeline_is_not_held_in_memory() -> None:
    """Of three hundred thousand ticks nothing stays but when each was."""
    rng = np.random.default_rng(1)
    clock = constant_clock(rng.uniform(0.5, 1, 300), 300.0)
    timeline = PerArrival()
    tracemalloc.start()
    ticks = Ticks(lambda: timeline(clock), clock.num_devices, timeline.span(clock, True))
    for tick in ticks:
        if tick.index == 5_000:
            break
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(ticks) > 100_000
    assert used < 1_000_000


def test_the_identity_of_a_large_fleets_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows how long it is and how it begins."""
    system = _built(small({"fleet": {"num_devices": 8}}))
    whole = run_identity(system, FakeTrainer())["timeline"]
    for module in ("fedtide.runs.manifest", "fedtide.timeline.clock"):
        monkeypatch.setattr(sys.modules[module], "LARGE_FLEET_DEVICES", 7)
    large = _built(small({"fleet": {"num_devices": 8}}))
    brief = run_identity(large, FakeTrainer())["timeline"]
    assert brief != whole
    others = [small({"fleet": {"num_devices": 8}}, tree) for tree in ({"seed": 4}, {"timeline": {"horizon": 3.5}})]
    assert len({brief, *(run_identity(_built(each), FakeTrainer())["timeline"] for each in others)}) == 3
    handed = large._replace(ticks=[Tick(each.index, each.time / 2, each.ready, each.start) for each in large.ticks])
    assert run_identity(handed, FakeTrainer())["timeline"].isalnum()
