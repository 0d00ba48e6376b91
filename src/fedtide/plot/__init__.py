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
        dashes,
        draw_curve,
        draw_end,
        draw_forest,
        draw_rows,
        few_numbers,
        leave_room,
    )
    from fedtide.plot.figure import FORMATS, axis_name, legend_below, name_panel, new_figure, our_style, save, sheet
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
    "axis_name",
    "dashes",
    "draw_curve",
    "draw_end",
    "draw_forest",
    "draw_rows",
    "few_numbers",
    "leave_room",
    "legend_below",
    "line_styles",
    "name_panel",
    "new_figure",
    "our_style",
    "save",
    "sheet",
    "style_named",
]

__getattr__ = lazy_names(
    __name__,
    charts="ACCURACY SAID SMOOTHED TINTS ForestRow dashes draw_curve draw_end draw_forest draw_rows few_numbers leave_room",
    figure="FORMATS axis_name legend_below name_panel new_figure our_style save sheet",
    style="COLOURS LINE_STYLES SCREEN STYLES LineStyle Style line_styles style_named",
)
