"""Figures. Matplotlib is imported when a figure is asked for, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.plot.charts import (
        ACCURACY,
        SAID,
        SMOOTHED,
        TINTS,
        ForestRow,
        chart_dashes,
        draw_curve,
        draw_end,
        draw_forest,
        draw_rows,
        few_chart_numbers,
        leave_chart_room,
    )
    from fedtide.plot.figure import (
        FORMATS,
        figure_axis_name,
        figure_sheet,
        figure_style,
        legend_below,
        name_panel,
        new_figure,
        save_figure,
    )
    from fedtide.plot.style import COLOURS, LINE_STYLES, SCREEN, STYLES, LineStyle, Style, line_styles, style_named

__all__ = [
    "ACCURACY",
    "COLOURS",
    "FORMATS",
    "LINE_STYLES",
    "SAID",
    "SCREEN",
    "SMOOTHED",
    "STYLES",
    "TINTS",
    "ForestRow",
    "LineStyle",
    "Style",
    "chart_dashes",
    "draw_curve",
    "draw_end",
    "draw_forest",
    "draw_rows",
    "few_chart_numbers",
    "figure_axis_name",
    "figure_sheet",
    "figure_style",
    "leave_chart_room",
    "legend_below",
    "line_styles",
    "name_panel",
    "new_figure",
    "save_figure",
    "style_named",
]

__getattr__ = lazy_names(
    __name__,
    charts="ACCURACY SAID SMOOTHED TINTS ForestRow chart_dashes draw_curve draw_end draw_forest draw_rows few_chart_numbers "
    "leave_chart_room",
    figure="FORMATS figure_axis_name legend_below name_panel new_figure figure_style save_figure figure_sheet",
    style="COLOURS LINE_STYLES SCREEN STYLES LineStyle Style line_styles style_named",
)
