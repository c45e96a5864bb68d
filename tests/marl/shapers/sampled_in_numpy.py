"""Shapers of sampled games in float64 NumPy."""

import jax
import numpy as np

UNITS = 3
AVERAGED = ("shaper", "shaper, of the episode", "mfos", "mfos, of the episode")


def parameters_of(policy, seed=0):
    """Random parameters, with random biases."""
    first = policy.init(jax.random.key(seed))
    generator = np.random.default_rng(seed)
    return {name: x + 0.3 * generator.normal(size=x.shape).astype(np.float32) for name, x in first.items()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class InNumPy:
    """Policies of all shapers in float64, from the equations in their docstrings."""

    def __init__(self, name, parameters):
        self.p = {key: np.asarray(x, np.float64) for key, x in parameters.items()}
        self.averaging, self.whole_trial = name in AVERAGED, name in ("shaper", "mfos") or "averaged" in name
        self.gated = name.startswith("mfos")

    def layer(self, name, x):
        return x @ self.p[f"{name}_w"] + self.p[f"{name}_b"]

    def gru(self, name, x, h):
        gates = sigmoid(self.layer(f"{name}_gates", np.concatenate([x, h], 1)))
        reset, keep = gates[:, : h.shape[1]], gates[:, h.shape[1] :]
        new = np.tanh(self.layer(f"{name}_new", x) + reset * self.layer(f"{name}_old", h))
        return keep * h + (1 - keep) * new

    def mixed(self, h):
        return (h + h.mean(0)) / 2 if self.averaging else h

    def logits(self, obs, done):
        """`[EPISODES, STEPS, N, 2]`, the hidden states after each step, and the conditions of each episode."""
        outputs, hidden, conditions = [], [], []
        h, m = np.zeros((2, obs.shape[2], UNITS))
        condition = np.ones((obs.shape[2], UNITS))
        for episode in range(len(obs)):
            conditions.append(condition)
            for seen, ended in zip(obs[episode], done[episode], strict=True):
                ended = ended[:, None]
                x = np.maximum(self.layer("see", seen), 0)
                h = self.gru("unit", x, h if self.gated else self.mixed(h))
                outputs.append(self.layer("policy", condition * h))
                hidden.append(h)
                if self.gated:
                    m = self.gru("meta", np.maximum(self.layer("survey", seen), 0), self.mixed(m))
                    following = sigmoid(2 + self.layer("condition", m))
                    h, m = np.where(ended, 0, h), m if self.whole_trial else np.where(ended, 0, m)
                elif not self.whole_trial:
                    h = np.where(ended, 0, h)
            condition = following if self.gated else condition
        shape = obs.shape[:3]
        return np.reshape(outputs, (*shape, -1)), np.reshape(hidden, (*shape, -1)), np.stack(conditions)
