"""Pages for a browser: one self-contained file each, of a run, of two beside each other, or of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.pages.study import Forest, counted, forest_page, of_study
    from fedtide.pages.study_curves import Family, PageCurve, cut_text

__all__ = ["Family", "Forest", "PageCurve", "counted", "cut_text", "forest_page", "of_study"]

__getattr__ = lazy_names(
    __name__, study="Forest counted forest_page of_study", study_curves="Family PageCurve cut_text"
)
