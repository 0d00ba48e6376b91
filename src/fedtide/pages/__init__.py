"""Pages for a browser: one self-contained file each, of a run, of two beside each other, or of a study."""
