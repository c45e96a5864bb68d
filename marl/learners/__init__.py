"""Learners of exact games, which are formulas, and of sampled games."""
