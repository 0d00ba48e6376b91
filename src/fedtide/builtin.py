"""Where the parts are that fedtide brings along: each package has a table of its own, imported when it is asked for."""

from __future__ import annotations

from typing import Final

TABLES: Final = {  # kind -> module:table
    "data": "fedtide.data:DATASETS",
    "partition": "fedtide.data.partition:PARTITIONS",
    "duration": "fedtide.devices.duration:DURATIONS",
    "availability": "fedtide.devices.availability:AVAILABILITIES",
    "channel": "fedtide.radio.channel:CHANNELS",
    "coverage": "fedtide.radio.cell:COVERAGES",
    "csi": "fedtide.radio.csi:CSIS",
    "modem": "fedtide.radio.modem:MODEMS",
    "allocation": "fedtide.radio.allocation:ALLOCATIONS",
    "access": "fedtide.radio.over_the_air:ACCESSES",
    "downlink": "fedtide.radio.downlink:DOWNLINKS",
    "energy": "fedtide.devices.energy:ENERGIES",
    "timeline": "fedtide.timeline.timelines:TIMELINES",
    "scheduler": "fedtide.schedule.schedulers:SCHEDULERS",
    "weighting": "fedtide.aggregate.averages:WEIGHTINGS",
    "aggregator": "fedtide.aggregate.averages:AGGREGATORS",
    "codec": "fedtide.codec.sparse_quantized:CODECS",
    "model": "fedtide.learning.model:MODELS",
    "trainer": "fedtide.learning.trainer:TRAINERS",
    "tracker": "fedtide.trackers:TRACKERS",
}
