"""The outage of the page over simulated links and real nodes: what is lost is on record, and checked as the rest is."""

from __future__ import annotations

from pathlib import Path

import pytest
from page import cases
from test_extending import SMALL

import fedtide
from fedtide import config

CASE = next(case for case in cases() if case.title == "Outage")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    CASE.write(tmp_path)
    return tmp_path


def test_what_is_lost_was_sent_and_weighs_nothing() -> None:
    rounds = fedtide.simulate(config.experiment(config.read_words([*SMALL, *CASE.words]))).rounds
    lost = [(record, device) for record in rounds for device in record.lost]
    assert lost
    for record, device in lost:
        at = record.picked.index(device)
        assert record.weight[at] == 0 < record.sent_bits[at]


def test_the_trace_of_a_federation_says_what_was_lost(here: Path) -> None:
    pytest.importorskip("flwr")
    from memory_grid import Federation, terms

    from fedtide.deploy.trace import read_trace_history

    folder = here / "federation"
    Federation(terms(config.read_words(CASE.words)), folder).coordinator().run()
    history = read_trace_history(folder)
    assert [each.lost or [] for each in history.trace.periods] == [record.lost for record in history.rounds]
    assert any(each.lost for each in history.trace.periods)
