"""What everything else stands on: resolving parts, atomic writes, signals, faults in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.core.files import require_writable, write_output
    from fedtide.core.reading import parse_word
    from fedtide.core.yaml12 import plain_tree

__all__ = ["parse_word", "plain_tree", "require_writable", "write_output"]

__getattr__ = lazy_names(__name__, files="require_writable write_output", reading="parse_word", yaml12="plain_tree")
