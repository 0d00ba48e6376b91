"""An experiment: its keys, how it is read and what identifies it. Imported when first asked for, like the package's own."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtide.config.keys import (
        FRAMEWORKS,
        POLICY_KEYS,
        PROFILES,
        CodecConfig,
        Data,
        Experiment,
        FleetConfig,
        Learning,
        Policy,
        Radio,
        TimelineConfig,
        all_keys,
        argument_files,
        digest,
        dump,
        experiment,
        lay,
        merge,
        nearest,
        nest,
        own_files,
        parse_overrides,
        read_file,
        read_words,
        value,
    )

__all__ = [
    "FRAMEWORKS",
    "POLICY_KEYS",
    "PROFILES",
    "CodecConfig",
    "Data",
    "Experiment",
    "FleetConfig",
    "Learning",
    "Policy",
    "Radio",
    "TimelineConfig",
    "all_keys",
    "argument_files",
    "digest",
    "dump",
    "experiment",
    "lay",
    "merge",
    "nearest",
    "nest",
    "own_files",
    "parse_overrides",
    "read_file",
    "read_words",
    "value",
]


@functools.cache
def _keys() -> ModuleType:
    """Import the keys, and let help() tell of them."""
    from fedtide.config import keys
    from fedtide.config.describe import document

    document(keys.Experiment)
    return keys


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedtide.config' has no attribute {name!r}")
    return getattr(_keys(), name)
