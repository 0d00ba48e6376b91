"""Uplinks from a file: which row holds when, and every file that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide.errors import DataError, FedtideError
from fedtide.parts import registry
from fedtide.radio.cell import Equal
from fedtide.radio.channel import TraceChannel

GOOD = ["0,0,1", "1,0,5", "0,1,2", "0,2.5,3", "1,2,6", "1,4,7"]  # rows of devices may alternate


def written(folder: Path, rows: list[str], header: str = "device,time,value") -> Path:
    path = folder / "uplinks.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("time", "wrap", "holds"),
    [
        (0.0, False, [1, 5]), (0.999, False, [1, 5]), (1.0, False, [2, 5]), (2.0, False, [2, 6]), (2.5, False, [3, 6]),
        (3.999, False, [3, 6]), (3.999, True, [3, 6]), (4.0, True, [1, 7]), (5.0, True, [2, 7]), (6.0, True, [2, 5]),
        (4.0 * 6 * 100, True, [1, 5]),
    ],
)  # fmt: skip
def test_the_last_row_holds(tmp_path: Path, time: float, wrap: bool, holds: list[float]) -> None:
    trace = TraceChannel(written(tmp_path, GOOD), 2, wrap=wrap)  # the last values hold 1.5 and 2: periods of 4 and 6
    assert trace(0, 1, time, np.array([0, 1])).capacity.tolist() == holds
    assert trace(9, 7, time, np.array([1, 0, 1])).estimated_capacity.tolist() == [holds[1], holds[0], holds[1]]


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    """Also where the horizon was given shorter than it is; the last row does not hold for ever."""
    trace = TraceChannel(written(tmp_path, GOOD), 2, horizon=1.0)
    with pytest.raises(
        DataError, match=r"ends at 4 for device 0, before what is asked for, time=4.5; add rows, .*wrap: true"
    ):
        trace(0, 1, 4.5, np.array([1, 0]))
    assert trace(0, 1, 4.5, np.array([1])).capacity.tolist() == [7]


def test_quantities(tmp_path: Path) -> None:
    path, device = written(tmp_path, ["0,0,10", "1,0,0"]), np.array([0, 1])
    assert TraceChannel(path, 2, quantity="snr_db")(0, 1, 0.0, device) == pytest.approx([10, 1])
    faded = TraceChannel(path, 2, quantity="gain", coverage=Equal(3.0))(0, 1, 0.0, device)
    assert faded == pytest.approx([10 * 10**0.3, 0])


def test_random_traces_beside_a_search_by_hand(tmp_path: Path) -> None:
    rng, rows, held = np.random.default_rng(0), [], {}
    for k in range(7):
        times = [0.0, *np.sort(rng.choice(1000, rng.integers(0, 40), replace=False) / 10 + 0.1).tolist()]
        held[k] = list(zip(times, rng.exponential(size=len(times)).round(3).tolist(), strict=True))
        rows += [f"{k},{time},{value}" for time, value in held[k]]
    trace = TraceChannel(written(tmp_path, rows), 7)
    for time in [0.0, 100.0, 500.0, *rng.uniform(0, 110, 50).tolist()]:
        known = [k for k in range(7) if time <= trace.rows.time[trace.rows.first[k + 1] - 1] + trace.rows.lasts[k]]
        by_hand = [[value for begun, value in held[k] if begun <= time][-1] for k in known]
        assert trace(0, 1, time, np.array(known, np.int64)).capacity.tolist() == by_hand


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {"device": [0, 0, 1], "time": [0.0, 1.0, 0.0], "value": [1.5, 2.5, 3.5]}
    pq.write_table(pa.table(columns), tmp_path / "uplinks.parquet")
    assert TraceChannel(tmp_path / "uplinks.parquet", 2)(0, 1, 1.0, np.array([0, 1])).capacity.tolist() == [2.5, 3.5]


@pytest.mark.parametrize(
    ("rows", "more", "says"),
    [
        ([*GOOD, "2,0,1"], {}, r"line 8: device=2 is not known, fleet.num_devices=2; leave it out or add devices"),
        (["0,0,1"], {}, "has no row of device 1; give every device"),
        (["0,0,1", "1,0,-0.5"], {}, "line 3: value=-0.5 is negative; a capacity is 0 or more"),
        (["0,0,1", "1,0,-0.5"], {"quantity": "gain"}, "line 3: value=-0.5 is negative; a gain is 0 or more"),
        (["0,0,1", "1,0,301"], {"quantity": "snr_db"}, "line 3: value=301 is no snr_db; give at most 300"),
        (["0,0,1", "1,0,1e9"], {}, r"value=1e\+09 is no capacity; give at most 1000"),
        (["0,0,1", "1,0,nan"], {}, "line 3: value=nan is no finite number"),
        (["0,0,1", "1,inf,1"], {}, "line 3: time=inf is no finite number"),
        (["0,0,1", "1,0,"], {}, "line 3: value='' is no number"),
        (["0,0,1", "1.5,0,1"], {}, "line 3: device=1.5 is not a whole number"),
        (["0,0,1", "-1,0,1"], {}, "line 3: device=-1 is not a whole number"),
        (["0,0,1", "1,3,1"], {}, "line 3: device 1 begins at time=3; let its times begin at 0"),
        (["0,0,1", "1,-1,1", "1,0,1"], {}, "line 3: device 1 begins at time=-1"),
        (["0,0,1", "1,0,1", "0,2,1", "0,1,1"], {}, "line 5: time=1 of device 0 comes after time=2; sort its rows"),
        (["0,0,1", "1,0,1", "1,0,2"], {}, "line 4: time=0 of device 1 comes after time=0; sort its rows by time and keep one"),
        (GOOD, {"max_gap": 1.75}, r"line 6: nothing is known of device 1 for 2 before time=2, max_gap=1.75; fill the gap"),
        (GOOD, {"horizon": 4.5}, r"ends at 4 for device 0, before timeline.horizon=4.5; add rows, shorten .* wrap: true"),
    ],
)  # fmt: skip
def test_refused_in_one_line(tmp_path: Path, rows: list[str], more: dict[str, Any], says: str) -> None:
    path = written(tmp_path, rows)
    with pytest.raises(FedtideError, match=says) as error:
        TraceChannel(path, 2, **more)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_what_is_just_long_enough(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    for more in ({"horizon": 4.0}, {"horizon": 1e6, "wrap": True}, {"max_gap": 2.0}):
        TraceChannel(path, 2, **more)
    TraceChannel(written(tmp_path, ["0,0,1", "1,0,2"]), 2, horizon=1e9)  # one row each: links that never change


def test_the_experiment_fills_in_devices_and_horizon(tmp_path: Path) -> None:
    filled = {"fleet.num_devices": 2, "timeline.horizon": 3.0, "run.coverage": Equal(), "radio.symbol_rate": 0.0}
    args = {"path": str(written(tmp_path, GOOD))}
    made = registry.resolve("channel", "trace", args, lambda key: filled[key])
    assert (made.num_devices, made.horizon) == (2, 3.0)
