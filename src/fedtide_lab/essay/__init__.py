"""One page over all of the laboratory: which claims survive, and what to deploy."""
