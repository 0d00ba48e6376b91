"""A server that acts as its timeline sees fit, on a virtual clock: when it acts, who has a model, and the same bits in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_grid import Federation, terms

from fedtide.deploy import trace
from fedtide.deploy.replay import Replayed, replay
from fedtide.deploy.settings import Terms, check_terms
from fedtide.engine.simulate import simulate
from fedtide.engine.system import build
from fedtide.errors import FedtideError, TrainingError
from fedtide.pages.run_view import view_run
from fedtide.runs import is_complete, read_rounds

KEEP = {"fleet": {"unpicked": "keep"}}
POLL = 0.25  # seconds: how late the server notices something
UPLOAD = 0.5  # seconds, as memory_grid has it


def timeline(name: Any, **keys: Any) -> dict[str, Any]:
    return {"timeline": {"name": name, **keys}}


def buffer(size: int) -> dict[str, Any]:
    return timeline("buffered", buffer_size=size)


def played(wanted: Terms, folder: Path, **more: Any) -> tuple[Federation, list[trace.Period]]:
    """Run a federation and check that its replay gives its bits; return it and its periods."""
    federation = Federation(wanted, folder, **more)
    model = federation.coordinator().run()
    check_replay(folder, model)
    return federation, trace.read_trace(folder).periods


def check_replay(folder: Path, model: np.ndarray[Any, Any]) -> Replayed:
    result = replay(folder)
    assert is_complete(folder)
    assert result.first_difference is None
    assert result.compared == len(result.rounds) > 0
    assert np.array_equal(result.model, model)
    assert result.rounds == read_rounds(folder)
    return result


def trained_from(federation: Federation, position: int) -> list[int]:
    """Return the versions of the models that a node was sent."""
    orders = (each for each in federation.node(position).seen if each.metadata.message_type == "train")
    return [int(str(each.content["order"]["version"])) for each in orders]


@pytest.mark.parametrize(
    "tree",
    [
        {**KEEP, "policy": {"limit": 1}},
        {**KEEP, **buffer(3), "policy": {"limit": 2}},
        buffer(2),
        timeline("per_arrival"),
        timeline("all"),
        timeline("deadline"),
        {"fleet": {"concurrency": 2}},
        {**buffer(2), "fleet": {"concurrency": 3, "release": "aggregation", "selector": "fewest_jobs"}},
        {**KEEP, "policy": {"limit": 1, "scheduler": "best_channel_best_norm"}},
        {**timeline("all"), "learning": {"schedule": "cosine", "evaluate_every": 1000.0}},
    ],
    ids=str,
)
@pytest.mark.parametrize("capacity", ["simulated", "measured"])
def test_the_same_bits_in_a_replay(tree: dict[str, Any], capacity: str, tmp_path: Path) -> None:
    _, periods = played(terms(tree, capacity=capacity, poll=POLL), tmp_path / "run")
    rounds = read_rounds(tmp_path / "run")
    assert [each.time for each in rounds] == [each.done for each in periods]
    assert all(each.test_accuracy is not None for each in rounds)
    assert rounds[-1].time <= 80.0 + 6.0
    assert all(each.wall <= 80.0 for each in periods)
    assert sum(len(each.arrived) for each in periods) >= 3


def test_an_update_waits_until_it_is_picked(tmp_path: Path) -> None:
    """One at a time is picked: the others stay ready with the version that they have, and their nodes hear nothing."""
    federation, periods = played(terms(KEEP, {"policy": {"limit": 1}}, poll=POLL), tmp_path / "run")
    waiting: dict[int, int] = {}  # by device, the version of the update that waits
    for period in periods:
        now = dict(zip(period.ready, period.start, strict=True))
        assert all(now[device] == version for device, version in waiting.items())
        waiting = {device: version for device, version in now.items() if device not in period.picked}
    assert max(len(period.ready) for period in periods) > 3
    for position in range(6):
        versions = trained_from(federation, position)
        picked = [period.tick for period in periods if position in period.picked]
        assert versions[1:] == [tick + 1 for tick in picked if tick < len(periods)]
    used, trained = (
        getattr(read_rounds(tmp_path / "run")[-1].ledger, f"samples_{each}") for each in ("used", "trained")
    )
    assert used == 40 * len(periods)
    assert trained == used + 40 * len(waiting)  # one that waits has trained once
    shown = view_run(tmp_path / "run").jobs
    assert shown is not None
    assert np.isfinite(shown.ready).sum() == trained / 40
    down = read_rounds(tmp_path / "run")[-1].ledger.bits_down
    assert down == 32 * 7850 * sum(len(trained_from(federation, each)) for each in range(6))


def test_a_buffer_is_full(tmp_path: Path) -> None:
    _, periods = played(terms(buffer(2), {"policy": {"limit": 2}}, poll=POLL), tmp_path / "run")
    for period in periods:
        assert len(period.ready) >= 2
        second = sorted(period.ready_at)[1]
        assert second <= period.wall <= second + POLL or period.wall == pytest.approx(second + UPLOAD, abs=POLL)
    assert periods[0].ready == [0, 1]
    assert periods[0].wall == pytest.approx(8.0, abs=POLL)


def test_every_arrival_is_one(tmp_path: Path) -> None:
    _, periods = played(terms(timeline("per_arrival"), poll=POLL), tmp_path / "run", durations=(9.0, 13.0))
    assert [each.ready for each in periods[:4]] == [[0], [1], [0], [1]]
    assert all(len(each.ready) == 1 for each in periods)


def test_the_server_waits_for_all(tmp_path: Path) -> None:
    _, periods = played(terms(timeline("all"), poll=POLL), tmp_path / "run", durations=(3.0, 8.0, 18.0))
    assert [each.ready for each in periods] == [[0, 1, 2]] * 4
    assert all(each.start == [each.tick] * 3 for each in periods)
    assert [each.wall for each in periods] == pytest.approx([18.0, 36.5, 55.0, 73.5], abs=4 * POLL)


def test_but_not_for_one_that_is_gone(tmp_path: Path) -> None:
    federation = Federation(terms(timeline("all"), poll=POLL), tmp_path / "run", durations=(3.0, 8.0))
    federation.clock.at(1.0, lambda: federation.grid.kill(federation.node(1)))
    check_replay(tmp_path / "run", federation.coordinator().run())
    periods = trace.read_trace(tmp_path / "run").periods
    assert periods[0].wall == pytest.approx(51.0, abs=POLL)  # Flower has noticed by then
    assert all(each.ready == [0] for each in periods)
    assert len(periods) > 5


def test_the_deadline_is_kept(tmp_path: Path) -> None:
    _, periods = played(terms(timeline("deadline"), poll=POLL), tmp_path / "run", durations=(3.0, 8.0, 18.0))
    assert [each.ready for each in periods[:4]] == [[0, 1], [0, 1, 2], [0, 1], [0, 1, 2]]
    walls = [0.0, *(each.wall for each in periods)]
    assert all(np.diff(walls) <= 10.0 + UPLOAD + POLL)
    assert periods[1].wall == pytest.approx(18.5, abs=2 * POLL)  # all are there before it


def test_only_so_many_have_a_model(tmp_path: Path) -> None:
    """With release=aggregation an update that waits counts, too."""
    for release, most in (("finish", 6), ("aggregation", 2)):
        wanted = terms({"fleet": {"concurrency": 2, "release": release}}, buffer(2), poll=POLL)
        federation = Federation(wanted, tmp_path / release)
        busy: list[int] = []
        talk = federation.coordinator
        coordinator = talk()
        sleep = coordinator._devices._sleep

        def look(seconds: float, coordinator: Any = coordinator, sleep: Any = sleep, busy: list[int] = busy) -> None:
            seats = coordinator._talk.seats
            assert sum(seat.order is not None and not seat.ready for seat in seats) <= 2
            busy.append(sum(seat.order is not None for seat in seats))
            sleep(seconds)

        coordinator._devices._sleep = look
        check_replay(tmp_path / release, coordinator.run())
        assert 2 <= max(busy) <= most
        sent = [position for position in range(6) if federation.node(position).seen]
        assert len(sent) > 3  # in turn


def test_a_selector_of_ones_own_sees_what_devices_reported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def largest(idle, count, rng):\n"
        "    assert (idle.num_samples >= 1).all()\n"
        "    return np.argsort(-idle.jobs * 100 - idle.num_samples, kind='stable')[:count]\n"
    )
    own = {"fleet": {"concurrency": 1, "selector": f"{tmp_path / 'mine.py'}:largest"}}
    federation, _ = played(terms(own, timeline("per_arrival")), tmp_path / "run", durations=(3.0,) * 6)
    # those with the most trainings first: the same one again and again
    assert [position for position in range(6) if federation.node(position).seen] == [0]


def test_a_timeline_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import math\n"
        "class Patient:\n"
        "    def when(self, situation):\n"
        "        if situation.num_finished >= 3:\n"
        "            return situation.time\n"
        "        if situation.tick and situation.progress['test_accuracy'] < 0:\n"
        "            return situation.time\n"
        "        return max(situation.time, situation.since.min() + 7.0) if situation.num_finished else math.inf\n"
    )
    own = timeline(f"{tmp_path / 'mine.py'}:Patient")
    _, periods = played(terms(own, poll=POLL), tmp_path / "run")
    assert periods[0].ready == [0, 1]
    assert periods[0].wall == pytest.approx(3.0 + 7.0, abs=POLL)


def test_a_timeline_that_names_a_time_is_not_asked_again_when_it_has_passed(tmp_path: Path) -> None:
    """Real clocks are a little late: what was named is kept, though it is past by then."""
    (tmp_path / "mine.py").write_text(
        "class Slow:\n    def when(self, situation):\n        return situation.last + 7.1\n"
    )
    _, periods = played(terms(timeline(f"{tmp_path / 'mine.py'}:Slow")), tmp_path / "run")
    assert periods[0].wall == pytest.approx(7.1, abs=0.01)
    (tmp_path / "past.py").write_text("class Past:\n    def when(self, situation):\n        return -1.0\n")
    past = Federation(terms(timeline(f"{tmp_path / 'past.py'}:Past")), tmp_path / "past").coordinator()
    with pytest.raises(FedtideError, match=r"named time -1\.0 after aggregation 0, and it is 0"):
        past.run()


def test_it_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    _, periods = played(terms(buffer(6), longest_wait=15.0, poll=POLL), tmp_path / "run", durations=(3.0, 100.0))
    assert [each.wall for each in periods] == pytest.approx([15.0, 30.5, 46.0, 61.5, 77.0], abs=2 * POLL)
    assert all(each.ready == [0] for each in periods)


def test_nothing_happens_before_the_horizon(tmp_path: Path) -> None:
    with pytest.raises(
        FedtideError, match=r"buffered.* has not acted before timeline\.horizon=80 s, and 2 updates wait"
    ):
        Federation(terms(buffer(6)), tmp_path / "run", durations=(3.0, 8.0)).coordinator().run()
    _, periods = played(terms(buffer(6)), tmp_path / "run", durations=(3.0,) * 6)  # with more nodes it can begin again
    assert len(periods) > 5


def test_a_scheduler_that_picks_nobody_lets_time_pass(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def nobody(candidates, limit, rng):\n    return []\n")
    own = {**KEEP, **timeline("per_arrival"), "policy": {"scheduler": f"{tmp_path / 'mine.py'}:nobody", "limit": 1}}
    _, periods = played(terms(own, poll=5.0), tmp_path / "run")
    assert len(periods) <= 80 / 5


def test_who_fails_is_tried_again_though_nothing_else_happens(tmp_path: Path) -> None:
    federation = Federation(terms(timeline("all"), poll=POLL), tmp_path / "run", durations=(3.0,))
    node, failures = federation.node(0), []

    def act(node: Any, message: Any, reply: Any) -> Any:
        from flwr.app import Error, Message

        failures.append(1)
        return [(1.0, Message(Error(2, "no"), reply_to=message) if len(failures) < 3 else reply)]

    node.act = act
    check_replay(tmp_path / "run", federation.coordinator().run())
    first = trace.read_trace(tmp_path / "run").periods[0]
    assert first.wall == pytest.approx(1 + 10 + 1 + 20 + 1, abs=2)


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize(
    ("tree", "same"),
    [
        ({**timeline("all"), "fleet": {"concurrency": 4, "release": "aggregation"}}, True),
        (timeline("deadline"), True),
        ({**KEEP, **buffer(2), "policy": {"limit": 1}}, False),
    ],
    ids=["all", "deadline", "keep"],
)
def test_killed_and_started_again(tmp_path: Path, tree: dict[str, Any], same: bool) -> None:
    """Where everyone starts over in every round it comes to the same model; else to one that replays."""
    whole = Federation(terms(tree, poll=POLL), tmp_path / "whole", durations=(3.0,) * 6).coordinator().run()
    folder = tmp_path / "run"

    def die(record: object) -> None:
        if len(read_rounds(folder)) == 4:
            raise Killed

    with pytest.raises(Killed):
        Federation(terms(tree, poll=POLL), folder, (3.0,) * 6, die).coordinator().run()
    before = (folder / "rounds.jsonl").read_bytes()
    second = Federation(terms(tree, poll=POLL), folder, (3.0,) * 6)
    second.grid.nodes = {}
    second.clock.at(20.0, lambda: [second.grid.join(part, 3.0, node_id=101 + part) for part in range(6)])  # in time
    model = second.coordinator().run()
    assert (folder / "rounds.jsonl").read_bytes().startswith(before)
    check_replay(folder, model)
    walls = [each.wall for each in trace.read_trace(folder).periods]
    assert all(np.diff(walls) > 0)
    assert np.diff(walls).max() < 15  # time in which no server ran, or no node was there, does not count
    if same:
        assert np.array_equal(model, whole)
        assert read_rounds(folder) == read_rounds(tmp_path / "whole")
    again = Federation(terms(tree, poll=POLL), folder, (3.0,) * 6)
    assert np.array_equal(again.coordinator().run(), model)
    assert not any(node.seen for node in again.grid.nodes.values())


def test_a_node_that_restarts_loses_the_update_that_waits(tmp_path: Path) -> None:
    federation = Federation(terms({**KEEP, "policy": {"limit": 1}}, poll=POLL), tmp_path / "run")

    def restart() -> None:
        for position in (1, 2):
            federation.grid.kill(federation.node(position))
            federation.grid.restart(federation.node(position))

    federation.clock.at(22.0, restart)
    check_replay(tmp_path / "run", federation.coordinator().run())
    assert trained_from(federation, 2)[:2] == [1, 3]


def test_memory_goes_on_once_for_an_update_that_waits(tmp_path: Path) -> None:
    """A trainer that remembers every training, and a codec that remembers every upload: the replay does neither twice."""
    tree = {**KEEP, "policy": {"limit": 1}, "codec": {"name": "error_feedback"}}
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from fedtide.learning.native import NativeTrainer\n"
        "from fedtide.types import Trained\n"
        "class Counting:\n"
        "    def __init__(self, task):\n"
        "        self.inner = NativeTrainer(task)\n"
        "    def init(self, num_parameters):\n"
        "        return {'count': np.zeros(1)}\n"
        "    def initial_model(self, seed):\n"
        "        return self.inner.initial_model(seed)\n"
        "    def evaluate(self, model, samples):\n"
        "        return self.inner.evaluate(model, samples)\n"
        "    def train(self, jobs):\n"
        "        plain = self.inner.train([job._replace(memory=None) for job in jobs])\n"
        "        scale = np.array([1 / (1 + job.memory['count'][0]) for job in jobs], np.float32)\n"
        "        return Trained(plain * scale[:, None], [{'count': job.memory['count'] + 1} for job in jobs])\n"
    )
    tree["learning"] = {"trainer": f"{tmp_path / 'mine.py'}:Counting"}
    federation = Federation(terms(tree, {"timeline": {"horizon": 160.0}}, poll=POLL), tmp_path / "run")

    def restart() -> None:
        for position in range(6):
            federation.grid.kill(federation.node(position))
            federation.grid.restart(federation.node(position))

    federation.clock.at(72.0, restart)  # what was remembered is lost, which is said once
    check_replay(tmp_path / "run", federation.coordinator().run())
    periods = trace.read_trace(tmp_path / "run").periods
    assert max(len(period.ready) for period in periods) > 3
    forgot = [device for period in periods for device in (period.forgot or {}).get("trainer", [])]
    assert sorted(forgot) == sorted({*forgot})
    assert len(forgot) > 3


BEST_BLOCK = """
import numpy as np
from fedtide import Decision
def decide(candidates, limit, rng, speed=False):
    assert candidates.time > 0
    if candidates.uplink is None:
        symbols = np.full(limit, 12000 / limit)
        return Decision(np.arange(limit), symbols, bits=symbols * candidates.capacity[:limit] / 2)
    capacity = candidates.uplink.capacity()
    order = np.argsort(-capacity.max(axis=1), kind="stable")[:limit]
    block = capacity[order].argmax(axis=1)
    share = np.bincount(block, minlength=capacity.shape[1])[block]
    symbols = candidates.uplink.symbols / capacity.shape[1] / share
    more = {"speed": np.full(len(order), 0.5)} if speed else {}
    return Decision(order, symbols, power=np.full(len(order), 0.7), block=block, share=1 / capacity.shape[1] / share, **more)
