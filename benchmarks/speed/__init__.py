"""Measurements of speed, as ratios in one run: `python -m benchmarks.speed.exact_game`."""
