"""Proximal steps through proximal steps, against float64 NumPy with all courses of a game enumerated."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl.core.learner import Trajectory
from marl.learners.sampled.lola_dice import LolaState, pola_dice
from tests.nightly import nightly

DISCOUNT = 0.9
COURSES = np.array(list(itertools.product(range(2), repeat=4))).reshape(16, 2, 2)  # course, round, player
STATES = np.stack([np.zeros(16, int), 1 + 2 * COURSES[:, 0, 0] + COURSES[:, 0, 1]], 1)  # as player 0 sees them
PAID = np.array([-1.0, -3.0, 0.0, -2.0])  # after CC, CD, DC, DD, own action first
REWARDS = PAID[2 * COURSES[..., 0] + COURSES[..., 1]], PAID[2 * COURSES[..., 1] + COURSES[..., 0]]
SETTINGS = {
    "learning_rate": 0.1,
    "lookahead_rate": 0.8,
    "outer_beta": 4.0,
    "inner_beta": 2.0,
    "outer_steps": 2,
    "inner_steps": 2,
}


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def course_probabilities(own, other):
    logs = (log_softmax(x)[STATES, COURSES[..., seat]] for seat, x in enumerate((own, other)))
    return np.exp(sum(logs).sum(1))


def value(seat, own, other):
    return course_probabilities(own, other) @ REWARDS[seat] @ [1, DISCOUNT]


def visits(own, other):
    """Frequency of each state in two rounds."""
    found, probabilities = np.zeros(5), course_probabilities(own, other)
    for t in range(2):
        np.add.at(found, STATES[:, t], probabilities / 2)
    return found


def divergence(seen, new, old):
    new, old = log_softmax(new), log_softmax(old)
    return seen @ (np.exp(new) * (new - old)).sum(-1)


def gradient(function, x, h=1e-4):
    steps = [h * e.reshape(x.shape) for e in np.eye(x.size)]
    return np.array([(function(x + e) - function(x - e)) / (2 * h) for e in steps]).reshape(x.shape)


def answered(own, model, frozen=None):
    """The co-player after its inner steps, and the imagined states on the way, without gradients."""
    other, seen = model, []
    for i in range(SETTINGS["inner_steps"]):
        seen.append(visits(own, other) if frozen is None else frozen[i])
        pull = gradient(lambda y, now=seen[-1]: value(1, own, y) - 2.0 * divergence(now, y, model), other)
        other = other + SETTINGS["lookahead_rate"] * pull
    return other, seen


def expected_update(own, model):
    first = own
    for _ in range(SETTINGS["outer_steps"]):
        other, frozen = answered(own, model)
        seen = visits(own, other)
        shaped = gradient(lambda x, frozen=frozen: value(0, x, answered(x, model, frozen)[0]), own)
        held = gradient(lambda x, seen=seen: divergence(seen, x, first), own)
        own = own + SETTINGS["learning_rate"] * (shaped - SETTINGS["outer_beta"] * held)
    return own


@nightly
def test_many_imagined_episodes_give_the_proximal_steps_of_the_expected_returns():
    batches, steps = 16, 2
    rng = np.random.default_rng(1)
    own, model = rng.normal(size=(2, 5, 2))
    nothing = jnp.zeros((steps, 1), int)
    t = Trajectory(
        jnp.eye(5)[nothing], nothing, jnp.zeros((steps, 1)), jnp.zeros((steps, 1), bool), (), (nothing,), None, None
    )
    game = make("ipd", episode_length=steps)
    # Its memory fixes the model.
    learner = pola_dice(game, episodes=8192, model_memory=1e9, discount=DISCOUNT, **SETTINGS)
    state = LolaState(jnp.float32(own), jnp.float32(model))
    found, _ = jax.jit(jax.vmap(learner.update, (0, None, None)))(
        jax.random.split(jax.random.key(0), batches), state, t
    )
    sample = np.asarray(found.logits, np.float64) - own
    exact = expected_update(own, model) - own
    error = sample.std(0, ddof=1) / batches**0.5
    np.testing.assert_array_less(abs(sample.mean(0) - exact), 4.5 * error + 5e-4)
    assert abs(exact).max() > 50 * error.max()  # the comparison is meaningful,
    blind = SETTINGS["learning_rate"] * gradient(lambda x: value(0, x, model), own)
    assert abs(exact - 2 * blind).max() > 20 * error.max()  # and differs from naive steps


def test_bad_input_is_one_clear_line():
    for settings, message in (
        ({"outer_beta": -1.0}, "outer_beta: got -1.0; a number of at least 0 is needed"),
        ({"inner_steps": 0}, "inner_steps: got 0; a whole number from 1 to 16 is needed"),
        ({"outer_steps": 1.5}, "outer_steps: got 1.5; a plain whole number is needed"),
        ({"episodes": 1}, "episodes: got 1; a whole number of at least 2 is needed"),
    ):
        with pytest.raises(ValueError, match=message):
            pola_dice(make("ipd"), **settings)
    with pytest.raises(ValueError, match="pola_dice: got a game of 3 players; one of two is needed"):
        pola_dice(make("three_player_ipd"))
