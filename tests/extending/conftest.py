"""The page's reader, and the federation in memory, which needs Flower."""

from __future__ import annotations

import sys
from pathlib import Path

FLOWER = Path(__file__).parents[1] / "flower"
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(FLOWER))
exec((FLOWER / "conftest.py").read_text())  # it imports Flower without its warnings
