"""What explains the differences between the worlds, in words: written by hand from the page's own numbers."""

from __future__ import annotations

EXPLAINED: tuple[str, ...] = ()
