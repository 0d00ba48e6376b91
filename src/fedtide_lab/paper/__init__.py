"""The paper: every figure as a study, every claim as a test on its runs."""
