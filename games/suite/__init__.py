"""The games that are played step by step, one file each."""
