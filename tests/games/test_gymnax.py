"""One seat of a game as an environment of gymnax: its own wrappers, evosax's problem, PureJaxRL's calls."""

from functools import partial

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evosax.algorithms import SNES
from evosax.problems import GymnaxProblem
from gymnax.environments import spaces
from gymnax.environments.environment import Environment
from gymnax.wrappers import FlattenObservationWrapper, LegacyStepAPIWrapper, LogWrapper

import games
import marl
from games.gymnax import env
from games.registry import ids
from tests.games.every_game import suite

KEY = jax.random.key(0)
TFT = marl.play_memory_one([1, 1, 0, 1, 0])


def test_every_game_of_ours_is_registered():
    assert {*ids()} <= {*gymnax.registered_envs}
    assert {*ids()}.isdisjoint(games.names())


@pytest.mark.system
@pytest.mark.parametrize("name", suite())
def test_every_game_of_ours_is_an_environment(name):
    """Environments are made by registered names, as gymnax's own; the shapes of a step fit the spaces."""
    environment, params = gymnax.make(f"marl-shaping/{name}-v0")
    assert isinstance(environment, Environment)
    assert environment.name == games.make(name).name
    assert params.max_steps_in_episode == games.make(name).time_limit
    seen, acts = environment.observation_space(params), environment.action_space(params)
    assert isinstance(seen, spaces.Box)
    assert environment.num_actions == (acts.n if isinstance(acts, spaces.Discrete) else acts.shape[0])
    obs, state = jax.eval_shape(environment.reset, KEY, params)
    stepped = jax.eval_shape(environment.step, KEY, state, acts.sample(KEY), params)
    assert (obs.shape, obs.dtype) == (stepped[0].shape, stepped[0].dtype) == (tuple(seen.shape), seen.dtype)
    assert jax.tree.structure(stepped[1]) == jax.tree.structure(state)
    assert [(x.shape, x.dtype) for x in stepped[2:5]] == [((), jnp.float32), ((), bool), ((), bool)]


def test_an_episode_and_its_two_ends():
    """Both seats against tit for tat; the limits of the game and of the params truncate, the discount terminates."""
    for seat in (0, 1):
        environment = env("ipd", seat=seat, opponents=TFT, episode_length=6)
        params = environment.default_params
        _, state = environment.reset(KEY, params)
        rewards, ends = [], []
        for action in (0, 1, 0, 0, 1, 1, 1):
            _, state, reward, terminated, truncated, _ = environment.step(KEY, state, action, params)
            rewards.append(float(reward))
            ends.append((bool(terminated), bool(truncated)))
        assert rewards == [-1, 0, -3, -1, 0, -2, 0]  # the last against an opponent that was reset
        assert ends == [(False, False)] * 5 + [(False, True), (False, False)]
        assert state.time == 1
    short = params.replace(max_steps_in_episode=1, game=params.game.replace(payoffs=5 + params.game.payoffs))
    _, state = environment.reset(KEY, short)
    _, _, reward, terminated, truncated, info = environment.step(KEY, state, 0, short)
    assert (float(reward), bool(terminated), bool(truncated), float(info["discount"])) == (4, False, True, 1)
    assert info["CC"] == 1
    np.testing.assert_array_equal(info["final_observation"], [0, 1, 0, 0, 0])
    over = env("ipd", opponents=TFT, discount=0.0, max_steps_in_episode=9)
    _, _, _, terminated, truncated, info = over.step(KEY, over.reset(KEY)[1], 0)
    assert (bool(terminated), bool(truncated), float(info["discount"])) == (True, False, 0)


def test_a_limit_that_gymnax_gives_as_a_decimal_is_a_whole_number():
    assert env("BernoulliBandit-misc").default_params.max_steps_in_episode == 100


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"discount": 0.9}, "max_steps_in_episode: got None; RepeatedGame has no time limit of its own"),
        ({"max_steps_in_episode": 0}, "max_steps_in_episode: got 0"),
        ({"max_steps_in_episode": [5]}, r"max_steps_in_episode: got \[5\]"),
        ({"seat": 2}, "seat: got 2; a whole number from 0 to 1 is needed"),
        ({"opponents": 3}, "opponents: got 3; a function, an object with init and act, or the name"),
        ({"episode_lenth": 3}, "did you mean episode_length"),
    ],
)
def test_environments_that_cannot_be_made_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        env("ipd", **settings)


@pytest.mark.usefixtures("promoted")
def test_its_own_wrappers_count_in_a_scan():
    environment = LogWrapper(FlattenObservationWrapper(env("coin_game", episode_length=4)))
    params = environment.default_params

    def step(carry, key):
        obs, state, reward, _, _, info = environment.step(key, carry, 0, params)
        return state, (obs, reward, info)

    _, (obs, reward, info) = jax.jit(
        lambda: jax.lax.scan(step, environment.reset(KEY, params)[1], jax.random.split(KEY, 9))
    )()
    assert obs.shape == (9, *environment.observation_space(params).shape)
    assert info["returned_episode"].tolist() == [i in (3, 7) for i in range(9)]
    np.testing.assert_allclose(info["returned_episode_returns"][7], reward[4:8].sum(), rtol=1e-6)


