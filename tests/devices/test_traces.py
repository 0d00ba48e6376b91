"""Traces of devices: what they say, and what is wrong with those that cannot be used."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedtide.devices.availability import Always, TraceAvailability
from fedtide.devices.duration import TraceDuration, durations_vary
from fedtide.devices.fedscale import FedScaleAvailability, FedScaleCapacity
from fedtide.errors import DataError
from fedtide.timeline.clock import make_clock
from fedtide.timeline.timelines import Periodic, Synchronous
from trace_files import BEHAVIOUR, CAPACITY


def _parquet(path: Path, text: str) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    (source := path.with_suffix(".csv")).write_text(text)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(source), path)


def _write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    if isinstance(content, str) and path.suffix == ".parquet":
        _parquet(path, content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_durations_of_a_file(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path, name, "duration,device,note\n2.5,1,9\n0.5,0,9\n4,2,9\n")
    part = TraceDuration(path)
    assert not durations_vary(part)
    assert part(0, np.array([2, 0, 1]), np.array([1, 5, 2])).tolist() == [4.0, 0.5, 2.5]
    assert TraceDuration(path, True, 10)(0, np.array([3, 5]), np.array([1, 1])).tolist() == [5.0, 40.0]
    with pytest.raises(
        DataError, match=r"has 3 devices and device 3 was asked for; lower fleet.num_devices to 3, or add wrap"
    ):
        part(0, np.array([0, 3]), np.array([1, 1]))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_durations_of_jobs(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path, name, "device,job,duration\n0,2,2\n0,1,1\n1,1,7\n")
    part = TraceDuration(path)
    assert durations_vary(part)
    assert part(0, np.array([0, 0, 1]), np.array([1, 2, 1])).tolist() == [1.0, 2.0, 7.0]
    with pytest.raises(
        DataError, match=r"has 1 jobs of device 1 and job 2 was asked for; lower timeline.horizon, or add wrap"
    ):
        part(0, np.array([1]), np.array([2]))
    wrapped = TraceDuration(path, wrap=True)
    assert wrapped(0, np.array([0, 2, 3]), np.array([3, 4, 9])).tolist() == [1.0, 2.0, 7.0]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_stays_of_a_file(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path, name, "device,start,end\n0,5,7\n0,1,2\n1,0,10\n0,7,8\n")
    once = TraceAvailability(path, horizon=10)

    def ask(part: Any, device: int, *times: float) -> list[float]:
        return part(0, np.full(len(times), device), np.array(times)).tolist()  # type: ignore[no-any-return]

    assert ask(once, 0, 0, 1, 1.5, 2, 6.9, 7, 7.9, 8, 99) == [1, 1, 1.5, 5, 6.9, 7, 7.9, math.inf, math.inf]
    assert ask(once, 1, 0, 9.99, 10) == [0, 9.99, math.inf]
    again = TraceAvailability(path, wrap=True, horizon=1e9)  # from 10 on
    assert ask(again, 0, 8, 10, 12, 1000, 10_007.5) == [11, 11, 15, 1001, 10_007.5]
    assert ask(again, 1, 10, 1e6) == [10, 1e6]
    assert ask(again, 2, 8) == [11]
    longer = TraceAvailability(path, wrap=True, period=20, scale=2, horizon=1e9)
    assert ask(longer, 0, 4, 16, 20, 23.5) == [10, 22, 22, 23.5]
    with pytest.raises(DataError, match=r"has 2 devices and device 2 was asked for"):
        ask(once, 2, 0)


DURATION = "device,duration\n"
STAYS = "device,start,end\n"


@pytest.mark.parametrize(
    ("part", "name", "content", "message"),
    [
        (TraceDuration, "a.csv", DURATION + "0,1\n2,1\n", r"a\.csv has no row of device 1; give every device"),
        (TraceDuration, "a.csv", DURATION + "0,1\n-1,1\n", r"a\.csv, line 3: device=-1 is not a whole number >= 0"),
        (TraceDuration, "a.csv", DURATION + "0,1\n0.5,1\n", r"line 3: device=0\.5 is not a whole number"),
        (TraceDuration, "a.csv", DURATION + "0,-3\n", r"line 2: duration=-3: a job takes some time; give more than 0"),
        (TraceDuration, "a.csv", DURATION + "0,nan\n", r"line 2: duration=nan is no finite number"),
        (TraceDuration, "a.csv", DURATION + "0,1\n1,fast\n", r"line 3: duration='fast' is no number; give one"),
        (TraceDuration, "a.csv", DURATION + "0,1\n0,2\n", r"line 3: device 0: there is a row for its job 1 already"),
        (
            TraceDuration,
            "a.csv",
            "device,duration,job\n0,1,1\n0,2,3\n",
            r"line 3: device 0: there is a job 3 but no job 2",
        ),
        (TraceDuration, "a.csv", DURATION + "0,1,2\n", r"line 2: it has 3 values for 2 columns"),
        (TraceDuration, "a.csv", DURATION, r"a\.csv has no rows; it needs one at least, with device, duration"),
        (TraceDuration, "a.csv", "", r"a\.csv has no column 'device', only none; it needs device, duration"),
        (TraceDuration, "a.csv", "client,duration\n0,1\n", r"no column 'device', only client, duration; it needs"),
        (
            TraceDuration,
            "a.csv",
            "device,device,duration\n0,0,1\n",
            r"has two columns 'device'; name every column once",
        ),
        (
            TraceDuration,
            "a.csv",
            b"device,duration\n0,\xff\n",
            r"a\.csv is not a CSV file of UTF-8 text .*save it as one",
        ),
        (TraceDuration, "a.txt", DURATION + "0,1\n", r"a\.txt ends with '\.txt'; name a \.csv or \.parquet file"),
        (TraceDuration, "a.parquet", b"PAR1 no more", r"a\.parquet is not a Parquet file, or damaged .*write it again"),
        (TraceDuration, "a.parquet", DURATION + "0,1\n1,\n", r"a\.parquet, row 2: duration=nan is no finite number"),
        (TraceDuration, "a.parquet", DURATION + "0,slow\n", r"a\.parquet has duration of type string; store numbers"),
        (TraceAvailability, "a.csv", STAYS + "0,3,2\n", r"line 2: end=2 does not come after start=3; swap or remove"),
        (TraceAvailability, "a.csv", STAYS + "0,-3,2\n", r"line 2: start=-3 lies before time 0; cut it off there"),
        (
            TraceAvailability,
            "a.csv",
            STAYS + "0,4,9\n0,1,5\n",
            r"line 2: device 0 comes at 4 before it leaves at 5 .*join the two",
        ),
        (TraceAvailability, "a.csv", STAYS + "0,0,9\n", r"ends at 9, before timeline\.horizon=35; add wrap: true"),
    ],
)
def test_what_is_wrong_with_a_file(
    tmp_path: Path, part: Callable[[Path], Any], name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        part(_write(tmp_path, name, content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [TraceDuration, TraceAvailability, FedScaleAvailability])
def test_a_file_that_is_not_there(tmp_path: Path, part: Callable[[Path], Any]) -> None:
    with pytest.raises(DataError, match=r"trace file not found: .*none\.csv; give its path"):
        part(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)"):
        part(tmp_path)


def test_a_stay_beyond_the_period(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 2: its end 9 lies beyond period=5; raise period"):
        TraceAvailability(_write(tmp_path, "a.csv", STAYS + "0,0,9\n"), wrap=True, period=5)


def test_parquet_without_pyarrow(tmp_path: Path) -> None:
    _write(tmp_path, "a.parquet", b"PAR1")
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path; from fedtide.devices.traces import read_trace_columns\n"
        f"read_trace_columns(Path({str(tmp_path / 'a.parquet')!r}), ['device'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'fedtide[export]', or save it as .csv" in done.stderr


# ---- FedScale's


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
def test_fedscales_capacity(tmp_path: Path, protocol: int, kind: Any) -> None:
    """T_k = 3 n_k (ms per sample) / 1000, clients all as likely."""
    clients = {key: {**record, "computation": kind(record["computation"])} for key, record in CAPACITY.items()}
    path = _write(tmp_path, "client_device_capacity", pickle.dumps(clients, protocol))
    device, sizes = np.arange(4000), 1 + np.arange(4000) % 5
    found = FedScaleCapacity(path, sizes)(3, device, np.ones_like(device))
    client = (found * 1000 / 3 / sizes - 10) / 3
    np.testing.assert_allclose(client, np.round(client), atol=1e-6)
    assert stats.chisquare(np.bincount(np.round(client).astype(int))[1:]).pvalue > 0.01
    minutes = FedScaleCapacity(path, sizes, factor=6, unit_seconds=60)
    np.testing.assert_allclose(minutes(3, device, np.ones_like(device)), found / 30)


def _is_active(record: dict[str, Any], time: float) -> bool:
    """As FedScale's client manager has it, but for the very moment of leaving."""
    now = time % record["finish_time"]
    return any(came <= now < left for came, left in zip(record["active"], record["inactive"], strict=True))


