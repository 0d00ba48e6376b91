"""Who uploads, and how what arrives is weighed and combined. The same objects run in the simulator and on devices."""
