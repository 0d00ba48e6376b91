"""The devices, their clock and their uplink."""