def test_fedscales_availability(tmp_path: Path) -> None:
    path = _write(tmp_path, "client_behave_trace", pickle.dumps(BEHAVIOUR))
    part, device = FedScaleAvailability(path), np.arange(300)
    client = [
        tuple(each) for each in np.stack([part(3, device, np.full(300, t)) for t in (0.0, 60.0, 150.0)]).T.tolist()
    ]
    records = {(10.0, 100.0 + key, record["finish_time"] + 10.0): record for key, record in BEHAVIOUR.items()}
    records |= {(10.0, 100.0 + key, 150.0): BEHAVIOUR[key] for key in BEHAVIOUR if _is_active(BEHAVIOUR[key], 150)}
    for time in np.random.default_rng(0).uniform(0, 5000, 30):
        there = part(3, device, np.full(300, time)) == time
        assert there.tolist() == [_is_active(records[each], time) for each in client]
    assert len({*client}) > 30
    hours = FedScaleAvailability(path, unit_seconds=3600)
    np.testing.assert_allclose(hours(3, device, np.full(300, 2.0)) * 3600, part(3, device, np.full(300, 7200.0)))


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, ("touch victim",)


def _one(**changed: Any) -> bytes:
    return pickle.dumps({1: BEHAVIOUR[1], "bad": {**BEHAVIOUR[2], **changed}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(BEHAVIOUR)[:-40], r"damaged pickle, or not a pickle .*again"),
        (b"", r"damaged pickle, or not a pickle"),
        (b"hello", r"damaged pickle, or not a pickle"),
        (pickle.dumps(Malicious()), r"asks for (posix|nt)\.system, which is refused"),
        (pickle.dumps({1: Malicious()}), r"asks for (posix|nt)\.system, which is refused"),
        (b"\x80\x02r\xff\xff\xff\xff.", r"damaged pickle, or not a pickle"),
        (pickle.dumps([1, 2]), r"holds a list, not a mapping from clients to records; name FedScale's file"),
        (pickle.dumps({}), r"holds an empty dict"),
        (pickle.dumps({3: [1]}), r"client 3: input should be a valid dictionary"),
        (_one(active=[5], inactive=[3]), r"client 'bad': its times are not in order: 5 before 3; .*or add skip: true"),
        (_one(active=[1, 2], inactive=[3]), r"client 'bad': it comes 2 times and leaves 1 times"),
        (_one(active=[1, 2], inactive=[3, 4]), r"client 'bad': its times are not in order: 3 before 2"),
        (_one(active=[-1], inactive=[3]), r"client 'bad': active.0=-1: input should be greater than or equal to 0"),
        (_one(active=[math.nan], inactive=[3]), r"client 'bad': active.0=nan: input should be a finite number"),
        (_one(active="never"), r"client 'bad': active='never': input should be a valid list"),
        (_one(active=[], inactive=[]), r"client 'bad': it is never there"),
        (_one(finish_time=0), r"client 'bad': finish_time=0: input should be greater than 0"),
        (_one(finish_time=None), r"client 'bad': finish_time=None: input should be a valid number"),
    ],
)
def test_what_is_wrong_with_fedscales_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        FedScaleAvailability(_write(tmp_path, "trace", content))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "victim").exists()


