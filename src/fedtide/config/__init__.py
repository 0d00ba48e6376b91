"""An experiment: its keys, how it is made and what identifies it."""

from fedtide.config.build import experiment, nearest_key, read_words
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
    own_file_keys,
)
from fedtide.config.nested import PART_KEYS, merge_nested, nest, nested_to_dotted, parse_overrides, split_axes
from fedtide.config.presets import FRAMEWORKS, METHODS, PRESETS, PROFILES
from fedtide.config.values import Count, Decibels, NonNegativeInt, NotNegative, Part, Positive, explain_validation
from fedtide.config.workload import MOST_TICKS
from fedtide.core.yaml12 import read_yaml_file

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
    "dump",
    "experiment",
    "experiment_argument_files",
    "explain_validation",
    "key_value",
    "merge_nested",
    "nearest_key",
    "nest",
    "nested_to_dotted",
    "own_file_keys",
    "parse_overrides",
    "read_words",
    "read_yaml_file",
    "split_axes",
]
