"""Repeated matrix games, sampled: every step is one round, and players remember the last ones.

`games.exact.infinite` plays the same games exactly, by their expected values; here actions are drawn and played.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import shown
from games.core import checks, random_bits
from games.core.game import Actions, Game, Infos, Observations, Scalar, Step, static
from games.core.spaces import Box, Discrete
from games.exact.matrix import MatrixGame, action_names
from games.toolbox.drawing import PLAYERS, Canvas, payoff_table, stacked

DEFAULT_EPISODE_LENGTH = 100
MAX_COLUMNS = 40  # rounds in a picture
MAX_TABLE = 9  # columns of a table of payoffs


@struct.dataclass
class RoundsState:
    """The last joint action and the time."""

    history: jax.Array  # `[memory]`, the joint actions of the last rounds as one number each, newest first; -1: none
    time: jax.Array  # `[]`, rounds since the reset


@struct.dataclass(eq=False, kw_only=True)
class Rounds(Game):
    """Rounds of one and the same game: what `RepeatedGame` and `SocialDilemma` share. A subclass says what is paid.

    The observation of an agent is the state of the last `memory` rounds as it sees them, newest first, each a one-hot
    vector of `1 + num_states`: entry 0 is the start, when there was no such round yet. Actions are integers; 0 is
    "cooperate" in a dilemma.

    Infos: the share of agents' cooperation (`cooperation`, action 0) and what a subclass adds.

    Attributes:
      episode_length: rounds until the time limit; None for 100, or for no limit where a `discount` is given.
      discount: probability of a further round after each, in [0, 1); the expected return is then the discounted
        one. None: the number of rounds is fixed.
      memory: how many rounds back an agent sees; 1 in the papers.
    """

    episode_length: Scalar | None = None
    discount: Scalar | None = None
    memory: int = static(1)

    def __post_init__(self) -> None:
        if self.episode_length is not None:
            checks.whole("episode_length", self.episode_length, 1)
        if self.discount is not None:
            checks.number("discount", self.discount, 0, 1, brackets="[)")
        checks.size("memory", self.memory, 1, 100)

    @property
    def num_actions(self) -> tuple[int, ...]:
        """The number of actions of each agent."""
        raise NotImplementedError

    @property
    def num_states(self) -> int:
        """The number of last rounds that an agent distinguishes."""
        raise NotImplementedError

    def _seen(self, actions: Sequence[jax.Array], agent: int) -> jax.Array:
        """The state `[]` in 0 ... num_states - 1 in which an agent sees a round."""
        raise NotImplementedError

    def _payoffs(self, actions: Sequence[jax.Array]) -> Sequence[jax.Array]:
        """The payoffs of a round, one for each agent."""
        raise NotImplementedError

    def _counts(self, actions: Sequence[jax.Array]) -> Infos:
        """Counts of a subclass for `infos`, `[num_agents]` each."""
        raise NotImplementedError

    @property
    def time_limit(self) -> Scalar | None:
        endless = self.episode_length is None and self.discount is None
        return DEFAULT_EPISODE_LENGTH if endless else self.episode_length

    def reset(self, key: jax.Array) -> tuple[Observations, RoundsState]:
        """Nothing has been played; `key` is not used."""
        del key
        state = RoundsState(jnp.full(self.memory, -1, jnp.int32), jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: RoundsState, actions: Actions) -> Step[RoundsState]:
        played = [jnp.asarray(actions[agent], jnp.int32) for agent in self.agents]
        joint = _encode(played, self.num_actions)
        state = RoundsState(jnp.concatenate([joint[None], state.history[:-1]]), state.time + 1)
        terminated, truncated = jnp.zeros((), bool), jnp.zeros((), bool)
        if self.discount is not None:
            terminated = random_bits.uniform(random_bits.words(key, 1)[0]) >= self.discount
        if (limit := self.time_limit) is not None:
            truncated = state.time >= limit
        dones, infos = self._ending(terminated, truncated)
        infos |= {"cooperation": jnp.stack([(action == 0).astype(jnp.float32) for action in played])}
        infos |= self._counts(played)
        return self.get_obs(state), state, self._by_agent(self._payoffs(played)), dones, infos

    def get_obs(self, state: RoundsState) -> Observations:
        actions = _decode(state.history, self.num_actions)

        def one_hot(agent: int) -> jax.Array:
            seen = jnp.where(state.history < 0, 0, 1 + self._seen(actions, agent))
            return (seen[:, None] == jnp.arange(1 + self.num_states)).astype(jnp.float32).reshape(-1)

        return self._by_agent([one_hot(agent) for agent in range(self.num_agents)])

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (self.memory * (1 + self.num_states),))

    def action_space(self, agent: str) -> Discrete:
        return Discrete(self.num_actions[self.agents.index(agent)])

    def render(self, state: Any) -> np.ndarray:
        """A strip, a row for each agent and a column for each round that is remembered, and what they are paid for it.

        The newest round is on the right, and marked in the table of payoffs.
        """
        return self._strip(np.asarray(state.history)[::-1].tolist(), self.memory)

    def frames(self, states: Any) -> list[np.ndarray]:
        """The strip grows with every round.

        A gap is a state in which nothing has been played, as there is one at the beginning of an episode where states
        are kept from before each step.
        """
        newest = np.asarray(states.history)[:, 0].tolist()
        columns = min(len(newest), MAX_COLUMNS)
        return [self._strip(newest[max(0, t - columns) : t], columns) for t in range(1, len(newest) + 1)]

    def _strip(self, joints: Sequence[int], columns: int) -> np.ndarray:
        canvas = Canvas(self.num_agents, columns + 1)
        for agent in range(self.num_agents):
            canvas.disc(agent, 0, PLAYERS[agent % len(PLAYERS)], 0.5)
        for column, joint in enumerate(joints, 1):
            if joint >= 0:
                for agent, action in enumerate(_decode(joint, self.num_actions)):
                    canvas.square(agent, column, _ACTIONS[action % len(_ACTIONS)], 0.9)
                    canvas.text(agent, column, self._label(agent, action))
        table = self._table(_decode(joints[-1], self.num_actions) if joints and joints[-1] >= 0 else None)
        return canvas.image() if table is None else stacked(canvas.image(), table)

    def _table(self, played: Sequence[int] | None) -> np.ndarray | None:
        """A picture of the payoffs, with what was played last; None where there are too many."""
        raise NotImplementedError

    def _label(self, agent: int, action: int) -> str:
        return "CD"[action] if self.num_actions[agent] == 2 else str(action)


_ACTIONS = ("#9AD1B8", "#F3B49A", "#A9CBE8", "#F1E08A", "#DDBBD2", "#CFCFCF")  # light, for letters stand on them


def _encode(actions: Sequence[jax.Array], sizes: Sequence[int]) -> jax.Array:
    """A joint action as one number, the first agent's action the leading digit."""
    joint = jnp.zeros((), jnp.int32)
    for action, size in zip(actions, sizes, strict=True):
        joint = joint * size + action
    return joint


