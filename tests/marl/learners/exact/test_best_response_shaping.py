"""Best Response Shaping against value iteration and finite differences in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, matching_pennies
from marl import make_learner
from marl.core.learn import learn
from marl.learners.exact.best_response_shaping import best_response_shaping, soft_best_response
from tests.marl.exact_game import GAME, gradient, sigmoid, values

OTHER = np.random.default_rng(0).normal(size=5)
PAYOFFS = np.array([[-1.0, -3.0], [0.0, -2.0]])  # [own action, the co-player's]


def reply(other, temperature):
    """The logits of the soft best reply, by value iteration."""
    p, v = sigmoid(other)[[0, 1, 3, 2, 4]], np.zeros(4)  # the co-player's CD is one's own DC
    for _ in range(2000):
        after = PAYOFFS + GAME.discount * v.reshape(2, 2)
        q = p[:, None] * after[:, 0] + (1 - p[:, None]) * after[:, 1]
        v = temperature * np.log(np.exp(q[1:] / temperature).sum(1))
    return (q[:, 0] - q[:, 1]) / temperature


@pytest.mark.parametrize("temperature", [1.0, 10.0])
def test_a_detective_replies_as_value_iteration_says(temperature):
    found = jax.jit(lambda other: soft_best_response(GAME, 1, other, temperature))(jnp.float32(OTHER))
    np.testing.assert_allclose(found, reply(OTHER, temperature), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_step_is_the_gradient_through_the_whole_reply(weight):
    learner = best_response_shaping(GAME, learning_rate=0.1, temperature=2.0, self_play=weight)
    moved = learner._replace(init=lambda key: learner.init(key)._replace(logits=jnp.float32(OTHER)))
    players = [moved, make_learner("tft", GAME, 1)]
    after = jax.jit(lambda key: learn(key, GAME, players, num_updates=1).states[0].logits)(jax.random.key(0))
    expected = gradient(lambda x: values(x, reply(x, 2.0))[0] + weight * values(x, x)[0], OTHER)
    np.testing.assert_allclose((after - OTHER) / 0.1, expected, rtol=5e-3, atol=1e-3)


def test_a_reply_in_a_game_played_once_is_the_soft_maximum_of_its_payoffs():
    game = InfinitelyRepeated(matching_pennies, 0.0)
    other = jnp.array([0.8])
    p = sigmoid(0.8)
    # The column player gains 1 where the pennies differ: 1 - 2p with the first action, 2p - 1 with the other.
    found = soft_best_response(game, 1, other, 0.5)
    assert float(found[0]) == pytest.approx(((1 - 2 * p) - (2 * p - 1)) / 0.5, rel=1e-5)


def test_it_makes_the_best_reply_cooperate_and_cooperates_with_its_kind():
    """Two naive learners get -1.98 each."""

    @jax.jit
    @jax.vmap
    def play(key):
        names = [("best_response_shaping", "best_response_shaping"), ("best_response_shaping", "best_response")]
        pairs = [[make_learner(name, GAME, seat) for seat, name in enumerate(pair)] for pair in names]
        return [[rewards[-1] for rewards in learn(key, GAME, pair, num_updates=101).rewards] for pair in pairs]

    (own, same), (shaped, replied) = np.asarray(play(jax.random.split(jax.random.key(1), 128))).mean(-1)
    assert min(own, same) > -1.2
    assert min(shaped, replied) > -1.4


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.0), ("self_play", -1.0)])
def test_other_numbers_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"^{name}: got {value}"):
        best_response_shaping(GAME, **{name: value})
