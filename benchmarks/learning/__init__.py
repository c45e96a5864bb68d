"""Measurements of learning, with errors between seeds: `python -m benchmarks.learning.returns`."""
