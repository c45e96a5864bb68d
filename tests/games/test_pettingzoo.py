"""Every game as a PettingZoo environment, by PettingZoo's own tests and SuperSuit's vectors."""

import copy
import pickle
import warnings

import gymnasium
import jax
import numpy as np
import pettingzoo
import pytest
import supersuit
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from pettingzoo import ParallelEnv
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test, seed_test

import games
from games import registry
from games.pettingzoo import batched_parallel_env, env, parallel_env
from tests.games.every_game import every_game

EVERY = every_game("CartPole-v1", "Pendulum-v1")  # gymnax's: one of each kind of action

MATTERS_OF_TASTE = (  # and those that say how large, how many-dimensional or how unlike two agents' spaces may be
    ".*(infinity|all zeros|than 3 dimensions|a single number|negative numbers|probably should be|different|are equal)"
)


def sampled(face, agents=None):
    return {agent: face.action_space(agent).sample() for agent in (agents or face.agents)}


@pytest.mark.parametrize("name", EVERY)
def test_pettingzoo_passes_every_game(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # its tests warn of half of what is wrong
        warnings.filterwarnings("ignore", MATTERS_OF_TASTE)
        face = parallel_env(name)
        assert isinstance(face, ParallelEnv)
        parallel_api_test(face, num_cycles=10)
        parallel_seed_test(lambda: parallel_env(name), num_cycles=10)
        api_test(env(name), num_cycles=10)
        seed_test(lambda: env(name), num_cycles=10)


@pytest.mark.parametrize("name", EVERY)
def test_observations_lie_in_their_spaces(name):
    face = parallel_env(name)
    observations, _ = face.reset(seed=3)
    for _ in range(5):
        for agent in face.agents:
            space = face.observation_space(agent)
            assert space.contains(observations[agent])
            assert observations[agent].dtype == space.dtype
        observations, *_ = face.step(sampled(face))


def test_an_episode_ends_by_its_time_limit_and_empties_the_agents():
    face = parallel_env("coin_game", episode_length=3)
    face.reset(seed=0)
    for time in range(1, 4):
        _, rewards, terminations, truncations, infos = face.step(sampled(face))
        assert all(type(reward) is float for reward in rewards.values())
        assert infos["agent_0"].keys() == {"own_coin", "other_coin"}
        assert set(terminations.values()) == {False}
        assert set(truncations.values()) == {time == 3}
    assert face.agents == []
    assert face.step({}) == ({}, {}, {}, {}, {})
    face.reset()
    assert face.agents == face.possible_agents


@pytest.mark.system
def test_infos_are_of_the_agent_that_they_name_among_more_than_ten():
    """JAX sorts dicts, and agent_10 comes before agent_2."""
    face, batch = parallel_env("public_goods", num_agents=12), batched_parallel_env("public_goods", 3, num_agents=12)
    for made, shape in ((face, ()), (batch, (3,))):
        made.reset(seed=0)
        actions = {agent: np.full(shape, agent != "agent_2", int) for agent in made.agents}  # 0 cooperates
        *_, infos = made.step(actions)
        for agent, info in infos.items():
            assert np.all(info["cooperation"] == (agent == "agent_2"))
    seat = gymnasium.make("games.gymnasium:marl-shaping/public_goods-v0", num_agents=12, seat=2)
    seat.reset(seed=0)
    assert [seat.step(action)[-1]["cooperation"] for action in (0, 1)] == [1.0, 0.0]


def test_an_end_by_the_rules_is_no_truncation():
    face = parallel_env("ipd", discount=0.0)  # over after one round
    face.reset(seed=0)
    _, rewards, terminations, truncations, infos = face.step({"agent_0": 0, "agent_1": 1})
    assert rewards == {"agent_0": -3, "agent_1": 0}
    assert set(terminations.values()) == {True}
    assert set(truncations.values()) == {False}
    assert infos["agent_0"]["CD"] == infos["agent_1"]["DC"] == 1


def played(face, actions, seed=None):
    observations, _ = face.reset(seed=seed)
    return [observations, *(face.step(action) for action in actions)]


def test_a_seed_fixes_this_episode_and_those_after_it():
    face = parallel_env("coin_game", episode_length=4)
    actions = [{"agent_0": i % 4, "agent_1": (i + 1) % 4} for i in range(4)]
    runs = [[played(face, actions, seed), played(face, actions)] for seed in (5, 5, 6)]
    assert gymnasium.utils.env_checker.data_equivalence(runs[0], runs[1], exact=True)
    assert not gymnasium.utils.env_checker.data_equivalence(runs[0], runs[2], exact=True)
    assert not gymnasium.utils.env_checker.data_equivalence(runs[0][0], runs[0][1], exact=True)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda face: pickle.loads(pickle.dumps(face))])
