"""Objectives that are evolved: drifts and distances of values, judged by the learning of those who use them."""
