"""Servers at different paces share their draws: fading by time (radio.coherence_time), batches by job (learning.seed_by)."""

from __future__ import annotations

from typing import Any

import pytest

import fedtide
from fedtide import config
from fedtide.deploy.settings import check_deployment_timeline
from fedtide.engine.devices import Simulated
from fedtide.engine.step import initial_state, step_links
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.types import Job
from helpers import FakeTrainer, small, small_dataset

DATASET = small_dataset()
BY_JOB = {"learning": {"seed_by": "job"}}
PACES: dict[str, dict[str, Any]] = {
    "slow": {"timeline": {"period": 0.3}},
    "fast": {"timeline": {"period": 0.1}},
    "fedavg": {"framework": "fedavg"},
    "buffer": {"timeline": {"name": {"name": "buffered", "waits": False}, "buffer_size": 3}},
    "arrivals": {"framework": "fedasync", "policy": {"limit": 1}},
}


def links(*trees: dict[str, Any]) -> dict[float, dict[int, tuple[float, float]]]:
    """Return capacity and estimate of every device that is ready, by time and device."""
    system, found = build(small(*trees), dataset=DATASET), dict[float, dict[int, tuple[float, float]]]()
    for tick in system.ticks:
        link = step_links(system, tick)
        rows = zip(link.capacity.tolist(), link.estimated_capacity.tolist(), strict=True)
        found[round(tick.time, 9)] = dict(zip(tick.ready.tolist(), rows, strict=True))
    return found


def numbers(*trees: dict[str, Any]) -> list[tuple[int, int, int | None]]:
    """Return device, version and number of every training, scheduled or not, once, by device and version."""
    jobs: list[Job] = []

    class Noting(FakeTrainer):
        def train(self, given: Any) -> Any:
            jobs.extend(given)
            return super().train([(*job[:4],) for job in given])

    trainer: Any = Noting(195)
    fedtide.simulate(small({"learning": {"trainer": "native"}}, *trees), dataset=DATASET, trainer=trainer, eager=True)
    return sorted({(job.device, job.version, job.number) for job in jobs}, key=lambda row: row[:2])


@pytest.mark.parametrize("csi", ["perfect", "noisy"])
@pytest.mark.parametrize("channel", ["rayleigh", "rayleigh_by_device", "rician", "gilbert_elliott"])
def test_the_same_time_has_the_same_fading_at_every_pace(channel: str, csi: str) -> None:
    radio = {"radio": {"channel": channel, "csi": csi, "coherence_time": 0.1}}
    slow, fast, fedavg = (links(PACES[pace], radio) for pace in ("slow", "fast", "fedavg"))
    shared = 0
    for one, other in ((slow, fast), (fedavg, fast), (fedavg, slow)):
        for time in one.keys() & other.keys():
            both = one[time].keys() & other[time].keys()
            assert [one[time][k] for k in both] == [other[time][k] for k in both]
            shared += len(both)
    assert shared > 30
    apart = links(PACES["slow"], {"radio": {**radio["radio"], "coherence_time": None}})
    assert apart != slow


def test_fading_lasts_for_the_coherence_time() -> None:
    found = links({"timeline": {"period": 0.1, "horizon": 12.0}}, {"radio": {"coherence_time": 0.3}})
    for time, row in found.items():
        block = int(time * 10 + 0.5) // 3  # whatever rounding makes of 0.3 + 0.3 + 0.3
        for other in (round(time + 0.1, 9), round(time + 0.2, 9)):
            same = int(other * 10 + 0.5) // 3 == block
            for k in row.keys() & found.get(other, {}).keys():
                assert (found[other][k] == row[k]) == same


def test_a_coherence_time_of_one_period_changes_no_bit() -> None:
    for period in (0.1, 0.25, 0.35):  # 3 * 0.35 / 0.35 < 3
        timeline = {"timeline": {"period": period, "horizon": 30 * period}}
        assert links(timeline, {"radio": {"coherence_time": period}}) == links(timeline)


@pytest.mark.parametrize("pace", PACES)
def test_the_jobs_of_a_device_are_numbered_one_after_the_other(pace: str) -> None:
    found = numbers(PACES[pace], BY_JOB)
    for device in range(6):
        assert (own := [number for k, _, number in found if k == device]) == [*range(1, len(own) + 1)]
    assert len(found) > 10
    assert {number for *_, number in numbers(PACES[pace])} == {None}
    assert [row[:2] for row in numbers(PACES[pace])] == [row[:2] for row in found]  # versions stay what they are


def test_worlds_that_react_number_their_jobs_as_those_that_are_planned() -> None:
    reacting = {"fleet": {"concurrency": 6}}
    assert build(small(reacting), dataset=DATASET).world is not None
    assert numbers(BY_JOB, reacting) == numbers(BY_JOB)


def test_an_update_that_waits_keeps_its_number() -> None:
    found = numbers(BY_JOB, {"fleet": {"unpicked": "keep"}, "policy": {"limit": 1}})
    for device in range(6):
        assert (own := [number for k, _, number in found if k == device]) == [*range(1, len(own) + 1)]
    assert len(found) < len(numbers(BY_JOB))  # who waits does not train


def test_the_default_and_stored_names_stay() -> None:
    given = config.experiment({"radio.coherence_time": None, "learning.seed_by": "version"})
    assert config.digest(given) == config.digest(config.experiment()) == "50b6de2b82164a7a"
    for tree in (BY_JOB, {"radio": {"coherence_time": 0.25}}):
        assert config.digest(config.experiment(tree)) != config.digest(config.experiment())


def test_the_server_trains_on_its_own_samples_by_version() -> None:
    system = build(small(BY_JOB), dataset=DATASET._replace(held_out=DATASET.test))
    trainer: Any = FakeTrainer(195)
    devices = Simulated(system, trainer)
    devices._server_update(initial_state(trainer.initial_model(0), 6))
    assert trainer.jobs == [(6, 1)]


@pytest.mark.parametrize(
    ("channel", "refused"),
    [
        ("jakes", True),
        ("drive_twin", True),
        ({"name": "gilbert_elliott", "step": 0.5}, True),
        ({"name": "gilbert_elliott", "step": 0.5, "fading": True}, False),
    ],
)
def test_a_channel_that_goes_by_time_is_refused(channel: Any, refused: bool) -> None:
    tree = {"radio": {"channel": channel, "coherence_time": 0.25}}
    if not refused:
        links(tree)
        return
    with pytest.raises(
        FedtideError, match=r"^radio\.coherence_time=0\.25: radio\.channel=.* goes by time.*; leave .* out"
    ):
        links(tree)


def test_nodes_cannot_count_their_jobs() -> None:
    with pytest.raises(FedtideError, match=r"^learning\.seed_by=job: nodes are told .*; say learning\.seed_by=version"):
        check_deployment_timeline(config.experiment(BY_JOB))


def test_zero_is_no_coherence_time() -> None:
    with pytest.raises(FedtideError, match=r"radio\.coherence_time"):
        config.experiment({"radio.coherence_time": 0})
