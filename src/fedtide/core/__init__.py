"""What everything else stands on: resolving parts, atomic writes, signals, faults in one line."""
