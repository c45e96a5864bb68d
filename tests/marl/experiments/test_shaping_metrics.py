"""Social metrics of shaping trials, against numbers worked out by hand."""

import jax
import numpy as np
import pytest

import games
import marl
from marl.experiments.shaping.config import SampledShapingConfig
from marl.experiments.shaping.evaluation import OWN_KIND
from marl.experiments.shaping.jobs import make_shaping
from marl.experiments.shaping.sampled import social_metrics_of


def test_a_defector_beside_two_cooperators():
    """They get 2, 2 and 5 in each of 4 rounds: U = 9, E = 1 - 12 / (6 x 9), S = (1 + 2 + 3 + 4) / 4."""
    game = games.make("three_player_ipd", episode_length=4)
    players = [marl.always_cooperate(game, 0), marl.always_cooperate(game, 1), marl.always_defect(game, 2)]
    sizes = {"num_updates": 2, "steps_per_update": 4, "num_envs": 2}
    history = marl.learn(jax.random.key(0), game, players, keep_trajectories=True, **sizes)
    found = social_metrics_of(game, history)
    assert found.keys() == {"efficiency", "equality", "sustainability"}  # no player is ever away
    for name, value in (("efficiency", 9), ("equality", 1 - 12 / 54), ("sustainability", 2.5)):
        np.testing.assert_allclose(found[name], [value, value], rtol=1e-6)


@pytest.mark.system
def test_metrics_of_a_summary():
    config = SampledShapingConfig(
        environment="harvest(num_agents=3, episode_length=4, zap_steps=2)",
        opponent="random",
        meta_steps=2,
        episode_length=4,
        trials=1,
        evaluation_trials=3,
    )
    shaping = make_shaping(config)
    keys = jax.random.split(jax.random.key(0), config.evaluation_trials)
    played = jax.jit(jax.vmap(shaping.trials[OWN_KIND], (0, None)))(keys, None)
    found = shaping.measure_group(jax.tree.map(np.asarray, played))
    own, others = (found[side]["mean"] for side in ("shaper", "opponent"))
    assert found["efficiency"]["mean"] == pytest.approx(own + 2 * others, abs=1e-6)
    assert 0 <= found["equality"]["mean"] <= 1
    away = [found["counts"]["away"][side]["mean"] for side in ("shaper", "opponent")]
    assert found["peace"]["mean"] == pytest.approx(3 - away[0] - 2 * away[1], abs=1e-5)
