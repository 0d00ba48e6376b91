"""The paper's main comparisons in other worlds."""
