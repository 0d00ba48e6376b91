"""Pages for a browser: one self-contained file each, of a run, of two beside each other, or of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.pages.article import ArticleFigure, CurvePanel, GainPanel, GainRow, article_page
    from fedtide.pages.html import check_page_output, write_page_output
    from fedtide.pages.study import Forest, count_page_verdicts, forest_page, study_page_forest
    from fedtide.pages.study_curves import Family, PageCurve, cut_curve_label

__all__ = [
    "ArticleFigure",
    "CurvePanel",
    "Family",
    "Forest",
    "GainPanel",
    "GainRow",
    "PageCurve",
    "article_page",
    "check_page_output",
    "count_page_verdicts",
    "cut_curve_label",
    "forest_page",
    "study_page_forest",
    "write_page_output",
]

__getattr__ = lazy_names(
    __name__,
    article="ArticleFigure CurvePanel GainPanel GainRow article_page",
    html="check_page_output write_page_output",
    study="Forest count_page_verdicts forest_page study_page_forest",
    study_curves="Family PageCurve cut_curve_label",
)
