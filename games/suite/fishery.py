"""The fishery: a commons whose stock regrows."""

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
class FisheryState:
    """The stock of fish and the last efforts."""

    stock: jax.Array  # `[]`
    efforts: jax.Array  # `[num_agents]`, of the last step; 0 before the first
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Fishery(Game):
    """Fishers share one stock of fish, which regrows by the logistic law and is caught in proportion to the effort.

    With the stock S, the carrying capacity K, efforts E_i and their sum E, a step is

        H = min(catchability E S, S + G),    G = growth_rate S (1 - S / K),    S <- S + G - H,

    where H is shared in proportion to the efforts: H_i = H E_i / E. Fisher i earns price H_i - cost E_i. Each is paid
    for its own catch, and all lose by a smaller stock: the tragedy of the commons.

    A constant effort E holds the stock at K (1 - catchability E / growth_rate). Of such steady states, with
    z = growth_rate / catchability (1 - cost / (price catchability K)), the whole fleet's effort is

        z / 2 where the sum of earnings is the largest, at `cartel_effort` each,
        z n / (n + 1) where none of the n gains by another effort for ever, at `nash_effort` each,
        z under open access, where all profits are 0, at `open_access_effort` each.

    All is differentiable. Nothing is random, and the seats are exactly alike.

    Actions: the effort, `[1]`, in [0, max_effort]; beyond it is clipped. The observation, `[1 + num_agents]`, is the
    stock over the carrying capacity and the last efforts over max_effort: one's own, then those of the next agents.

    Infos: `harvest`, of each agent; `effort`; `stock` after the step.

    Attributes:
      num_agents: how many fish.
      growth_rate: of a small stock, per step; in (0, 1], so that the stock never exceeds its capacity.
      carrying_capacity: the stock at which growth ends.
      initial_stock: from 0 to the carrying capacity.
      catchability: the share of the stock caught by a unit of effort.
      price: of a unit of fish.
      cost: of a unit of effort.
      max_effort: of one fisher.
      episode_length: steps until the time limit.

    Source: the Gordon-Schaefer model, Gordon, The Economic Theory of a Common-Property Resource (1954), with the
    numbers of the open-access fishery of Perman et al., Natural Resource and Environmental Economics (2003), ch. 17.
    """

    num_agents: int = static(2)
    growth_rate: Scalar = 0.15
    carrying_capacity: Scalar = 1.0
    initial_stock: Scalar = 0.5
    catchability: Scalar = 0.015
    price: Scalar = 200.0
    cost: Scalar = 0.6
    max_effort: Scalar = 10.0
    episode_length: Scalar = 100

    def __post_init__(self) -> None:
        checks.size("num_agents", self.num_agents, 1, 128)
        checks.number("growth_rate", self.growth_rate, 0, 1, brackets="(]")
        checks.number("carrying_capacity", self.carrying_capacity, 0, brackets="(]")
        most = self.carrying_capacity if checks.known(self.carrying_capacity) else np.inf
        checks.number("initial_stock", self.initial_stock, 0, most)
        checks.number("catchability", self.catchability, 0, brackets="(]")
        checks.number("price", self.price, 0)
        checks.number("cost", self.cost, 0)
        checks.number("max_effort", self.max_effort, 0, brackets="(]")
        checks.whole("episode_length", self.episode_length, 1)

    @property
    def open_access_effort(self) -> Scalar:
        """The effort of each agent at which all profits are 0 in the steady state."""
        margin = 1 - self.cost / (self.price * self.catchability * self.carrying_capacity)
        return self.growth_rate / self.catchability * margin / self.num_agents

    @property
    def nash_effort(self) -> Scalar:
        """The effort of each agent in the Nash equilibrium of steady states."""
        return self.open_access_effort * self.num_agents / (self.num_agents + 1)

    @property
    def cartel_effort(self) -> Scalar:
        """The effort of each agent at the largest joint profit of a steady state."""
        return self.open_access_effort / 2

    def reset(self, key: jax.Array) -> tuple[Observations, FisheryState]:
        stock = jnp.asarray(self.initial_stock, jnp.float32)
        state = FisheryState(stock, jnp.zeros(self.num_agents), jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: FisheryState, actions: Actions) -> Step[FisheryState]:
        efforts = jnp.stack([jnp.asarray(actions[agent], jnp.float32).reshape(()) for agent in self.agents])
        efforts = jnp.clip(efforts, 0.0, self.max_effort)
        grown = state.stock * (1 + self.growth_rate * (1 - state.stock / self.carrying_capacity))
        wanted = self.catchability * efforts * state.stock
        # The last term keeps 0 / 0, and its gradient, out of an empty sea.
        harvest = wanted * (grown / jnp.maximum(jnp.maximum(wanted.sum(), grown), 1e-12))
        stock = jnp.clip(grown - harvest.sum(), 0.0, self.carrying_capacity)  # above only by rounding
        state = FisheryState(stock, efforts, state.time + 1)
        dones, infos = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos |= {"harvest": harvest, "effort": efforts, "stock": jnp.broadcast_to(stock, (self.num_agents,))}
        rewards = self.price * harvest - self.cost * efforts
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def get_obs(self, state: FisheryState) -> Observations:
        stock, efforts = state.stock / self.carrying_capacity, state.efforts / self.max_effort
        return self._by_agent([jnp.append(stock, jnp.roll(efforts, -i)) for i in range(self.num_agents)])

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (1 + self.num_agents,))

    def action_space(self, agent: str) -> Box:
        return Box(0.0, self.max_effort, (1,))

    def render(self, state: Any) -> np.ndarray:
        stock = float(state.stock)
        entries = [("fish", stock / float(self.carrying_capacity), f"{stock:.3g}", "#56B4E9")]
        for i, effort in enumerate(np.asarray(state.efforts)):
            words = f"effort {effort:.3g}"
            entries.append((f"agent {i}", effort / float(self.max_effort), words, PLAYERS[i % len(PLAYERS)]))
        return bars(f"Fishery, step {int(state.time)}", entries)