def _decode(joint: Any, sizes: Sequence[int]) -> list[Any]:
    """The actions of a joint action, or of an array of them."""
    actions = []
    for size in reversed(sizes):
        actions.append(joint % size)
        joint = joint // size
    return actions[::-1]


def _prisoners_dilemma() -> np.ndarray:
    return np.array([[[-1, -1], [-3, 0]], [[0, -3], [-2, -2]]], np.float32)


@struct.dataclass(eq=False, kw_only=True)
class RepeatedGame(Rounds):
    """A repeated matrix game of any number of players, with any payoffs, sampled round by round.

    The states of an agent are the joint actions of a round in the order in which it sees them: its own action first,
    then those of the others around the table; CC, CD, DC, DD for two players with two actions.

    Actions: the number of a row or column of the payoffs. The observation, `[memory (1 + states)]`, is for each of the
    last `memory` rounds, newest first, the agent's state in one-hot form; its entry 0 stands for the start, when there
    was no such round yet.

    Infos: `cooperation`, and for every state whether the agent was in it, by its name: `CC`, `CD`, ...

    Attributes:
      payoffs: `[actions of agent 0, actions of agent 1, ..., num_agents]`, what every agent gets for a joint action.
      labels: a letter for each action; C and D by default, and digits where there are more than two.

    Source: the memory-one convention of Press and Dyson (2012) and of LOLA, arXiv:1709.04326.
    """

    payoffs: Any = struct.field(default_factory=_prisoners_dilemma)
    labels: str = static("")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = isinstance(self.payoffs, list | tuple)
        object.__setattr__(self, "payoffs", checks.table("payoffs", self.payoffs))
        if checks.known(self.payoffs):
            shape = np.shape(self.payoffs)
            axes = len(shape) - 1  # more of an array, whose games may be stacked
            if axes < 1 or not (shape[-1] == axes or (shape[-1] < axes and not given)) or min(shape) < 1:
                raise ValueError(
                    f"payoffs: got shape {shape}; an axis of actions for each agent and a last axis of agents is "
                    "needed, as in [2, 2, 2] or [2, 2, 2, 3]"
                )
        fits = isinstance(self.labels, str) and len(set(self.labels)) == len(self.labels)
        if not fits or (self.labels and len(self.labels) < max(self.num_actions, default=0)):
            raise ValueError(
                f"labels: got {shown(self.labels)}; {max(self.num_actions)} different letters are needed, one an action"
            )

    @property
    def num_actions(self) -> tuple[int, ...]:
        return tuple(np.shape(self.payoffs)[-1 - self.num_agents : -1])  # without the axes of games that are stacked

    @property
    def num_agents(self) -> int:  # type: ignore[override]
        return int(*np.shape(self.payoffs)[-1:])  # 0 of what JAX puts there to describe a tree

    @property
    def num_states(self) -> int:
        return int(np.prod(self.num_actions))

    def _seen(self, actions: Sequence[jax.Array], agent: int) -> jax.Array:
        return _encode(_turned(actions, agent), _turned(self.num_actions, agent))

    def _payoffs(self, actions: Sequence[jax.Array]) -> Sequence[jax.Array]:
        paid = jnp.asarray(self.payoffs, jnp.float32)
        for action in actions:  # one axis after the other, by selection: a batch of lookups is slow on a CPU
            rows = [paid[i] for i in range(paid.shape[0])]
            paid = rows[0]
            for i, row in enumerate(rows[1:], 1):
                paid = jnp.where(action == i, row, paid)
        return [paid[i] for i in range(self.num_agents)]

    def _counts(self, actions: Sequence[jax.Array]) -> Infos:
        seen = jnp.stack([self._seen(actions, agent) for agent in range(self.num_agents)])
        numbers = [{name: i for i, name in enumerate(self._names(agent))} for agent in range(self.num_agents)]
        # Of all agents, for one with another number of actions has other states.
        places = {name: np.array([one.get(name, -1) for one in numbers]) for name in itertools.chain(*numbers)}
        return {name: (seen == place).astype(jnp.float32) for name, place in places.items()}

    def _names(self, agent: int) -> list[str]:
        """Names of an agent's states, in their order."""
        seats = _turned(range(self.num_agents), agent)
        letters = [self.letters(seat) for seat in seats]
        between = "" if all(len(letter) == 1 for letter in itertools.chain(*letters)) else "."  # 1.10 is not 11.0
        return [between.join(joint) for joint in itertools.product(*letters)]

    def _table(self, played: Sequence[int] | None) -> np.ndarray | None:
        payoffs = np.asarray(self.payoffs)
        columns = list(itertools.product(*map(range, self.num_actions[1:])))
        if len(columns) > MAX_TABLE:
            return None
        words = ["".join(self._label(agent, a) for agent, a in enumerate(joint, 1)) for joint in columns]
        rows = self.letters(0)
        if names := action_names(payoffs):
            rows, words = ([f"{letter} {name}" for letter, name in zip(x, names, strict=True)] for x in (rows, words))
        cells = payoffs.reshape(len(rows), len(columns), self.num_agents)
        last = (played[0], columns.index(tuple(played[1:]))) if played else None
        return payoff_table(rows, words, cells, played=last)

    def letters(self, agent: int) -> list[str]:
        """The label of each action of an agent, by its number."""
        return [self._label(agent, action) for action in range(self.num_actions[agent])]

    def _label(self, agent: int, action: int) -> str:
        return self.labels[action] if self.labels else super()._label(agent, action)


