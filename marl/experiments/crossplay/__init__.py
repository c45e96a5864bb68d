"""Cross-play: every pair of agents in both seats."""
