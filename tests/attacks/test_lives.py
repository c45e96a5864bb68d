"""Lives of victims, the comparison of groups of them, and their defences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import games
from attacks.config import AttackConfig
from attacks.defences import DEFENCES, seeing
from attacks.evaluation import Lives, compare, make_lives, over_training, silence
from attacks.examine import other_victims
from attacks.messages import make_message
from attacks.trials import Schedule, live, train_time_trial
from games.cheap_talk import CheapTalk
from marl import make_learner
from marl.learn import learn

GAME = games.make("CartPole-v1", max_steps_in_episode=20)
MESSAGE = make_message("mlp(hidden=[4])", (4,), 2)
SCHEDULE = Schedule(num_updates=2, steps_per_update=16, num_envs=2, num_episodes=2, num_steps=20)
VICTIM = "ppo(hidden=[4], epochs=1, minibatches=1, shared=True)"


def make_victim(game):
    return make_learner(VICTIM, game, num_envs=2, num_updates=2)


@pytest.fixture(scope="module")
def words():
    return MESSAGE.init(jax.random.key(1))


@pytest.fixture(scope="module")
def run():
    return make_lives(GAME, MESSAGE, make_victim, SCHEDULE, size=2, num_victims=3)


def test_the_same_victims_live_under_every_message(run, words):
    key = jax.random.key(0)
    quiet, again, spoken = run(key, silence(words)), run(key, silence(words)), run(key, words)
    np.testing.assert_array_equal(quiet.final_returns, again.final_returns)
    assert quiet.final_returns.shape == (3,)
    assert quiet.curves.shape == (3, 2)
    assert np.abs(quiet.final_returns - spoken.final_returns).max() > 0


def test_a_group_is_what_single_lives_are(run, words):
    found = run(jax.random.key(0), words)
    keys = jax.random.split(jax.random.key(0), 4 if len(jax.local_devices()) > 1 else 3)
    alone = jax.jit(lambda key: live(key, GAME, MESSAGE, words, make_victim, SCHEDULE))(keys[0])
    np.testing.assert_allclose(found.final_returns[0], alone.final_return, rtol=1e-5)
    np.testing.assert_allclose(found.curves[0], alone.curve, rtol=1e-5)


def test_adversary_and_ally_want_the_opposite(words):
    def fitness(**settings):
        trial = train_time_trial(GAME, MESSAGE, make_victim, SCHEDULE, **settings)
        return jax.jit(trial)(words, jax.random.key(3)).fitness

    assert fitness() == -fitness(help=True) != 0
    life = jax.jit(lambda key: live(key, GAME, MESSAGE, words, make_victim, SCHEDULE))(jax.random.key(3))
    np.testing.assert_allclose(fitness(over_training=True), -np.nanmean(life.curve), rtol=1e-5)


@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 3), min_size=2, max_size=9))
def test_differences_are_paired(triples):
    returns = np.array(triples).T
    curves = np.stack([returns[0], np.full(len(triples), np.nan)], 1)
    groups = {name: Lives(x, curves) for name, x in zip(("evolved", "silent", "random"), returns, strict=True)}
    found = compare(groups)
    difference = returns[0] - returns[1]
    assert found["evolved"]["difference_from_silent"]["mean"] == pytest.approx(difference.mean(), abs=1e-9)
    error = np.sqrt(((difference - difference.mean()) ** 2).sum() / (len(difference) - 1) / len(difference))
    assert found["evolved"]["difference_from_silent"]["standard_error"] == pytest.approx(error, abs=1e-9)
    assert found["training_return"]["evolved"]["difference_from_silent"]["mean"] == 0  # the curves are the same
    np.testing.assert_allclose(over_training(groups["silent"]), returns[0])  # updates without an end do not count


@pytest.mark.parametrize("name", [name for name in DEFENCES if name != "none"])
def test_every_defence_is_a_life_of_its_own(name, words):
    talk = CheapTalk(GAME, words, MESSAGE.speak, 2)

    def both(key):
        defended = DEFENCES[name](key, talk, make_victim, SCHEDULE, 2)
        return defended.final_return, defended.curve

    returned, curve = jax.jit(both)(jax.random.key(0))
    assert 0 < returned <= 20
    assert curve.shape == (2,)
    assert np.isfinite(curve).any()


def test_a_learner_with_other_eyes_learns_from_what_it_saw(words):
    """What a transform hides, as zeros, the weights that read it never learn from."""
    talk = CheapTalk(GAME, words, MESSAGE.speak, 2)
    hide = seeing(make_victim(talk), lambda key, obs: obs.at[:, -2:].set(0.0), always=True)
    run = jax.jit(lambda key: learn(key, talk, [hide], num_updates=2, steps_per_update=16, num_envs=2).states[0])
    before, after = hide.init(jax.random.key(0)).params, None
    init_key = jax.random.split(jax.random.key(5), 3)[2]  # the one of the only learner
    before = hide.init(init_key).params["Dense_0"]["kernel"]
    after = run(jax.random.key(5)).params["Dense_0"]["kernel"]
    np.testing.assert_allclose(after[-2:], before[-2:], atol=1e-7)
    assert float(jnp.abs(after[:-2] - before[:-2]).min()) > 0


def test_other_victims_differ_in_one_thing():
    victims = other_victims(AttackConfig())
    assert next(iter(victims)) == "as evolved on"
    assert {"A2C", "DQN", "relu", "twice as wide"} <= set(victims)
    assert len(set(victims.values())) == len(victims)
    for spec in victims.values():
        make_learner(spec, CheapTalk(GAME, None, MESSAGE.speak, 2), num_envs=4, num_updates=2)
    assert "DQN" not in other_victims(AttackConfig(environment="pendulum"))
