"""FedBuff as in its authors' simulator: a device goes on at once while its update lies in the buffer."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtide
from fedtide import config
from fedtide.engine.system import build
from fedtide.pages import run_view
from fedtide.timeline.timelines import Buffered
from fedtide.types import Job
from helpers import FakeTrainer, run, small, small_dataset, ticks_of
from promises import checked_ticks

BUFFER = {"framework": "fedbuff", "timeline": {"buffer_size": 3}, "codec": {"name": "ideal"}}
sixteenths = st.integers(1, 40).map(lambda n: n / 16)


def played(duration: list[float], size: int, horizon: float, upload: float = 0.0) -> list[tuple[Any, ...]]:
    """Return (time, ready, start) of every aggregation, one instant after the other, in fractions.

    A device trains from a version, or waits for one; what it has finished lies in the buffer or, if an earlier update of it
    lies there, with itself until the buffer is empty.
    """
    took = [Fraction(each) + Fraction(upload) for each in duration]
    training: dict[int, Any] = {k: (took[k], 1) for k in range(len(took))}  # when its update arrives, and its version
    buffer: dict[int, int] = {}  # device -> version that its update is from
    own: list[tuple[int, int]] = []  # finished, with an earlier one in the buffer
    newest, found, wants_newer = 1, [], []  # type: ignore[var-annotated]

    def hand_in(k: int, version: int, now: Fraction) -> None:
        buffer[k] = version
        if len(buffer) == size or version == newest:
            wants_newer.append(k)
        else:
            training[k] = (now + took[k], newest)

    while True:
        now, k = min((arrival, k) for k, (arrival, _) in training.items())
        if now > horizon:
            return found
        _, version = training.pop(k)
        if k in buffer:
            own.append((k, version))
            continue
        hand_in(k, version, now)
        if len(buffer) == size:
            found.append((float(now), sorted(buffer), [buffer[each] for each in sorted(buffer)]))
            newest += 1
            for each in wants_newer:
                training[each] = (now + took[each], newest)
            buffer, wants_newer, late, own = {}, [], own, []
            for each in late:
                hand_in(*each, now)  # type: ignore[call-arg]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(sixteenths, min_size=1, max_size=9), st.integers(1, 7), st.integers(0, 200), st.sampled_from([0.0, 0.25])
)
def test_it_is_the_event_simulation(duration: list[float], size: int, horizon: int, upload: float) -> None:
    size = min(size, len(duration))
    ticks = ticks_of(Buffered(size, upload, waits=False), duration, horizon / 32)
    assert [(t.time, t.ready.tolist(), t.start.tolist()) for t in ticks] == played(duration, size, horizon / 32, upload)
    checked_ticks(ticks, len(duration), horizon / 32)
    pairs = [pair for tick in ticks for pair in zip(tick.ready.tolist(), tick.start.tolist(), strict=True)]
    assert len({*pairs}) == len(pairs)  # nothing is trained twice


def test_a_buffer_of_one_is_fedasync() -> None:
    duration = [0.3, 0.7, 0.11]
    plain, waiting = (ticks_of(Buffered(1, 0.1, waits=each), duration, 5.0) for each in (False, True))
    assert [(t.time, t.ready.tolist(), t.start.tolist()) for t in plain] == [
        (t.time, t.ready.tolist(), t.start.tolist()) for t in waiting
    ]


@pytest.mark.parametrize("seed", range(4))
def test_more_uploads_and_staler_ones_than_with_waiting(seed: int) -> None:
    tree = {"framework": "fedbuff", "seed": seed, "data": {"name": "synthetic"}, "learning": {"model": "softmax"}}
    data = small_dataset(num_train=400, num_labels=10)
    ticks, waiting = (
        build(config.experiment(tree, more), dataset=data).ticks
        for more in ({}, {"timeline": {"name": {"waits": True}}})
    )
    age, before = (np.mean([t.index - t.start for t in each]) for each in (ticks, waiting))
    assert 1.1 < len(ticks) / len(waiting) < 1.25
    assert before == pytest.approx(3.97, abs=0.02)
    assert 4.6 < age < 4.85


def test_the_model_is_what_the_algorithm_makes_of_it() -> None:
    experiment, trainer, again = small(BUFFER), FakeTrainer(), FakeTrainer()
    result = run(experiment, trainer=trainer)
    models = {1: again.initial_model(experiment.seed).astype(np.float64)}
    duration = [float(each) for each in first_durations(experiment)]
    rates = dict(zip(trainer.jobs, trainer.rates, strict=True))
    wanted = played(duration, 3, 3.0)
    assert [each.ready for each in result.rounds] == [ready for _, ready, _ in wanted]
    for t, (_, ready, start) in enumerate(wanted, 1):
        step = np.zeros(30)
        for k, s in zip(ready, start, strict=True):
            job = Job(k, s, models[s].astype(np.float32), rates[k, s], small_dataset().train, np.arange(1))
            step += again.train([job])[0] / 3 / np.sqrt(1 + t - s)
        models[t + 1] = models[t] + step
    np.testing.assert_allclose(result.model, models[len(wanted) + 1], rtol=1e-4, atol=1e-6)


def first_durations(experiment: fedtide.Experiment) -> Any:
    """Return how long every device takes, by the aggregations of one device each."""
    alone = build(
        experiment.model_copy(update={"timeline": small({"framework": "fedasync"}).timeline}), dataset=small_dataset()
    )
    first = {}
    for tick in alone.ticks:
        first.setdefault(int(tick.ready[0]), tick.time)
    return [first[k] for k in range(experiment.fleet.num_devices)]


def test_devices_that_wait_are_the_timelines_default() -> None:
    wanted = config.experiment({"framework": "fedbuff", "timeline": {"name": {"name": "buffered"}}})
    spelled = config.experiment({"timeline": {"name": "buffered"}, "policy": config.dump(wanted)["policy"]})
    assert config.digest(wanted) == config.digest(spelled) != config.digest(config.experiment({"framework": "fedbuff"}))
    assert config.experiment({"framework": "fedbuff", "timeline": {"name": "periodic"}}).part("timeline").args == {}
    waiting = small(BUFFER, {"timeline": {"name": {"waits": True}}})
    assert (
        run(waiting).model.tolist() == run(small(BUFFER, {"timeline": {"name": {"name": "buffered"}}})).model.tolist()
    )
    assert run(waiting).model.tolist() != run(small(BUFFER)).model.tolist()


def test_a_page_shows_when_each_training_really_began(tmp_path: Path) -> None:
    experiment = small(BUFFER, {"data": {"num_train": 48, "num_test": 20}, "learning": {"trainer": "native"}})
    fedtide.simulate(experiment, tmp_path / "run")
    jobs = run_view.view_run(tmp_path / "run").jobs
    over = np.isfinite(jobs.ready)
    for k in range(6):
        mine = over & (jobs.device == k)
        took = (jobs.done - jobs.begin)[mine]
        np.testing.assert_allclose(took, took[0], rtol=1e-9)  # no training is cut short by a late beginning
        assert np.all(jobs.begin[mine][1:] >= jobs.done[mine][:-1] - 1e-12)
