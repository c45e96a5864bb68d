"""One learner in several seats: the rows of its batch are the environments times its seats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from games import Game
from games.core.arguments import factory
from marl.core.learner import Learner


class Seats(NamedTuple):
    """The seats of one learner. A row of its batch is `environment * number of seats + place of the seat`.

    Attributes:
      own: the agents in these seats.
      agents: all agents of the game.
      num_envs: N; None without that axis.
      sees_all: as of `Learner`.
    """

    own: tuple[str, ...]
    agents: tuple[str, ...]
    num_envs: int | None
    sees_all: bool

    @property
    def num_rows(self) -> int | None:
        """Rows of the batch; None for one seat without environments."""
        if len(self.own) == 1:
            return self.num_envs
        return len(self.own) * (self.num_envs or 1)

    def rows(self, values: Mapping[str, jax.Array]) -> jax.Array:
        """`[rows, ...]` of values `[N, ...]` by agent."""
        return self._join([values[agent] for agent in self.own])

    def observe(self, observations: Mapping[str, jax.Array]) -> jax.Array:
        """The observations of the seats, `[rows, ...]`; with those of all others behind, if the learner sees all."""
        if not self.sees_all:
            return self.rows(observations)
        number = len(self.agents)
        firsts = [self.agents.index(agent) for agent in self.own]
        return self._join(
            [
                jnp.concatenate([observations[self.agents[(first + i) % number]] for i in range(number)], -1)
                for first in firsts
            ]
        )

    def others(self, values: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
        """Values of each co-player, `[rows, ...]` each, in the order of the game's agents."""
        co_players = [[other for other in self.agents if other != agent] for agent in self.own]
        return tuple(self._join([values[other] for other in others]) for others in zip(*co_players, strict=True))

    def by_agent(self, rows: jax.Array, axis: int = 0) -> dict[str, jax.Array]:
        """Values by agent of rows that are on this axis."""
        if len(self.own) == 1:
            return {self.own[0]: rows}
        envs = () if self.num_envs is None else (self.num_envs,)
        apart = rows.reshape(*rows.shape[:axis], *envs, len(self.own), *rows.shape[axis + 1 :])
        return {agent: jnp.take(apart, i, axis + len(envs)) for i, agent in enumerate(self.own)}

    def _join(self, values: Sequence[jax.Array]) -> jax.Array:
        if len(values) == 1:
            return values[0]
        if self.num_envs is None:
            return jnp.stack(values)
        joined = jnp.stack(values, 1)
        return joined.reshape(-1, *joined.shape[2:])


def seats_of(game: Game, learners: Sequence[Learner], num_envs: int | None) -> list[Seats]:
    """The seats of each learner, in the order of the game's agents."""
    agents, found, first = tuple(game.agents), [], 0
    for learner in learners:
        own = agents[first : first + learner.num_seats]
        found.append(Seats(own, agents, num_envs, learner.sees_all))
        first += learner.num_seats
    return found


@factory
def shared(learner: Learner, game: Game) -> Learner:
    """One learner in all seats of a game: its parameters are shared, and it learns from the steps of all seats.

    `learn(key, game, [shared(learner, game)], ...)` trains it. With PPO this is independent PPO with shared parameters,
    and with a central critic MAPPO. Its batch `[T, rows]` has a row for each environment and seat, so that a minibatch
    mixes seats. Each seat acts on its own observation and learns from its own reward; `N` environments of `n` players
    are `N * n` rows.

    Args:
      learner: any learner of one seat, in a game that is alike from all seats.
      game: what is played.

    Returns:
      The learner, for `game.num_agents` seats.

    Raises:
      ValueError: if observations or actions differ between the seats, or for a learner that compares environments: a
        co-player's return in the same one depends on one's own actions, and would be no baseline.

    Example:
      >>> import games, jax, marl
      >>> game = games.make("coin_game")
      >>> team = marl.shared(marl.ppo(game, minibatches=2), game)
      >>> history = marl.learn(jax.random.key(0), game, [team], num_updates=2, steps_per_update=4, num_envs=2)
      >>> len(history.states), len(history.rewards)  # one network, two players
      (1, 2)

    Source: parameter sharing: Gupta et al., Cooperative Multi-Agent Control Using Deep Reinforcement Learning (2017);
    independent PPO: de Witt et al. (2020), arXiv:2011.09533.
    """
    if learner.compares_rows:
        needed = "one learner for each seat, as with --no-share, is needed"
        raise ValueError(f"shared: got a learner whose baseline is the mean of the other environments; {needed}")
    kinds = [(_kind(game.observation_space(a)), _kind(game.action_space(a))) for a in game.agents]
    for seat, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ValueError(
                f"shared: got {game.name}, where seat {seat} sees and does {kind} and seat 0 {kinds[0]}; "
                "a game that is alike from all seats is needed"
            )
    return learner._replace(num_seats=len(kinds), seat=None)


def _kind(space: Any) -> Any:
    """Type, shape and number of values of a space."""
    return type(space).__name__, space.shape, getattr(space, "n", getattr(space, "nvec", None))
