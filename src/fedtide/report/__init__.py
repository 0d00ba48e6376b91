"""What people look at: summaries, terminal tables, figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.report.terminal import TableColumn, terminal_list

__all__ = ["TableColumn", "terminal_list"]

__getattr__ = lazy_names(__name__, terminal="TableColumn terminal_list")
