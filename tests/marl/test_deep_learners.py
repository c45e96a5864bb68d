"""Learners by their specs, and what is said of specs that do not fit."""

import jax
import numpy as np
import pytest
from test_ppo import CART_POLE

from games import Discrete, Game, make
from marl.a2c import a2c
from marl.deep_learners import DEEP_LEARNERS, make_learner
from marl.dqn import dqn
from marl.learn import learning
from marl.networks import convolutional, feed_forward, recurrent
from marl.ppo import ppo

BREAKOUT = make("Breakout-MinAtar")
IMAGE = BREAKOUT.observation_space("agent_0").shape
SMALL = {"hidden": (8,)}
SPECS = {
    "ppo": (CART_POLE, ppo(CART_POLE)),
    "ppo(hidden=[8], activation='relu', shared=True, normalize_observations=True)": (
        CART_POLE,
        ppo(
            CART_POLE,
            network=feed_forward((4,), 2, activation="relu", shared=True, **SMALL),
            normalize_observations=True,
        ),
    ),
    "ppo(network='recurrent', memory=5, hidden=[8])": (
        CART_POLE,
        ppo(CART_POLE, network=recurrent((4,), 2, memory=5, **SMALL), num_envs=3),
    ),
    "a2c(network='convolutional', channels=2, hidden=[8])": (
        BREAKOUT,
        a2c(BREAKOUT, network=convolutional(IMAGE, 3, channels=2, **SMALL)),
    ),
    "dqn(buffer_size=6)": (CART_POLE, dqn(CART_POLE, buffer_size=6)),
}


@pytest.mark.parametrize(("spec", "expected"), SPECS.items(), ids=SPECS)
def test_a_spec_is_the_learner_with_these_settings(spec, expected):
    game, by_hand = expected
    learner = make_learner(spec, game, num_envs=3, num_updates=1)
    ours, theirs = (jax.jit(one.init)(jax.random.key(0)) for one in (learner, by_hand))
    assert type(ours) is type(theirs)
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)


def test_every_setting_may_be_given_as_it_is_by_default():
    for name, settings in DEEP_LEARNERS.items():
        plain = {setting: x for setting, x in settings.items() if setting not in ("channels", "memory")}
        plain = {setting: x for setting, x in plain.items() if x is not None}
        spec = f"{name}({', '.join(f'{setting}={x!r}' for setting, x in plain.items())})"
        make_learner(spec, CART_POLE, num_envs=3, num_updates=1)


def test_annealing_ends_with_the_last_update():
    spec = "ppo(anneal=True, epochs=2, minibatches=2, learning_rate=0.01, hidden=[4])"
    learner = make_learner(spec, CART_POLE, num_envs=2, num_updates=3)
    begin, update = learning(CART_POLE, [learner], steps_per_update=4, num_envs=2)
    carry, key = jax.jit(begin)(jax.random.key(0))
    step, states = jax.jit(update), []
    for _ in range(4):
        carry, _ = step(carry, key)
        states.append(np.concatenate([x.ravel() for x in jax.tree.leaves(carry.states[0].params)]))
    first, second, third, fourth = states
    assert abs(second - first).max() > abs(third - second).max() > 0
    np.testing.assert_array_equal(third, fourth)


def test_a_learner_plays_the_player_that_it_is_made_for():
    game = make("ipd", episode_length=3)
    learner = make_learner("ppo", game, player=1, num_envs=2, num_updates=1)
    assert learner.init(jax.random.key(0)).params["Dense_0"]["kernel"].shape == (5, 64)


class Told(Game):
    """A game whose observations are dictionaries."""

    num_agents = 1

    def observation_space(self, agent):
        return {"position": Discrete(3)}

    def action_space(self, agent):
        return Discrete(2)


REFUSED = {
    "pop": "learner: got 'pop'; did you mean ppo?",
    "ppo(0.1)": "learner: got 'ppo(0.1)'; a name such as ppo, or name(setting=value), is needed",
    "ppo(": "learner: got 'ppo('; a name such as ppo, or name(setting=value), is needed",
    "a2c(clip=0.1)": "learner: a2c has no setting 'clip'; it takes learning_rate, discount, gae_lambda, ",
    "ppo(epochs=0)": "learner: ppo: epochs: got 0; a whole number of at least 1 is needed",
    "ppo(anneal=1)": "learner: ppo: anneal: got 1; True or False is needed",
    "ppo(learning_rate='fast')": "learner: ppo: learning_rate: got 'fast'; a number of at least 0 is needed",
    "dqn(tau=2)": "learner: dqn: tau: got 2; a number from 0 to 1 is needed",
    "ppo(value_clip=-1)": "learner: ppo: value_clip: got -1; a number of at least 0, or None is needed",
    "ppo(hidden=[8, 0])": "learner: ppo: hidden: got [8, 0]; a list of whole numbers of at least 1 is needed",
    "ppo(activation='gelu')": "learner: ppo: activation: got 'gelu'; one of tanh, relu is needed",
    "ppo(network='lstm')": "network: got 'lstm'; one of feed_forward, convolutional, recurrent is needed",
    "ppo(memory=3)": "learner: ppo: memory: a feed_forward network has none; it has hidden, activation, shared",
    "ppo(network='convolutional')": "learner: ppo: network: got observations (4,); images [height, width, channels]",
    "dqn(network='recurrent')": "learner: dqn: network: got one with memory",
}


@pytest.mark.parametrize(("spec", "message"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_one_line(spec, message):
    with pytest.raises(ValueError, match="learner: ") as error:
        make_learner(spec, CART_POLE, num_envs=2, num_updates=1)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_game_that_no_network_can_play_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"learner: ppo: observations: got \{'position': .*; an array is needed"):
        make_learner("ppo", Told(), num_envs=2, num_updates=1)
    with pytest.raises(ValueError, match=r"learner: dqn: action space: got Box.*; Discrete is needed"):
        make_learner("dqn", make("Pendulum-v1"), num_envs=2, num_updates=1)
    with pytest.raises(ValueError, match="learner: ppo: player: got 1; one of 0 to 0 is needed"):
        make_learner("ppo", CART_POLE, player=1, num_envs=2, num_updates=1)
