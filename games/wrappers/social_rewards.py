"""Social rewards: a game of several players in which each is paid by the rewards of all."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import shown
from games.core import checks
from games.core.arguments import check_arguments, check_game
from games.core.game import Actions, Dones, Game, Observations, Scalar, Step
from games.core.spaces import Space


@struct.dataclass
class SocialState:
    """The state of a game with social rewards."""

    bare: Any  # the state of the bare game
    smoothed: jax.Array  # `[n]`, the smoothed rewards e of this episode


@struct.dataclass(eq=False)
class SocialRewards(Game):
    """Base of games with social rewards. A subclass defines `utilities`, which are paid in place of the rewards.

    Rewards r are smoothed over the steps of an episode, e^t = decay e^(t-1) + r^t, beginning from 0. Observations,
    transitions and the end of the game are the bare game's. All numbers are leaves of the pytree, and each is one for
    all players or `[n]`, one for each.

    Infos: the bare game's, and `bare_reward`, the reward r of the bare game.

    Attributes:
      game: the bare game, of n >= 2 players.
      decay: factor of older rewards in a smoothed one, in [0, 1]; with 0 the smoothed rewards are the rewards.

    Raises:
      TypeError: for what is no game.
      ValueError: for a game of one player, or a number that does not fit.
    """

    game: Game
    decay: Any = struct.field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_game(self.game)
        if self.game.num_agents < 2:
            raise ValueError(f"game: got {self.game.name}, of 1 player; a game of 2 players or more is needed")
        self._check("decay", 0, 1)

    def _check(self, name: str, low: float = -np.inf, high: float = np.inf) -> None:
        value = checks.table(name, getattr(self, name), low, high)
        if checks.known(value) and np.ndim(value) and np.shape(value)[-1] != self.num_agents:
            raise ValueError(f"{name}: got {shown(value)}; one number, or {self.num_agents} numbers, are needed")
        object.__setattr__(self, name, value)

    def utilities(self, rewards: jax.Array, smoothed: jax.Array) -> jax.Array:
        """Utilities `[n]` of a step.

        Args:
          rewards: r, `[n]`.
          smoothed: e after this step, `[n]`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define utilities")

    @property
    def num_agents(self) -> int:  # type: ignore[override]
        return self.game.num_agents

    def reset(self, key: jax.Array) -> tuple[Observations, SocialState]:
        observations, bare = self.game.reset(key)
        return observations, SocialState(bare, jnp.zeros(self.num_agents, jnp.float32))

    def step_env(self, key: jax.Array, state: SocialState, actions: Actions) -> Step[SocialState]:
        observations, bare, by_agent, dones, infos = self.game.step_env(key, state.bare, actions)
        rewards = jnp.stack([jnp.asarray(by_agent[agent], jnp.float32) for agent in self.agents])
        smoothed = self.decay * state.smoothed + rewards
        paid = self._by_agent(self.utilities(rewards, smoothed).astype(jnp.float32))
        return observations, SocialState(bare, smoothed), paid, dones, {"bare_reward": rewards} | infos

    def auto_reset(
        self, key: jax.Array, observations: Observations, state: Any, dones: Dones, reset_state: Any | None = None
    ) -> tuple[Observations, SocialState]:
        given, smoothed = (None, 0.0) if reset_state is None else (reset_state.bare, reset_state.smoothed)
        observations, bare = self.game.auto_reset(key, observations, state.bare, dones, given)
        return observations, SocialState(bare, jnp.where(dones["__all__"], smoothed, state.smoothed))

    def get_obs(self, state: SocialState) -> Observations:
        return self.game.get_obs(state.bare)

    def get_avail_actions(self, state: SocialState) -> dict[str, jax.Array]:
        return self.game.get_avail_actions(state.bare)

    def observation_space(self, agent: str) -> Space:
        return self.game.observation_space(agent)

    def action_space(self, agent: str) -> Space:
        return self.game.action_space(agent)

    @property
    def time_limit(self) -> Scalar | None:
        return self.game.time_limit

    @property
    def name(self) -> str:
        return f"{self.game.name} with {type(self).__name__}"

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        return self.game.agent_classes

    def render(self, state: SocialState) -> np.ndarray:
        return self.game.render(state.bare)

    def frames(self, states: SocialState) -> list[np.ndarray]:
        return self.game.frames(states.bare)


@struct.dataclass(eq=False)
class SelfInterest(SocialRewards):
    """A game in which each player keeps a share of its reward, and gets its part of what the others hand on.

        u_i = level_i e_i + (1 - level_i) / (n - 1) sum_{j != i} e_j

    With a level of 1 and without smoothing it is the bare game; with 1 / n all are paid the mean of all rewards, and
    with 0 the mean of the others'. A level of 1 with a `decay` pays smoothed rewards and changes nothing else.

    Attributes:
      game: the bare game, of n >= 2 players.
      level: the share of the own reward, in [0, 1]; one number, or `[n]`.
      decay: of the smoothed rewards e, as in `SocialRewards`.

    Raises:
      TypeError: for what is no game.
      ValueError: for a game of one player, or a number that does not fit.

    Source: the self-interest level of Willis et al., Resolving Social Dilemmas with Minimal Reward Transfer (2023),
    arXiv:2310.12928, with one level for all in place of the paper's.

    Example:
      >>> import games, jax
      >>> game = games.SelfInterest(games.make("ipd"), level=0.75)
      >>> state = game.reset(jax.random.key(0))[1]
      >>> rewards = game.step_env(jax.random.key(0), state, {"agent_0": 0, "agent_1": 1})[2]
      >>> {agent: float(x) for agent, x in rewards.items()}  # -3 and 0 in the bare game
      {'agent_0': -2.25, 'agent_1': -0.75}
    """

    level: Any = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("level", 0, 1)

    def utilities(self, rewards: jax.Array, smoothed: jax.Array) -> jax.Array:
        return self.level * smoothed + (1 - self.level) * _mean_of_others(smoothed)


