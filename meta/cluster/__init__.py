"""Evaluation on several machines, by Ray or `jax.distributed`."""