def test_a_copy_goes_on_as_the_original(copied):
    face = parallel_env("coin_game")
    face.reset(seed=0)
    face.step({"agent_0": 0, "agent_1": 1})
    twin = copied(face)
    for _ in range(5):
        acted = sampled(face)
        assert gymnasium.utils.env_checker.data_equivalence(face.step(acted), twin.step(acted), exact=True)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"agent_0": 0, "agent_1": 4}, r"actions\['agent_1'\]: got 4; a whole number from 0 to 3 is needed"),
        ({"agent_0": -1, "agent_1": 0}, r"actions\['agent_0'\]: got -1; a whole number from 0 to 3"),
        ({"agent_0": 0.5, "agent_1": 0}, r"actions\['agent_0'\]: got 0.5; a whole number"),
        ({"agent_0": float("nan"), "agent_1": 0}, r"actions\['agent_0'\]: got nan; a whole number"),
        ({"agent_0": None, "agent_1": 0}, r"actions\['agent_0'\]: got None; a whole number"),
        ({"agent_0": [0, 1], "agent_1": 0}, r"actions\['agent_0'\]: got shape \(2,\); .* of shape \(\)"),
        ({"agent_0": 0}, "actions: got those of agent_0; those of agent_0, agent_1 are needed"),
        ({"agent_0": 0, "agent_1": 0, "agent_2": 0}, "those of agent_0, agent_1 are needed"),
    ],
)
def test_actions_that_cannot_be_are_refused(actions, message):
    face = parallel_env("coin_game")
    with pytest.raises(ValueError, match=r"no game is on; call reset\(\)"):
        face.step({"agent_0": 0, "agent_1": 0})
    face.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        face.step(actions)
    twin = parallel_env("coin_game")
    twin.reset(seed=0)
    right = {"agent_0": 0, "agent_1": 3}
    for _ in range(3):  # a refused action was no step
        assert gymnasium.utils.env_checker.data_equivalence(face.step(right), twin.step(right), exact=True)


def test_environments_that_cannot_be_made_are_refused():
    with pytest.raises(ValueError, match="render_mode: got 'ansi'; one of None, human, rgb_array is needed"):
        parallel_env("coin_game", render_mode="ansi")
    with pytest.raises(ValueError, match="render_mode: got 'human'; one of None, rgb_array is needed"):
        batched_parallel_env("coin_game", 2, render_mode="human")
    with pytest.raises(ValueError, match="did you mean coin_game"):
        parallel_env("coin_gam")
    with pytest.raises(TypeError, match="game: got 5; a Game is needed"):
        parallel_env(5)
    with pytest.raises(ValueError, match="num_envs: got 0"):
        batched_parallel_env("coin_game", 0)
    with pytest.raises(ValueError, match="render: no episode is on"):
        batched_parallel_env("coin_game", 2, render_mode="rgb_array").render()


def test_a_picture_on_demand():
    face = parallel_env("coin_game", render_mode="rgb_array")
    face.reset(seed=0)
    picture = face.render()
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 2
    assert parallel_env("coin_game").render() is None


@pytest.mark.parametrize("name", ["ipd", "coin_game"])
def test_pettingzoo_passes_its_pictures(name, headless):
    with pytest.warns(UserWarning, match="human shows nothing, for matplotlib finds no screen"):
        render_test(lambda render_mode: env(name, render_mode=render_mode))


def test_a_window_shows_every_step(headless, monkeypatch):
    """A figure without a screen in place of a window."""
    monkeypatch.setattr(FigureCanvasAgg, "required_interactive_framework", "none")
    monkeypatch.setattr(FigureCanvasAgg, "start_event_loop", lambda canvas, timeout: waits.append(timeout))
    waits, shown = [], []
    face = parallel_env("coin_game", render_mode="human")
    twin = parallel_env("coin_game", render_mode="rgb_array")
    for one in (face, twin):
        one.reset(seed=0)
    for _ in range(3):
        np.testing.assert_array_equal(pyplot.gcf().axes[0].images[0].get_array(), twin.render())
        shown.append(twin.render())
        for one in (face, twin):
            one.step({"agent_0": 1, "agent_1": 2})
    assert not np.array_equal(shown[0], shown[1])
    assert waits == [0.25] * 4
    face.close()
    assert not pyplot.get_fignums()


