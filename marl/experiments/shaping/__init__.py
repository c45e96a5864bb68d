"""Shaping experiments: a shaper is trained and evaluated against fresh opponents."""