@check_arguments
def common_reward(game: Game) -> Game:
    """A game in which all are paid the mean of all rewards, so that the team has one interest.

        u_i = 1 / n sum_j r_j

    It is the mean and not the sum: the rewards have the size of the bare game's.

    Args:
      game: the bare game, of n >= 2 players.

    Returns:
      `SelfInterest` with the level 1 / n.

    Raises:
      TypeError: for what is no game.
      ValueError: for a game of one player.
    """
    return SelfInterest(game, 1 / game.num_agents)


@struct.dataclass(eq=False)
class InequityAversion(SocialRewards):
    """A game whose players dislike it when others get more than they do, and when others get less.

        u_i = r_i - alpha_i / (n - 1) sum_j max(e_j - e_i, 0) - beta_i / (n - 1) sum_j max(e_i - e_j, 0)

    The first term is disadvantageous inequity, or envy; the second is advantageous inequity, or guilt. Rewards are
    compared as smoothed ones, because one's apple of this step is no advantage over another's of the last step.

    Attributes:
      game: the bare game, of n >= 2 players.
      alpha: aversion to having less; one number, or `[n]`; of at least 0.
      beta: aversion to having more; one number, or `[n]`; of at least 0.
      decay: of the smoothed rewards e: discount times lambda, 0.99 x 0.975.

    Raises:
      TypeError: for what is no game.
      ValueError: for a game of one player, or a number that does not fit.

    Source: Hughes et al., Inequity Aversion Improves Cooperation in Intertemporal Social Dilemmas (2018),
    arXiv:1803.08884, after Fehr and Schmidt (1999).

    Example:
      >>> import games, jax
      >>> game = games.InequityAversion(games.make("ipd"), alpha=1.0, beta=0.5)
      >>> state = game.reset(jax.random.key(0))[1]
      >>> rewards = game.step_env(jax.random.key(0), state, {"agent_0": 0, "agent_1": 1})[2]
      >>> {agent: float(x) for agent, x in rewards.items()}  # envy of 3, and guilt of 3 halved
      {'agent_0': -6.0, 'agent_1': -1.5}
    """

    alpha: Any = 5.0
    beta: Any = 0.05
    decay: Any = struct.field(default=0.99 * 0.975, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("alpha", 0)
        self._check("beta", 0)

    def utilities(self, rewards: jax.Array, smoothed: jax.Array) -> jax.Array:
        more = smoothed[None] - smoothed[:, None]  # [i, j]: by how much j has more than i
        envy, guilt = jnp.maximum(more, 0).sum(1), jnp.maximum(-more, 0).sum(1)
        return rewards - (self.alpha * envy + self.beta * guilt) / (self.num_agents - 1)


@struct.dataclass(eq=False)
class SocialValueOrientation(SocialRewards):
    """A game whose players want a certain ratio between what the others get and what they get themselves.

        u_i = r_i - weight_i |angle_i - theta_i|,    theta_i = atan2(mean of e_j over j != i, e_i)

    A target of 0 is individualistic, pi / 4 is prosocial and wants as much for the others, pi / 2 is altruistic, and
    -pi / 4 competitive. Angles are in radians. While all rewards are 0, theta is 0.

    Attributes:
      game: the bare game, of n >= 2 players.
      angle: the target, in [-pi, pi]; one number, or `[n]`.
      weight: of the distance from the target; one number, or `[n]`; of at least 0.
      decay: of the smoothed rewards e, as in `SocialRewards`.

    Raises:
      TypeError: for what is no game.
      ValueError: for a game of one player, or a number that does not fit.

    Source: McKee et al., Social Diversity and Social Preferences in Mixed-Motive Reinforcement Learning (2020),
    arXiv:2002.02325. The default weight is ours.

    Example:
      >>> import games, jax
      >>> game = games.SocialValueOrientation(games.make("public_goods"), weight=1.0)
      >>> state = game.reset(jax.random.key(0))[1]
      >>> rewards = game.step_env(jax.random.key(0), state, dict.fromkeys(game.agents, 0))[2]
      >>> round(float(rewards["agent_0"]), 2)  # all get 1.6, the ratio that a prosocial player wants
      1.6
    """

    angle: Any = np.pi / 4
    weight: Any = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("angle", -np.pi, np.pi)
        self._check("weight", 0)

    def utilities(self, rewards: jax.Array, smoothed: jax.Array) -> jax.Array:
        theta = jnp.arctan2(_mean_of_others(smoothed), smoothed)
        apart = jnp.abs(self.angle - theta)
        return rewards - self.weight * jnp.minimum(apart, 2 * jnp.pi - apart)  # the shorter way around


def _mean_of_others(values: jax.Array) -> jax.Array:
    """The mean over the other players, `[n]` from `[n]`; a matrix without diagonal, because sums of all round."""
    n = len(values)
    return jnp.where(np.eye(n, dtype=bool), 0, values[None]).sum(1) / (n - 1)
