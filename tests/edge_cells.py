"""A coverage of several cells for tests of edge servers: devices walk from cell to cell, and are received alike everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Walkers:
    """Cells on a ring. Device k begins in cell k and goes `speed` cells on per unit of time, every other one backwards."""

    num_cells: int = 3
    speed: float = 0.9

    def __call__(self, seed: int, device: Any, time: Any) -> Any:
        return np.full(len(device), 20.0)

    def cell(self, seed: int, device: Any, time: Any) -> Any:
        way = np.floor(self.speed * np.asarray(time)).astype(np.int64)
        return (device + np.where(device % 2, -way, way)) % self.num_cells

    def interference(self, seed: int, device: Any, time: Any, share: Any) -> Any:
        return np.zeros(self.num_cells)


class Astray(Walkers):
    """Says of some devices that they are in a cell that there is not."""

    def cell(self, seed: int, device: Any, time: Any) -> Any:
        return device
