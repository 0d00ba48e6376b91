"""The option of every command that draws."""

from __future__ import annotations

from typing import Annotated

import typer

SCREEN_STYLE = "screen"  # as in report.style, which --help need not import
DrawingStyle = Annotated[
    str,
    typer.Option(
        "--style",
        help="Of figures: screen; for print ieee (3.5 in), ieee-wide (7.16), nature, nature-wide: no titles, embedded fonts.",
    ),
]