class Policy(nn.Module):
    """A policy as evosax calls it: `(observation, key) -> action`."""

    @nn.compact
    def __call__(self, obs, key):
        return jax.random.categorical(key, nn.Dense(2)(obs))


@pytest.mark.usefixtures("nans", "promoted")
def test_evosax_evolves_cooperation_with_tit_for_tat():
    """The unchanged evosax makes the environment by its name, and takes the length of episodes from its params."""
    problem = GymnaxProblem(
        "marl-shaping/ipd-v0", Policy(), num_rollouts=4, use_normalize_obs=False,
        env_kwargs={"opponents": TFT}, env_params={"max_steps_in_episode": 10},
    )  # fmt: skip
    assert (problem.episode_length, problem.num_actions, problem.observation_shape) == (10, 2, (5,))
    state = problem.init(KEY)
    strategy = SNES(32, problem.sample(KEY))
    params = strategy.default_params
    search = strategy.init(KEY, problem.sample(KEY), params)

    @jax.jit
    def generation(carry, key):
        search, state = carry
        ask_key, eval_key, tell_key = jax.random.split(key, 3)
        candidates, search = strategy.ask(ask_key, search, params)
        fitness, state, _ = problem.eval(eval_key, candidates, state)
        search, _ = strategy.tell(tell_key, candidates, -fitness, search, params)
        return (search, state), fitness.mean()

    (_, state), fitness = jax.lax.scan(generation, (search, state), jax.random.split(KEY, 30))
    assert state.counter == 30
    assert fitness[0] < -13  # random policies get -1.5 in every round
    assert fitness[-1] > -11  # cooperators get -1


class Wrapper:
    """A wrapper as in PureJaxRL: methods are compiled with the wrapper as static and hand `params` on."""

    def __init__(self, environment):
        self._env = environment

    def __getattr__(self, name):
        return getattr(self._env, name)


class Counted(Wrapper):
    @partial(jax.jit, static_argnums=0)
    def reset(self, key, params=None):
        obs, state = self._env.reset(key, params)
        return jnp.reshape(obs, (-1,)), (state, 0, 0)  # plain numbers, which the first step makes floats

    @partial(jax.jit, static_argnums=0)
    def step(self, key, state, action, params=None):
        obs, inner, reward, done, info = self._env.step(key, state[0], action, params)
        going = state[1] + reward
        returned = state[2] * (1 - done) + going * done
        info["returned_episode_returns"], info["returned_episode"] = returned, done
        return jnp.reshape(obs, (-1,)), (inner, going * (1 - done), returned), reward, done, info


@pytest.mark.usefixtures("promoted")
def test_purejaxrl_plays_it_as_its_ppo_does(monkeypatch):
    """A scan of steps over a batch, with raw keys, `params` and the batch's axes as there; by a name of gymnax's."""
    with monkeypatch.context() as inside:  # other tests list what is registered
        inside.setattr(gymnax.registration, "registered_envs", [])
        gymnax.register("purejaxrl-ipd", lambda: LegacyStepAPIWrapper(env("ipd", opponents=TFT, episode_length=5)))
    environment, params = gymnax.make("purejaxrl-ipd")
    assert isinstance(environment.observation_space(params), spaces.Box)
    assert environment.action_space(params).n == environment.action_space().n == 2  # its dqn asks without params
    environment, num_envs = Counted(environment), 3

    def step(carry, _):
        state, obs, key = carry
        key, step_key = jax.random.split(key)
        obs, state, reward, done, info = jax.vmap(environment.step, in_axes=(0, 0, 0, None))(
            jax.random.split(step_key, num_envs), state, jnp.arange(num_envs) % 2, params
        )
        return (state, obs, key), (reward, done, info)

    @jax.jit
    def play(key):
        reset_key, key = jax.random.split(key)
        obs, state = jax.vmap(environment.reset, in_axes=(0, None))(jax.random.split(reset_key, num_envs), params)
        assert obs.shape == (num_envs, *environment.observation_space(params).shape)
        return jax.lax.scan(step, (state, obs, key), None, 10)[1]

    reward, done, info = play(jax.random.PRNGKey(30))
    assert done.sum(0).tolist() == [2, 2, 2]
    assert info["returned_episode"][4::5].all()
    np.testing.assert_array_equal(info["returned_episode_returns"][9], [-5, -8, -5])
    np.testing.assert_array_equal(reward[:5].sum(0), [-5, -8, -5])
