"""Flower is optional: without it these tests are left out. It warns about its own dependencies when it is imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.cli.build", "flwr.cli.config_utils"):
            importlib.import_module(name)
