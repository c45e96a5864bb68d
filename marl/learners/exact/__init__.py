"""Learners of games that are formulas."""
