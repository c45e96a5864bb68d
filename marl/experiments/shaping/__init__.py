"""A shaper trained, tried on fresh opponents, and kept."""
