"""Differentiable games: payoffs worked out by hand, and the observations of each player."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import Differentiable
from games.exact.differentiable import balduzzi, hamiltonian, tandem, ultimatum


def vectors(x, y):
    return jnp.float32([x]), jnp.float32([y])


@pytest.mark.parametrize(
    ("payoffs", "x", "y", "expected"),
    [
        (tandem, 0.25, 0.75, (-0.5, 0.5)),
        (tandem, 2.0, 1.0, (-5.0, -7.0)),
        (hamiltonian, 2.0, 3.0, (-6.0, 6.0)),
        (balduzzi, 2.0, -1.0, (18.0, -20.5)),
        (ultimatum, 0.0, 0.0, (4.5, 3.0)),  # 5/2 + 8/4 and 5/2 + 2/4
        (ultimatum, 50.0, -50.0, (5.0, 5.0)),  # the fair split is always accepted
        (ultimatum, -50.0, 50.0, (8.0, 2.0)),
        (ultimatum, -50.0, -50.0, (0.0, 0.0)),
    ],
)
def test_payoffs_are_those_worked_out_by_hand(payoffs, x, y, expected):
    assert [float(v) for v in payoffs(*vectors(x, y))] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("payoffs", "x", "y", "expected"),
    [
        (tandem, 0.25, 0.75, (0.0, 0.0)),  # any point of x + y = 1
        (tandem, 2.0, 1.0, (-4.0, -4.0)),
        (hamiltonian, 2.0, 3.0, (-3.0, 2.0)),
        (balduzzi, 2.0, -1.0, (8.0, 21.0)),
        (balduzzi, 0.0, 0.0, (0.0, 0.0)),
        (ultimatum, 0.0, 0.0, (0.25, 0.25)),  # (5 - 8/2) / 4 and 2/2 / 4
    ],
)
def test_each_players_own_gradient(payoffs, x, y, expected):
    first = jax.grad(lambda x, y: payoffs(x, y)[0])(*vectors(x, y))
    second = jax.grad(lambda x, y: payoffs(x, y)[1], 1)(*vectors(x, y))
    assert [float(first[0]), float(second[0])] == pytest.approx(expected, abs=1e-6)


def test_each_player_is_paid_and_sees_its_own_choice_first():
    game = Differentiable(balduzzi, num_parameters=2)
    choices = {"agent_0": jnp.float32([2.0, 1.0]), "agent_1": jnp.float32([-1.0, 3.0])}
    assert list(choices) == game.agents
    observations, state = game.reset(jax.random.key(0))
    for agent in game.agents:
        assert game.observation_space(agent).contains(observations[agent])
        assert game.action_space(agent).contains(choices[agent])
    np.testing.assert_array_equal(observations["agent_0"][:2], observations["agent_1"][2:])
    observations, state, rewards, dones, infos = game.step(jax.random.key(1), state, choices)
    np.testing.assert_array_equal(observations["agent_0"], [2, 1, -1, 3])
    np.testing.assert_array_equal(observations["agent_1"], [-1, 3, 2, 1])
    # -(4 + 1) / 2 - 10 (-2 + 3) and -(1 + 9) / 2 + 10 (-2 + 3)
    assert [float(x) for x in rewards.values()] == [-12.5, 5.0]
    assert not any(map(bool, dones.values()))
    assert not infos["truncated"].any()


def test_learners_get_both_payoffs_in_their_own_view():
    game = Differentiable(balduzzi)
    x, y = vectors(2.0, -1.0)
    assert [float(v) for v in game.values(0, x, y)] == [18.0, -20.5]
    assert [float(v) for v in game.values(1, y, x)] == [-20.5, 18.0]
    assert game.num_logits == 1


def test_the_choices_before_the_first_are_normal():
    batch = jax.vmap(Differentiable(tandem, num_parameters=3, init_scale=0.5).reset)
    states = batch(jax.random.split(jax.random.key(2), 2000))[1]
    assert states.shape == (2000, 2, 3)
    assert float(states.mean()) == pytest.approx(0, abs=4 * 0.5 / 12000**0.5)
    assert float(states.std()) == pytest.approx(0.5, abs=4 * 0.5 / 24000**0.5)
