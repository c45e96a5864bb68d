"""Behaviour of all adapters to other libraries: forms of actions, forks, strategies by name, automatic resets."""

import multiprocessing
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import games.gymnasium
import games.gymnax
import games.jaxmarl
import games.pettingzoo
from games import make, prisoners_dilemma
from games.exact.strategies import STRATEGIES, MemoryOne, formula_of, strategy
from games.exact.zd import zd_policy
from marl import learn, make_learner
from tests.nightly import grid

KEY = jax.random.key(0)


def of_gymnasium(action, name):
    env = games.gymnasium.env(name)
    env.reset(seed=0)
    return env.step(action)[0]


def of_pettingzoo(action, name):
    env = games.pettingzoo.parallel_env(name)
    env.reset(seed=0)
    return env.step(dict.fromkeys(env.agents, action))[0]["agent_0"]


def of_jaxmarl(action, name):
    env = games.jaxmarl.wrap(name)
    _, state = env.reset(KEY)
    return env.step(KEY, state, dict.fromkeys(env.agents, action))[0]["agent_0"]


def of_gymnax(action, name):
    env = games.gymnax.env(name)
    _, state = env.reset(KEY)
    return env.step(KEY, state, action)[0]


ADAPTERS = [of_gymnasium, of_pettingzoo, of_jaxmarl, of_gymnax]
FORMS = {
    "ipd": (1, np.int64(1), np.array(1), np.array([1]), [1], jnp.int32(1), jnp.array([1]), True),
    "pendulum": (0.5, np.float32(0.5), np.array(0.5), np.array([0.5]), [0.5], jnp.float32(0.5), jnp.array([0.5])),
}


@pytest.mark.parametrize("step", ADAPTERS)
@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_an_action_is_the_same_action(step, name):
    first, *others = (np.asarray(step(action, name)) for action in FORMS[name])
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("step", ADAPTERS)
@pytest.mark.parametrize("action", [[1, 1], np.zeros((2, 2)), [[1], [1, 0]]])
def test_an_action_of_another_shape_is_refused_in_one_line(step, action):
    with pytest.raises(ValueError, match="action") as said:
        step(action, "ipd")
    assert re.fullmatch(r"action\S*: got .*is needed", str(said.value))


def test_actions_of_other_players_are_refused_by_jaxmarl_too():
    env = games.jaxmarl.wrap("ipd")
    with pytest.raises(ValueError, match="actions: got those of agent_0; those of agent_0, agent_1 are needed"):
        env.step(KEY, env.reset(KEY)[1], {"agent_0": 1})


def statistics(**settings):
    envs = RecordEpisodeStatistics(games.gymnasium.vector_env("ipd", 2, episode_length=5, **settings))
    envs.reset(seed=0)
    ended = []
    for _ in range(18):
        infos = envs.step(np.zeros(2, int))[4]
        if "episode" in infos:
            ended += [(int(x), float(r)) for x, r in zip(infos["episode"]["l"], infos["episode"]["r"], strict=True)]
    return ended


def test_gymnasiums_statistics_of_three_episodes():
    ended = statistics(autoreset_mode="next_step", opponents="all_c")
    assert ended == [(5, -5.0)] * 6  # a reset is a step without a reward
    if tuple(map(int, gymnasium.__version__.split(".")[:2])) >= (1, 4):
        assert statistics(opponents="all_c") == [(5, -5.0)] * 6


def test_in_the_step_after_an_episode_nothing_happens_but_the_reset():
    envs = games.gymnasium.vector_env("ipd", 2, episode_length=2, autoreset_mode=AutoresetMode.NEXT_STEP)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    first, _ = envs.reset(seed=0)
    seen = [envs.step(np.ones(2, int)) for _ in range(5)]
    assert [one[3].tolist() for one in seen] == [[False] * 2, [True] * 2, [False] * 2, [False] * 2, [True] * 2]
    np.testing.assert_array_equal(seen[2][0], first)
    assert seen[2][1].tolist() == [0, 0]
    assert seen[2][4]["_cooperation"].tolist() == [False, False]
    assert (seen[1][0] != first).any()  # the last observation, and not that of a new episode
    with pytest.raises(ValueError, match="autoreset_mode: got 'DISABLED'"):
        games.gymnasium.vector_env("ipd", 2, autoreset_mode=AutoresetMode.DISABLED)


