"""Cheap talk appends messages to observations and changes nothing else."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import games
from games.core.game import Game
from games.core.spaces import Box
from games.wrappers.cheap_talk import CheapTalk
from marl.blocks.networks import feed_forward
from marl.core.learn import learn
from marl.learners.sampled.ppo import ppo

KEY = jax.random.key(0)
STEPS = 26
CARTPOLE = games.make("CartPole-v1", max_steps_in_episode=12)
REACHER = games.make("reacher", episode_length=12)
BREAKOUT = games.make("Breakout-MinAtar")


def say_linear(parameters, obs):
    return parameters[:, :-1] @ jnp.resize(obs, 4) + parameters[:, -1]


def say_wildly(parameters, obs):
    """Messages with jumps, infinities and NaN."""
    return jnp.tan(1e3 * say_linear(parameters, obs)) / jnp.round(parameters[:, 0])


@partial(jax.jit, static_argnames="speak")
def play(game, parameters, key, speak=None):
    """Plays the same keys and actions in the bare game, without `speak`, or with messages of `speak`."""
    game = game if speak is None else CheapTalk(game, parameters, speak)
    observations, state = game.reset(key)

    def step(carry, key):
        action_key, step_key = jax.random.split(key)
        after, state, rewards, dones, infos = game.step(
            step_key, carry[1], {"agent_0": game.action_space("agent_0").sample(action_key)}
        )
        return (after, state), (after["agent_0"], state, rewards, dones, infos)

    kept = jax.lax.scan(step, (observations, state), jax.random.split(key, STEPS))[1]
    return observations["agent_0"], *kept


@pytest.mark.usefixtures("nans")
@pytest.mark.parametrize("speak", [say_linear, say_wildly])
@pytest.mark.parametrize("game", [CARTPOLE, REACHER], ids=lambda game: game.name)
@settings(max_examples=10, deadline=None)
@given(parameters=arrays(np.float32, (2, 5), elements=st.floats(width=32)), seed=st.integers(0, 1000))
def test_messages_leave_the_game_the_same_bit_for_bit(game, speak, parameters, seed):
    key = jax.random.key(seed)
    first, seen, *bare = play(game, parameters, key)
    first_heard, heard, *received = play(game, parameters, key, speak=speak)
    assert bare[2]["__all__"].any()  # so beginnings after an end are compared too
    np.testing.assert_array_equal(first_heard[:-2], first)
    np.testing.assert_array_equal(heard[:, :-2], seen)
    jax.tree.map(np.testing.assert_array_equal, received, bare)


@jax.jit
def arrive(parameters, key, state):
    talk = CheapTalk(CARTPOLE, parameters, say_wildly)
    after, state, _, dones, _ = talk.step_env(key, state, {"agent_0": 1})
    return after["agent_0"], talk.auto_reset(key, after, state, dones, state)[0]["agent_0"]


@pytest.mark.usefixtures("nans")
@settings(max_examples=10, deadline=None)
@given(arrays(np.float32, (2, 5), elements=st.floats(width=32)), st.integers(0, 1000), st.integers(0, 400))
def test_the_message_depends_on_neither_time_nor_key(parameters, seed, time):
    state = CARTPOLE.reset(KEY)[1]
    heard, again = arrive(parameters, KEY, state)
    later, later_again = arrive(parameters, jax.random.key(seed), state.replace(time=jnp.int32(time)))
    np.testing.assert_array_equal(heard, later)
    np.testing.assert_array_equal(again, later_again)


def test_the_message_is_of_the_current_observation():
    parameters = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)
    first, heard, _, _, dones, _ = play(CARTPOLE, parameters, KEY, speak=say_linear)
    assert dones["__all__"].any()
    seen = np.array([first, *heard], float)
    np.testing.assert_allclose(seen[:, 4:], seen[:, :4] @ parameters[:, :4].T + parameters[:, 4], atol=1e-6)


def count(parameters, memory, obs):
    return memory[0] + 1, memory[1] + parameters * obs


def test_memory_sees_each_observation_once_and_in_order_over_episodes():
    """The memory also sees the last observation of an episode, before the first of the next one."""
    talk = CheapTalk(
        CARTPOLE,
        jnp.float32(0.5),
        lambda parameters, obs, memory: jnp.append(memory[1], memory[0]),
        5,
        remember=count,
        memory=(jnp.float32(7), jnp.zeros(4)),
    )

    def step(game, carry, key):
        action_key, step_key, reset_key = jax.random.split(key, 3)
        action = {"agent_0": game.action_space("agent_0").sample(action_key)}
        after, state, rewards, dones, infos = game.step_env(step_key, carry[1], action)
        following, state = game.auto_reset(reset_key, after, state, dones)
        return (following, state), (after["agent_0"], following["agent_0"], state, rewards, dones, infos)

    @jax.jit
    def run(game):
        first = game.reset(KEY)
        return first, jax.lax.scan(partial(step, game), first, jax.random.split(KEY, STEPS))[1]

    (first, _), (after, following, state, *received) = run(talk)
    (bare_first, _), (bare_after, bare_following, bare_state, *bare) = run(CARTPOLE)
    jax.tree.map(np.testing.assert_array_equal, (talk.bare(state), *received), (bare_state, *bare))
    done = np.asarray(bare[1]["__all__"])
    assert done.any()
    number, total = 8, 0.5 * np.asarray(bare_first["agent_0"], float)
    np.testing.assert_allclose(first["agent_0"][4:], [*total, number], rtol=1e-5)
    for i in range(STEPS):
        number, total = number + 1, total + 0.5 * bare_after[i]
        np.testing.assert_allclose(after[i], [*bare_after[i], *total, number], rtol=1e-4, atol=1e-5)
        if done[i]:
            number, total = number + 1, total + 0.5 * bare_following[i]
        np.testing.assert_allclose(following[i], [*bare_following[i], *total, number], rtol=1e-4, atol=1e-5)
    last = jax.tree.map(lambda x: x[-1], state)
    np.testing.assert_array_equal(talk.get_obs(last)["agent_0"], following[-1])
    # A game that goes on with this memory, from a new beginning.
    again = talk.going_on(last).reset(KEY)[0]["agent_0"]
    np.testing.assert_allclose(again[4:], [*total + 0.5 * bare_first["agent_0"], number + 1], rtol=1e-4, atol=1e-5)
    assert talk.render(last).shape == CARTPOLE.render(talk.bare(last)).shape


@pytest.mark.usefixtures("nans")
def test_messages_are_the_last_channels_of_an_image():
    talk = CheapTalk(BREAKOUT, jnp.array([0.5, -2.0]), lambda words, obs: words, planes=True)
    step = jax.jit(lambda game, key, state: game.step(key, state, {"agent_0": 1}))
    observations, state = talk.reset(KEY)
    seen, bare = BREAKOUT.reset(KEY)
    for i in range(4):
        image = observations["agent_0"]
        assert image.shape == talk.observation_space("agent_0").shape == (10, 10, 6)
        np.testing.assert_array_equal(image[..., :4], seen["agent_0"])
        np.testing.assert_array_equal(image[..., 4:], np.broadcast_to([0.5, -2.0], (10, 10, 2)))
        jax.tree.map(np.testing.assert_array_equal, state, bare)
        observations, state, *_ = step(talk, jax.random.key(i), state)
        seen, bare, *_ = step(BREAKOUT, jax.random.key(i), bare)


@pytest.mark.usefixtures("nans")
def test_without_planes_an_image_becomes_a_vector():
    talk = CheapTalk(BREAKOUT, jnp.zeros(3), lambda words, obs: words + obs.sum(), message_size=3)
    heard, seen = (game.reset(KEY)[0]["agent_0"] for game in (talk, BREAKOUT))
    np.testing.assert_array_equal(heard, [*np.ravel(seen), *[np.sum(seen)] * 3])
    assert talk.observation_space("agent_0").shape == (403,)


def test_spaces_are_the_bare_game_s_and_of_any_message():
    talk = CheapTalk(CARTPOLE, jnp.zeros(2), lambda words, obs: words)
    space, bare = talk.observation_space("agent_0"), CARTPOLE.observation_space("agent_0")
    np.testing.assert_array_equal(space.high, [*bare.high, np.inf, np.inf])
    np.testing.assert_array_equal(space.low, [*bare.low, -np.inf, -np.inf])
    assert talk.action_space("agent_0") == CARTPOLE.action_space("agent_0")
    state = talk.reset(KEY)[1]
    np.testing.assert_array_equal(talk.render(state), CARTPOLE.render(state))


class Padded(Game):
    """CartPole with zeros after the observation, written without the wrapper."""

    num_agents = 1

    def __init__(self, zeros=()):
        self.zeros = zeros

    def reset(self, key):
        return self._pad(*CARTPOLE.reset(key))

    def step_env(self, key, state, actions):
        observations, *rest = CARTPOLE.step_env(key, state, actions)
        return *self._pad(observations), *rest

    def auto_reset(self, key, observations, state, dones, reset_state=None):
        return self._pad(*CARTPOLE.auto_reset(key, {"agent_0": observations["agent_0"][:4]}, state, dones))

    def _pad(self, observations, *rest):
        return {"agent_0": jnp.concatenate([observations["agent_0"], self.zeros])}, *rest

    def observation_space(self, agent):
        return Box(-np.inf, np.inf, (6,))

    def action_space(self, agent):
        return CARTPOLE.action_space(agent)


@pytest.mark.system
def test_silence_gives_the_learning_curve_of_zeros_in_its_place():
    @partial(jax.jit, static_argnames="silent")
    def curve(
        key, zeros, silent
    ):  # zeros are an argument, because as constants they would be folded in one program only
        game = CheapTalk(CARTPOLE, zeros, lambda words, obs: words) if silent else Padded(zeros)
        learner = ppo(
            game,
            network=feed_forward((6,), 2, hidden=(8,), shared=True),
            epochs=2,
            minibatches=1,
            learning_rate=0.01,
            normalize_observations=True,
        )
        history = learn(key, game, [learner], num_updates=3, steps_per_update=24, num_envs=2)
        return history.returns, history.metrics, history.states[0].params

    silent, padded = (curve(KEY, jnp.zeros(2), silent) for silent in (True, False))
    assert np.isfinite(silent[0][0]).all()
    jax.tree.map(np.testing.assert_array_equal, silent, padded)


class Parts(Padded):
    """CartPole with observations that are dictionaries."""

    def _pad(self, observations, *rest):
        return {"agent_0": {"position": observations["agent_0"][:2], "angle": observations["agent_0"][2:]}}, *rest


@pytest.mark.parametrize(
    ("game", "settings", "message"),
    [
        (Parts(), {}, r"^game: Parts has observations with several parts; an array is needed$"),
        (CARTPOLE, {"message_size": 0}, r"^message_size: got 0; a whole number of at least 1 is needed$"),
        (CARTPOLE, {"message_size": 1.5}, r"^message_size: got 1.5; a plain whole number is needed"),
        (games.make("ipd"), {}, r"^game: got .* of 2 players; a game of one is needed$"),
        (CARTPOLE, {"planes": True}, r"^planes: CartPole-v1 has observations \(4,\); images .* are needed$"),
    ],
)
def test_games_that_cannot_have_cheap_talk_are_refused(game, settings, message):
    with pytest.raises(ValueError, match=message):
        CheapTalk(game, jnp.zeros(2), lambda words, obs: words, **settings)


def test_a_message_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"message_size: got 2; what is said has shape \(3,\)"):
        CheapTalk(CARTPOLE, jnp.zeros(3), lambda words, obs: words).reset(KEY)
