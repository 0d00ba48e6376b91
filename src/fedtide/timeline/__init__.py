"""When the server acts, and with which devices."""
