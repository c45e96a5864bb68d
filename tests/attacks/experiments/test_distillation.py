"""A search that begins with an expert: the first message gives the expert's action."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks import messages
from attacks.experiments import distillation
from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from attacks.experiments.evaluation import magnitude
from attacks.random_play import observations_of_play
from games import Box, Discrete
from tests.nightly import nightly

pytestmark = pytest.mark.system

# The best PPO victim of eight after twelve short training runs; it beats random play and pushes towards the fall.
CONFIG = AttackConfig(
    goal="help",
    begin="expert",
    num_updates=2,
    evaluation_episodes=4,
    victim="ppo(hidden=[12], epochs=4, minibatches=1, shared=True, learning_rate=0.01)",
)


@pytest.fixture
def sooner(monkeypatch):
    """Messages are fitted in fewer steps to fewer rollouts, which is enough for signs and amplitudes."""
    monkeypatch.setattr(distillation, "FITTING", 500)
    monkeypatch.setattr(distillation, "ROLLOUTS", 16)


@pytest.mark.parametrize(("n", "size"), [(2, 2), (3, 2), (4, 3)])
def test_discrete_actions_are_the_corners_of_a_simplex(n, size):
    """Equal distances and mean 0, if all actions are equally frequent and the message has enough entries."""
    assert distillation.entries_needed(Discrete(n)) <= size
    corners = distillation._targets(np.arange(n), Discrete(n), size)
    assert corners.shape == (n, size)
    np.testing.assert_allclose(corners.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose((corners**2).mean(0), 1, rtol=1e-5)
    between = np.linalg.norm(corners[:, None] - corners[None], axis=-1)[~np.eye(n, dtype=bool)]
    np.testing.assert_allclose(between, between[0], rtol=1e-5)


@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_as_many_entries_as_needed_tell_all_actions_apart_and_fewer_do_not(n):
    needed = distillation.entries_needed(Discrete(n))
    assert len(np.unique(distillation._targets(np.arange(n), Discrete(n), needed), axis=0)) == n
    if needed > 1:
        assert len(np.unique(distillation._targets(np.arange(n), Discrete(n), needed - 1), axis=0)) < n


def test_torques_are_distilled_in_units_of_their_size_and_twice_where_a_message_has_room():
    torques = np.array([[3.0], [-3.0], [0.0], [90.0]])
    said = distillation._targets(torques, Box(-1, 1, (1,)), 2)
    unit = np.sqrt((torques**2).mean())
    np.testing.assert_allclose(said[:, 0], torques[:, 0] / unit, rtol=1e-6)
    np.testing.assert_array_equal(said[:, 0], said[:, 1])
    rare = np.concatenate([np.ones((999, 1)), [[-1000.0]]])
    assert distillation._targets(rare, Box(-1, 1, (1,)), 1).min() == -distillation.LARGEST_TARGET


def test_a_quadratic_message_learns_a_bilinear_target_and_a_linear_one_does_not():
    """The torque that brings an arm's tip nearer is bilinear: a quadratic message can tell it, a linear one cannot."""
    obs = jax.random.normal(jax.random.key(0), (4096, 4))
    torque = (obs[:, 0] * obs[:, 3] - obs[:, 1] * obs[:, 2]) / 2
    targets = jnp.stack([torque, -torque], 1).clip(-2, 2)
    explained = {}
    for make in (messages.quadratic, messages.linear):
        message = make((4,), 2)
        _, explained[make.__name__] = jax.jit(
            lambda m=message: distillation._fitted(m, jax.random.key(1), obs, targets)
        )()
    assert explained["quadratic"] > 0.95
    assert abs(explained["linear"]) < 0.01


@nightly
@pytest.mark.usefixtures("sooner")
def test_a_message_gives_the_expert_s_action_and_a_harmful_one_the_opposite_at_the_end():
    key = jax.random.key(0)
    parameters, found = distillation.distil(resolve(CONFIG), key)
    assert found["message"].expert_return > 30  # random play has 22
    assert 0.3 < found["message"].share < 1
    turning = resolve(dataclasses.replace(CONFIG, goal="harm"))
    both, again = distillation.distil(turning, key)
    # The same expert and the same parameters, those of a network.
    assert again["message"].expert_return == found["message"].expert_return
    jax.tree.map(np.testing.assert_array_equal, both["first"], parameters)
    assert parameters["w0"].shape == (4, 32)
    message, seen = turning.message, jnp.array([0.01, 0.1, 0.05, 0.3])
    late = turning.config.steps_of_a_training
    early, end = (np.asarray(message.speak(both, seen, jnp.float32(heard))) for heard in (0, late))
    assert np.sign(early).tolist() == (-np.sign(end)).tolist()
    np.testing.assert_allclose(early, message.speak(both, seen, jnp.float32(1)), rtol=1e-6)


@nightly
@pytest.mark.usefixtures("sooner")
def test_the_first_controller_pushes_a_trained_victim_to_either_goal():
    """A cart rests in the middle with a goal at either side: the message to push there has the larger amplitude."""
    steered = resolve(dataclasses.replace(CONFIG, goal="control", num_updates=24))  # fewer are a matter of rounding
    both, found = distillation.distil(steered, jax.random.key(0))
    assert set(found) == set(both) == {"shaper", "controller"}
    seen = jnp.array([[0.0, 0, 0, 0, 2.0], [0.0, 0, 0, 0, -2.0]])
    play = observations_of_play(steered.game)
    small = magnitude(steered.message, both["shaper"], play)
    sided = jnp.concatenate([jnp.asarray(play), jnp.full((len(play), 1), 2.0)], 1)
    assert magnitude(steered.controller, both["controller"], sided) > 1.5 * small
    right, left = jax.vmap(steered.controller.speak, (None, 0))(both["controller"], seen)
    assert np.sign(right).tolist() == (-np.sign(left)).tolist()
