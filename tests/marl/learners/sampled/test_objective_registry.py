"""Evolved objectives and distances of values by the names of their files."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl import learn, make_learner
from marl.learners.sampled import objective_registry
from meta.runs import array_files
from tests.marl.sampled_steps import CART_POLE
from tests.nightly import grid


@pytest.mark.system
@pytest.mark.parametrize("kind", grid(("drift", "value_loss"), "value_loss"))
def test_an_evolved_objective_is_named_by_its_file(kind, tmp_path):
    """The loaded objective differs from PPO's: the same steps give other parameters."""
    form = objective_registry.Form(kind, "ppo" if kind == "drift" else "l2", hidden=3)
    parameters = form.network().init(jax.random.key(0))
    parameters["w2"] = jnp.full(3, 2.0)
    objective_registry.save_objective(tmp_path / objective_registry.FILE, form, parameters, 0.3)
    field, small = "objective" if kind == "drift" else "value_loss", "hidden=[4], epochs=2, minibatches=1"

    def learned(spec):
        learner = make_learner(spec, CART_POLE, num_updates=1)
        settings = {"num_updates": 1, "steps_per_update": 16, "num_envs": 2}
        return jax.jit(lambda key: learn(key, CART_POLE, [learner], **settings))(jax.random.key(1)).states[0].params

    of_run, of_file = (
        learned(f"ppo({small}, {field}={str(path)!r})") for path in (tmp_path, tmp_path / objective_registry.FILE)
    )
    chex.assert_trees_all_equal(of_run, of_file)
    plain = learned(f"ppo({small})")
    assert any(not np.allclose(*pair) for pair in zip(jax.tree.leaves(of_run), jax.tree.leaves(plain), strict=True))
    other = "value_loss" if kind == "drift" else "objective"
    with pytest.raises(ValueError, match=f"learner: ppo: {other}: got .*, a {kind}; a "):
        make_learner(f"ppo({other}={str(tmp_path)!r})", CART_POLE)


def test_a_folder_of_its_name_does_not_hide_an_objective(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("dpo", "huber"):
        (tmp_path / name).mkdir()
    objective_registry.make_objective("dpo")
    objective_registry.make_value_loss("huber")
    with pytest.raises(ValueError, match="objective: file: got"):
        objective_registry.make_objective("./dpo")


def test_the_drift_of_the_library_is_one_of_mirror_learning_and_differs_from_ppo():
    drift = objective_registry.make_objective("classic")
    log_ratio, advantage = jnp.meshgrid(jnp.linspace(-1, 1, 21), jnp.linspace(-2, 2, 21))
    lost = jnp.exp(log_ratio) * advantage - drift(log_ratio, advantage)
    assert lost.min() > -1e-6
    assert lost.max() > 0.1
    np.testing.assert_allclose(lost[:, 10], 0, atol=1e-6)
    make_learner("ppo(objective='classic')", CART_POLE)


@pytest.mark.usefixtures("promoted")
def test_the_distance_of_the_library_is_zero_at_the_target_and_larger_for_values_above_it():
    distance = objective_registry.make_value_loss("classic")
    lack = jnp.linspace(-2, 2, 41)
    lost = distance(lack, jnp.zeros(41), lack)  # in units of 1.18, the root mean square of the errors
    np.testing.assert_allclose(lost[20], 0, atol=1e-6)
    assert lost.min() > -1e-6
    assert (jnp.diff(lost[20:]) > 0).all()
    assert (jnp.diff(lost[:21]) < 0).all()
    assert 2 < lost[40] / lost[0] < 4
    assert (lost[21:] > lost[:20][::-1]).all()
    make_learner("ppo(value_loss='classic')", CART_POLE)


def test_an_objective_of_the_library_has_its_name_as_an_agent_too():
    x, y = jnp.linspace(-0.5, 0.5, 7), jnp.linspace(2.0, -2.0, 7)
    drifts = [objective_registry.make_objective(spec)(x, y) for spec in ("classic", "hub:drift-classic")]
    losses = [objective_registry.make_value_loss(spec)(x, y, x) for spec in ("classic", "hub:value_loss-classic")]
    np.testing.assert_array_equal(*drifts)
    np.testing.assert_array_equal(*losses)
    with pytest.raises(ValueError, match="learner: ppo: objective: got 'hub:drift-classi'; hub:NAME, did you mean"):
        make_learner("ppo(objective='hub:drift-classi')", CART_POLE)


def test_a_file_without_an_objective_is_refused_in_one_line(tmp_path):
    array_files.replace_arrays(tmp_path / "other.safetensors", {"x": np.zeros(2)}, {"method": "train"})
    for path, words in (
        (tmp_path / "other.safetensors", "marl.discover wrote"),
        (tmp_path / "none.safetensors", "no such file"),
    ):
        with pytest.raises(ValueError, match=words) as error:
            make_learner(f"ppo(objective={str(path)!r})", CART_POLE)
        assert "\n" not in str(error.value)


def test_a_timed_objective_needs_the_number_of_updates(tmp_path):
    form = objective_registry.Form("drift", "zero", hidden=2, timed=True)
    objective_registry.save_objective(
        tmp_path / objective_registry.FILE, form, form.network().init(jax.random.key(0)), 0.2
    )
    spec = f"ppo(objective={str(tmp_path)!r})"
    make_learner(spec, CART_POLE, num_updates=3)
    with pytest.raises(ValueError, match="objective: got one that depends on time; the number of updates"):
        make_learner(spec, CART_POLE)
