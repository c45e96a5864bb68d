"""A learner that plays step by step with a player outside of JAX: a person, or a program of another library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import Game
from marl.core.learner import Learner, Trajectory
from marl.core.seats import Seats


class Steps(NamedTuple):
    """The compiled steps of a game of two players; the learner has one environment."""

    game: Game
    learner: Learner
    seat: int
    observe: Callable[..., Any]  # (observations) -> the learner's
    reset: Callable[..., Any]  # (key) -> observations, game state
    # (key, state, memory, observations) -> action [1, ...], memory, extras
    act: Callable[..., Any]
    # (key, game state, memory, actions [1, ...] of both) -> observations before a reset, those after it, game state,
    # rewards, dones, truncated, memory
    go_on: Callable[..., Any]
    learn: Callable[..., Any]  # (key, state, trajectory [T, 1, ...]) -> state


def make_steps(game: Game, learner: Learner, seat: int = 0) -> Steps:
    """Compiles nothing yet, and all of it once for every `Play` that is made of it.

    Raises:
      ValueError: for a learner of several seats, or one that copies from the states of other learners.
    """
    if learner.sync or learner.num_seats != 1:
        raise ValueError(
            f"learner: got one of {learner.num_seats} seats{' that copies from others' if learner.sync else ''}; one "
            "that plays a single seat by itself is needed"
        )
    own = Seats((game.agents[seat],), tuple(game.agents), 1, learner.sees_all)

    def act(key: jax.Array, state: Any, memory: Any, observations: dict[str, jax.Array]) -> Any:
        return learner.act(key, learner.policy(state), memory, own.observe(observations)[None])

    def go_on(key: jax.Array, state: Any, memory: Any, actions: tuple[jax.Array, jax.Array]) -> Any:
        step_key, reset_key = jax.random.split(key)
        chosen = {agent: action[0] for agent, action in zip(game.agents, actions, strict=True)}
        after, state, rewards, dones, infos = game.step_env(step_key, state, chosen)
        observations, state = game.auto_reset(reset_key, after, state, dones)
        if learner.reset_memory:
            memory = learner.reset_memory(memory, dones[game.agents[seat]][None])
        return after, observations, state, rewards, dones, infos["truncated"], memory

    def learn(key: jax.Array, state: Any, steps: Trajectory) -> Any:
        return learner.update(key, state, steps)[0]

    return Steps(game, learner, seat, own.observe, jax.jit(game.reset), jax.jit(act), jax.jit(go_on), jax.jit(learn))


class Play:
    """A learner in its seat of a game of two: it acts, gets the other's action, and learns from time to time.

    Args:
      steps: of `make_steps`.
      steps_per_update: how many steps it learns from at once.
      key: of everything that is drawn.

    Attributes:
      observations: what both see now.
      game_state: the game now.
      updates: how often the learner has learned.
    """

    def __init__(self, steps: Steps, *, steps_per_update: int, key: jax.Array):
        reset_key, init_key, self._key = jax.random.split(key, 3)
        self._steps, self._steps_per_update = steps, steps_per_update
        self.observations, self.game_state = steps.reset(reset_key)
        self._state = steps.learner.init(init_key)
        self._first = self._memory = steps.learner.init_memory(steps.learner.policy(self._state), 1)
        self._kept: list[Trajectory] = []  # since the last update, each of one step
        self._time, self.updates = 0, 0

    def act(self) -> jax.Array:
        """The learner's action in this step."""
        key, self._step_key, self._learn_key = jax.random.split(jax.random.fold_in(self._key, self._time), 3)
        acted = self._steps.act(key, self._state, self._memory, self.observations)
        (self._action, self._memory, self._extras), self._time = acted, self._time + 1
        return self._action[0]

    def go_on(self, other: Any, own: Any = None) -> dict[str, np.ndarray]:
        """Both players' rewards, when the other has acted too; `own`: what the learner did, where not as it meant."""
        steps, agent = self._steps, self._steps.game.agents[self._steps.seat]
        done = [jnp.asarray(x)[None] for x in (self._action[0] if own is None else own, other)]
        after, seen, self.game_state, rewards, dones, truncated, self._memory = steps.go_on(
            self._step_key, self.game_state, self._memory, tuple(done if steps.seat == 0 else done[::-1])
        )
        others_reward = (rewards[steps.game.agents[1 - steps.seat]],)
        self._kept.append(
            Trajectory(
                steps.observe(self.observations), self._action[0], rewards[agent], dones[agent],
                self._extras, (done[1][0],), truncated[steps.seat], steps.observe(after),
                others_reward=others_reward,
            )
        )  # fmt: skip
        self.observations = seen
        if len(self._kept) == self._steps_per_update:
            # Extras have the axis of environments where they have one at all: statistics are of all of them.
            extras = jax.tree.map(lambda *x: jnp.stack(x), *[one.extras for one in self._kept])
            kept = jax.tree.map(lambda *x: jnp.stack(x)[:, None], *[one._replace(extras=()) for one in self._kept])
            kept = kept._replace(extras=extras, first_memory=self._first, last_memory=self._memory)
            self._state = steps.learn(self._learn_key, self._state, kept)
            self._first, self._kept, self.updates = self._memory, [], self.updates + 1
        return {name: np.asarray(reward) for name, reward in rewards.items()}
