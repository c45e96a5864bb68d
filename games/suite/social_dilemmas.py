"""Repeated social dilemmas of n players, in which only the number of cooperators counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Infos
from games.suite.rounds import MAX_TABLE, Rounds
from games.toolbox.drawing import payoff_table


def _public_goods(num_agents: int, multiplier: Any, endowment: Any) -> jax.Array:
    others = np.arange(num_agents)
    share = multiplier * endowment / num_agents
    return jnp.stack([share * (others + 1), share * others + endowment]).astype(jnp.float32)


@struct.dataclass(eq=False, kw_only=True)
class SocialDilemma(Rounds):
    """A repeated game of n players with two actions, cooperate (0) and defect (1), that treats all of them alike.

    A player's payoff depends on its own action and on how many of the others cooperate, and so does the state in
    which it sees a round: its own action first, and the number of the others that cooperate, from all to none:
    `2 num_agents` states, CC, CD, DC, DD for two players.

    Actions: 0 is cooperate, 1 is defect. The observation, `[memory (1 + states)]`, is for each of the last `memory`
    rounds, newest first, the agent's state in one-hot form; its entry 0 stands for the start, when there was no such
    round yet.

    Infos: `cooperation` of each agent, and `cooperators`, how many there were.

    Attributes:
      payoffs: `[2, num_agents]`, entry `[own action][number of others that cooperate]`.
      episode_length: as of `RepeatedGame`.
      discount: as of `RepeatedGame`.
      memory: as of `RepeatedGame`.

    Source: Dawes, Social Dilemmas (1980); public goods: Isaac, Walker and Thomas, Divergent Evidence on Free Riding
    (1984); the volunteer's dilemma: Diekmann (1985); the stag hunt of n players: Pacheco et al., Evolutionary Dynamics
    of Collective Action in N-Person Stag Hunt Dilemmas (2009).
    """

    payoffs: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "payoffs", checks.table("payoffs", self.payoffs))
        shape = np.shape(self.payoffs)
        fits = len(shape) >= 2 and shape[-2] == 2 and 2 <= shape[-1] <= 30  # games may be stacked
        if checks.known(self.payoffs) and not fits:
            raise ValueError(f"payoffs: got shape {shape}; [2, number of agents], 2 to 30, is needed")

    @property
    def num_agents(self) -> int:  # type: ignore[override]
        return np.shape(self.payoffs)[-1]

    @property
    def num_actions(self) -> tuple[int, ...]:
        return (2,) * self.num_agents

    @property
    def num_states(self) -> int:
        return 2 * self.num_agents

    def _defectors(self, actions: Sequence[jax.Array], agent: int) -> jax.Array:
        """The number of the others that defect."""
        return sum(actions[1:], start=actions[0]) - actions[agent]

    def _seen(self, actions: Sequence[jax.Array], agent: int) -> jax.Array:
        return actions[agent] * self.num_agents + self._defectors(actions, agent)

    def _payoffs(self, actions: Sequence[jax.Array]) -> Sequence[jax.Array]:
        # By state, selected by sums over one-hots: a batch of lookups is slow on a CPU.
        table = jnp.asarray(self.payoffs, jnp.float32)[:, ::-1].reshape(-1)
        return [
            jnp.sum(jnp.where(self._seen(actions, agent) == jnp.arange(self.num_states), table, 0))
            for agent in range(self.num_agents)
        ]

    def _counts(self, actions: Sequence[jax.Array]) -> Infos:
        cooperators = self.num_agents - sum(actions[1:], start=actions[0])
        return {"cooperators": jnp.full(self.num_agents, cooperators, jnp.float32)}

    def _table(self, played: Sequence[int] | None) -> np.ndarray | None:
        if self.num_agents > MAX_TABLE:
            return None
        columns = [str(others) for others in range(self.num_agents)]
        return payoff_table(["C", "D"], columns, np.asarray(self.payoffs)[..., None], corner="others that C")


def _dilemma(num_agents: int, payoffs: jax.Array, params: dict[str, Any]) -> SocialDilemma:
    """The game with these payoffs, or with those that `params` has in their place."""
    game = SocialDilemma(**{"payoffs": payoffs, **params})
    if game.num_agents != num_agents:
        raise ValueError(
            f"num_agents: got {num_agents} with payoffs of {game.num_agents} agents; equal ones are needed"
        )
    return game


def public_goods(num_agents: int = 4, multiplier: float = 1.6, endowment: float = 1.0, **params: Any) -> SocialDilemma:
    """The public goods game: a cooperator gives its endowment to a pot, which is multiplied and shared by all.

        payoff = multiplier * endowment * cooperators / num_agents + endowment * (own action is to defect)

    With a multiplier between 1 and the number of players it is a prisoner's dilemma of n players.

    Source: Hilbe, Wu, Traulsen and Nowak, Cooperation and control in multiplayer social dilemmas (2014).
    """
    checks.size("num_agents", num_agents, 2, 30)
    checks.number("multiplier", multiplier, 0, brackets="()")
    checks.number("endowment", endowment, 0, brackets="()")
    return _dilemma(num_agents, _public_goods(num_agents, multiplier, endowment), params)


def volunteers_dilemma(num_agents: int = 4, benefit: float = 1.0, cost: float = 0.5, **params: Any) -> SocialDilemma:
    """The volunteer's dilemma: one volunteer (cooperator) is enough for all to get the benefit; each pays its cost.

    Source: Diekmann, Volunteer's Dilemma (1985).
    """
    checks.size("num_agents", num_agents, 2, 30)
    checks.number("benefit", benefit, 0, brackets="()")
    checks.number("cost", cost, 0, brackets="()")
    others = np.arange(num_agents)
    payoffs = jnp.stack([jnp.full(num_agents, benefit - cost), benefit * (others > 0)])
    return _dilemma(num_agents, payoffs.astype(jnp.float32), params)


def n_player_stag_hunt(
    num_agents: int = 4, threshold: int | None = None, stag: float = 4.0, hare: float = 1.0, **params: Any
) -> SocialDilemma:
    """The stag hunt of n players: a hunter (cooperator) gets its part of the stag where enough hunt, else nothing.

    A hare is caught alone. The `threshold` is 3, or all of fewer players; of all it is the classic assurance game.

    Source: Pacheco, Santos, Souza and Skyrms, Evolutionary dynamics of collective action in N-person stag hunt
    dilemmas (2009), with an indivisible stag.
    """
    checks.size("num_agents", num_agents, 2, 30)
    threshold = min(3, num_agents) if threshold is None else threshold
    checks.whole("threshold", threshold, 1, num_agents)
    checks.number("stag", stag)
    checks.number("hare", hare)
    others = np.arange(num_agents)
    payoffs = jnp.stack([stag * (others + 1 >= threshold), jnp.full(num_agents, hare)])
    return _dilemma(num_agents, payoffs.astype(jnp.float32), params)
