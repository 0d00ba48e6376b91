"""What every scheduler promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.engine.step import Policy, plan_step
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Candidates, Selection
from helpers import EXAMPLES
from promises import part, without_memory
from with_memory import REMEMBERING

NAMES = [*builtin_parts("scheduler"), f"{EXAMPLES}/my_scheduler.py:freshest_first", "with memory"]
# Those that fill what they may; another may pick fewer.
FULL = {
    "proposed",
    "random",
    "best_channel",
    "best_channel_best_norm",
    "age_based",
    "best_of_random_subsets",
    "round_robin",
    "proportional_fair",
    "soft_rate_label",
    "whittle_age",
    "max_loss",
    "oort",
    *NAMES[-2:],
}


def make(name: str) -> Any:
    return REMEMBERING["scheduler"]() if name == "with memory" else part("scheduler", name)


def outcome(answers: Any) -> Any:
    """Return made-up losses of sets, with many ties."""
    return np.array([sum(map(int, each)) % 3 for each in answers], np.float64)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Candidates, int]:
    m = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    coarse = draw(st.booleans())  # many ties
    num_devices = m + draw(st.integers(0, 12))
    counts = rng.integers(0, 3 if coarse else 400, (m, draw(st.integers(1, 10))))
    rows = Candidates(
        num_devices=num_devices,
        device=np.sort(rng.permutation(num_devices)[:m]),
        num_samples=counts.sum(axis=1),
        label_counts=counts,
        age=rng.integers(0, 4, m),
        missed=rng.integers(0, 4, m),
        capacity=rng.integers(1, 3, m).astype(float) if coarse else rng.exponential(3, m),
        update_sq_norm=rng.integers(0, 3, m).astype(float),
        tick=draw(st.integers(0, 9)),
        loss=rng.integers(0, 3, m).astype(float) if coarse else rng.exponential(2, m),
        outcome=outcome,
    )
    return rows, draw(st.integers(1, m))


def positions(answer: Any) -> np.ndarray:
    return np.asarray(answer.picked if isinstance(answer, Selection) else answer)


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    scheduler = make(name)

    @settings(max_examples=40)
    @given(tables(), st.integers(0, 2**32))
    def check(table: tuple[Candidates, int], seed: int) -> None:
        rows, limit = table
        before = [np.copy(column) for column in rows]
        for column in rows:
            if isinstance(column, np.ndarray):
                column.flags.writeable = False
        ask = without_memory(scheduler, rows.num_devices)
        picked = positions(ask(rows, limit, np.random.default_rng(seed)))
        assert len(picked) == limit if name in FULL else len(picked) <= limit  # as many as asked for,
        assert len(set(picked.tolist())) == len(picked)  # distinct,
        assert picked.min(initial=0) >= 0  # positions within the candidates,
        assert picked.max(initial=0) < len(rows.device)
        again = positions(ask(rows, limit, np.random.default_rng(seed)))
        assert picked.tolist() == again.tolist()  # the same with the same stream,
        for column, old in zip(rows, before, strict=True):
            assert np.array_equal(column, old)  # and nothing changed.

    check()


@pytest.mark.parametrize("name", NAMES)
def test_needs_no_reports_unless_it_says_so(name: str) -> None:
    scheduler = make(name)
    if Policy(scheduler, 2, None, None).needs:
        return
    rng = np.random.default_rng(0)
    ones = np.ones(5, np.int64)
    rows = Candidates(9, np.arange(5), ones, rng.integers(0, 9, (5, 3)), ones, ones, rng.random(5))
    assert len(positions(without_memory(scheduler, 9)(rows, 2, rng))) <= 2


@pytest.mark.parametrize("name", NAMES)
def test_the_server_can_plan_with_it(name: str) -> None:
    policy = Policy(make(name), 3, None, None)
    rng = np.random.default_rng(1)
    for m in range(6):
        counts = rng.integers(0, 9, (m, 3))
        ones = np.ones(m, np.int64)
        rows = Candidates(
            6, np.arange(m), ones, counts, ones, ones, rng.random(m) + 0.1, rng.random(m), m, rng.random(m)
        )
        grant = plan_step(policy, rows._replace(outcome=outcome), 100.0, rng)
        assert len(grant.picked) == min(3, m) if name in FULL else len(grant.picked) <= min(3, m)
        assert np.all(np.diff(grant.picked) > 0)
        assert grant.symbols.sum() == pytest.approx(100.0 if len(grant.picked) else 0.0)
