"""Measurements: `benchmarks.speed`, as ratios in one run, and `benchmarks.learning`, with errors between seeds."""
