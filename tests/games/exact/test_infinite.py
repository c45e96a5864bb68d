"""The repeated game as a Game, and the base class's auto-reset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from games import Box, Discrete, Game, InfinitelyRepeated, chicken, matching_pennies, prisoners_dilemma


def test_a_step_pays_the_average_per_round_and_shows_both_policies_own_first():
    game = InfinitelyRepeated(prisoners_dilemma)
    _, state = game.reset(jax.random.key(0))
    defect, cooperate = jnp.full(5, -20.0), jnp.full(5, 20.0)
    obs, state, rewards, dones, _ = game.step(jax.random.key(1), state, {"agent_0": defect, "agent_1": cooperate})
    assert float(rewards["agent_0"]) == pytest.approx(0, abs=1e-4)
    assert float(rewards["agent_1"]) == pytest.approx(-3, abs=1e-4)
    np.testing.assert_allclose(obs["agent_0"], [0] * 5 + [1] * 5, atol=1e-6)
    np.testing.assert_allclose(obs["agent_1"], [1] * 5 + [0] * 5, atol=1e-6)
    assert not any(dones.values())
    assert set(dones) == {"agent_0", "agent_1", "__all__"}


@pytest.mark.parametrize("game", [InfinitelyRepeated(matching_pennies), InfinitelyRepeated(chicken, 0.0)])
def test_observations_and_actions_lie_in_their_spaces(game):
    obs, state = game.reset(jax.random.key(0))
    actions = {agent: game.action_space(agent).sample(jax.random.key(i)) for i, agent in enumerate(game.agents)}
    after, _, _, _, _ = game.step(jax.random.key(1), state, actions)
    for agent in game.agents:
        assert game.action_space(agent).contains(actions[agent])
        assert game.observation_space(agent).contains(obs[agent])
        assert game.observation_space(agent).contains(after[agent])
    assert game.num_agents == 2


@pytest.mark.parametrize("discount", [-0.1, 1.0, 2.0])
def test_a_discount_outside_of_0_to_1_is_refused(discount):
    with pytest.raises(ValueError, match=r"discount: got .* \[0, 1\)"):
        InfinitelyRepeated(prisoners_dilemma, discount)


@struct.dataclass
class Clock:
    time: jax.Array


class CountToThree(Game):
    """A one-player game of three steps."""

    agents = ("counter",)

    def reset(self, key):
        state = Clock(jnp.zeros((), int))
        return self.get_obs(state), state

    def get_obs(self, state):
        return {"counter": state.time.astype(float)}

    def action_space(self, agent):
        return Discrete(1)

    def step_env(self, key, state, actions):
        state = Clock(state.time + 1)
        done = state.time >= 3
        return self.get_obs(state), state, {"counter": 1.0}, {"counter": done, "__all__": done}, {}


def test_auto_reset_begins_a_new_game_after_the_last_step():
    game, seen = CountToThree(), []
    obs, state = game.reset(jax.random.key(0))
    for _ in range(7):
        obs, state, _, dones, _ = game.step(jax.random.key(0), state, {"counter": 0})
        seen.append((float(obs["counter"]), bool(dones["__all__"])))
    assert seen == [(1, False), (2, False), (0, True), (1, False), (2, False), (0, True), (1, False)]


def test_auto_reset_takes_a_given_state():
    game = CountToThree()
    obs, state, *_ = game.step(jax.random.key(0), Clock(jnp.array(2)), {"counter": 0}, reset_state=Clock(jnp.array(1)))
    assert (float(obs["counter"]), int(state.time)) == (1, 1)


def test_spaces_sample_what_they_contain_and_convert_to_gymnasium():
    keys = jax.random.split(jax.random.key(0), 50)
    for space in (Discrete(4), Box(-1.0, 2.0, (3,)), Box(0.0, np.inf, (2,)), Box(-np.inf, 0.0, (2,))):
        for key in keys:
            sample = space.sample(key)
            assert space.contains(sample)
            assert space.to_gymnasium().contains(np.asarray(sample))
        assert not space.contains(jnp.full(space.shape, 7.5 if space.shape and space.high < 7 else -7.5))
    assert not Box(0.0, 1.0, (3,)).contains(jnp.zeros(2))
    assert Discrete(2).contains(1)
    assert not Discrete(2).contains(jnp.array([0, 1]))
    assert len({int(Discrete(4).sample(key)) for key in keys}) == 4
