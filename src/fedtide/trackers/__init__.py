"""Trackers: whoever watches a run. They see the experiment, every aggregation and the result, and change none of them."""

from fedtide.trackers.base import TRACKERS, Tracker, Trackers, make_trackers, tracker_scalars

__all__ = ["TRACKERS", "Tracker", "Trackers", "make_trackers", "tracker_scalars"]
