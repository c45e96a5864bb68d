"""Experiments of the commands."""
