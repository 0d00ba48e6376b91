"""A world in which nobody is ever ready, and the worlds that look like it."""

from __future__ import annotations

from typing import Any

import pytest

from fedtide import config
from fedtide.engine.system import build
from fedtide.errors import FedtideError

SMALL = {
    "data.name": "synthetic",
    "data.partition": "iid",
    "data.num_train": 100,
    "data.num_test": 10,
    "timeline.horizon": 4,
}


def _build(**more: Any) -> Any:
    return build(config.experiment(SMALL | {"fleet.num_devices": 10} | more))


DEAD = {"name": "battery", "capacity_joules": 1e-3, "harvest_watts": 0}
SLOW = {"name": "shifted_exponential", "shift": 50}
FAINT = {"name": "broadcast", "rate": 1}


@pytest.mark.parametrize("framework", ["periodic", "fedavg", "fedasync", "fedbuff"])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "fleet.availability",
            DEAD,
            r"fleet\.availability=battery and fleet\.duration=uniform none ever is; .*harvest_watts",
        ),
        (
            "fleet.duration",
            SLOW,
            r"fleet\.duration=shifted_exponential .*the first is after 50.*; lengthen the horizon",
        ),
        ("radio.downlink", FAINT, r"radio\.downlink=broadcast .*the first is after .*radio\.downlink\)"),
    ],
)
def test_nobody_is_ever_ready(framework: str, key: str, value: Any, message: str) -> None:
    with pytest.raises(
        FedtideError, match=rf"no aggregation up to timeline\.horizon=4 has a device .*{message}"
    ) as caught:
        _build(framework=framework, **{key: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("framework", ["periodic"])  # a synchronous server has heard of them before
def test_gone_when_the_server_acts(framework: str) -> None:
    """Some finish before their batteries empty, after 0.2 at most, and before the server acts."""
    dying = {"name": "battery", "capacity_joules": 2.0, "harvest_watts": 0}
    with pytest.raises(FedtideError, match=r"the first after .*, are gone when the server acts.*harvest_watts"):
        _build(framework=framework, **{"fleet.availability": dying})


def test_some_that_empty_for_good_are_the_users_choice() -> None:
    ticks = _build(**{"fleet.availability": {"name": "battery", "harvest_watts": 0}}).ticks
    assert any(len(tick.ready) for tick in ticks)
    assert not len(ticks[-1].ready)


def test_the_papers_world_may_still_have_nobody() -> None:
    assert not any(len(tick.ready) for tick in _build(**{"fleet.min_duration": 9, "fleet.max_duration": 10}).ticks)


def test_cycles_follow_what_devices_hold() -> None:
    """T_k = c n_k / f with n_k = 3 epochs of 10 samples."""
    system = _build(**{"fleet.duration": "cycles"})
    assert system.fleet.duration.tolist() == [0.3] * 10


@pytest.mark.parametrize(
    "world",
    [
        {"fleet.duration": {"name": "log_normal", "median": 1e4}},
        {"fleet.availability": {"name": "battery", "harvest_watts": 1e-4}},
        {"radio.downlink": {"name": "broadcast", "rate": 10}},
    ],
)
def test_ticks_are_not_counted_by_a_duration_that_does_not_hold(world: dict[str, Any]) -> None:
    """Of 10 devices that take 1 at most there would be 20 million arrivals."""
    many = {"framework": "fedasync", "timeline.horizon": 2e6}
    with pytest.raises(FedtideError, match="aggregations, of which a run has at most"):
        config.experiment(SMALL | many | {"fleet.num_devices": 10})
    assert len(_build(**world, **many).ticks) < 1e5
