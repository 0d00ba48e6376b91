"""The job's data as a benchmark of FLGo, which asks for a package with a module `core`."""
