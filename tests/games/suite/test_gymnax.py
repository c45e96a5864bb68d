"""Environments of gymnax as games: its own trajectories, both ways to end, all its names."""

import subprocess
import sys
import urllib.error

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.utils import load_mnist

from games.core.spaces import Box, Discrete
from games.registry import DOWNLOADED, foreign
from games.suite.gymnax import cached_instance, from_gymnax

KEY = jax.random.key(0)
CARTPOLE = from_gymnax("CartPole-v1")
NAMES = [name for name in foreign() if name not in DOWNLOADED]

reset = jax.jit(lambda game, key: game.reset(key))
step = jax.jit(lambda game, key, state, action: game.step_env(key, state, {"agent_0": action}))
auto_step = jax.jit(lambda game, key, state, action: game.step(key, state, {"agent_0": action}))


@pytest.mark.usefixtures("promoted")
def test_cartpole_is_gymnax_s_cartpole():
    environment, params = gymnax.make("CartPole-v1")
    obs, state = reset(CARTPOLE, KEY)
    obs_theirs, state_theirs = environment.reset(KEY, params)
    ends = 0
    for i in range(60):
        np.testing.assert_array_equal(obs["agent_0"], obs_theirs)
        key, action = jax.random.key(i), jnp.int32(i % 3 == 0)
        obs, state, rewards, dones, infos = auto_step(CARTPOLE, key, state, action)
        obs_theirs, state_theirs, reward, terminated, truncated, _ = environment.step(key, state_theirs, action, params)
        assert rewards["agent_0"] == reward
        assert dones["__all__"] == (terminated | truncated)
        assert infos["truncated"][0] == truncated
        ends += int(dones["__all__"])
    assert ends >= 2  # and so auto-resets are compared too


def test_a_falling_pole_terminates_and_the_limit_truncates():
    state, steps = reset(CARTPOLE, KEY)[1], 0
    while True:
        _, state, _, dones, infos = step(CARTPOLE, KEY, state, jnp.int32(1))
        steps += 1
        if dones["__all__"]:
            break
    assert steps < 20
    assert abs(state.theta) > 12 * np.pi / 180
    assert infos["truncated"].tolist() == [False]
    assert infos["discount"].tolist() == [0.0]
    short = from_gymnax("CartPole-v1", max_steps_in_episode=3)
    state = reset(short, KEY)[1]
    for i in range(3):
        _, state, _, dones, infos = step(short, KEY, state, jnp.int32(i % 2))
        assert dones["__all__"] == infos["truncated"][0] == (i == 2)
    assert infos["discount"].tolist() == [1.0]


def test_a_pole_that_falls_at_the_limit_terminates():
    state = reset(CARTPOLE, KEY)[1].replace(theta=jnp.float32(0.3), time=jnp.int32(499))
    _, _, _, dones, infos = step(CARTPOLE, KEY, state, jnp.int32(1))
    assert dones["__all__"]
    assert infos["truncated"].tolist() == [False]


def test_pendulum_ends_by_its_limit_only_and_is_differentiable():
    game = from_gymnax("Pendulum-v1")
    start = reset(game, KEY)[1]

    def body(state, _):
        _, state, _, dones, infos = game.step_env(KEY, state, {"agent_0": jnp.ones(1)})
        return state, (dones["__all__"], infos["truncated"][0])

    _, (ends, truncated) = jax.jit(lambda state: jax.lax.scan(body, state, None, 200))(start)
    np.testing.assert_array_equal(ends, [False] * 199 + [True])
    np.testing.assert_array_equal(truncated, ends)
    gradient = jax.grad(lambda u: step(game, KEY, start, u)[1].theta_dot)(jnp.zeros(1))
    assert gradient[0] == pytest.approx(3 * 0.05)  # dt 3 / (m l^2)


def test_one_compilation_serves_all_parameters_and_many_play_at_once():
    before = step._cache_size()
    for gravity in (9.8, 1.6, 3.7):
        game = from_gymnax("CartPole-v1", gravity=gravity)
        step(game, KEY, reset(game, KEY)[1], jnp.int32(0))
    assert step._cache_size() <= before + 1
    games = jax.vmap(lambda g: from_gymnax("CartPole-v1", gravity=g))(jnp.array([0.0, 9.8]))
    state = reset(CARTPOLE, KEY)[1].replace(theta=jnp.float32(0.1), theta_dot=jnp.float32(0.0))
    after = jax.vmap(lambda game: game.step_env(KEY, state, {"agent_0": 1})[1].theta_dot)(games)
    assert after[1] > after[0]  # gravity pulls


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_can_be_scanned_with_auto_reset(name):
    game = from_gymnax(name)
    space = game.action_space("agent_0")

    def play(key):
        def body(carry, key):
            obs, state, rewards, dones, infos = game.step(key, carry[1], {"agent_0": space.sample(key)})
            return (obs, state), (rewards, dones, infos)

        return jax.lax.scan(body, game.reset(key), jax.random.split(key, 5))

    (obs, state), (rewards, dones, infos) = jax.eval_shape(play, KEY)  # a scan refuses a state that changes its type
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((obs, state)))
    observed = game.observation_space("agent_0")
    assert (obs["agent_0"].shape, obs["agent_0"].dtype) == (observed.shape, jnp.dtype(observed.dtype))
    assert (rewards["agent_0"].shape, rewards["agent_0"].dtype) == ((5,), jnp.float32)
    assert (dones["__all__"].shape, dones["__all__"].dtype) == ((5,), bool)
    assert all(x.shape == (5, 1) for x in infos.values())


