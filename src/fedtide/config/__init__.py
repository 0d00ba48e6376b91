"""An experiment: its keys, how it is made and what identifies it. Imported when first asked for, like the package's own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtide.config.build import experiment, nearest, read_words
    from fedtide.config.identity import digest, dump, experiment_argument_files, own_files
    from fedtide.config.keys import (
        CodecConfig,
        Data,
        Experiment,
        FleetConfig,
        Learning,
        Part,
        PolicyConfig,
        Radio,
        TimelineConfig,
        all_keys,
        key_value,
    )
    from fedtide.config.presets import FRAMEWORKS, PROFILES
    from fedtide.config.trees import PART_KEYS, lay, nest, parse_overrides
    from fedtide.core.reading import read_file

__all__ = [
    "FRAMEWORKS",
    "PART_KEYS",
    "PROFILES",
    "CodecConfig",
    "Data",
    "Experiment",
    "FleetConfig",
    "Learning",
    "Part",
    "PolicyConfig",
    "Radio",
    "TimelineConfig",
    "all_keys",
    "digest",
    "dump",
    "experiment",
    "experiment_argument_files",
    "key_value",
    "lay",
    "nearest",
    "nest",
    "own_files",
    "parse_overrides",
    "read_file",
    "read_words",
]

_HOMES = {
    **dict.fromkeys(("experiment_argument_files", "digest", "dump", "own_files"), "config.identity"),
    **dict.fromkeys(
        (
            "CodecConfig",
            "Data",
            "Experiment",
            "FleetConfig",
            "Learning",
            "Part",
            "PolicyConfig",
            "Radio",
            "TimelineConfig",
            "all_keys",
            "key_value",
        ),
        "config.keys",
    ),
    **dict.fromkeys(("experiment", "nearest", "read_words"), "config.build"),
    **dict.fromkeys(("FRAMEWORKS", "PROFILES"), "config.presets"),
    **dict.fromkeys(("PART_KEYS", "lay", "nest", "parse_overrides"), "config.trees"),
    "read_file": "core.reading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedtide.config' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedtide.{_HOMES[name]}"), name)
