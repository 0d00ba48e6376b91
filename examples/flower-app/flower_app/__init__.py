"""A Flower app that trains asynchronously with fedtide."""
