"""Flower is optional: without it these tests are left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
sys.path.insert(0, str(Path(__file__).parent))
