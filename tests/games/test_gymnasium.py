"""One seat of a game as a gymnasium environment, by gymnasium's own check and its own vectors."""

import dataclasses
import warnings
from typing import NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import games
import games.gymnax
import marl
from games import registry
from games.core.spaces import Box
from games.gymnasium import _step, env, vector_env
from games.host_stepping import check_action
from games.wrappers.cheap_talk import CheapTalk
from tests.games.every_game import every_game

EVERY = every_game("CartPole-v1", "Pendulum-v1", "Catch-bsuite")


def defect(key, observation):
    return 1


def mirror(key, observation):
    """Tit for tat: the other's last action, from the one-hot state start, CC, CD, DC, DD."""
    return (observation @ jnp.array([0, 0, 1, 0, 1])).astype(int)


@dataclasses.dataclass
class Unhashable:
    """An opponent whose class compares by value, as dataclasses do by default."""

    init = act = None


class Counter(NamedTuple):
    """An opponent with a memory: it defects when `patience` rounds are over."""

    patience: int

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def act(self, key, state, observation):
        return jnp.where(state < self.patience, 0, 1), state + 1, ()


@pytest.mark.parametrize("name", EVERY)
def test_gymnasium_passes_every_game(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        # Matters of taste: unbounded or unnormalised spaces, and that there is nothing registered.
        warnings.filterwarnings("ignore", ".*(infinity|symmetric and normalized|not having a spec)")
        check_env(env(name, seat=-1 + games.make(name).num_agents))


def test_a_fixed_opponent_plays_the_other_seats():
    face = env("ipd", opponents=mirror)
    face.reset(seed=0)
    rewards = [face.step(action)[1] for action in (0, 1, 0, 0, 1, 1)]
    assert rewards == [-1, 0, -3, -1, 0, -2]


def test_the_opponent_sees_the_game_from_its_own_seat():
    """A defector against tit for tat gets 0 in the first round, in both seats."""
    for seat in (0, 1):
        face = env("ipd", seat=seat, opponents=mirror)
        face.reset(seed=0)
        _, reward, *_, infos = face.step(1)
        assert reward == 0
        assert infos["DC"] == 1


def test_opponents_have_a_memory_that_is_reset_with_every_episode():
    face = env("ipd", opponents=Counter(2), episode_length=4)
    for _ in range(2):
        face.reset()
        assert [face.step(0)[1] for _ in range(4)] == [-1, -1, -3, -3]
    vector = vector_env("ipd", 2, opponents=Counter(2), episode_length=4)
    vector.reset()
    rewards = [vector.step([0, 1])[1].tolist() for _ in range(8)]
    assert rewards == [[-1, 0], [-1, 0], [-3, -2], [-3, -2]] * 2


def test_every_other_seat_has_an_opponent_of_its_own():
    always = [lambda key, observation, a=a: a for a in (0, 1)]
    for seat in range(3):
        face = env("three_player_ipd", seat=seat, opponents=always)
        face.reset()
        assert face.step(1)[1] == 3  # one of the others cooperates: 2 * 1 + 1


@pytest.mark.usefixtures("promoted")
def test_a_learner_is_an_opponent():
    """Its policy plays with its memory; deterministic policies, so that the rewards can be worked out by hand."""
    tft = marl.play_memory_one([1, 1, 0, 1, 0])
    for face in (env("ipd", opponents=tft), gym.make("marl-shaping/ipd-v0", opponents=tft)):
        face.reset(seed=0)
        assert [face.step(action)[1] for action in (0, 1, 0, 0, 1, 1)] == [-1, 0, -3, -1, 0, -2]
    game = games.make("ipd")
    learner = marl.make_learner("tabular_ppo", game, seat=1)
    state = learner.init(jax.random.key(0))
    kernel = jnp.array([99.0, 99, -99, 99, -99])[:, None] * jnp.array([1, -1])  # tit for tat, as one layer
    state.params["_Heads_0"]["Dense_0"]["kernel"] = kernel
    vector = gym.make_vec("marl-shaping/ipd-v0", 3, opponents=learner._replace(init=lambda key: state))
    vector.reset(seed=0)
    rewards = [vector.step(np.full(3, action))[1].tolist() for action in (0, 1, 0, 0, 1, 1)]
    assert rewards == [[x] * 3 for x in (-1, 0, -3, -1, 0, -2)]


def test_a_learner_that_sees_all_is_an_opponent():
    """MAPPO's observations have those of the others behind, which its critic reads; its policy plays as alone."""
    game = games.make("coin_game")
    learner = marl.make_learner("mappo(hidden=[4])", game, seat=1)
    state = learner.init(jax.random.key(0))
    face = env("coin_game", opponents=learner._replace(init=lambda key: state))
    face.reset(seed=0)
    assert np.isfinite([face.step(0)[1] for _ in range(8)]).all()


def test_a_named_strategy_in_the_infinitely_repeated_game_is_a_learner_there():
    game = games.InfinitelyRepeated(games.matrix_games["prisoners_dilemma"])
    with pytest.raises(ValueError, match=r"opponents: got 'tft'; make_learner\('tft', game, 1\) of marl is needed"):
        env(game, opponents="tft")
    face = env(game, opponents=marl.make_learner("tft", game, 1))
    face.reset(seed=0)
    assert face.step(np.full(5, -20, np.float32))[1] == pytest.approx(0.96 * -2, abs=1e-4)  # 0 first, then -2


def test_every_game_of_ours_is_registered(headless):
    """Gymnasium's own check then also makes the environment with every mode of pictures."""
    assert {f"marl-shaping/{name}-v0" for name in (*registry.ours(), *registry.presets())} <= {*gym.registry}
    made = gym.make("games.gymnasium:marl-shaping/coin_game-v0", grid_size=4, seat=1, opponents=defect)
    assert made.observation_space.shape == env("coin_game", grid_size=4).observation_space.shape
    vector = gym.make_vec("marl-shaping/coin_game-v0", 5, opponents=defect)
    assert isinstance(vector, VectorEnv)
    assert vector.num_envs == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", ".*(infinity|finds no screen)")
        check_env(gym.make("marl-shaping/ipd-v0").unwrapped)


def test_opponents_are_random_by_default():
    vector = vector_env("ipd", 1000)
    vector.reset(seed=0)
    *_, infos = vector.step(np.zeros(1000, int))
    assert infos["CC"].mean() == pytest.approx(0.5, abs=0.06)  # four standard errors


def test_an_episode_ends_and_must_be_begun():
    face = env("coin_game", episode_length=2)
    with pytest.raises(ResetNeeded):
        face.step(0)
    face.reset(seed=0)
    assert face.step(0)[2:4] == (False, False)
    assert face.step(0)[2:4] == (False, True)
    with pytest.raises(ResetNeeded):
        face.step(0)
    face.reset()
    face.step(0)


def test_a_seed_fixes_this_episode_and_those_after_it():
    def runs(seed):
        face = env("coin_game", episode_length=4)
        return [[face.reset(seed=s), *(face.step(i % 4) for i in range(4))] for s in (seed, None)]

    assert data_equivalence(runs(1), runs(1), exact=True)
    assert not data_equivalence(runs(1), runs(2), exact=True)


def test_vectors_agree_with_gymnasiums_own():
    """Numbers, shapes and masks of `SyncVectorEnv` across the ends of episodes, in a game without chance."""
    make = {"game": "ipd", "opponents": mirror, "episode_length": 3}
    ours = vector_env(num_envs=4, **make)
    theirs = SyncVectorEnv([lambda: env(**make)] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    np.testing.assert_array_equal(ours.reset(seed=0)[0], theirs.reset(seed=0)[0])
    for time in range(1, 8):
        actions = np.array([0, 1, time % 2, time // 2 % 2])
        (*received, infos), (*expected, expected_infos) = ours.step(actions), theirs.step(actions)
        for x, y in zip(received, expected, strict=True):
            np.testing.assert_array_equal(x, y)
        assert ours.observation_space.contains(received[0])
        assert ("final_obs" in infos) == (time % 3 == 0)
        for name in infos.keys() - expected_infos.keys():  # theirs has no infos where all environments are reset
            assert not np.any(infos[name])
        check_same(infos, expected_infos)


def check_same(infos, expected):
    for name, value in expected.items():
        if isinstance(value, dict):
            assert infos[name].keys() == value.keys()
            check_same(infos[name], value)
        else:
            x, y = (np.stack(v) if v.dtype == object else v for v in (infos[name], value))
            np.testing.assert_array_equal(x, y)


def test_vectors_tell_an_end_by_the_rules_from_one_by_the_limit():
    vector = vector_env("ipd", 500, discount=0.5, episode_length=2)
    vector.reset(seed=0)
    _, _, first, none, infos = vector.step(np.zeros(500, int))
    assert first.mean() == pytest.approx(0.5, abs=0.09)
    assert not none.any()
    np.testing.assert_array_equal(infos["_final_obs"], first)
    assert [x is not None for x in infos["final_obs"]] == first.tolist()
    _, _, terminations, truncations, _ = vector.step(np.zeros(500, int))
    assert not (terminations & truncations).any()
    np.testing.assert_array_equal((terminations | truncations)[~first], True)


def test_gymnasiums_wrappers_count_returns():
    vector = gym.wrappers.vector.RecordEpisodeStatistics(vector_env("ipd", 3, opponents=defect, episode_length=5))
    vector.reset(seed=0)
    for _ in range(5):
        *_, infos = vector.step(np.array([0, 1, 1]))
    assert infos["episode"]["r"].tolist() == [-15, -10, -10]
    assert infos["episode"]["l"].tolist() == [5, 5, 5]


def test_pictures():
    face = env("coin_game", render_mode="rgb_array")
    face.reset(seed=0)
    assert face.render().dtype == np.uint8
    vector = vector_env("coin_game", 2, render_mode="rgb_array")
    vector.reset(seed=0)
    assert [picture.shape for picture in vector.render()] == [face.render().shape] * 2


def test_pictures_of_many_games_are_of_each_alone():
    face = env("ipd", render_mode="rgb_array", opponents=defect)
    vector = vector_env("ipd", 3, render_mode="rgb_array", opponents=defect)
    with pytest.raises(ResetNeeded, match="render: no episode is on"):
        vector.render()
    vector.reset(seed=0)
    vector.step(np.array([0, 1, 0]))
    for action, picture in zip((0, 1, 0), vector.render(), strict=True):
        face.reset(seed=0)
        face.step(action)
        np.testing.assert_array_equal(picture, face.render())


def test_the_memory_of_cheap_talk_lasts_across_episodes():
    """The adapters count observations across episodes, as the game itself does."""
    talk = CheapTalk(
        games.make("CartPole-v1", max_steps_in_episode=3),
        jnp.zeros(0),
        lambda parameters, obs, memory: memory[None],
        1,
        remember=lambda parameters, memory, obs: memory + 1,
        memory=jnp.float32(0),
    )
    vector = vector_env(talk, 2)
    heard = [vector.reset(seed=0)[0][:, -1]] + [vector.step(np.zeros(2, int))[0][:, -1] for _ in range(5)]
    assert np.array(heard).T.tolist() == [[1, 2, 3, 5, 6, 7]] * 2  # 4 is the last observation of an episode
    vector = vector_env(talk, 2, autoreset_mode="NEXT_STEP")
    heard = [vector.reset(seed=0)[0][:, -1]] + [vector.step(np.zeros(2, int))[0][:, -1] for _ in range(6)]
    assert np.array(heard).T.tolist() == [[1, 2, 3, 4, 5, 6, 7]] * 2
    face = games.gymnax.env(talk)
    key = jax.random.key(0)
    observation, state = face.reset(key)
    heard = [float(observation[-1])]
    for _ in range(5):
        observation, state, *_ = face.step(key, state, 0)
        heard.append(float(observation[-1]))
    assert heard == [1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize(
    ("make", "act", "message"),
    [
        ({}, 4, "action: got 4; a whole number from 0 to 3 is needed"),
        ({}, -1, "action: got -1; a whole number from 0 to 3"),
        ({}, 1.5, "action: got 1.5; a whole number"),
        ({}, [0, 0], r"action: got shape \(2,\); a whole number from 0 to 3 of shape \(\) is needed"),
        ({"num_envs": 2}, [0, 4], "actions: got 4; a whole number from 0 to 3 is needed"),
        ({"num_envs": 2}, [0, 1, 2], r"actions: got shape \(3,\); .* of shape \(2,\)"),
        ({"game": "Pendulum-v1"}, [9.0], r"action: got \[9.\]; an array in \[-2, 2\] is needed"),
    ],
)
def test_actions_that_cannot_be_are_refused(make, act, message):
    make = {"game": "coin_game"} | make
    face = vector_env(**make) if "num_envs" in make else env(**make)
    face.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        face.step(act)


def test_an_action_at_a_bound_of_another_dtype_fits():
    face = env("pendulum", max_torque=np.float64(0.1))
    face.reset(seed=0)
    face.step(np.array([np.float32(0.1)]))  # above 0.1 as a float64
    face.step(face.action_space.high)
    with pytest.raises(ValueError, match=r"action: got \[0.11\]; an array in \[-0.1, 0.1\] is needed"):
        face.step([0.11])
    whole = Box(-np.inf, np.inf, (), np.int32)
    assert check_action("action", 3, whole) == 3


def test_a_game_of_gymnax_takes_its_parameters_as_an_object_too():
    short = games.make("CartPole-v1", gravity=9.0)
    face = env(short, max_steps_in_episode=5)
    face.reset(seed=0)
    assert [face.step(0)[3] for _ in range(5)] == [False] * 4 + [True]
    assert face.unwrapped._seat.game.params.gravity == 9.0
    with pytest.raises(ValueError, match="CartPole-v1: unknown parameter steps"):
        env(short, steps=5)
    assert env(short, params=short.params.replace(gravity=8.0)).unwrapped._seat.game.params.gravity == 8.0


def test_one_seed_is_for_all_environments():
    vector = vector_env("coin_game", 2)
    for several in ([1, 2], (1, 2), np.array([1, 2])):
        with pytest.raises(ValueError, match=r"seed: got \[.*1.*, .*2.*\]; one whole number is needed"):
            vector.reset(seed=several)


def test_a_learner_is_drawn_again_only_where_an_episode_ends():
    drawn, learner = [], marl.make_learner("tabular_ppo", games.make("ipd"), seat=1)

    def init(key):
        jax.debug.callback(lambda: drawn.append(1))
        return learner.init(key)

    vector = vector_env("ipd", 3, episode_length=4, opponents=learner._replace(init=init))
    vector.reset(seed=0)
    counts = []
    for _ in range(9):
        vector.step(np.zeros(3, int))
        jax.effects_barrier()
        counts.append(len(drawn))
    assert counts[0] == counts[1] == counts[2] < counts[3] == counts[6] < counts[7] == counts[8]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seat": 2}, "seat: got 2; a whole number from 0 to 1 is needed"),
        ({"opponents": [defect, defect]}, "opponents: got 2; one, or one for each of the 1 other seats, is needed"),
        ({"opponents": 3}, "opponents: got 3; a function, an object with init and act, or the name"),
        (
            {"opponents": Unhashable()},
            "opponents: got Unhashable, which cannot be hashed; arrays belong",
        ),
        ({"opponents": Counter(2)._replace(patience=[2])}, "opponents: got Counter, which cannot be hashed"),
        ({"seat": None}, "seat: got None; a plain whole number"),
        ({"game": games.make("coin_game"), "wrong": 1}, "CoinGame: unknown parameter wrong"),
        ({"render_mode": "ansi"}, "render_mode: got 'ansi'; one of None, human, rgb_array"),
        ({"grid_siz": 3}, "did you mean grid_size"),
    ],
)
def test_environments_that_cannot_be_made_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        env(**{"game": "coin_game"} | settings)


def test_a_learner_of_another_seat_is_refused():
    learner = marl.make_learner("tabular_ppo", games.make("ipd"), seat=0)._replace(seat=0)
    with pytest.raises(ValueError, match="opponents: got a learner for seat 0 in that of agent_1"):
        env("ipd", opponents=learner)
    env("ipd", seat=1, opponents=learner)
    with pytest.raises(ValueError, match="num_envs: got None"):
        vector_env("ipd", None)


def test_environments_of_one_shape_share_what_is_compiled():
    def play(reward):
        face = env("coin_game", reward=reward, opponents=defect)
        face.reset(seed=0)
        face.step(0)

    play(1.0)
    size = _step._cache_size()
    play(3.0)
    assert _step._cache_size() == size
