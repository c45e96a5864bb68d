"""What a candidate objective is judged by: the whole learning of those who use it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.registry import make_game
from marl import learn, make_learner, objectives
from marl.experiments.discovery.config import config_of
from marl.experiments.discovery.trial import (
    DELTA,
    LOUDNESS,
    Arena,
    discovery_trial,
    evolved,
    first_scales,
    known,
    live,
    plain,
    tuned,
)
from marl.experiments.discovery.trial import scaled as scaled_settings
from marl.learners.sampled.objective_registry import Form

pytestmark = pytest.mark.system

GAME = make_game("CartPole-v1")
ARENA = Arena("CartPole", GAME, num_updates=4, steps_per_update=64, num_envs=2)
SPEC = "ppo(hidden=[4], learning_rate=0.03, minibatches=2)"
PAIR = Arena("ipd", make_game("ipd(episode_length=4)"), num_updates=4, steps_per_update=4, num_envs=2)
KEY = jax.random.key(3)


def lived(settings, parameters, arena=ARENA):
    players = arena.game.num_agents
    return jax.jit(lambda key, parameters: live(key, arena, SPEC, [settings(parameters)] * players))(KEY, parameters)


def with_huber(parameters):
    """PPO as it is, but for the values' loss that is tuned."""
    return {"value_loss": objectives.huber(delta=DELTA)}


@pytest.fixture(scope="module")
def as_it_is():
    return lived(plain, first_scales("drift"))


def test_a_life_is_the_learning_of_the_learner_and_its_score_the_mean_return(as_it_is):
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
        assert float(x) == pytest.approx(own[name] * np.exp(0.1 * LOUDNESS), rel=1e-5)


def test_what_is_tuned_begins_as_ppo_and_so_does_the_objective(as_it_is):
    begun, first = lived(with_huber, first_scales("drift")).curve, first_scales("drift")
    assert not np.allclose(begun, as_it_is.curve)  # its values are clipped
    np.testing.assert_allclose(lived(tuned("drift", SPEC), first).curve, begun, rtol=1e-5)
    form = Form("drift", "ppo", hidden=3)
    begin = first | {"objective": form.network().init(KEY)}
    # By a tenth of the step size, with which a rounding does not become another action.
    slow = first["scales"].at[0].set(np.log(0.1) / LOUDNESS)
    calm, same = (
        lived(one, parameters | {"scales": slow}).curve
        for one, parameters in ((tuned("drift", SPEC), first), (evolved(form, SPEC), begin))
    )
    np.testing.assert_allclose(same, calm, rtol=1e-5)
    assert not np.allclose(calm, begun)
    other = begin | {"objective": form.network().init(KEY) | {"w2": jnp.full(3, 3.0)}}
    changed = lived(evolved(form, SPEC), other)
    assert not np.allclose(changed.curve, begun)


def test_a_clip_of_ones_own_is_where_the_search_of_it_begins():
    """And is left out where the objective has none."""
    spec = "ppo(hidden=[4], minibatches=2, clip=0.3)"
    first = first_scales("drift")
    assert float(scaled_settings("drift", spec, first)["clip"]) == pytest.approx(0.3)
    for settings in (plain, tuned("drift", spec), known("drift", spec)["dpo"]):
        trial = discovery_trial([ARENA], spec, settings, [(0.0, 1.0)])
        assert jax.eval_shape(trial, first, KEY).fitness.shape == ()


def test_dpo_is_another_learner(as_it_is):
    found = lived(known("drift", SPEC)["dpo"], first_scales("drift"))
    assert not np.array_equal(found.curve, as_it_is.curve)


@pytest.mark.parametrize("preset", ["cartpole_paper", "space_invaders_paper", "pendulum", "ipd"])
@pytest.mark.parametrize("kind", ["drift", "value_loss"])
def test_the_learners_of_presets_take_numbers_that_are_traced(preset, kind):
    """A falling step size, continuous actions, several players."""
    config = config_of(f"{kind} {preset}")
    arena = config.arena(config.environments[0])._replace(num_updates=2)
    first = first_scales(kind)
    own = first | {"objective": config.form.network().init(KEY)}
    cases = [(evolved(config.form, config.learner), own), (tuned(kind, config.learner), first)]
    for settings, parameters in cases:
        trial = discovery_trial([arena], config.learner, settings, [(0.0, 1.0)])
        assert jax.eval_shape(trial, parameters, KEY).fitness.shape == ()


def test_several_players_count_by_what_they_get_together_in_the_second_half():
    found = lived(plain, first_scales("drift"), PAIR)
    learners = [make_learner(SPEC, PAIR.game, seat) for seat in range(2)]
    settings = {"num_updates": 4, "steps_per_update": 4, "num_envs": 2}
    history = jax.jit(lambda key: learn(key, PAIR.game, learners, **settings))(KEY)
    rewards = [float(x[2:].mean()) for x in history.rewards]
    assert found.rewards.tolist() == pytest.approx(rewards)
    assert float(found.score) == pytest.approx(sum(rewards))


def test_several_games_count_in_their_units():
    trial = discovery_trial([ARENA, PAIR], SPEC, plain, [(5.0, 2.0), (-4.0, 0.5)])
    found = jax.jit(trial)(first_scales("drift"), KEY)
    scores = []
    for i, arena in enumerate((ARENA, PAIR)):
        key = jax.random.fold_in(KEY, i)
        once = jax.jit(lambda key, arena=arena: live(key, arena, SPEC, [{}] * arena.game.num_agents))
        scores.append(float(once(key).score))
    expected = [(scores[0] - 5) / 2, (scores[1] + 4) / 0.5]
    assert [float(found.metrics[f"score_{i}"]) for i in range(2)] == pytest.approx(expected, rel=1e-4)
    assert float(found.fitness) == pytest.approx(np.mean(expected), rel=1e-4)
