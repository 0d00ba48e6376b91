"""The uplink: fading, capacity and how its symbols are shared."""