def step_once(pipe):
    """Plays one step in a child process."""
    try:
        env = games.gymnasium.env("ipd")
        env.reset(seed=0)
        pipe.send(float(env.step(0)[1]) <= 0)
    except RuntimeError as error:
        pipe.send(str(error))


@pytest.mark.system
@pytest.mark.parametrize("method", grid(("fork", "spawn"), "fork"))
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_says_that_spawn_is_needed(method):
    jnp.zeros(3).block_until_ready()  # JAX has begun here
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=step_once, args=(there,))
    child.start()
    try:
        assert here.poll(60)
        found = here.recv()
        assert found is True if method == "spawn" else "context='spawn'" in found
    finally:
        child.kill()
        child.join()


def test_strategies_have_the_same_names_in_every_kind_of_game():
    """Strategies by name in exact and sampled games and adapters, and tit for tat against one that defects."""
    sampled = make("ipd", discount=0.96)
    for name in STRATEGIES.names():
        spec = "memory_one(probabilities=[1, 1, 0, 1, 0])" if name == "memory_one" else name
        assert len(strategy(spec, sampled)) == 5
        for game in (sampled, formula_of(sampled)):
            assert make_learner(spec, game, 1).seat == 1
        env = games.gymnasium.env("ipd", opponents=spec, discount=0.96)
        assert env.metadata["opponents"] == (repr(MemoryOne(strategy(spec, sampled, 1))),) or name == "random"
    assert strategy("0.9,1,0,1,0", sampled) == (0.9, 1, 0, 1, 0)
    expected = zd_policy(prisoners_dilemma, 2.0, discount=0.96)
    np.testing.assert_allclose(strategy("zd(chi=2)", sampled), expected, rtol=1e-6)
    players = [make_learner("tft", sampled, 0), make_learner("0,0,0,0,0", sampled, 1)]
    history = learn(KEY, make("ipd"), players, num_updates=1, steps_per_update=4, num_envs=2, keep_trajectories=True)
    actions = history.trajectories[0].action[0]
    np.testing.assert_array_equal(actions, [[0, 0], [1, 1], [1, 1], [1, 1]])  # [rounds, environments]


def test_strategies_by_name_in_a_social_dilemma_of_two():
    """The volunteer's dilemma of two is a chicken: 1 - c, 1 - c, 1, 0 after CC, CD, DC, DD."""
    dilemma = make("volunteers_dilemma", num_agents=2, cost=0.25, episode_length=4)
    assert formula_of(dilemma).payoffs.row_payoffs == [0.75, 0.75, 1.0, 0.0]
    assert formula_of(dilemma).payoffs.column_payoffs == [0.75, 1.0, 0.75, 0.0]
    players = [make_learner("tft", dilemma, 0), make_learner("0,0,0,1,0", dilemma, 1)]
    history = learn(KEY, dilemma, players, num_updates=1, steps_per_update=4, num_envs=1, keep_trajectories=True)
    np.testing.assert_array_equal(history.trajectories[0].action[0][:, 0], [0, 1, 0, 1])
    np.testing.assert_array_equal(history.trajectories[1].action[0][:, 0], [1, 0, 1, 0])


def test_tit_for_tat_by_name_answers_the_last_action():
    env = games.gymnasium.env("ipd", opponents="tft", seat=1)
    env.reset(seed=0)
    rewards = [env.step(action)[1] for action in (1, 1, 0, 0)]
    assert rewards == [0.0, -2.0, -3.0, -1.0]  # it cooperates first, and then does what was done
    assert games.gymnasium.env("coin_game").metadata["opponents"] == ("random",)


@pytest.mark.parametrize(
    ("opponents", "words"),
    [
        ("ppo", "opponents: got 'ppo'; one of all_c, .*; a learner of marl is made by make_learner"),
        ("tftt", r"opponents: got 'tftt'; did you mean tft or gtft\?"),
        ("2,1,0,1,0", r"opponents: memory_one: probabilities: got \[2, 1, 0, 1, 0\]"),
        ("zd(chi=0.5)", "opponents: zd: "),
    ],
)
def test_other_opponents_are_refused(opponents, words):
    with pytest.raises(ValueError, match=words):
        games.gymnasium.env("ipd", opponents=opponents, discount=0.96)
    with pytest.raises(ValueError, match="opponents: tft: got CoinGame; a repeated game of two players"):
        games.gymnasium.env("coin_game", opponents="tft")
    assert re.match("random", games.gymnasium.env("coin_game", opponents="random").metadata["opponents"][0])
