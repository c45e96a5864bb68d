"""Evaluation on several machines: what travels, who evaluates, and what becomes of those that are lost."""