@pytest.mark.system
def test_every_game_of_ours_is_registered():
    for name in registry.ours():
        for kind in ("parallel", "aec"):
            assert pettingzoo.spec(kind, f"marl-shaping/{name}-v0").make().metadata["name"] == games.make(name).name
    made = pettingzoo.make("parallel", "marl-shaping/coin_game-v0", grid_size=5, render_mode="rgb_array")
    assert (made.game.grid_size, made.render_mode) == (5, "rgb_array")


def vectorised(name, copies):
    face = supersuit.pettingzoo_env_to_vec_env_v1(parallel_env(name))
    return supersuit.concat_vec_envs_v1(face, copies)


def check_vectors(name, copies=2, steps=3):
    face = parallel_env(name)
    agents, space = len(face.possible_agents), face.observation_space(face.possible_agents[0])
    if any(face.action_space(agent) != face.action_space("agent_0") for agent in face.possible_agents):
        pytest.skip("SuperSuit's vectors want one space of actions for all agents")
    vector = vectorised(name, copies)
    observations, _ = vector.reset(seed=1)
    for _ in range(steps):
        assert observations.shape == (copies * agents, *space.shape)
        actions = np.stack([vector.action_space.sample() for _ in range(copies * agents)])
        observations, rewards, *_ = vector.step(actions)
        assert rewards.shape == (copies * agents,)


def test_supersuit_makes_vectors_that_go_on_over_the_end_of_episodes():
    check_vectors("coin_game", steps=20)
    vector = vectorised("coin_game", 2)
    first, _ = vector.reset(seed=1)
    assert not np.array_equal(first[:2], first[2:])  # copies are seeded apart
    again, _ = vector.reset(seed=1)
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("name", EVERY)
def test_supersuit_makes_vectors_of_every_game(name):
    check_vectors(name)


def test_supersuit_flattens_and_stacks():
    face = supersuit.frame_stack_v1(supersuit.flatten_v0(parallel_env("coin_game")), 4)
    observations, _ = face.reset(seed=0)
    assert observations["agent_0"].shape == (36 * 4,)
    observations, *_ = face.step(sampled(face))
    assert observations["agent_1"].shape == face.observation_space("agent_1").shape


NUM_ENVS = 6


def test_a_batch_plays_the_game_with_auto_reset():
    """Compared with the game's own steps, from the same states and keys."""
    game = games.make("coin_game", episode_length=2)
    face = batched_parallel_env(game, NUM_ENVS)
    observations, _ = face.reset(seed=0)
    step = jax.jit(jax.vmap(game.step))
    for time in range(1, 6):
        actions = {agent: np.full(NUM_ENVS, time % 4) for agent in face.agents}
        keys = jax.random.split(jax.random.fold_in(jax.random.key(face._seed), time), NUM_ENVS)
        expected = step(keys, face._state, actions)
        observations, rewards, terminations, truncations, infos = face.step(actions)
        assert face.agents == face.possible_agents
        for agent in face.agents:
            np.testing.assert_array_equal(observations[agent], expected[0][agent])
            np.testing.assert_array_equal(rewards[agent], expected[2][agent])
            np.testing.assert_array_equal(truncations[agent], time % 2 == 0)
            assert not terminations[agent].any()
            fresh = np.any(observations[agent] != infos[agent]["final_obs"], (1, 2, 3))
            assert fresh.any() == (time % 2 == 0)


def test_a_batch_refuses_actions_that_cannot_be():
    face = batched_parallel_env("coin_game", NUM_ENVS)
    face.reset(seed=0)
    fine, bad = np.zeros(NUM_ENVS, int), np.array([0, 0, 9, 0, 0, 0])
    with pytest.raises(ValueError, match=r"actions\['agent_1'\]: got 9; a whole number from 0 to 3 is needed"):
        face.step({"agent_0": fine, "agent_1": bad})
    with pytest.raises(ValueError, match=r"actions\['agent_0'\]: got shape \(5,\); .* of shape \(6,\)"):
        face.step({"agent_0": fine[1:], "agent_1": fine})


def test_the_aec_form_refuses_an_action_at_once():
    game = env("coin_game")
    game.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions\['agent_0'\]: got 9; a whole number from 0 to 3"):
        game.step(9)
    game.step(0)
    assert game.agent_selection == "agent_1"