"""


@pytest.mark.parametrize("capacity", ["simulated", "measured"])
@pytest.mark.parametrize("tree", [{}, {**KEEP, **buffer(3)}], ids=["periodic", "keep"])
def test_a_joint_decision(capacity: str, tree: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BEST_BLOCK)
    own = {
        "policy": {"scheduler": f"{tmp_path / 'mine.py'}:decide", "limit": 2},
        "radio": {"num_blocks": 4, "modem": {"name": "waterfall", "threshold": 5.0}},
    }
    _, periods = played(terms(own, tree, capacity=capacity), tmp_path / "run")
    rounds = read_rounds(tmp_path / "run")
    if capacity == "simulated":
        assert any(each.lost for each in periods)
        assert rounds[0].capacity != [
            periods[0].capacity[periods[0].ready.index(device)] for device in rounds[0].picked
        ]
    # a run that is interrupted asks the scheduler again, with the links that it saw
    (tmp_path / "run" / "model.npy").unlink()
    Federation(terms(own, tree, capacity=capacity), tmp_path / "run").coordinator().run()


def test_a_5g_modem_is_replayed(tmp_path: Path) -> None:
    modem = {"name": "nr", "num_prbs": 2, "bler_target": 0.4, "harq": "none", "acknowledged": False}
    own = {"radio": {"modem": modem, "csi": "noisy"}, "policy": {"scheduler": "random"}}
    _, periods = played(terms(own, capacity="simulated"), tmp_path / "run")
    assert any(each.lost for each in periods)


def test_speeds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BEST_BLOCK)
    own = {"policy": {"scheduler": {"name": f"{tmp_path / 'mine.py'}:decide", "speed": True}}}
    with pytest.raises(
        TrainingError, match=r"decide.* decided at aggregation 1 speed, and nodes train as fast as they can"
    ):
        Federation(terms(own), tmp_path / "run").coordinator().run()


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"fleet": {"interrupt": True}}, r"fleet\.interrupt=true: a node that trains .*; say fleet\.interrupt=false"),
        ({"fleet": {"absent": "fetch"}}, r"fleet\.absent=fetch: .*; say fleet\.absent=compute"),
        ({"fleet": {"absent": "abandon"}}, r"fleet\.absent=abandon"),
        (
            {"fleet": {"battery_joules": 5.0, "joules_per_sample": 0.1}},
            r"battery_joules=5\.?0?: .*say fleet\.battery_joules=null",
        ),
        (
            {"timeline": {"uploads": "wait"}, "radio": {"symbol_rate": 1e4}},
            r"timeline\.uploads=wait: real uploads take the time",
        ),
        ({"timeline": {"uploads": "later"}, "radio": {"symbol_rate": 1e4}}, r"timeline\.uploads=later"),
        ({"timeline": {"upload_time": 1.0}}, r"timeline\.upload_time=1"),
        ({"radio": {"retransmission": "resend"}}, r"radio\.retransmission=resend: packets travel over TCP"),
        ({"radio": {"retransmission": "harq"}}, r"radio\.retransmission=harq"),
        (timeline("sampled_staleness"), r"sampled_staleness plans who is ready when"),
        (timeline("synchronous"), r"synchronous plans who is ready when.* all or deadline"),
        (timeline({"name": "buffered", "waits": False}, buffer_size=2), r"say timeline\.name\.waits=true"),
        ({"learning": {"work": "uniform_epochs"}}, r"learning\.work=uniform_epochs: nodes are told a model"),
    ],
    ids=str,
)
def test_what_nodes_cannot_do_is_refused(tree: dict[str, Any], says: str) -> None:
    with pytest.raises(FedtideError, match=says) as refused:
        check_terms(terms(tree))
    assert "simulate it with `fedtide run`" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_places_than_devices(tmp_path: Path) -> None:
    with pytest.raises(FedtideError, match=r"fleet\.concurrency=7"):
        Federation(terms({"fleet": {"concurrency": 7}}), tmp_path / "run").coordinator()


@pytest.mark.parametrize(
    "tree",
    [
        {**KEEP, "policy": {"limit": 1}},
        {"fleet": {"unpicked": "keep", "concurrency": 3, "release": "aggregation"}, "policy": {"limit": 1}},
        {"fleet": {"concurrency": 4, "release": "aggregation", "selector": "fewest_jobs"}},
    ],
    ids=str,
)
def test_the_same_bits_as_the_simulator(tree: dict[str, Any], tmp_path: Path) -> None:
    """A federation whose readiness is the simulator's gives the simulator's model: the rules are the same, selections, too."""
    wanted = terms(tree, poll=POLL)
    system = build(wanted.experiment)
    simulated = simulate(wanted.experiment, system=system)
    # a little early: the models leave half a second after the tick, when the uploads are in
    durations = tuple(max(float(each) - 4.0, 0.1) for each in np.ceil(system.fleet.duration / 10) * 10)
    played(wanted, tmp_path / "run", durations=durations)
    rounds = read_rounds(tmp_path / "run")
    assert [(each.ready, each.picked, each.age, each.weight) for each in rounds] == [
        (each.ready, each.picked, each.age, each.weight) for each in simulated.rounds
    ]
    assert [each.ledger for each in rounds] == [each.ledger for each in simulated.rounds]
    assert np.array_equal(np.load(tmp_path / "run" / "model.npy"), simulated.model)
