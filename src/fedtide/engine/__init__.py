"""One aggregation, the simulator's loop, and the objects that an experiment becomes."""
