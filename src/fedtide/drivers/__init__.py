"""Who plays the devices: the simulator, or a trace. Real ones are in `fedtide.flower`."""
