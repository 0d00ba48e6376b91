"""Which conclusions need log2(1 + SNR)? One federation under several skies, with the same seeds."""
