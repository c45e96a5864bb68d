"""The Cournot oligopoly, repeated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.spaces import Box
from games.toolbox.drawing import PLAYERS, bars


@struct.dataclass
class CournotState:
    """The quantities of the last step."""

    quantities: jax.Array  # `[num_agents]`, of the last step; 0 before the first
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Cournot(Game):
    """Firms choose quantities of one good at once, and the market's price falls with their sum.

    With quantities q_i and their sum Q, the price is max(intercept - slope Q, 0), and firm i earns
    (price - marginal_cost) q_i. Let z = (intercept - marginal_cost) / slope. Of the one-shot game of n firms,

        `nash_quantity` is z / (n + 1) each, where none gains by another quantity: the Cournot-Nash equilibrium;
        `cartel_quantity` is z / (2 n) each, where the sum of profits is the largest: collusion;
        z / n each brings the price down to the marginal cost: perfect competition.

    All is differentiable. Nothing is random, and the seats are exactly alike.

    Actions: the quantity, `[1]`, in [0, capacity]; beyond it is clipped. The observation, `[1 + num_agents]`, is the
    last price over the intercept and the last quantities over the capacity: one's own, then those of the next agents.

    Infos: `quantity`; `price`; `profit_gain`, which is 0 for the profit of the Nash equilibrium and 1 for that of the
    cartel (Delta of Calvano et al., Artificial Intelligence, Algorithmic Pricing, and Collusion, 2020).

    Attributes:
      num_agents: firms, at least 2.
      intercept: the price at a supply of 0.
      slope: of the inverse demand.
      marginal_cost: of every unit, below the intercept.
      capacity: the largest quantity of one firm.
      episode_length: steps until the time limit.

    Source: Cournot, Researches into the Mathematical Principles of the Theory of Wealth (1838), chapter 7.
    """

    num_agents: int = static(2)
    intercept: Scalar = 100.0
    slope: Scalar = 1.0
    marginal_cost: Scalar = 10.0
    capacity: Scalar = 50.0
    episode_length: Scalar = 100

    def __post_init__(self) -> None:
        checks.size("num_agents", self.num_agents, 2, 128)
        checks.number("marginal_cost", self.marginal_cost, 0)
        least = self.marginal_cost if checks.known(self.marginal_cost) else 0
        checks.number("intercept", self.intercept, least, brackets="(]")
        checks.number("slope", self.slope, 0, brackets="(]")
        checks.number("capacity", self.capacity, 0, brackets="(]")
        checks.whole("episode_length", self.episode_length, 1)

    @property
    def nash_quantity(self) -> Scalar:
        """The quantity of each agent in the Nash equilibrium of the one-shot game."""
        return (self.intercept - self.marginal_cost) / (self.slope * (self.num_agents + 1))

    @property
    def cartel_quantity(self) -> Scalar:
        """The quantity of each agent at the largest joint profit."""
        return (self.intercept - self.marginal_cost) / (2 * self.slope * self.num_agents)

    def reset(self, key: jax.Array) -> tuple[Observations, CournotState]:
        state = CournotState(jnp.zeros(self.num_agents), jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: CournotState, actions: Actions) -> Step[CournotState]:
        quantities = jnp.stack([jnp.asarray(actions[agent], jnp.float32).reshape(()) for agent in self.agents])
        quantities = jnp.clip(quantities, 0.0, self.capacity)
        state = CournotState(quantities, state.time + 1)
        price = self._price(quantities)
        profits = (price - self.marginal_cost) * quantities
        nash, cartel = self.slope * self.nash_quantity**2, self.slope * self.num_agents * self.cartel_quantity**2
        dones, infos = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos |= {
            "quantity": quantities,
            "price": jnp.broadcast_to(price, (self.num_agents,)),
            "profit_gain": (profits - nash) / (cartel - nash),
        }
        return self.get_obs(state), state, self._by_agent(profits), dones, infos

    def _price(self, quantities: jax.Array) -> jax.Array:
        return jnp.maximum(self.intercept - self.slope * quantities.sum(), 0.0)

    def get_obs(self, state: CournotState) -> Observations:
        price, quantities = self._price(state.quantities) / self.intercept, state.quantities / self.capacity
        return self._by_agent([jnp.append(price, jnp.roll(quantities, -i)) for i in range(self.num_agents)])

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (1 + self.num_agents,))

    def action_space(self, agent: str) -> Box:
        return Box(0.0, self.capacity, (1,))

    def render(self, state: Any) -> np.ndarray:
        price = float(self._price(state.quantities))
        entries = [("price", price / float(self.intercept), f"{price:.3g}", "#999999")]
        for i, quantity in enumerate(np.asarray(state.quantities)):
            words = f"sells {quantity:.3g}"
            entries.append((f"agent {i}", quantity / float(self.capacity), words, PLAYERS[i % len(PLAYERS)]))
        return bars(f"Cournot, step {int(state.time)}", entries)
