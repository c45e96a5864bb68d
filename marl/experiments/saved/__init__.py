"""Finished runs and trained agents, as objects and as what comes with the library."""
