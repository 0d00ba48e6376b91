"""What people look at: summaries, terminal tables, figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.report.terminal import TableColumn, listed

__all__ = ["TableColumn", "listed"]

__getattr__ = lazy_names(__name__, terminal="TableColumn listed")
