"""Shared set-up: helper modules beside this file can be imported, and property tests give the same examples each time."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("explore", deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Where tests run in the background, a shell lets them and all their children ignore Ctrl-C, which is what some test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Whole files and folders that `make fast` leaves out: they start processes, draw figures, or go through everything.
SLOW_PLACES = (
    *("docs", "extending", "flower", "hostile", "league", "pages", "paper", "theory", "trackers"),
    *("contracts/test_killed.py", "learning/test_dask_trainer.py", "learning/test_native.py", "report/test_style.py"),
    *("study/test_work.py", "study/test_committed.py", "test_cli.py", "test_door.py", "test_large_fleet.py"),
    *("test_memory.py", "test_resume.py", "test_schedulers_run.py", "test_twin.py", "twins/test_swaps.py"),
    *("test_reacting_resume.py", "test_reacting_twin.py", "test_systems.py", "test_stepping.py", "test_scenarios.py"),
    *("data/test_virtual_runs.py", "learning/test_memory_of_bytes.py", "contracts/test_trainer.py"),
    *("policy/test_certified.py", "codec/test_error_feedback.py", "radio/test_markov.py", "data/test_bytes.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        if place.startswith(tuple(f"{each}/" for each in SLOW_PLACES)) or place in SLOW_PLACES:
            item.add_marker(pytest.mark.slow)
