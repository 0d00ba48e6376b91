"""What everything else stands on: YAML, files that are never half written, signals, faults in one line, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.core.files import require_writable, write_output
    from fedtide.core.yaml12 import parse_yaml_word, plain_yaml_tree, read_yaml_file

__all__ = ["parse_yaml_word", "plain_yaml_tree", "read_yaml_file", "require_writable", "write_output"]

__getattr__ = lazy_names(
    __name__, files="require_writable write_output", yaml12="parse_yaml_word plain_yaml_tree read_yaml_file"
)
