"""Environments of JaxMARL as games: theirs step for step, and ours through theirs and back."""

import jax
import jax.numpy as jnp
import jaxmarl
import numpy as np
import pytest
from jaxmarl.environments import spaces

import games
from games.jaxmarl import wrap
from marl import learn, make_learner
from tests.nightly import grid

KEY = jax.random.key(3)
RAW = jax.random.key_data(KEY)
# Environments of each kind: names of roles, continuous actions, masks, images, arrays in place of dicts, and trees.
KINDS = ["MPE_simple_world_comm_v3", "switch_riddle", "HeuristicEnemySMAX", "overcooked", "coin_game", "storm"]


class Duel:
    """An environment in the manner of SocialJax: arrays with the players in front, and spaces for all of them."""

    agents = (0, 1)
    num_inner_steps = 3

    def reset(self, key):
        return jnp.zeros((2, 1)), jnp.float32(0)

    def step_env(self, key, state, actions):
        first, second = actions
        state = state + first - second
        done = jnp.abs(state) > 1
        rewards = jnp.stack([first - second, second - first])
        infos = {"moves": jnp.stack(actions), "sum": first + second}
        return jnp.stack([state, -state])[:, None], state, rewards, {"__all__": done}, infos

    def action_space(self):
        return spaces.Discrete(2)

    def observation_space(self):
        return spaces.Box(-2.0, 2.0, (1,)), (1,)


@pytest.mark.system
def test_an_environment_is_the_same_step_for_step():
    theirs = jaxmarl.make("MPE_simple_tag_v3")
    game = games.from_jaxmarl(theirs)
    (seen, state), (expected, inner) = game.reset(KEY), theirs.reset(RAW)
    assert game.agents == [f"agent_{i}" for i in range(4)]
    for ours, name in zip(game.agents, theirs.agents, strict=True):
        np.testing.assert_array_equal(seen[ours], expected[name])
        assert game.observation_space(ours).shape == theirs.observation_space(name).shape
        assert game.action_space(ours).n == theirs.action_space(name).n
    step = jax.jit(game.step_env)
    for i in range(3):
        key, act = jax.random.key(i), jnp.int32(1 + i)
        seen, state, rewards, *_ = step(key, state, dict.fromkeys(game.agents, act))
        expected, inner, paid, *_ = theirs.step_env(jax.random.key_data(key), inner, dict.fromkeys(theirs.agents, act))
        for ours, name in zip(game.agents, theirs.agents, strict=True):
            np.testing.assert_allclose(seen[ours], expected[name], rtol=1e-6)
            assert rewards[ours] == pytest.approx(float(paid[name]), rel=1e-6)


@pytest.mark.parametrize("name", ["ipd", "coin_game", "pendulum"])
def test_a_game_of_ours_comes_back_as_it_was(name):
    game, back = games.make(name), games.from_jaxmarl(wrap(name))
    for seed in range(2):
        ours, theirs = (games.rollout(jax.random.key(seed), one, 5) for one in (game, back))
        for agent in game.agents:
            np.testing.assert_allclose(ours.observations[agent], theirs.observations[agent], rtol=1e-6)
            np.testing.assert_allclose(ours.rewards[agent], theirs.rewards[agent], rtol=1e-6)
    assert back.observation_space("agent_0").shape == game.observation_space("agent_0").shape
    assert type(back.action_space("agent_0")) is type(game.action_space("agent_0"))


def test_arrays_with_the_players_in_front_will_do():
    game = games.from_jaxmarl(Duel())
    assert game.num_agents == 2
    assert int(game.time_limit) == 3
    space = game.observation_space("agent_1")
    assert (space.low, space.high, space.shape) == (-2, 2, (1,))
    _, state = game.reset(KEY)
    seen, state, rewards, dones, infos = game.step_env(KEY, state, {"agent_0": jnp.int32(1), "agent_1": jnp.int32(0)})
    assert {agent: float(x[0]) for agent, x in seen.items()} == {"agent_0": 1, "agent_1": -1}
    assert rewards == {"agent_0": 1, "agent_1": -1}
    assert infos["moves"].tolist() == [1, 0]
    assert "sum" not in infos  # no number for each player
    assert not dones["__all__"]


def test_an_end_at_the_limit_is_truncated_and_one_before_it_is_not():
    game = games.from_jaxmarl(Duel())
    ends = {}
    for name, acts in (("limit", (0, 0)), ("rules", (1, 0))):
        played = games.rollout(KEY, game, 3, lambda key, seen, acts=acts: dict(zip(game.agents, acts, strict=True)))
        ends[name] = (played.dones["__all__"].tolist(), played.infos["truncated"][:, 0].tolist())
    assert ends["limit"] == ([False, False, True], [False, False, True])
    assert ends["rules"] == ([False, True, False], [False, False, False])
    assert games.from_jaxmarl("coin_game").time_limit == 100  # ten episodes of ten steps
    assert games.from_jaxmarl(Duel(), episode_length=2).time_limit == 2
    assert games.from_jaxmarl(Duel(), episode_length=9).time_limit == 3  # it ends there
    for wrong in ("5", 9.5, 0):
        with pytest.raises(ValueError, match="episode_length: got"):
            games.from_jaxmarl(Duel(), episode_length=wrong)
    assert jax.jit(lambda length: games.from_jaxmarl(Duel(), episode_length=length).time_limit)(2) == 2

    class Brax(Duel):
        num_inner_steps = None
        episode_length = 7  # as its environments call it

    assert games.from_jaxmarl(Brax()).time_limit == 7


@pytest.mark.system
@pytest.mark.parametrize("name", grid(KINDS, "overcooked"))
def test_every_kind_is_played_and_learned_in(name):
    game = games.from_jaxmarl(name)
    played = jax.jit(lambda key: games.rollout(key, game, 4))(KEY)
    for agent in game.agents:
        space = game.observation_space(agent)
        assert played.observations[agent].shape[1:] == space.shape
        assert bool(jax.vmap(space.contains)(played.observations[agent]).all())
    learners = [make_learner("ppo(hidden=[8])", game, seat, num_updates=2) for seat in range(game.num_agents)]
    # Traced and not compiled, except for one, because their steps are large programs.
    run = jax.jit(lambda key: learn(key, game, learners, num_updates=2, steps_per_update=8, num_envs=2))
    history = run(KEY) if name == "switch_riddle" else jax.eval_shape(run, KEY)
    assert [rewards.shape for rewards in history.rewards] == [(2,)] * game.num_agents
    if name == "switch_riddle":
        assert np.isfinite(history.rewards).all()


def test_actions_that_are_impossible_are_masked():
    game = games.from_jaxmarl("HeuristicEnemySMAX")
    _, state = game.reset(KEY)
    masks = game.get_avail_actions(state)
    assert all(mask.shape == (game.action_space(agent).n,) for agent, mask in masks.items())
    assert not all(bool(mask.all()) for mask in masks.values())  # the enemies are out of range at the start


@pytest.mark.parametrize(
    ("environment", "params", "message"),
    [
        ("overcookd", {}, "environment: got 'overcookd'.*overcooked"),
        ("switch_riddle", {"agents": 3}, "switch_riddle: cannot be made with"),
        (object(), {}, "environment: got object without reset"),
        (Duel(), {"size": 3}, "size: got an instance"),
        (Duel(), {"episode_length": 0}, "episode_length: got 0"),
        ("ant_4x2", {}, "ant_4x2: cannot be made with its defaults"),
    ],
)
def test_what_is_no_environment_is_refused(environment, params, message):
    with pytest.raises(ValueError, match=message):
        games.from_jaxmarl(environment, **params)
