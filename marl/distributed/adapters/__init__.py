"""Vector environments of Gymnasium, Atari, EnvPool, PettingZoo and our own games."""
