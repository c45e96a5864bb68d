"""Runs: command lines, directories, progress, figures and reports."""
