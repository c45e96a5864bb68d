"""Seats of many games as Stable-Baselines3 plays them.

The library brings torch and is no part of the tests' installation. Where it is missing, a base class with the parts of
its `VecEnv` that ours inherits stands in its place, and the calls that its algorithms make are made here.
"""

import importlib
import sys
from types import ModuleType

import numpy as np
import pytest

import marl
from games.gymnasium import env

TFT = marl.play_memory_one([1, 1, 0, 1, 0])


class VecEnv:
    """The parts of the library's base class, version 2.9, that a subclass uses."""

    def __init__(self, num_envs, observation_space, action_space):
        self.num_envs, self.observation_space, self.action_space = num_envs, observation_space, action_space
        self.render_mode = self.get_attr("render_mode")[0]
        self._reset_seeds()

    def _reset_seeds(self):
        self._seeds = [None] * self.num_envs

    def _reset_options(self):
        pass

    def _get_indices(self, indices):
        return range(self.num_envs) if indices is None else [indices] if isinstance(indices, int) else indices

    def seed(self, seed):
        self._seeds = [seed + i for i in range(self.num_envs)]

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()


@pytest.fixture(scope="module")
def face():
    try:
        import stable_baselines3  # noqa: F401
    except ModuleNotFoundError:
        names = ["stable_baselines3", "stable_baselines3.common", "stable_baselines3.common.vec_env"]
        with pytest.MonkeyPatch.context() as patch:
            for name in names:
                patch.setitem(sys.modules, name, ModuleType(name))
            sys.modules[names[-1]].VecEnv = VecEnv
            import games.stable_baselines3

            yield games.stable_baselines3
        del sys.modules["games.stable_baselines3"]
    else:
        import games.stable_baselines3

        yield games.stable_baselines3


def test_steps_are_those_of_single_environments(face):
    """Steps equal those of single environments, with the infos that the library's algorithms read."""
    settings = {"game": "ipd", "opponents": TFT, "episode_length": 3}
    vector, single = face.vec_env(num_envs=3, **settings), [env(**settings) for _ in range(3)]
    assert (vector.observation_space, vector.action_space) == (single[0].observation_space, single[0].action_space)
    vector.seed(7)
    seen = vector.reset()
    np.testing.assert_array_equal(seen, [one.reset(seed=7)[0] for one in single])
    for time in range(1, 8):
        seen, rewards, dones, infos = vector.step(actions := np.array([0, 1, time % 2]))
        assert dones.tolist() == [time % 3 == 0] * 3
        for i, one in enumerate(single):
            observation, reward, _, truncated, counted = one.step(actions[i])
            assert (rewards[i], dones[i]) == (reward, truncated)
            assert infos[i].pop("TimeLimit.truncated") == truncated
            if truncated:
                np.testing.assert_array_equal(infos[i].pop("terminal_observation"), observation)
                observation, _ = one.reset()
            np.testing.assert_array_equal(seen[i], observation)
            assert infos[i] == counted


def test_the_reset_mode_is_no_argument(face):
    with pytest.raises(TypeError, match="autoreset_mode"):
        face.vec_env("ipd", 2, autoreset_mode="next_step")


def test_seeds_and_calls_of_single_environments(face):
    vector = face.vec_env("coin_game", 2, render_mode="rgb_array")
    first = [vector.seed(seed) or vector.reset() for seed in (1, 1, 2)]
    np.testing.assert_array_equal(first[0], first[1])
    assert not np.array_equal(first[0], first[2])
    assert not np.array_equal(vector.reset(), first[2])  # the seed counts once
    assert [picture.shape for picture in vector.get_images()] == [(192, 192, 3)] * 2
    assert vector.get_attr("num_envs", [0]) == [2]
    assert vector.env_is_wrapped(object) == [False] * 2
    for call in (lambda: vector.set_attr("reward", 3), lambda: vector.env_method("step", 0)):
        with pytest.raises(NotImplementedError, match="the games are one program"):
            call()
    with pytest.raises(AttributeError):
        vector.get_attr("no_such_thing")
    vector.close()


def test_its_ppo_learns_to_cooperate_with_tit_for_tat(face):
    """PPO of the library, where that is installed."""
    sb3 = pytest.importorskip("stable_baselines3.ppo")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecMonitor

    monitored = VecMonitor(face.vec_env("ipd", 16, opponents=TFT, episode_length=16))
    learner = sb3.PPO("MlpPolicy", monitored, n_steps=64, batch_size=256, gamma=0.96, learning_rate=2e-3, seed=0)
    learner.learn(30_000)
    mean, _ = evaluate_policy(learner, monitored, 16)
    assert mean == pytest.approx(-16, abs=0.5)


def test_without_the_library_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    monkeypatch.delitem(sys.modules, "games.stable_baselines3", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'marl-shaping\[stable-baselines3\]'"):
        importlib.import_module("games.stable_baselines3")
