"""Experiments of the commands: attacks that are evolved and evaluated, their examination, and the report."""