@pytest.mark.parametrize("name", ["Catch-bsuite", "FrozenLake-misc", "UmbrellaChain-bsuite"])
def test_auto_reset_begins_a_new_episode(name):
    game = from_gymnax(name)
    state = reset(game, KEY)[1]
    for i in range(200):
        space = game.action_space("agent_0")
        obs, state, _, dones, _ = auto_step(game, jax.random.key(i), state, space.sample(jax.random.key(i)))
        np.testing.assert_array_equal(obs["agent_0"], game.get_obs(state)["agent_0"])
        assert (state.time == 0) == dones["__all__"]
        if dones["__all__"]:
            return
    pytest.fail("it never ended")


def test_spaces():
    assert CARTPOLE.action_space("agent_0") == Discrete(2)
    box = CARTPOLE.observation_space("agent_0")
    assert isinstance(box, Box)
    np.testing.assert_allclose(box.high, [4.8, np.inf, 24 * np.pi / 180, np.inf], rtol=1e-6)
    torque = from_gymnax("Pendulum-v1", max_torque=3.0).action_space("agent_0")
    assert (float(torque.low), float(torque.high), torque.shape) == (-3.0, 3.0, (1,))
    assert from_gymnax("DeepSea-bsuite", size=5).observation_space("agent_0").shape == (5, 5)


@pytest.fixture
def no_instances():
    cached_instance.cache_clear()
    yield
    cached_instance.cache_clear()


def test_mnist_names_its_download_where_the_network_fails(monkeypatch, no_instances):
    def unreachable(*args):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(load_mnist, "load_mnist", unreachable)
    with pytest.raises(RuntimeError, match="MNISTBandit-bsuite: gymnax downloads its data"):
        from_gymnax("MNISTBandit-bsuite")
    images, labels = np.zeros((4, 28, 28), np.uint8), np.arange(4, dtype=np.uint8)
    monkeypatch.setattr(load_mnist, "load_mnist", lambda: ((images, labels), None))
    game = from_gymnax("MNISTBandit-bsuite", fraction=0.5)
    assert game.environment.num_data == 2
    _, state = game.reset(KEY)
    _, state, rewards, dones, _ = game.step(KEY, state, {"agent_0": state.correct_label})
    assert rewards["agent_0"] == 1.0
    assert dones["__all__"]
    with pytest.raises(NotImplementedError, match="does not say what was observed"):
        game.get_obs(state)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Breakout-MinAtar", "Catch-bsuite"])
def test_pictures_move(name):
    game = from_gymnax(name)
    state = game.reset(KEY)[1]
    moved = state
    for _ in range(3):
        moved = step(game, KEY, moved, jnp.zeros(game.action_space("agent_0").shape, jnp.int32))[1]
    first, second = game.render(state), game.render(moved)
    assert first.dtype == np.uint8
    assert first.shape == second.shape
    assert (first != second).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("CartPole-v2", {}), r"environment: got 'CartPole-v2'; did you mean CartPole-v1"),
        (("CartPole-v1", {"max_steps": 3}), r"CartPole-v1: unknown parameter max_steps; did you mean max_steps_in_e"),
        (("CartPole-v1", {"max_steps_in_episode": 0}), "max_steps_in_episode: got 0"),
        (("CartPole-v1", {"gravity": "strong"}), "gravity: got 'strong'"),
        (("Pong-misc", {"use_ai_policy": "no"}), "use_ai_policy: got 'no'"),
        (("DeepSea-bsuite", {"size": -4}), "DeepSea-bsuite: cannot be made"),
        (("DeepSea-bsuite", {"size": 0}), "DeepSea-bsuite: cannot be played with {'size': 0}"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    name, params = arguments
    with pytest.raises(ValueError, match=message):
        from_gymnax(name, **params)


def test_an_environment_without_a_picture_is_refused_by_render():
    game = from_gymnax("Swimmer-misc")
    with pytest.raises(NotImplementedError, match="Swimmer-misc: there is no picture"):
        game.render(game.reset(KEY)[1])


def test_gymnax_is_imported_only_when_it_is_played():
    code = "import sys, games.suite.gymnax; sys.exit('gymnax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
