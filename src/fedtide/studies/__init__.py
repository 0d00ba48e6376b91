"""Many runs: what to run, where results are kept, how they are compared."""
