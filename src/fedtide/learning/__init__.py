"""Local learning: the only part of fedtide that knows layers; everyone else sees flat float32 vectors [d]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.learning.model import Dropout, Linear, Model, ReLU
    from fedtide.learning.trainer import Score, Task, batches
    from fedtide.types import LocalWork

__all__ = ["Dropout", "Linear", "LocalWork", "Model", "ReLU", "Score", "Task", "batches"]

__getattr__ = lazy_names(__name__, trainer="LocalWork Score Task batches", model="Dropout Linear Model ReLU")
