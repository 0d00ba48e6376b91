"""Flower is optional: without it these tests are left out. It warns about its own dependencies when it is imported."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.cli.build", "flwr.cli.config_utils"):
            importlib.import_module(name)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A federation syncs its trace, rounds and checkpoint in every period: what a power cut leaves is not tested here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
