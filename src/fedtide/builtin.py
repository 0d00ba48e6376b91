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
    "retransmission": "fedtide.radio.retransmission:RETRANSMISSIONS",
    "downlink": "fedtide.radio.downlink:DOWNLINKS",
    "energy": "fedtide.devices.energy:ENERGIES",
    "selector": "fedtide.timeline.world:SELECTORS",
    "timeline": "fedtide.timeline.timelines:TIMELINES",
    "scheduler": "fedtide.schedule.schedulers:SCHEDULERS",
    "weighting": "fedtide.aggregate.averages:WEIGHTINGS",
    "aggregator": "fedtide.aggregate.averages:AGGREGATORS",
    "codec": "fedtide.codec.sparse_quantized:CODECS",
    "model": "fedtide.learning.model:MODELS",
    "trainer": "fedtide.learning.trainer:TRAINERS",
    "work": "fedtide.learning.work:WORKS",
    "schedule": "fedtide.learning.trainer:RATE_SCHEDULES",
    "metric": "fedtide.learning.metrics:METRIC_PARTS",
    "tracker": "fedtide.trackers:TRACKERS",
}
