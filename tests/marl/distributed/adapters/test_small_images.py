"""Preprocessing of images: small, grey, and stacks of four frames."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from games import make
from marl.distributed.adapters.game_env import GameVectorEnv
from marl.distributed.adapters.gymnasium_envs import BatchedVectorEnv
from marl.distributed.adapters.maker import EnvMaker
from marl.distributed.adapters.small_images import SmallImages

KEYS = (np.zeros((2, 2), np.uint32),) * 2


class Shades(gymnasium.Env):
    """A game whose t-th image has the shade 10 t plus a pattern; episodes have three steps."""

    def __init__(self, shape=(120, 168, 3), pattern=0):
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.pattern = np.broadcast_to(pattern, shape).astype(np.uint8)

    def _seen(self):
        return np.full(self.observation_space.shape, 10 * self.t, np.uint8) + self.pattern

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        return self._seen(), 1.0, self.t == 3, False, {}


def host(late=False, **settings):
    mode = AutoresetMode.NEXT_STEP if late else AutoresetMode.SAME_STEP
    return BatchedVectorEnv(SyncVectorEnv([lambda: Shades(**settings)] * 2, autoreset_mode=mode))


def shades(images):
    """The shade of each frame in the first environment's observation."""
    np.testing.assert_array_equal(images["agent_0"][0].std((0, 1)), 0)
    return images["agent_0"][0, 0, 0].tolist()


@pytest.mark.parametrize(
    ("late", "seen"),
    [
        (False, [[0, 0, 0, 10], [0, 0, 10, 20], [0, 0, 0, 0], [0, 0, 0, 10]]),
        (True, [[0, 0, 0, 10], [0, 0, 10, 20], [30, 30, 30, 30], [0, 0, 0, 0]]),  # the empty step begins the episode
    ],
)
def test_four_frames_are_of_one_episode(late, seen):
    small = SmallImages(host(late), 84)
    assert shades(small.reset(0, KEYS[0])) == [0, 0, 0, 0]
    for t in range(4):
        small.send({"agent_0": np.zeros(2, int)}, KEYS)
        received = small.receive()
        assert shades(received.obs) == seen[t]
        if t == 2:
            assert shades(received.last_obs) == [0, 10, 20, 30]
            assert received.done.all()
    assert small.game.observation_space("agent_0").shape == (84, 84, 4)


def test_a_pixel_is_the_mean_of_those_in_its_place():
    """Means of whole blocks if the sides are multiples, and of rows of uneven blocks if they are not."""
    pattern = np.random.default_rng(0).integers(0, 200, (120, 168, 3))
    grey = pattern @ [0.299, 0.587, 0.114]
    found = SmallImages(host(pattern=pattern), 24).reset(0, KEYS[0])["agent_0"][0, ..., 0]
    np.testing.assert_allclose(found, grey.reshape(24, 5, 24, 7).mean((1, 3)), atol=0.51)
    odd = SmallImages(host(shape=(457, 121, 3), pattern=np.arange(457)[:, None, None] % 3 * 100), 84)
    rows = odd.reset(0, KEYS[0])["agent_0"][0, :, 0, 0]
    edges = [i * 457 // 84 for i in range(85)]
    expected = [np.mean([j % 3 * 100 for j in range(a, b)]) for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(rows, expected, atol=0.51)


def test_small_images_change_only_if_a_size_is_given():
    asked = EnvMaker("gymnasium", "Shades-v0", 1)
    gymnasium.register("Shades-v0", lambda **_: Shades())
    gymnasium.register("Dots-v0", lambda **_: Shades((100, 60, 1)))
    try:
        assert asked().game.observation_space("agent_0").shape == (84, 84, 4)
        assert asked._replace(images=0)().game.observation_space("agent_0").shape == (120, 168, 3)
        assert asked._replace(name="Dots-v0")().game.observation_space("agent_0").shape == (100, 60, 1)
        assert asked._replace(name="Dots-v0", images=40)().game.observation_space("agent_0").shape == (40, 40, 4)
    finally:
        del gymnasium.registry["Shades-v0"], gymnasium.registry["Dots-v0"]


def test_observations_that_are_no_images_are_refused():
    with pytest.raises(ValueError, match=r"images: got observations \(4,\); images in one or three colours are needed"):
        SmallImages(GameVectorEnv(make("CartPole-v1"), 2), 84)
