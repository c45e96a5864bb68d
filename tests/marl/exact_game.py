"""The infinitely repeated prisoner's dilemma in float64 NumPy, a reference for other tests."""

import numpy as np

from games import InfinitelyRepeated, prisoners_dilemma

GAME = InfinitelyRepeated(prisoners_dilemma)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def visits(first, second, discount=0.96):
    """Discounted visits to CC, CD, DC, DD, by a linear solve in float64; the second's logits are in its own view."""
    p, q = sigmoid(first), sigmoid(second)[[0, 1, 3, 2, 4]]
    joint = np.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)], -1)
    return np.linalg.solve(np.eye(4) - discount * joint[1:].T, joint[0])


def values(first, second, discount=0.96):
    """Both discounted returns of the two policies of `visits`."""
    m = visits(first, second, discount)
    return m @ [-1, -3, 0, -2], m @ [-1, 0, -3, -2]


def gradient(function, x):
    h = 1e-6
    return np.array([(function(x + h * e) - function(x - h * e)) / (2 * h) for e in np.eye(len(x))])
