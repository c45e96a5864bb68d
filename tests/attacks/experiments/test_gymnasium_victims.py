"""A victim on a host hears the messages that it would hear in the pure game."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from attacks.experiments.gymnasium_victims import TalkingHost, hearing, host_of, host_returns
from games import make
from games.wrappers.cheap_talk import CheapTalk
from marl import learn, make_learner
from marl.distributed.adapters.game_env import GameVectorEnv
from marl.distributed.runtime import train
from tests.nightly import grid

pytestmark = pytest.mark.system

GAME = make("CartPole-v1", max_steps_in_episode=6)


def counting(parameters, observation, memory):
    return parameters * jnp.stack([memory, observation[2]])


TALKS = {
    "without a memory": CheapTalk(GAME, jnp.float32(2.0), lambda p, o: p * o[:2]),
    "with a memory of a training run": CheapTalk(
        GAME, jnp.float32(2.0), counting, remember=lambda p, m, o: m + 1.0, memory=jnp.float32(0.0)
    ),
}


@pytest.mark.parametrize("name", grid(TALKS, "with a memory of a training run"))
def test_a_pure_game_on_a_host_with_messages_is_the_game_with_messages(name):
    """Every observation of a training run, across the ends of episodes, as seen in the learner's final state."""
    talk = TALKS[name]
    learner = make_learner("ppo(hidden=[4], minibatches=1, epochs=1)", talk)
    settings = {"num_updates": 3, "steps_per_update": 8}
    expected = jax.jit(lambda key: learn(key, talk, [learner], num_envs=2, **settings))(jax.random.key(0))
    hosts = [lambda: TalkingHost(GameVectorEnv(GAME, 2), talk, hearing(talk))]
    found = train([learner], hosts, key=jax.random.key(0), **settings).history
    for x, y in zip(jax.tree.leaves(found.states), jax.tree.leaves(expected.states), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.rewards[0], expected.rewards[0], rtol=1e-5)


def test_victims_train_on_a_host_under_three_kinds_of_messages():
    config = AttackConfig(
        environment="CartPole-v1(max_steps_in_episode=20)", victim="ppo(hidden=[4], minibatches=1, epochs=1)",
        message="linear", goal="harm", num_updates=2, steps_per_update=16, num_envs=2,
    )  # fmt: skip
    attack = resolve(config)
    found = host_returns(attack, attack.message.init(jax.random.key(0)), 2, 0)
    assert found.keys() == {"evolved", "silent", "random"}
    assert all(returns.shape == (2,) and (returns > 5).all() and (returns <= 20).all() for returns in found.values())


def test_victims_with_a_defence_are_refused_on_a_host():
    with pytest.raises(ValueError, match="host: got an attack on victims with the defence dropout"):
        host_of(resolve(AttackConfig(defence="dropout", message="linear")))


def test_games_that_gymnasium_does_not_have_are_refused():
    for environment, words in {
        "reacher": "which Gymnasium does not have",
        "CartPole-v1(gravity=3.0)": "on a host it has no gravity",
    }.items():
        with pytest.raises(ValueError, match=words):
            host_of(resolve(AttackConfig(environment=environment, message="linear")))()
