"""An experiment: its keys, how it is made and what identifies it."""

from fedtide.config.build import experiment, nearest, read_words
from fedtide.config.effort import MOST_TICKS
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
    digest,
    dump,
    experiment_argument_files,
    key_value,
    own_files,
)
from fedtide.config.presets import FRAMEWORKS, METHODS, PRESETS, PROFILES
from fedtide.config.trees import PART_KEYS, dotted, lay, nest, parse_overrides
from fedtide.config.values import Count, Decibels, NonNegativeInt, NotNegative, Part, Positive, explain_validation
from fedtide.core.yaml12 import read_file

__all__ = [
    "FRAMEWORKS",
    "METHODS",
    "MOST_TICKS",
    "PART_KEYS",
    "PRESETS",
    "PROFILES",
    "CodecConfig",
    "Count",
    "Data",
    "Decibels",
    "Experiment",
    "FleetConfig",
    "Learning",
    "NonNegativeInt",
    "NotNegative",
    "Part",
    "PolicyConfig",
    "Positive",
    "Radio",
    "TimelineConfig",
    "all_keys",
    "digest",
    "dotted",
    "dump",
    "experiment",
    "experiment_argument_files",
    "explain_validation",
    "key_value",
    "lay",
    "nearest",
    "nest",
    "own_files",
    "parse_overrides",
    "read_file",
    "read_words",
]