def test_faulty_clients_can_be_left_out(tmp_path: Path) -> None:
    path = _write(tmp_path, "trace", _one(active=[5], inactive=[3]))
    found = FedScaleAvailability(path, skip=True)(0, np.arange(50), np.zeros(50))
    assert set(found.tolist()) == {10.0}
    with pytest.raises(DataError, match="has no client that could be used"):
        FedScaleAvailability(_write(tmp_path, "none", pickle.dumps({1: {}})), skip=True)
    bad = _write(tmp_path, "slow", pickle.dumps({1: {"computation": -3, "communication": 1}}))
    with pytest.raises(
        DataError, match=r"client 1: computation=-3: input should be greater than 0; correct it, or add skip"
    ):
        FedScaleCapacity(bad, np.ones(3, np.int64))


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = _write(tmp_path, "trace", pickle.dumps({1: {"computation": 1.0}}))
    sizes, one = np.array([1000]), (0, np.array([0]), np.array([1]))
    assert FedScaleCapacity(path, sizes, 1.0)(*one).tolist() == [1.0]
    _write(tmp_path, "trace", pickle.dumps({1: {"computation": 2.0}, 2: {"computation": 2.0}}))
    assert FedScaleCapacity(path, sizes, 1.0)(*one).tolist() == [2.0]


def test_a_trace_with_all_jobs_that_are_waited_for_is_long_enough(tmp_path: Path) -> None:
    """The job that begins at the horizon is nobody's business."""
    (tmp_path / "a.csv").write_text("device,job,duration\n" + "".join(f"0,{job},1\n" for job in (1, 2, 3)))
    for timeline in (Periodic(0.25), Synchronous(1.0)):
        clock = make_clock(0, 1, 3.0, TraceDuration(tmp_path / "a.csv"), Always())
        assert [tick.time for tick in timeline(clock) if len(tick.ready)] == [1, 2, 3]
