"""Sweeps: one command over many values of its options, as many runs with one table and one figure."""
