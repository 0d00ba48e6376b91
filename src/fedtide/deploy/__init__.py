"""The same policies on real devices: periodic aggregation on Flower. Only the `*_app` modules need flwr itself."""
