"""Measured uplinks: what is read of drive tests and packet traces, who plays what, every file that cannot be, and the twin."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedtide import config
from fedtide.errors import DataError, FedtideError
from fedtide.radio.channel import TraceChannel
from fedtide.radio.drive_twin import DriveTwin, drive_statistics
from fedtide.radio.measured import DriveTest, Mahimahi, drive_snr, packet_rates, read_drive_test
from fedtide.runs.manifest import file_sources, manifest_versions
from fedtide.types import Floats
from trace_files import drive_test

FITTED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "src/fedtide/radio/drive_twin.json").read_text(encoding="utf-8")
)


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def drive(path: Path, rows: list[tuple[float, str]]) -> Path:
    return written(path, drive_test(rows))


def seconds(rows: list[tuple[float, str]], tmp_path: Path, step: float = 1.0, max_gap: float = 5.0) -> list[float]:
    """Return the SNR in dB, rounded, in the middle of every step; -inf without a link."""
    made = drive_snr(read_drive_test(drive(tmp_path / "d.csv", rows)), step, max_gap)
    at = np.arange(made.end(np.array([0]))[0] / step) * step + step / 2
    with np.errstate(divide="ignore"):
        decibels = 10 * np.log10(made.value[made.row_at(np.zeros(len(at), np.int64), at, wrap=False)])
    return [round(float(each), 2) for each in decibels]


# Reading a drive test.


def test_every_column_is_read(tmp_path: Path) -> None:
    trace = read_drive_test(drive(tmp_path / "d.csv", [(0, "3.0"), (1, "-"), (3, "-4.0")]))
    assert trace["time"].tolist() == [0, 1, 3]
    np.testing.assert_array_equal(trace["SNR"], [3, np.nan, -4])
    np.testing.assert_array_equal(trace["CQI"], [8, np.nan, 8])
    assert [trace[name][0] for name in ("CellID", "Speed", "Longitude", "Latitude")] == [3, 12, -8.49, 51.89]


DOWN = float("-inf")


@pytest.mark.parametrize(
    ("rows", "more", "holds"),
    [
        ([(0, "0"), (1, "10"), (2, "5")], {}, [0, 10, 5]),
        ([(0, "0"), (0, "0"), (0, "10"), (2, "5")], {}, [10 * np.log10(4), 10 * np.log10(4), 5]),  # several in a second: 12/3
        ([(0, "0"), (6, "5")], {}, [0, 0, 0, 0, 0, 0, 5]),  # 5 s without: held
        ([(0, "0"), (7, "5")], {}, [0, *[DOWN] * 6, 5]),  # 6 s without
        ([(0, "0"), *[(k, "-") for k in range(1, 8)], (8, "5")], {}, [0, *[DOWN] * 7, 5]),  # said to be without
        ([(0, "0"), (1, "-"), (2, "5")], {}, [0, 0, 5]),
        ([(0, "0"), (1, "-"), (2, "5")], {"max_gap": 0.0}, [0, DOWN, 5]),
        ([(0, "-"), (1, "-"), (2, "5")], {}, [5, 5, 5]),  # short: what comes first holds before
        ([*[(k, "-") for k in range(6)], (6, "5")], {}, [*[DOWN] * 6, 5]),
        ([(0, "5"), *[(k, "-") for k in range(1, 7)]], {}, [5, *[DOWN] * 6]),
        ([(0, "5"), *[(k, "-") for k in range(1, 6)]], {}, [5] * 6),
        ([(0, "0"), (1, "10"), (2, "3")], {"step": 2.0}, [10 * np.log10(5.5), 3]),
        ([(0, "1"), (2, "3"), (1, "2"), (3, "4")], {}, [1, 2, 3, 4]),  # a clock that was set back by a second
        ([(0, "-"), (1, "-")], {}, [DOWN, DOWN]),
    ],
)  # fmt: skip
def test_gaps_and_steps(
    tmp_path: Path, rows: list[tuple[float, str]], more: dict[str, float], holds: list[float]
) -> None:
    assert seconds(rows, tmp_path, **more) == pytest.approx(holds, abs=0.01)


@given(st.lists(st.tuples(st.integers(0, 60), st.one_of(st.none(), st.integers(-20, 30))), min_size=1, max_size=30))
def test_a_second_is_known_or_near_one_that_is(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    """Against a loop over seconds, of any rows."""
    rows = sorted(rows, key=lambda row: row[0])
    begun = rows[0][0]
    found = seconds(
        [(k - begun, "-" if snr is None else str(snr)) for k, snr in rows], tmp_path_factory.mktemp("d"), max_gap=3.0
    )
    known: dict[int, list[float]] = {}
    for second, snr in rows:
        if snr is not None:
            known.setdefault(second - begun, []).append(10 ** (snr / 10))
    assert len(found) == rows[-1][0] - begun + 1
    for second, decibels in enumerate(found):
        before = max((k for k in known if k <= second), default=-1)
        after = min((k for k in known if k > second), default=len(found))
        if second != before and after - before - 1 > 3:
            assert decibels == DOWN
        elif known:
            held = known[before if before >= 0 else after]
            assert decibels == pytest.approx(10 * np.log10(np.mean(held)), abs=0.011)


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        (drive_test([(0, "3"), (1, "10 dB")]), {}, "d.csv, line 3: SNR='10 dB' is no number; give one, or - for none"),
        (drive_test([(0, "3"), (1, "1e9")]), {}, r"line 3: SNR=1e\+09 is no SNR in dB; give at most 100"),
        (drive_test([(0, "3"), (9, "3"), (1, "3")]), {}, "line 4: time goes back by 8 s; sort the rows, or make two files"),
        (drive_test([(0, "3")]).replace("2019.12.16_", "16/12/2019 "), {}, "line 2: Timestamp='16/12/2019 13.40.00' is no time"),
        (drive_test([(0, "3")]).replace(",SNR,", ",SINR,"), {}, "has no column 'SNR', only Timestamp, .*; it needs"),
        (drive_test([(0, "3")]).replace("\n2019", ",1\n2019"), {}, "line 2: it has 26 values for 27 columns"),
        (drive_test([]), {}, "has no rows; it needs one a second"),
        (drive_test([(0, "3"), (30, "4")]), {"min_seconds": 31}, "has an SNR for min_seconds=31; name longer ones, or lower it"),
        (drive_test([(0, "-"), (30, "-")]), {"min_seconds": 0}, "no drive test of .* has an SNR for min_seconds=0"),
        (drive_test([(0, "3"), (30, "4")]), {"gaps": "refuse"}, "has no SNR for 29 s from 1 s on, max_gap=5; raise it, or"),
        (drive_test([(0, "3"), (30, "4")]), {"state": "driving"}, "lies in a folder named 'driving'; make one, or set state: any"),
        ("", {}, "has no column 'Timestamp', only none"),
    ],
)  # fmt: skip
def test_drives_refused_in_one_line(tmp_path: Path, text: str, more: dict[str, Any], says: str) -> None:
    path = written(tmp_path / "d.csv", text)
    with pytest.raises(DataError, match=says) as error:
        DriveTest(path, **more)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [DriveTest, Mahimahi])
def test_folders_and_archives_that_hold_nothing(tmp_path: Path, kind: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match=r"no .* in "):
        kind(tmp_path)
    with pytest.raises(DataError, match=r"trace file not found: .*nowhere.csv; give its path"):
        kind(tmp_path / "nowhere.csv")
    broken = written(tmp_path / "broken.zip", "no archive")
    with pytest.raises(
        DataError, match=r"the archive .*broken.zip cannot be read .*; pack it again, or name its folder"
    ):
        kind(broken)


# Who plays what.


def folder(tmp_path: Path) -> Path:
    """Return a set of four drive tests, whose SNR says which and when: 10 dB a file, and 0.01 dB a second."""
    tmp_path = tmp_path / ".hidden" / "driving"  # where the set lies tells nothing
    for at, name in enumerate(("Static/a", "Static/b", "Driving/c", "Driving/x/d")):
        drive(tmp_path / f"set/{name}.csv", [(k, f"{10 * at + k / 100:.2f}") for k in range(100 + 50 * at)])
    written(tmp_path / "set/Driving/._c.csv", "kept by a file system")
    written(tmp_path / "set/__MACOSX/Driving/c.csv", "kept by a file system")
    return tmp_path / "set"


def decibels(channel: DriveTest, seed: int, time: float, device: Any) -> Floats:
    return np.asarray(10 * np.log10(channel(seed, 1, time, np.asarray(device))))


def test_every_device_plays_a_file_from_a_second_of_its_own(tmp_path: Path) -> None:
    channel = DriveTest(folder(tmp_path), unit_seconds=10.0)
    begun = decibels(channel, 3, 0.0, np.arange(8))
    files = (begun // 10).astype(int)
    assert sorted(files[:4]) == [0, 1, 2, 3]  # dealt out, and again
    assert (files[:4] == files[4:]).all()
    assert len(set(begun.round(2))) == 8
    later = decibels(channel, 3, 2.0, np.arange(8))  # 20 s later, from the beginning again at the end
    length = 100 + 50 * files
    second = ((begun - 10 * files) * 100).round()
    assert ((later - 10 * files) * 100).round().tolist() == ((second + 20) % length).tolist()
    assert decibels(channel, 3, 2.0, [5, 2]).tolist() == later[[5, 2]].tolist()
    orders = {tuple((decibels(channel, seed, 0.0, np.arange(4)) // 10).astype(int)) for seed in range(30)}
    assert len(orders) > 10


def test_start_seconds_are_uniform(tmp_path: Path) -> None:
    channel = DriveTest(drive(tmp_path / "d.csv", [(k, f"{k / 100:.2f}") for k in range(100)]))
    begun = decibels(channel, 0, 0.0, np.arange(4000)) * 100
    assert stats.kstest(begun + 0.5, stats.uniform(0, 100).cdf).pvalue > 0.01


def test_states_archives_and_offsets(tmp_path: Path) -> None:
    held = folder(tmp_path)
    driving = DriveTest(held, state="driving")
    assert set((decibels(driving, 0, 0.0, np.arange(20)) // 10).astype(int)) == {2, 3}
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        for file in held.rglob("*.csv"):
            archive.write(file, file.relative_to(held.parent))
    packed = DriveTest(tmp_path / "set.zip", state="driving", offset_db=3.0)
    assert decibels(packed, 7, 1.5, np.arange(9)) == pytest.approx(decibels(driving, 7, 1.5, np.arange(9)) + 3)
    assert len(DriveTest(held, state="static").rows.lasts) == 2
    assert len(DriveTest(held / "Driving", state="driving").rows.lasts) == 2
    short = DriveTest(held, min_seconds=160)
    assert len(short.rows.lasts) == 2


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = drive(tmp_path / "d.csv", [(0, "0"), (1, "0")])
    assert DriveTest(path, min_seconds=0)(0, 1, 0.0, np.arange(1)) == pytest.approx(1)
    drive(path, [(0, "10"), (1, "10"), (2, "10")])
    assert DriveTest(path, min_seconds=0)(0, 1, 0.0, np.arange(1)) == pytest.approx(10)


def test_source_and_licence_are_in_the_versions(tmp_path: Path) -> None:
    rows = [(k, "3") for k in range(100)]
    irish, other = drive(tmp_path / "B_2019.12.16_13.40.04.csv", rows), drive(tmp_path / "mine.csv", rows)

    def said(**channel: Any) -> dict[str, str]:
        return file_sources(config.experiment({"radio": {"channel": {"name": "drive_test", **channel}}}))

    assert list(said(path=str(irish))) == [str(irish)]
    assert said(path=str(irish))[str(irish)].startswith("D. Raca, D. Leahy")
    assert said(path=str(irish))[str(irish)].endswith("; GPL-3.0")
    assert said(path=str(other)) == {}
    assert said(path=str(other), source="my walk", license="CC0") == {str(other): "my walk; CC0"}
    assert "sources" not in manifest_versions(config.experiment({}))
    made = manifest_versions(config.experiment({"radio": {"channel": {"name": "drive_test", "path": str(irish)}}}))
    assert made["sources"].keys() == made["files"].keys() == {str(irish)}


# Packet traces, and tables of rates.


def test_rates_of_a_packet_trace() -> None:
    steady = "".join(f"{ms}\n" for ms in range(1, 2501)).encode()  # a packet a ms: 12 Mbit/s
    rows = packet_rates(Path("t"), steady, 1.0)
    assert rows.time.tolist() == [0, 1, 2]
    assert rows.value == pytest.approx([12 * 0.999, 12, 12 * 501 / 500])  # ms 1 to 999, 1000 to 1999, 2000 to 2500
    assert rows.lasts == pytest.approx([0.5])
    whole = packet_rates(Path("t"), b"3\n3\n500\n2000\n", 2.0)
    assert whole.value == pytest.approx([4 * 0.012 / 2])


def test_capacity_of_a_packet_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "t.trace", "".join(f"{ms}\n" for ms in range(1, 1001)))
    channel = Mahimahi(path, symbol_rate=60e6, unit_seconds=10.0, window=10.0)  # 6 million symbols a second
    link = channel(0, 1, 3.3, np.arange(3))
    assert link.capacity == pytest.approx(np.full(3, 2.0))
    assert link.estimated_capacity == pytest.approx(np.full(3, 2.0))


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("1\n2.5\n", {}, "line 2: '2.5' is not a whole number of ms"),
        ("1\n-2\n", {}, "line 2: '-2' is not a whole number of ms"),
        ("1\n99999999999999999999\n", {}, "line 2: '99999999999999999999' is not a whole number of ms"),
        ("5\n3\n", {}, "line 2: 3 ms comes after 5 ms; sort the lines by time"),
        ("0\n0\n", {}, "ends at 0 ms; it needs lines with the ms"),
        ("", {}, "ends at 0 ms"),
        ("5\n", {"min_seconds": 1.0}, "no packet trace of .* lasts min_seconds=1; name longer ones, or lower it"),
        ("5\n", {"symbol_rate": 0.0}, r"radio.symbol_rate=0 does not say how many symbols carry a Mbit; set it to the bandwidth"),
    ],
)  # fmt: skip
def test_packet_traces_refused_in_one_line(tmp_path: Path, text: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(FedtideError, match=says) as error:
        Mahimahi(written(tmp_path / "t.trace", text), **{"symbol_rate": 1e6, **more})
    assert "\n" not in str(error.value)


def test_a_table_of_rates(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "device,time,value\n0,0,12\n0,1,6\n")
    channel = TraceChannel(path, 1, quantity="mbit_per_s", symbol_rate=60e6, unit_seconds=10.0)
    assert channel(0, 1, 0.5, np.arange(1)).capacity == pytest.approx([2.0])
    assert channel(0, 1, 1.5, np.arange(1)).capacity == pytest.approx([1.0])
    with pytest.raises(FedtideError, match=r"channel=trace: radio.symbol_rate=0 does not say"):
        TraceChannel(path, 1, quantity="mbit_per_s")


# The twin.


def twin(state: Any, count: int, times: Floats, **more: Any) -> Floats:
    """Return SNRs of the twin [times m]."""
    channel = DriveTwin(count, state=state, **more)
    return np.stack([channel(1, 0, float(time), np.arange(count)) for time in times])


@pytest.mark.parametrize("state", ["static", "driving"])
def test_the_twin_has_the_statistics_of_the_drives(state: str) -> None:
    said = FITTED[state]["measured"]
    snr = twin(state, 3000, np.arange(0, 1800, 30.0))
    down = snr == 0
    assert down.mean() == pytest.approx(said["down_share"], abs=0.02)
    found = 10 * np.log10(snr[~down])
    shares = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]
    np.testing.assert_allclose(np.quantile(found, shares), said["quantiles_db"], atol=0.8)
    assert found.std() == pytest.approx(said["deviation_db"], abs=0.3)
    up = np.where(down, np.nan, 10 * np.log10(np.maximum(snr, 1e-9)))[:, (~down).sum(axis=0) > 10]
    assert np.nanstd(np.nanmean(up, axis=0)) == pytest.approx(said["deviation_of_means_db"], abs=0.7)
    for lag, correlation in zip((1.0, 10.0, 60.0), said["correlation"], strict=True):
        pair = 10 * np.log10(twin(state, 20_000, np.array([100.0, 100.0 + lag]), outages=False))
        assert np.corrcoef(pair)[0, 1] == pytest.approx(correlation, abs=0.07)


def test_the_twin_is_a_function_of_seed_time_and_device() -> None:
    device, few = np.arange(50), DriveTwin(50)
    many = DriveTwin(10**6)  # too many for their waves to be kept
    assert many(4, 9, 33.3, device[7:9]).tolist() == few(4, 1, 33.3, device)[7:9].tolist()
    assert (few(5, 9, 33.3, device) != few(4, 9, 33.3, device)).mean() > 0.5
    minutes = DriveTwin(50, unit_seconds=60.0)
    assert minutes(4, 1, 2.0, device).tolist() == few(4, 1, 120.0, device).tolist()
    louder = DriveTwin(50, outages=False, offset_db=10.0)(4, 1, 5.0, device)
    assert louder == pytest.approx(10 * DriveTwin(50, outages=False)(4, 1, 5.0, device))


def test_any_state_is_a_mix_of_both() -> None:
    device = np.arange(2000)
    of = {state: DriveTwin(2000, state=state)(0, 1, 7.0, device) for state in ("any", "static", "driving")}
    stands = of["any"] == of["static"]
    assert ((of["any"] == of["driving"]) | stands).all()
    files = [each.files for each in drive_statistics()]
    assert (stands & (of["static"] > 0)).mean() == pytest.approx(files[0] / sum(files), abs=0.04)


def test_a_run_over_the_twin(tmp_path: Path) -> None:
    """The fit is shipped: a plan needs no file of the user's."""
    experiment = config.experiment({"radio": {"channel": {"name": "drive_twin", "unit_seconds": 60}}})
    assert config.experiment_argument_files(experiment) == {}