def _turned(values: Sequence[Any], agent: int) -> Sequence[Any]:
    """Around the table, beginning with an agent."""
    return [*values[agent:], *values[:agent]]


def repeated(game: MatrixGame, **params: Any) -> RepeatedGame:
    """A game of `games.exact.matrix`, sampled: `repeated(prisoners_dilemma, discount=0.96)`.

    Args:
      game: the payoffs.
      **params: parameters of `RepeatedGame`.
    """
    tables = [np.asarray(table, np.float32) for table in (game.row, game.column)]
    params.setdefault("payoffs", np.stack(tables, -1))
    return RepeatedGame(**params)


def matrix_game(payoffs: Any = None, num_agents: int | None = None, **params: Any) -> RepeatedGame:
    """A repeated game of any payoffs.

    Args:
      payoffs: `[actions of the first, ..., actions of the last, agents]`; the prisoner's dilemma if None.
      num_agents: number of players; only needed for a stack of several games' payoffs, `[games, ..., agents]`.
      **params: further parameters of `RepeatedGame`.

    Raises:
      ValueError: for payoffs that are no such table.
    """
    if payoffs is None:
        if num_agents not in (None, 2):
            raise ValueError(f"num_agents: got {shown(num_agents)} without payoffs; 2 is needed")
        return RepeatedGame(**params)
    if isinstance(payoffs, jax.Array) and not jnp.issubdtype(payoffs.dtype, jnp.number):
        raise ValueError(f"payoffs: got {shown(payoffs)}; a table of numbers is needed")
    shape = np.shape(payoffs)
    axes, last = len(shape) - 1, shape[-1] if shape else 0
    if num_agents is None and 1 <= last < axes:
        raise ValueError(
            f"payoffs: got shape {shape}; an axis of actions for each of {last} agents is needed, or num_agents={last} "
            "for a stack of games"
        )
    if num_agents is not None and (not isinstance(num_agents, int) or num_agents != last):
        raise ValueError(f"num_agents: got {shown(num_agents)} with payoffs of shape {shape}; {last} is needed")
    return RepeatedGame(payoffs=payoffs, **params)


def rock_paper_scissors(**params: Any) -> RepeatedGame:
    """Rock, paper, scissors: 1 for a win, -1 for a loss, 0 for a draw."""
    wins = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], np.float32)
    return RepeatedGame(**{"payoffs": np.stack([wins, -wins], -1), "labels": "RPS", **params})


def three_player_ipd(**params: Any) -> RepeatedGame:
    """The prisoner's dilemma of three players.

    Beside k cooperators, a cooperator gets 2 k and a defector 2 k + 1.

    Source: Souly et al., Leading the Pack: N-player Opponent Shaping (2023), arXiv:2312.12564, and its public code.
    """
    payoffs = np.zeros((2, 2, 2, 3), np.float32)
    for joint in itertools.product(range(2), repeat=3):
        for agent in range(3):
            payoffs[(*joint, agent)] = 2 * (2 - sum(joint) + joint[agent]) + joint[agent]
    params.setdefault("payoffs", payoffs)
    return RepeatedGame(**params)
