"""A packet is lost if its own bits do not fit what its link carries, whatever was granted."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fedtide
from fedtide.engine.step import step_links
from fedtide.engine.system import build, parameter_count
from fedtide.engine.ticks import planned
from fedtide.pages.run import run_page
from fedtide.radio.csi import PacketErrors
from fedtide.radio.modem import Waterfall
from fedtide.report.plan import plan_system
from fedtide.report.terminal import terminal_summary
from fedtide.runs import RoundRecord
from fedtide.studies.table import table_rows
from helpers import FakeTrainer, small, small_dataset

NOISY: dict[str, Any] = {
    "fleet": {"num_devices": 20},
    "policy": {"limit": 12},
    "radio": {"csi": {"name": "noisy", "error": 0.3}},
}


def simulated(*changes: Any) -> tuple[Any, list[RoundRecord]]:
    system = build(small(NOISY, *changes), dataset=small_dataset())
    trainer = FakeTrainer(parameter_count(system))
    return system, fedtide.simulate(system.experiment, system=system, trainer=trainer).rounds


def test_a_packet_that_fits_arrives_whatever_was_granted() -> None:
    """So many symbols that a whole update takes a fraction of what every link carries."""
    _, rounds = simulated({"radio": {"num_symbols": 1e6}})
    assert sum(len(each.picked) for each in rounds) > 100
    assert not any(each.lost for each in rounds)


@pytest.mark.parametrize("codec", ["sparse_quantized", "dead_zone", "error_feedback", "qsgd", "ideal"])
@pytest.mark.parametrize("aggregator", ["average_models", "median"])
@pytest.mark.parametrize("csi", ["noisy", "packet_error"])
def test_lost_is_what_its_link_does_not_carry(codec: str, aggregator: str, csi: str) -> None:
    radio = {"num_symbols": 5000, "csi": {"name": csi, "error": 0.3} if csi == "noisy" else {}}
    system, rounds = simulated({"codec": {"name": codec}, "policy": {"aggregator": aggregator}, "radio": radio})
    fits, exceeds, wider = 0, 0, 0
    for record, tick in zip(rounds, system.ticks, strict=True):
        true = dict(zip(tick.ready.tolist(), step_links(system, tick).capacity.tolist(), strict=True))
        for at, device in enumerate(record.picked):
            carried = record.symbols[at] * true[device] * (1 + 1e-6)
            is_lost = min(record.sent_bits[at], record.budget_bits[at]) > carried
            assert (device in record.lost) == is_lost
            assert (record.weight[at] == 0) == is_lost
            fits, exceeds = fits + (not is_lost), exceeds + is_lost
            wider += record.budget_bits[at] > carried and not is_lost
    assert fits
    assert exceeds
    if csi == "noisy" and codec != "ideal":  # which counts for its grant
        assert wider  # granted more than the link carries, and arrived


def test_a_plan_knows_what_is_lost_if_it_knows_the_packets() -> None:
    system, rounds = simulated({"radio": {"num_symbols": 5000}})
    for record, each in zip(rounds, planned(system), strict=True):
        assert each.grant is not None
        assert each.lost is not None
        assert each.candidates.device[each.grant.picked[each.lost]].tolist() == record.lost
    _, rows, summary = plan_system(system)
    assert [row["lost"] for row in rows] == [record.lost for record in rounds]
    assert summary["lost"] == summary["lost_at_most"] == sum(len(record.lost) for record in rounds) > 0


def test_a_plan_that_does_not_know_the_packets_says_so() -> None:
    system, rounds = simulated({"radio": {"num_symbols": 5000}, "codec": {"name": "dead_zone"}})
    _, rows, summary = plan_system(system)
    assert summary["lost"] is None
    assert summary["lost_at_most"] >= sum(len(record.lost) for record in rounds) > 0
    assert None in [row["lost"] for row in rows]


def test_perfect_knowledge_loses_nothing() -> None:
    system = build(small({"fleet": {"num_devices": 20}}), dataset=small_dataset())
    summary = plan_system(system).summary
    assert (summary["lost"], summary["lost_at_most"]) == (0, 0)
    assert not any(np.any(each.lost) for each in planned(system))


LOSSY: dict[str, Any] = {**NOISY, "radio": {**NOISY["radio"], "num_symbols": 3000, "symbol_rate": 1000.0}}


def test_a_run_tells_of_what_it_lost(tmp_path: Path) -> None:
    priced = small(LOSSY, {"radio": {"joules_per_symbol": 0.5}})
    result = fedtide.simulate(priced, tmp_path / "run", dataset=small_dataset(), trainer=FakeTrainer(300))
    lost = sum(len(each.lost) for each in result.rounds)
    summary = result.summary()
    assert summary["lost"] == lost > 0
    assert summary["arrived"] == summary["uploads"] - lost == sum(np.count_nonzero(r.weight) for r in result.rounds)
    frame, uploads = result.frame(), result.uploads()
    assert sum(frame["num_lost"]) == sum(uploads["lost"]) == lost
    assert sum(frame["num_arrived"]) == summary["arrived"]
    sent = sum(
        min(bits / capacity, symbols)
        for each in result.rounds
        for bits, capacity, symbols in zip(each.sent_bits, each.capacity, each.symbols, strict=True)
    )
    assert summary["symbols_sent"] == pytest.approx(sent)
    assert 0 < summary["symbols_sent"] < summary["symbols"]
    assert summary["air_time"] == pytest.approx(sent / 1000)
    assert summary["joules"] == pytest.approx(sent / 2)
    assert summary["idle_share"] == pytest.approx(1 - sent / summary["symbols"])
    assert (summary["silent"], summary["retransmitted"]) == (0, 0)
    text = plain(terminal_summary("run", summary, 120))
    for words in (
        f"updates lost +{lost}",
        "updates arrived",
        "retransmitted",
        "stayed silent",
        "symbols granted",
        "symbols sent",
        "symbols unused",
        "airtime sent",
        "joules",
    ):
        assert re.search(words, text), words
    page = run_page([tmp_path / "run"])
    assert f"{lost} of {summary['uploads']} uploads lost" in page
    assert f'"lost":{lost}' in page


def test_a_study_tells_of_what_its_runs_lost() -> None:
    found = fedtide.compare({"lossy": LOSSY, "known": {**LOSSY, "radio": {"csi": "perfect"}}}, base=small(), seeds=2)
    rows = {row["variant"]: row for row in table_rows(found.study, found.results, "mean_accuracy")}
    assert rows["known"]["lost_share"] == 0 < rows["lossy"]["lost_share"] < 1
    frame = found.frame()
    last = [max(each for each, name in zip(frame["lost"], frame["variant"], strict=True) if name == v) for v in rows]
    assert last[0] > 0 == last[1]
    result = found.results["lossy"][0]
    assert result.uploads.lost.sum() in list(frame["lost"])


def plain(table: Any) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_run_of_an_older_version_says_what_its_numbers_count() -> None:
    priced = small(LOSSY, {"radio": {"joules_per_symbol": 0.5}})
    rounds = fedtide.simulate(priced, dataset=small_dataset(), trainer=FakeTrainer(300)).rounds
    old = [each._replace(ledger=each.ledger._replace(symbols_sent=None)) for each in rounds]
    summary = fedtide.Result(priced, old, np.zeros(300, np.float32), {}).summary()
    assert summary["symbols_sent"] == pytest.approx(rounds[-1].ledger.symbols_sent)
    assert summary["air_time_and_joules_count"] == "granted"
    text = plain(terminal_summary("run", summary, 120))
    assert "airtime granted" in text
    assert "joules as granted" in text


def test_devices_that_stay_silent_are_counted(tmp_path: Path) -> None:
    quiet = {"radio": {"access": {"name": "over_the_air", "min_snr": 20.0}}, "codec": {"name": "ideal"}}
    result = fedtide.simulate(small(quiet), tmp_path / "run", dataset=small_dataset(), trainer=FakeTrainer(300))
    silent = sum(weight == 0 for each in result.rounds for weight in each.weight)
    summary = result.summary()
    assert 0 < silent == summary["silent"] < summary["uploads"] == silent + summary["arrived"]
    assert f"{silent} of {summary['uploads']} uploads silent" in run_page([tmp_path / "run"])


def test_the_waterfall_modem_loses_as_many_packets_as_packet_error() -> None:
    device = np.arange(20_000)
    for snr in (0.3, 1.0, 10.0):
        found = PacketErrors()(0, 1, 0.0, device, np.full(len(device), snr))
        np.testing.assert_allclose((found.snr == 0).mean(), Waterfall().error(np.array([snr]))[0], atol=0.01)
