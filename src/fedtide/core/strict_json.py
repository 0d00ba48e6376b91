"""JSON that was copied between machines and edited by hand: read as it is meant, or refused with the reason."""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """Return what a JSON text (bytes: of UTF-8) says; raise ValueError for NaN, a field twice, or nesting beyond reason."""
    words = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        return json.loads(words, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        raise ValueError("it has a field twice")
    return tree
