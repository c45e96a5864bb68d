"""Environments of Playground's kind as games: their terminations, time limits and resets."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games.suite.playground import Playground
from marl import learn, make_learner

CALLS = []


class State(NamedTuple):
    """The fields of Playground's state that the adapter reads."""

    place: jax.Array
    obs: Any
    reward: Any
    done: jax.Array


class Walk:
    """A walk by the action: the reward is the place, it ends beyond 2, and the observation is a dictionary."""

    action_size = 2

    def reset(self, key):
        assert key.dtype == jnp.uint32  # a raw key, as in Playground
        jax.debug.callback(lambda _: CALLS.append(1), key)
        place = jax.random.uniform(key, (2,))
        return State(place, {"state": place, "privileged_state": jnp.ones(5)}, jnp.float32(0), jnp.float32(0))

    def step(self, state, action):
        place = state.place + action
        return State(place, {"state": place, "privileged_state": jnp.ones(5)}, place.sum(), jnp.abs(place).max() > 2)


GAME = Playground(Walk(), 4)


def test_terminations_and_time_limits_are_told_apart():
    obs, state = GAME.reset(jax.random.key(0))
    assert GAME.observation_space("agent_0").shape == obs["agent_0"].shape == (2,)
    assert GAME.action_space("agent_0").shape == (2,)
    for i in range(4):
        obs, state, rewards, dones, infos = GAME.step_env(jax.random.key(i), state, {"agent_0": jnp.full(2, -0.1)})
        assert float(rewards["agent_0"]) == pytest.approx(float(obs["agent_0"].sum()), abs=1e-6)
        assert (bool(dones["__all__"]), bool(infos["truncated"][0])) == (i == 3, i == 3)
    for _ in range(3):  # beyond the bounds an action is clipped
        _, state, _, dones, infos = GAME.step_env(jax.random.key(0), state, {"agent_0": jnp.full(2, 9.0)})
    assert (bool(dones["__all__"]), bool(infos["truncated"][0])) == (True, False)


def test_only_ended_episodes_are_reset():
    CALLS.clear()

    @jax.jit
    def play(keys):
        states = jax.vmap(lambda key: GAME.reset(key)[1])(keys)

        def step(states, i):
            actions = {"agent_0": jnp.full((3, 2), 0.01)}
            _, states, _, dones, _ = jax.vmap(GAME.step, (0, 0, 0))(
                jax.random.split(jax.random.key(i), 3), states, actions
            )
            return states, (states.time, dones["__all__"])

        return jax.lax.scan(step, states, jnp.arange(8))[1]

    time, done = jax.block_until_ready(play(jax.random.split(jax.random.key(1), 3)))
    jax.effects_barrier()
    np.testing.assert_array_equal(time, np.tile(np.array([1, 2, 3, 0] * 2)[:, None], 3))
    np.testing.assert_array_equal(done, np.tile(np.array([0, 0, 0, 1] * 2, bool)[:, None], 3))
    assert len(CALLS) == 3 * 3  # at first and after each of two games, and not after every step


@pytest.mark.system
def test_learners_play_it():
    learner = make_learner("sac(hidden=[4], learning_starts=4, batch_size=4, buffer_size=16)", GAME)
    run = jax.jit(lambda key: learn(key, GAME, [learner], num_updates=3, steps_per_update=4, num_envs=2))
    found = run(jax.random.key(0))
    chex.assert_tree_all_finite(found.states[0].networks.actor)
    assert float(found.ended[0].sum()) >= 6  # two games at a limit of 4 in 12 steps, or sooner by a fall


def test_unknown_parameters_and_a_missing_library_are_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown parameter size; episode_length is what it has"):
        games.make("CheetahRun-playground", size=3)
    with pytest.raises(ValueError, match="episode_length: got 0"):
        Playground(Walk(), 0)
    monkeypatch.setitem(__import__("sys").modules, "mujoco_playground", None)
    with pytest.raises(ValueError, match=r"Playground is not installed .*marl-shaping\[control\]"):
        games.make("CheetahRun-playground")


@pytest.mark.slow
def test_a_cheetah_of_playground_s():
    pytest.importorskip("mujoco_playground")
    game = games.make("CheetahRun-playground", episode_length=3)
    learner = make_learner("sac(hidden=[8], learning_starts=4, batch_size=4, buffer_size=16)", game)
    run = jax.jit(lambda key: learn(key, game, [learner], num_updates=2, steps_per_update=4, num_envs=2))
    found = run(jax.random.key(0))
    assert game.observation_space("agent_0").shape == (17,)
    assert np.isfinite(found.rewards[0]).all()
    assert float(found.ended[0].sum()) == 4
    with pytest.raises(ValueError, match="did you mean CheetahRun"):
        games.make("CheetahRum-playground")
