"""Steps of environments of all kinds, as their hosts report them."""

import sys
import types

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from PIL import Image, ImageSequence

from games import make
from games.pettingzoo import parallel_env
from marl.distributed.adapters.game_env import GameVectorEnv
from marl.distributed.adapters.gymnasium_envs import BatchedVectorEnv
from marl.distributed.adapters.gymnasium_spaces import acted, observed
from marl.distributed.adapters.maker import EnvMaker, make_env
from marl.distributed.adapters.pettingzoo_envs import ParallelVectorEnv
from marl.distributed.evaluation import film_episode, play_episodes
from marl.learners.registry import make_learner
from tests.marl.distributed.vector_envs import Late

NO_KEYS = np.zeros((2, 2), np.uint32)


def play(host, steps, action=0):
    """Reports of the reset and of some steps with the same action."""
    seen = [host.reset(0, NO_KEYS)]
    for _ in range(steps):
        agents = host.game.agents
        host.send(dict.fromkeys(agents, np.full(host.num_envs, action)), (NO_KEYS, NO_KEYS))
        seen.append(host.receive())
    return seen


def test_a_reset_in_the_same_step_reports_the_last_and_the_first_observation():
    first, *received = play(Late(mode=AutoresetMode.SAME_STEP)(), 10)
    np.testing.assert_array_equal(first["agent_0"], [[0, 1], [0, 1]])
    np.testing.assert_array_equal([t.last_obs["agent_0"][0, 0] for t in received], [1, 2, 3, 4, 1, 2, 3, 4, 1, 2])
    np.testing.assert_array_equal([t.obs["agent_0"][0, 0] for t in received], [1, 2, 3, 0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal([t.done[0] for t in received], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal([t.truncated[0] for t in received], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0])
    assert all(t.valid is None and t.reward["agent_0"][0] == 3.0 for t in received)  # the actions begin at 3


def test_the_extra_step_of_a_late_reset_is_reported_as_invalid():
    _, *received = play(Late()(), 10)
    np.testing.assert_array_equal([t.last_obs["agent_0"][0, 0] for t in received], [1, 2, 3, 4, 0, 1, 2, 3, 4, 0])
    np.testing.assert_array_equal([t.valid[0] for t in received], [1, 1, 1, 1, 0, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal([t.done[0] for t in received], [0, 0, 0, 1, 1, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal([t.truncated[0] for t in received], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal([t.reward["agent_0"][0] for t in received], [3, 3, 3, 3, 0, 3, 3, 3, 3, 0])
    np.testing.assert_array_equal([t.valid[1] for t in received], [1, 1, 1, 1, 1, 0, 1, 1, 1, 1])


def test_a_game_is_the_same_through_pettingzoo():
    """Rewards and ends of fixed actions, in a game without chance."""
    game = make("ipd", episode_length=3)
    ours, theirs = GameVectorEnv(game, 2), ParallelVectorEnv(lambda: parallel_env(game), 2)
    first, *received = play(ours, 7, 1)
    other, *also = play(theirs, 7, 1)
    for one, two in zip([first, *(t.obs for t in received)], [other, *(t.obs for t in also)], strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, two)
    for one, two in zip(received, also, strict=True):
        for name in ("reward", "done", "last_obs"):
            jax.tree.map(np.testing.assert_array_equal, getattr(one, name), getattr(two, name))
        for agent in game.agents:
            np.testing.assert_array_equal(one.truncated_of(agent), two.truncated_of(agent))
    assert [bool(t.done[0]) for t in received] == [False, False, True, False, False, True, False]


class Apart:
    """A parallel environment of PettingZoo in which each player may end by itself: `ends` by step and name."""

    possible_agents = ("a", "b")

    def __init__(self, ends):
        self._ends = ends

    def observation_space(self, name):
        return gymnasium.spaces.Box(0, 9, (1,), np.float32)

    def action_space(self, name):
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed=None):
        self.agents, self._time = list(self.possible_agents), 0
        return self._seen(), {}

    def _seen(self):
        return {name: np.full(1, self._time, np.float32) for name in self.agents}

    def step(self, actions):
        self._time += 1
        ends, there, seen = self._ends.get(self._time, {}), list(self.agents), self._seen()
        self.agents = [name for name in there if name not in ends]
        terminated, truncated = ({name: ends.get(name) == kind for name in there} for kind in ("rules", "limit"))
        return seen, dict.fromkeys(there, 1.0), terminated, truncated, {}


@pytest.mark.parametrize(
    ("ends", "truncated"),
    [
        ({3: {"a": "rules", "b": "limit"}}, (False, True)),
        ({1: {"a": "rules"}, 3: {"b": "limit"}}, (False, True)),
        ({2: {"a": "limit"}, 3: {"b": "rules"}}, (True, False)),
        ({3: {"a": "rules", "b": "rules"}}, (False, False)),
    ],
)
def test_players_that_end_apart_are_truncated_apart(ends, truncated):
    _, *received = play(ParallelVectorEnv(lambda: Apart(ends), 2), 6)
    for t in (2, 5):
        assert received[t].done.all()
        assert [received[t].truncated_of(agent).tolist() for agent in ("agent_0", "agent_1")] == [
            [x] * 2 for x in truncated
        ]
    assert not any(received[t].truncated_of("agent_0").any() for t in (0, 1, 3, 4))


def test_the_library_of_an_environment_is_found_by_its_name():
    assert make_env("CartPole-v1").kind == "gymnasium"
    assert make_env("games(CartPole-v1)").kind == "games"
    assert make_env("coin_game(grid_size=5)").kind == "games"
    for name in ("inequity_aversion(game='cleanup')", "CartpoleBalance-playground"):
        assert make_env(name).kind == "games"
    assert make_env("pistonball_v6").kind == "pettingzoo"
    assert make_env("ALE/Pong-v5").kind == "ale"
    assert make_env("gymnasium(LunarLander-v3)").name == "LunarLander-v3"
    with pytest.raises(ValueError, match="did you mean CartPole-v1"):
        make_env("CartPol-v1")
    with pytest.raises(ValueError, match="seen: got"):
        make_env("CartPole-v1", seen=[7])()
    with pytest.raises(ValueError, match="EnvPool is not installed"):
        make_env("envpool(CartPole-v1)")()


@pytest.mark.parametrize(
    ("name", "module", "words"),
    [
        ("pistonball_v6", "pygame", 'pygame.*pip install "pettingzoo\\[butterfly\\]"'),
        ("HalfCheetah-v5", "mujoco", 'MuJoCo is not installed; pip install "marl-shaping\\[control\\]"'),
    ],
)
def test_a_missing_package_of_an_environment_is_named(name, module, words, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=f"{name}.*{words}"):
        make_env(name)()


def test_every_actor_has_a_pool_of_its_own_seed(monkeypatch):
    class Pool:
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (3,), np.float32), gymnasium.spaces.Discrete(2)

        def __init__(self, name, num_envs, seed=42):
            self.shape, self.seed = (num_envs, 3), seed

        def reset(self):
            return np.random.default_rng(self.seed).random(self.shape, np.float32), {}

        def close(self):
            pass

    monkeypatch.setitem(sys.modules, "envpool", types.SimpleNamespace(make_gymnasium=Pool))
    host = make_env("envpool(CartPole-v1)", 2)()
    first, other, again = (host.reset(seed, NO_KEYS)["agent_0"] for seed in (1, 2, 1))
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(first, again)


def test_entries_that_are_seen_and_images_that_are_turned():
    host = make_env("CartPole-v1", 2, seen=(0, 2))()
    assert host.game.observation_space("agent_0").shape == (2,)
    assert host.reset(0, NO_KEYS)["agent_0"].shape == (2, 2)
    space, look = observed(gymnasium.spaces.Box(0, 255, (4, 84, 80), np.uint8))
    assert space.image
    assert space.shape == (84, 80, 4)
    picture = np.arange(4 * 84 * 80).reshape(1, 4, 84, 80)
    np.testing.assert_array_equal(look(picture)[0, 5, 7], picture[0, :, 5, 7])
    space, look = observed(gymnasium.spaces.Discrete(3, start=2))
    np.testing.assert_array_equal(look(np.array([2, 4])), [[1, 0, 0], [0, 0, 1]])
    _, act = acted(gymnasium.spaces.Box(-1.0, 2.0, (2,)))
    np.testing.assert_allclose(act(np.array([[-5.0, 5.0]])), [[-1, 2]])
    _, act = acted(gymnasium.spaces.MultiDiscrete([3, 2], start=[5, 1]))
    np.testing.assert_array_equal(act(np.array([[0, 0], [2, 1]])), [[5, 1], [7, 2]])
    with pytest.raises(ValueError, match=r"^seen: got \[0\]; no entries of Discrete\(4\)"):
        observed(gymnasium.spaces.Discrete(4), (0,))
    with pytest.raises(ValueError, match=r"^actions: got .*; Discrete, MultiDiscrete or a Box of floats is needed$"):
        acted(gymnasium.spaces.MultiDiscrete([[2, 2], [2, 2]]))
    for space in (gymnasium.spaces.Dict({}), gymnasium.spaces.Text(3)):
        with pytest.raises(ValueError, match="is needed"):
            observed(space)
        with pytest.raises(ValueError, match="is needed"):
            acted(space)


def test_the_first_observation_is_a_copy():
    class InPlace(SyncVectorEnv):
        def __init__(self):
            super().__init__([lambda: gymnasium.make("CartPole-v1")], copy=False)

    host = BatchedVectorEnv(InPlace())
    first = host.reset(0, NO_KEYS)["agent_0"]
    kept = first.copy()
    host.send({"agent_0": np.zeros(1, int)}, (NO_KEYS, NO_KEYS))
    assert not np.array_equal(host.receive().obs["agent_0"], kept)
    np.testing.assert_array_equal(first, kept)


def test_ataris_own_preprocessing():
    pytest.importorskip("ale_py")
    host = make_env("ALE/Pong-v5", 2)()
    assert not host.has_empty_steps
    space = host.game.observation_space("agent_0")
    assert (space.shape, space.image, host.game.action_space("agent_0").n) == ((84, 84, 4), True, 6)
    first, *received = play(host, 3)
    assert first["agent_0"].dtype == received[-1].obs["agent_0"].dtype == np.uint8
    assert host.picture().shape == (84, 84, 3)
    host.close()
    for name, meant in {"ALE/Pogn-v5": "ALE/Pong-v5", "ALE/MsPacmann-v5": "ALE/MsPacman-v5"}.items():
        with pytest.raises(ValueError, match=f"did you mean {meant}"):
            make_env(name)()


def test_processes_with_shared_memory_play_what_one_thread_does():
    one = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    received = []
    for host in (EnvMaker("gymnasium", "CartPole-v1", 2, processes=True)(), BatchedVectorEnv(one)):
        seen = [host.reset(7, NO_KEYS)["agent_0"]]
        for step in range(60):
            host.send({"agent_0": np.full(2, step % 3 > 0)}, (NO_KEYS, NO_KEYS))
            steps = host.receive()
            seen += [steps.obs["agent_0"], steps.last_obs["agent_0"], steps.done[:, None]]
        received.append(seen)
        host.close()
    jax.tree.map(np.testing.assert_array_equal, *received)
    assert np.any(received[0][3::3])  # episodes have ended


def test_an_episode_of_the_evaluation_is_cut_by_its_own_length(monkeypatch):
    monkeypatch.setattr("marl.distributed.evaluation.LONGEST", 5)
    for length, returns in ((3, 3.0), (7, 5.0)):  # episodes of 7 steps are truncated at 5
        host = make_env(f"games(CartPole-v1(max_steps_in_episode={length}))", 2)()
        learner = make_learner("ppo(hidden=[4])", host.game)
        states = [learner.init(jax.random.key(0))]
        found = play_episodes(jax.random.key(1), host, [learner], states, 6, 0)
        np.testing.assert_array_equal(found, np.full((6, 1), returns))


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_film_has_no_picture_of_the_next_episode(tmp_path, mode):
    """An episode of four steps, whose pictures are as bright as the episode is old."""
    env = Late(1, mode)()
    receive, seen = env.receive, {}

    def receive_and_keep():
        step = receive()
        seen.update(step.obs)
        return step

    env.receive, env.picture = receive_and_keep, lambda: np.full((8, 8, 3), 50 * seen["agent_0"][0, 0], np.uint8)
    learner = make_learner("random", env.game)
    path = film_episode(jax.random.key(0), env, [learner], [()], 0, tmp_path / "film.gif")
    with Image.open(path) as film:
        shown = [int(np.asarray(frame.convert("L")).mean()) for frame in ImageSequence.Iterator(film)]
    assert shown == [50, 100, 150]
