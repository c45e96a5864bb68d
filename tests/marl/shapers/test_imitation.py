"""Imitation before an evolution: what is fitted, by strategies whose likelihood is known."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
import marl
from marl.experiments.shaping.config import SampledShapingConfig
from marl.experiments.shaping.jobs import make_shaping
from marl.shapers.imitation import Imitation, imitate
from marl.shapers.sampled_policies import replay
from marl.shapers.trial import play_sampled
from meta import Evolution
from tests.nightly import nightly

GAME = games.make("ipd", episode_length=4)
LENGTHS = {"meta_steps": 3, "episode_length": 4, "num_envs": 8}
SIZES = Imitation(trials=64, episodes=2, steps=60, batch=4, learning_rate=0.05)
POLICY = marl.make_shaper("shaper(hidden_units=4)", GAME)
KEYS = jnp.stack([jax.random.key(3), jax.random.key(4)])


def play(key, players, game=GAME):
    learners = [marl.make_learner(name, game, seat) for seat, name in enumerate(players)]
    return play_sampled(key, game, POLICY, None, learners, **LENGTHS, keep_trajectories=True)


def fitted(players, key=KEYS[0], **settings):
    """The parameters, and the log-likelihood of the last batch."""
    said = []
    report = lambda step, metrics, seconds: said.append(metrics["log_likelihood"])  # noqa: E731
    return imitate(lambda key: play(key, players), POLICY, key, SIZES, report=report, **settings), said[-1]


@pytest.mark.system
def test_a_strategy_is_imitated_up_to_its_own_entropy():
    parameters, likelihood = fitted(("tft", "random"))
    assert likelihood > -0.05  # a deterministic strategy has 0
    seen = play(jax.random.key(9), ("random", "random")).trajectories[0]
    outputs, _ = replay(POLICY, parameters, seen.obs, seen.done)
    probability = jax.nn.softmax(outputs)[..., 0]
    # Tit for tat, own action first: it cooperates at the start, and after CC and DC.
    wanted = jnp.isin(jnp.argmax(seen.obs, -1), jnp.array([0, 1, 3]))
    assert float(jnp.abs(probability - wanted).mean()) < 0.1
    assert fitted(("random", "tft"))[1] == pytest.approx(-np.log(2), abs=0.03)


@nightly
def test_the_first_players_are_imitated():
    """One of two always cooperates and the other never does: together they cooperate in half of the rounds."""
    players = ("always_cooperate", "always_defect")
    blind = POLICY._replace(act=lambda p, m, obs: POLICY.act(p, m, jnp.zeros_like(obs)))
    fit = partial(imitate, lambda key: play(key, players), blind, KEYS[0], SIZES)
    seen = jnp.zeros((1, 4, 8, 5)), jnp.zeros((1, 4, 8), bool)
    one, both = (
        float(jax.nn.softmax(replay(blind, fit(num_players=number), *seen)[0])[..., 0].mean()) for number in (1, 2)
    )
    assert one > 0.95
    assert both == pytest.approx(0.5, abs=0.1)


@nightly
def test_fits_of_several_keys_are_those_of_each_alone():
    several, _ = fitted(("tft", "random"), KEYS)
    for i, key in enumerate(KEYS):
        alone, _ = fitted(("tft", "random"), key)
        jax.tree.map(lambda x, y, i=i: np.testing.assert_allclose(x[i], y, atol=1e-5), several, alone)
    assert not np.allclose(*several["see_w"])


@pytest.mark.system
def test_an_evolution_begins_at_a_policy_that_imitates_the_opponents_own_kind():
    config = SampledShapingConfig(
        environment="ipd(episode_length=4)",
        opponent="tft",
        shaper="shaper(hidden_units=4)",
        **LENGTHS,
        trials=1,
        start="imitation(trials=64, episodes=2, steps=60, batch=4, learning_rate=0.05)",
        evolution=Evolution(population_size=4, generations=1, learning_rate=1e-6),
        seed=3,
    )
    said = []
    trained = make_shaping(config).train_shapers(KEYS[:1], before=lambda step, *_: said.append(step))
    assert said[-1] == 60
    seen = play(jax.random.key(9), ("random", "random")).trajectories[0]
    outputs, _ = replay(POLICY, jax.tree.map(lambda x: x[0], trained.parameters), seen.obs, seen.done)
    assert float(outputs.argmax(-1)[jnp.argmax(seen.obs, -1) == 0].mean()) < 0.05  # cooperates at the start
