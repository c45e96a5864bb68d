"""Objectives searched, compared with what was tuned as long without one, and kept."""
