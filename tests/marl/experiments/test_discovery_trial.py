"""Fitness of a candidate objective: whole training runs of learners that use it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.registry import make_game
from marl import learn, make_learner, value_losses
from marl.experiments.discovery.config import config_of
from marl.experiments.discovery.trial import (
    DELTA,
    LOG_UNIT,
    Arena,
    discovery_trial,
    evolved,
    first_scales,
    known,
    plain,
    run_training,
    tuned,
)
from marl.experiments.discovery.trial import scaled as scaled_settings
from marl.learners.sampled.objective_registry import Form
from tests.nightly import grid, nightly

pytestmark = pytest.mark.system

GAME = make_game("CartPole-v1")
ARENA = Arena("CartPole", GAME, num_updates=4, steps_per_update=64, num_envs=2)
SPEC = "ppo(hidden=[4], learning_rate=0.03, minibatches=2)"
PAIR = Arena("ipd", make_game("ipd(episode_length=4)"), num_updates=4, steps_per_update=4, num_envs=2)
KEY = jax.random.key(3)


def trained(settings, parameters, arena=ARENA):
    players = arena.game.num_agents
    return jax.jit(lambda key, parameters: run_training(key, arena, SPEC, [settings(parameters)] * players))(
        KEY, parameters
    )


def with_huber(parameters):
    """Settings of PPO with the Huber loss of values, as in the tuned baseline."""
    return {"value_loss": value_losses.huber(delta=DELTA)}


@pytest.fixture(scope="module")
def as_it_is():
    return trained(plain, first_scales("drift"))


def test_a_trial_is_a_training_run_of_the_learner_and_its_score_the_mean_return(as_it_is):
    learner = make_learner(SPEC, GAME)
    settings = {"num_updates": 4, "steps_per_update": 64, "num_envs": 2}
    history = jax.jit(lambda key: learn(key, GAME, [learner], **settings))(KEY)
    np.testing.assert_array_equal(as_it_is.curve, history.returns[0])
    assert float(as_it_is.score) == pytest.approx(np.nanmean(history.returns[0]))


@pytest.mark.parametrize("kind", ["drift", "value_loss"])
def test_scales_begin_at_the_learners_own_settings_and_multiply_them(kind):
    first = scaled_settings(kind, SPEC, first_scales(kind))
    own = {"learning_rate": 0.03, "max_gradient_norm": 0.5, "value_coefficient": 0.5}
    own |= {"delta": DELTA} | ({"clip": 0.2} if kind == "drift" else {})
    assert {name: float(x) for name, x in first.items()} == pytest.approx(own)
    louder = scaled_settings(kind, SPEC, {"scales": jnp.full(len(own), 0.1)})
    for name, x in louder.items():
        assert float(x) == pytest.approx(own[name] * np.exp(0.1 * LOG_UNIT), rel=1e-5)


@nightly
def test_the_tuned_baseline_and_the_objective_begin_as_ppo(as_it_is):
    begun, first = trained(with_huber, first_scales("drift")).curve, first_scales("drift")
    assert not np.allclose(begun, as_it_is.curve)  # PPO itself clips its values
    np.testing.assert_allclose(trained(tuned("drift", SPEC), first).curve, begun, rtol=1e-5)
    form = Form("drift", "ppo", hidden=3)
    begin = first | {"objective": form.network().init(KEY)}
    # A tenth of the step size, so that rounding does not change an action.
    slow = first["scales"].at[0].set(np.log(0.1) / LOG_UNIT)
    calm, same = (
        trained(one, parameters | {"scales": slow}).curve
        for one, parameters in ((tuned("drift", SPEC), first), (evolved(form, SPEC), begin))
    )
    np.testing.assert_allclose(same, calm, rtol=1e-5)
    assert not np.allclose(calm, begun)
    other = begin | {"objective": form.network().init(KEY) | {"w2": jnp.full(3, 3.0)}}
    changed = trained(evolved(form, SPEC), other)
    assert not np.allclose(changed.curve, begun)


def test_the_search_of_a_clip_begins_at_the_clip_of_the_spec():
    """The scale of the clip is left out for objectives without one."""
    spec = "ppo(hidden=[4], minibatches=2, clip=0.3)"
    first = first_scales("drift")
    assert float(scaled_settings("drift", spec, first)["clip"]) == pytest.approx(0.3)
    for settings in (plain, tuned("drift", spec), known("drift", spec)["dpo"]):
        trial = discovery_trial([ARENA], spec, settings, [(0.0, 1.0)])
        assert jax.eval_shape(trial, first, KEY).fitness.shape == ()


def test_dpo_learns_differently_from_ppo(as_it_is):
    found = trained(known("drift", SPEC)["dpo"], first_scales("drift"))
    assert not np.array_equal(found.curve, as_it_is.curve)


@pytest.mark.parametrize("preset", grid(("cartpole_paper", "space_invaders_paper", "pendulum", "ipd"), "ipd"))
@pytest.mark.parametrize("kind", ["drift", "value_loss"])
def test_the_learners_of_presets_take_numbers_that_are_traced(preset, kind):
    """Presets with a falling step size, continuous actions and several players."""
    config = config_of(f"{kind} {preset}")
    arena = config.arena(config.environments[0])._replace(num_updates=2)
    first = first_scales(kind)
    own = first | {"objective": config.form.network().init(KEY)}
    cases = [(evolved(config.form, config.learner), own), (tuned(kind, config.learner), first)]
    for settings, parameters in cases:
        trial = discovery_trial([arena], config.learner, settings, [(0.0, 1.0)])
        assert jax.eval_shape(trial, parameters, KEY).fitness.shape == ()


@nightly
def test_the_score_of_several_players_is_the_sum_of_their_rewards_in_the_second_half():
    found = trained(plain, first_scales("drift"), PAIR)
    learners = [make_learner(SPEC, PAIR.game, seat) for seat in range(2)]
    settings = {"num_updates": 4, "steps_per_update": 4, "num_envs": 2}
    history = jax.jit(lambda key: learn(key, PAIR.game, learners, **settings))(KEY)
    rewards = [float(x[2:].mean()) for x in history.rewards]
    assert found.rewards.tolist() == pytest.approx(rewards)
    assert float(found.score) == pytest.approx(sum(rewards))


@nightly
def test_scores_of_several_games_are_standardised_by_their_units():
    trial = discovery_trial([ARENA, PAIR], SPEC, plain, [(5.0, 2.0), (-4.0, 0.5)])
    found = jax.jit(trial)(first_scales("drift"), KEY)
    scores = []
    for i, arena in enumerate((ARENA, PAIR)):
        key = jax.random.fold_in(KEY, i)
        once = jax.jit(lambda key, arena=arena: run_training(key, arena, SPEC, [{}] * arena.game.num_agents))
        scores.append(float(once(key).score))
    expected = [(scores[0] - 5) / 2, (scores[1] + 4) / 0.5]
    assert [float(found.metrics[f"score_{i}"]) for i in range(2)] == pytest.approx(expected, rel=1e-4)
    assert float(found.fitness) == pytest.approx(np.mean(expected), rel=1e-4)
