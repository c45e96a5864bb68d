"""Measurements of speed, as ratios in one run. Run as `python -m benchmarks.exact_game`."""
