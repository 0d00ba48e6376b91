"""Local learning: the only part of fedtide that knows layers; everyone else sees flat float32 vectors [d]."""
