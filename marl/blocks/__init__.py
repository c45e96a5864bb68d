"""Networks, distributions, advantages, objectives, replay buffers and sparsity, of which learners are made."""
