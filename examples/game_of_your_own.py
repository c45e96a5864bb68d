"""A game of your own: two traders set prices, and buyers go to the cheaper one. Two PPOs learn to play it.

A game is a dataclass of its parameters with five methods. Everything else of the library then plays it: learners,
shapers, the faces to PettingZoo and JaxMARL; and, once this file is imported, commands that are called from Python:
`from marl.mfos import main; main(["coin_game", "--environment", "traders"])`.
"""

import jax
import jax.numpy as jnp
from flax import struct

import games
from games.core.game import Scalar
from marl import learn, make_learner


@struct.dataclass
class Market:
    """The state: both prices of the last step, and the time."""

    prices: jax.Array  # `[2]`
    time: jax.Array  # `[]`


@struct.dataclass(eq=False)
class Traders(games.Game):
    """Bertrand's duopoly with prices 0 to 4 and costs of 0: all buyers go to the cheaper trader, half to each in a tie.

    The only equilibria are prices of 0, of 1 and, where undercutting gains nothing either, of 2 each; together both
    would earn the most with 4.
    """

    buyers: Scalar = 1.0
    episode_length: Scalar = 16

    def reset(self, key):
        state = Market(jnp.zeros(2, jnp.int32), jnp.int32(0))
        return self.get_obs(state), state

    def step_env(self, key, state, actions):
        prices = jnp.stack([jnp.asarray(actions[agent]) for agent in self.agents])
        state = Market(prices, state.time + 1)
        share = jnp.where(prices < prices[::-1], 1.0, jnp.where(prices == prices[::-1], 0.5, 0.0))
        dones, infos = self._ending(jnp.array(False), state.time >= self.episode_length)
        infos["price"] = prices.astype(jnp.float32)
        return self.get_obs(state), state, self._by_agent(self.buyers * share * prices), dones, infos

    def get_obs(self, state):
        return self._by_agent([jnp.roll(state.prices, -i) / 4 for i in range(2)])  # one's own price first

    def observation_space(self, agent):
        return games.Box(0.0, 1.0, (2,))

    def action_space(self, agent):
        return games.Discrete(5)


games.register("traders", Traders, "two traders set prices, and buyers go to the cheaper one", replace=True)


def main(num_updates: int = 150, seeds: int = 8) -> jax.Array:
    """The mean prices of both traders after learning, `[seeds, 2]`."""
    game = games.make("traders", buyers=2.0)
    traders = [make_learner("ppo(learning_rate=0.005)", game, seat, num_updates=num_updates) for seat in (0, 1)]

    def run(key):
        history = learn(key, game, traders, num_updates=num_updates, steps_per_update=16, num_envs=8)
        return history.infos["price"]

    prices = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds))  # [seeds, updates, 2]
    print(
        f"prices at first {prices[:, 0].mean():.2f}, in the end {prices[:, -1].mean():.2f}, of 0 to 4 ({seeds} seeds)"
    )
    return prices[:, -1]


if __name__ == "__main__":
    main()
