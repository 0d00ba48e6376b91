"""The kinds of parts, how they are found by name, and how users' code is called and checked."""
