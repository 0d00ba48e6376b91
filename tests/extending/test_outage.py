"""The outage of the page over simulated links and real nodes: what is lost is on record, and checked as the rest is."""

from __future__ import annotations

from pathlib import Path

import pytest
from page import cases
from test_extending import SMALL

import fedtide
from fedtide import config
from fedtide.errors import RunFolderError

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

    from fedtide.deploy import trace
    from fedtide.deploy.trace import read_history

    folder = here / "federation"
    Federation(terms(config.read_words(CASE.words)), folder).coordinator().run()
    history = read_history(folder)
    assert [each.lost or [] for each in history.trace.periods] == [record.lost for record in history.rounds]
    at = next(number for number, each in enumerate(history.trace.periods) if each.lost)
    period = history.trace.periods[at]
    others = [each for each in period.picked if each not in (period.lost or [])]
    for lost, says in (
        (None, "does not fit rounds.jsonl: in period"),
        ([*(period.lost or []), *others][::-1], "must ascend|not in picked" if len(period.picked) > 1 else ""),
        (period.arrived or [99], "lost has device .*not in picked"),
        ("all", "lost is 'all': input should be a valid list"),
    ):
        changed = [*history.trace.periods]
        changed[at] = period.model_copy(update={"lost": lost})
        trace.write_trace(folder, history.trace._replace(periods=changed))
        with pytest.raises(RunFolderError, match=says):
            read_history(folder)
