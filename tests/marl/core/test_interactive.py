"""A game against a co-player outside the program, step by step, with a learner in the other seat."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl import make_learner, past_selves, shared
from marl.core.interactive import Play, make_steps


def test_a_central_critic_sees_both_observations_in_either_seat():
    """One's own observation comes first, as in `learn`."""
    game = make("ipd", episode_length=8)
    for seat in range(2):
        learner = make_learner("mappo(hidden=[4], minibatches=2)", game, seat)
        play = Play(make_steps(game, learner, seat), steps_per_update=4, key=jax.random.key(0))
        play.act()
        play.go_on(jnp.int32(1))
        seen = [np.asarray(play.observations[f"agent_{i}"]) for i in (seat, 1 - seat)]
        play.act()
        play.go_on(jnp.int32(1))
        np.testing.assert_array_equal(play._kept[1].obs, np.concatenate(seen))
        for _ in range(2):
            play.act()
            play.go_on(jnp.int32(0))
        assert play.updates == 1


def test_learners_that_need_others_are_refused():
    game = make("ipd", episode_length=8)
    learner = make_learner("ppo(hidden=[4])", game, 0)
    with pytest.raises(ValueError, match="learner: got one of 2 seats; one that plays a single seat by itself"):
        make_steps(game, shared(learner, game), 0)
    with pytest.raises(ValueError, match="learner: got one of 1 seats that copies from others; one that plays"):
        make_steps(game, past_selves(learner, 0.5), 0)


@pytest.mark.parametrize("settings", ["", ", normalize_observations=True"])
def test_updates_and_statistics_come_from_the_steps_that_were_played(settings):
    """An update follows every four steps; running statistics are of all eight, because they are shared."""
    game = make("ipd", episode_length=8)
    learner = make_learner(f"ppo(hidden=[4], minibatches=2{settings})", game, 0)
    play = Play(make_steps(game, learner, 0), steps_per_update=4, key=jax.random.key(0))
    seen = []
    for _ in range(8):
        seen.append(np.asarray(play.observations["agent_0"]).reshape(-1))
        play.act()
        play.go_on(jnp.int32(1))
    assert play.updates == 2
    if settings:
        statistics = play._state.statistics
        assert float(statistics.number) == 8
        np.testing.assert_allclose(statistics.mean, np.mean(seen, 0), rtol=1e-5, atol=1e-6)
