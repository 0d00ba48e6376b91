"""Trackers: whoever watches a run. They see the experiment, every aggregation and the result, and change none of them."""

from fedtide.trackers.base import TRACKERS, Tracker, make_trackers
from fedtide.trackers.calling import Trackers
from fedtide.trackers.scalars import dotted, scalars

__all__ = ["TRACKERS", "Tracker", "Trackers", "dotted", "make_trackers", "scalars"]
