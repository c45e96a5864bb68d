"""Self-play against what one was: who is met how often, and what is learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl import Learner, make_learner
from marl.distributed.hosts import maker
from marl.distributed.past_selves import RATE, PastSelves
from marl.distributed.runtime import train


def test_a_share_of_the_rollouts_is_against_the_past_as_good_as_it_is():
    past = PastSelves(share=0.3, every=5, seed=1)
    for version in range(16):
        past.keep(version, f"policy {version}")
    past.quality = {0: 0.0, 5: 1.0, 10: 2.0, 15: 0.0}
    met = [past.opponent(number) for number in range(20_000)]
    assert met[:50] == [PastSelvesLike(past).opponent(number) for number in range(50)]  # by the number alone
    assert np.mean([one is not None for one in met]) == pytest.approx(0.3, abs=0.01)
    weights = np.exp([0.0, 1.0, 2.0, 0.0])
    for name, weight in zip((0, 5, 10, 15), weights / weights.sum(), strict=True):
        share = np.mean([one == f"policy {name}" for one in met if one])
        assert share == pytest.approx(weight, abs=0.02)


class PastSelvesLike(PastSelves):
    """A copy that has met nobody."""

    def __init__(self, other):
        super().__init__(other.share, other._every, other._seed)
        self._policies, self.quality = dict(other._policies), dict(other.quality)


def test_who_is_beaten_is_met_less_often():
    past = PastSelves(share=1.0, every=1, seed=0)
    for version in (0, 1):
        past.keep(version, version)
    number = next(number for number in range(99) if past.opponent(number) == 0)
    past.heard(number, won=True)
    assert past.quality == {0: pytest.approx(-RATE / (2 * 0.5)), 1: 0.0}
    past.heard(number, won=True)  # that rollout is over
    assert past.quality[0] == pytest.approx(-RATE)
    past.keep(2, 2)
    assert past.quality[2] == 0.0  # the highest of all
    number = next(number for number in range(99) if past.opponent(number) == 1)
    past.heard(number, won=False)
    assert past.quality[1] == 0.0


def test_only_the_first_seat_learns_and_the_others_have_its_policies():
    """Its policy is the number of its updates, and everybody does what that is: past selves show in what they do."""

    def act(key, parameters, memory, obs):
        return jnp.broadcast_to(parameters % 2, obs.shape[:1]), memory, ()

    def update(key, state, trajectory):
        return state + 1, {"own": trajectory.action.mean(), "other": trajectory.others[0].mean()}

    learner = Learner(lambda key: jnp.int32(0), act, update)
    settings = {"key": jax.random.key(0), "num_updates": 40, "steps_per_update": 2, "lag": 0}
    host = maker("ipd(episode_length=2)", 2)
    alone = train([learner], [host], past_selves=PastSelves(0.0), **settings).history
    np.testing.assert_array_equal(alone.metrics[0]["own"], np.arange(40) % 2)
    np.testing.assert_array_equal(alone.metrics[0]["other"], np.arange(40) % 2)
    found = train([learner], [host], past_selves=PastSelves(0.5, every=2), **settings).history
    np.testing.assert_array_equal(found.metrics[0]["own"], np.arange(40) % 2)
    other = found.metrics[0]["other"]
    assert set(other[::2]) == {0.0}  # of even numbers are all past selves, and so is the latest then
    assert 0.25 < (other[1::2] == 0).mean() < 0.75


def test_ppo_with_a_memory_plays_itself():
    game = make("ipd", episode_length=4)
    learner = make_learner("ppo(network='recurrent', hidden=[4], memory=4, minibatches=1)", game)
    settings = {"key": jax.random.key(0), "num_updates": 6, "steps_per_update": 4}
    found = train([learner], [maker("ipd(episode_length=4)", 2)] * 2, past_selves=PastSelves(0.5, 2), **settings)
    assert np.isfinite(found.history.metrics[0]["value_loss"]).all()
    with pytest.raises(ValueError, match="one is needed, for self-play"):
        train([learner] * 2, [maker("ipd", 2)], past_selves=PastSelves(), **settings)
