"""The uplink: fading, cells, what the server knows of links, how symbols are shared, the downlink."""
