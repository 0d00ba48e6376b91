"""Who uploads, and how what arrives is weighed and combined. The same objects run in the simulator and on devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.schedule.schedulers import scheduler_looks_back

__all__ = ["scheduler_looks_back"]

__getattr__ = lazy_names(__name__, schedulers="scheduler_looks_back")
