"""Who learns, in games that are formulas and in games that are sampled."""
