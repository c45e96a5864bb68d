"""Where a search begins with an expert: what it says is what the expert does."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks import messages
from attacks.experiments import distillation
from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from attacks.experiments.evaluation import loudness
from attacks.random_play import observations_of_play
from games import Box, Discrete

pytestmark = pytest.mark.system

# The best PPO of eight after twelve short lives, which beats random play at the pole and leans to where it falls.
CONFIG = AttackConfig(
    goal="help",
    begin="expert",
    num_updates=2,
    evaluation_episodes=4,
    victim="ppo(hidden=[12], epochs=4, minibatches=1, shared=True, learning_rate=0.01)",
)


@pytest.fixture
def sooner(monkeypatch):
    """Words are fitted in fewer steps to less play, which is enough for signs and loudness."""
    monkeypatch.setattr(distillation, "FITTING", 500)
    monkeypatch.setattr(distillation, "ROLLOUTS", 16)


@pytest.mark.parametrize(("n", "size"), [(2, 2), (3, 2), (4, 3)])
def test_discrete_actions_are_the_corners_of_a_simplex(n, size):
    """Each as far from the others, with the mean in the middle, where each action is as frequent and there is room."""
    corners = distillation._targets(np.arange(n), Discrete(n), size)
    assert corners.shape == (n, size)
    np.testing.assert_allclose(corners.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose((corners**2).mean(0), 1, rtol=1e-5)
    between = np.linalg.norm(corners[:, None] - corners[None], axis=-1)[~np.eye(n, dtype=bool)]
    np.testing.assert_allclose(between, between[0], rtol=1e-5)


def test_torques_are_told_in_units_of_their_size_and_twice_where_a_message_has_room():
    torques = np.array([[3.0], [-3.0], [0.0], [90.0]])
    said = distillation._targets(torques, Box(-1, 1, (1,)), 2)
    unit = np.sqrt((torques**2).mean())
    np.testing.assert_allclose(said[:, 0], torques[:, 0] / unit, rtol=1e-6)
    np.testing.assert_array_equal(said[:, 0], said[:, 1])
    rare = np.concatenate([np.ones((999, 1)), [[-1000.0]]])
    assert distillation._targets(rare, Box(-1, 1, (1,)), 1).min() == -distillation.LARGEST_TARGET


def test_a_message_that_can_say_it_learns_to_say_it():
    """Which torque brings the tip of an arm nearer is bilinear: a quadratic message can tell, a linear one cannot."""
    obs = jax.random.normal(jax.random.key(0), (4096, 4))
    torque = (obs[:, 0] * obs[:, 3] - obs[:, 1] * obs[:, 2]) / 2
    targets = jnp.stack([torque, -torque], 1).clip(-2, 2)
    told = {}
    for make in (messages.quadratic, messages.linear):
        message = make((4,), 2)
        _, told[make.__name__] = jax.jit(lambda m=message: distillation._fitted(m, jax.random.key(1), obs, targets))()
    assert told["quadratic"] > 0.95
    assert abs(told["linear"]) < 0.01


@pytest.mark.usefixtures("sooner")
def test_an_expert_is_told_and_in_the_end_contradicted():
    key = jax.random.key(0)
    words, found = distillation.distil(resolve(CONFIG), key)
    assert found["message"].expert_return > 30  # of random play 22
    assert 0.3 < found["message"].share < 1
    turning = resolve(dataclasses.replace(CONFIG, goal="harm"))
    both, again = distillation.distil(turning, key)
    # The same expert, in the same words, of a network.
    assert again["message"].expert_return == found["message"].expert_return
    jax.tree.map(np.testing.assert_array_equal, both["first"], words)
    assert words["w0"].shape == (4, 32)
    message, seen = turning.message, jnp.array([0.01, 0.1, 0.05, 0.3])
    late = turning.config.steps_of_a_training
    early, end = (np.asarray(message.speak(both, seen, jnp.float32(heard))) for heard in (0, late))
    assert np.sign(early).tolist() == (-np.sign(end)).tolist()
    np.testing.assert_allclose(early, message.speak(both, seen, jnp.float32(1)), rtol=1e-6)


@pytest.mark.usefixtures("sooner")
def test_a_victim_that_was_told_what_to_do_is_told_loudly_where_to_go():
    """Of a cart that stands still in the middle, and is to go to either side: it is told to push to that side."""
    steered = resolve(dataclasses.replace(CONFIG, goal="control", num_updates=24))  # fewer are a matter of rounding
    both, found = distillation.distil(steered, jax.random.key(0))
    assert set(found) == set(both) == {"shaper", "controller"}
    seen = jnp.array([[0.0, 0, 0, 0, 2.0], [0.0, 0, 0, 0, -2.0]])
    play = observations_of_play(steered.game)
    quiet = loudness(steered.message, both["shaper"], play)
    sided = jnp.concatenate([jnp.asarray(play), jnp.full((len(play), 1), 2.0)], 1)
    assert loudness(steered.controller, both["controller"], sided) > 1.5 * quiet
    right, left = jax.vmap(steered.controller.speak, (None, 0))(both["controller"], seen)
    assert np.sign(right).tolist() == (-np.sign(left)).tolist()
