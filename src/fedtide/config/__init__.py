"""An experiment: its keys, how it is made and what identifies it. Imported when first asked for, like the package's own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtide.config.build import experiment, nearest, read_words
    from fedtide.config.identity import POLICY_KEYS, digest, dump, experiment_argument_files, own_files
    from fedtide.config.keys import (
        CodecConfig,
        Data,
        Experiment,
        FleetConfig,
        Learning,
        PolicyConfig,
        Radio,
        TimelineConfig,
        all_keys,
        key_value,
    )
    from fedtide.config.presets import FRAMEWORKS, PROFILES, lay, merge, nest
    from fedtide.core.reading import parse_overrides, read_file

__all__ = [
    "FRAMEWORKS",
    "POLICY_KEYS",
    "PROFILES",
    "CodecConfig",
    "Data",
    "Experiment",
    "FleetConfig",
    "Learning",
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
    "merge",
    "nearest",
    "nest",
    "own_files",
    "parse_overrides",
    "read_file",
    "read_words",
]

_HOMES = {
    **dict.fromkeys(("POLICY_KEYS", "experiment_argument_files", "digest", "dump", "own_files"), "config.identity"),
    **dict.fromkeys(
        (
            "CodecConfig",
            "Data",
            "Experiment",
            "FleetConfig",
            "Learning",
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
    **dict.fromkeys(("lay", "merge", "nest"), "config.presets"),
    **dict.fromkeys(("parse_overrides", "read_file"), "core.reading"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedtide.config' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedtide.{_HOMES[name]}"), name)
