"""Games that are formulas, and their theory."""
