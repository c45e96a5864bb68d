"""Learners that learn from what they see."""
