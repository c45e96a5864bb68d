"""The contract of a learner: pure functions that act and update, and what passes between them."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

LearnerState = Any
Parameters = Any
Memory = Any
Metrics = dict[str, jax.Array]


class InitFn(Protocol):
    """A function that draws the first state of a learner."""

    def __call__(self, key: jax.Array, /) -> LearnerState:
        """The state from one key."""
        ...


class ActFn(Protocol):
    """A function that acts, and explores where the learner does."""

    def __call__(
        self, key: jax.Array, parameters: Parameters, memory: Memory, obs: jax.Array, /
    ) -> tuple[jax.Array, Memory, Any]:
        """(action `[N, ...]`, memory, extras) at observations `[N, ...]`.

        Extras, a pytree of arrays `[N, ...]`, go into the trajectory.
        """
        ...


class UpdateFn(Protocol):
    """A function that learns from what happened since the last update."""

    def __call__(self, key: jax.Array, state: LearnerState, trajectory: Trajectory, /) -> tuple[LearnerState, Metrics]:
        """(the next state, of the same shapes, and metrics: a dict of arrays)."""
        ...


class PolicyFn(Protocol):
    """A function that takes from a state what acting needs; nothing else travels to an actor."""

    def __call__(self, state: LearnerState, /) -> Parameters:
        """The parameters of `ActFn`."""
        ...


class InitMemoryFn(Protocol):
    """A function that makes the memory of an actor, such as the carry of a recurrent network."""

    def __call__(self, parameters: Parameters, num_envs: int | None, /) -> Memory:
        """The memory for so many environments, or without their axis for None."""
        ...


class ResetMemoryFn(Protocol):
    """A function that ends the memory of an episode."""

    def __call__(self, memory: Memory, done: jax.Array, /) -> Memory:
        """The memory after a step, of which `done` `[N]` says where an episode ended."""
        ...


class ActGreedyFn(Protocol):
    """A function that acts without exploration."""

    def __call__(self, parameters: Parameters, memory: Memory, obs: jax.Array, /) -> tuple[jax.Array, Memory]:
        """(action `[N, ...]`, memory) at observations `[N, ...]`."""
        ...


class OutputsFn(Protocol):
    """A function that gives what the probabilities of all actions are made of."""

    def __call__(self, parameters: Parameters, memory: Memory, obs: jax.Array, /) -> jax.Array:
        """Numbers `[N, ...]` of `marl.blocks.distributions.distribution`, at observations `[N, ...]`."""
        ...


class SyncFn(Protocol):
    """A function that copies from the states of others, such as a snapshot of a policy."""

    def __call__(self, state: LearnerState, states: tuple[LearnerState, ...], /) -> LearnerState:
        """The own state after it, from the states of all players in the order of the game's agents."""
        ...


class GradientFn(Protocol):
    """A function that takes a gradient where it acted."""

    def __call__(self, key: jax.Array, trajectory: Trajectory, /) -> tuple[Any, Metrics]:
        """(gradient, metrics)."""
        ...


class ApplyGradientFn(Protocol):
    """A function that applies a gradient, which may be an older one."""

    def __call__(self, state: LearnerState, gradient: Any, /) -> LearnerState:
        """The next state."""
        ...


class Trajectory(NamedTuple):
    """The observations and actions of one player between two updates.

    Leading axes are steps and environments, `[T, N]`; without `num_envs` there is no axis N, here and everywhere. Of a
    learner in several seats N counts environments times seats.

    Attributes:
      obs: `[T, N, ...]`, observations before the action.
      action: `[T, N, ...]`.
      reward: `[T, N]`.
      done: `[T, N]`, whether the episode ended with this step, by its rules or by its time limit.
      extras: the third result of `act`, `[T, N, ...]`, such as log-probabilities and values.
      others: the co-players' actions, `[T, N, ...]` each, in the order of the game's agents.
      truncated: `[T, N]`, whether the time limit ended it: the value of `next_obs` still counts then.
      next_obs: `[T, N, ...]`, observations after the step and before a reset; unread, they cost nothing.
      first_memory: the memory before the first of these steps, without the axis T.
      last_memory: the memory after the last of them.
      others_reward: the co-players' rewards, `[T, N]` each; unread, they cost nothing.
      valid: `[T, N]`, whether there was a step, or None if all were steps. An environment on a host that resets a step
        late has one in which nothing happens and the episode ends.
    """

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    extras: Any
    others: tuple[jax.Array, ...]
    truncated: jax.Array
    next_obs: jax.Array
    first_memory: Memory = ()
    last_memory: Memory = ()
    others_reward: tuple[jax.Array, ...] = ()
    valid: jax.Array | None = None


def co_players_rewards(trajectory: Trajectory) -> jax.Array:
    """`[co-players, T, N]`, of a trajectory that has them.

    Raises:
      ValueError: if it has none.
    """
    if not trajectory.others_reward:
        raise ValueError("others_reward: got none; a learner that counts its co-players' rewards needs them")
    return jnp.stack(trajectory.others_reward)


class Gradients(NamedTuple):
    """A learner's update in two parts, for a learner whose gradient is taken where it acted, so that it may travel.

    Attributes:
      of: the gradient of a trajectory.
      apply: a step of the optimiser.
    """

    of: GradientFn
    apply: ApplyGradientFn


def whole_state(state: LearnerState, /) -> Parameters:
    """The policy of a player all of whose state is needed to act."""
    return state


def no_memory(parameters: Parameters, num_envs: int | None, /) -> tuple[()]:
    """The memory of a player that remembers nothing."""
    del parameters, num_envs
    return ()


class Learner(NamedTuple):
    """A player that learns, as pure functions. A fixed strategy's `update` returns its state unchanged.

    A factory makes one from hyperparameters, as optax does: `ppo(game, learning_rate=1e-3)`. Three things are apart,
    because an actor may be in another process, and act with an older policy:

      state: all that learning needs: weights, optimiser, replay buffer.
      parameters: what acting needs of it, and all of it that ever travels.
      memory: an actor's own, such as the carry of a recurrent network; `()` for a learner that has none.

    Attributes:
      init: `(key) -> state`, draws the first state.
      act: `(key, parameters, memory, obs) -> (action, memory, extras)`, acts in all environments.
      update: `(key, state, trajectory) -> (state, metrics)`, learns from a `Trajectory`.
      policy: `(state) -> parameters`; all of the state by default.
      init_memory: `(parameters, num_envs) -> memory` at the beginning of play; none by default.
      reset_memory: `(memory, done) -> memory`, ends the memory of an episode; None if the memory outlives episodes, or
        there is none.
      act_greedy: `(parameters, memory, obs) -> (action, memory)`, without exploration; None for a learner that does
        not explore.
      outputs: `(parameters, memory, obs) -> outputs` of the distribution over actions from which it draws; None for a
        learner that does not say them.
      seat: the number of the player for which the learner was made; None if it fits all.
      gradients: the update in two parts, for a learner whose gradient is taken where it acted; None otherwise.
      sync: copies from the states of others, before the first step and after every update; None for a learner that
        learns from its trajectory alone.
      num_seats: seats in a row in which it plays with the same state; `marl.shared` makes it more than one.
      sees_all: whether its observations are its own with those of all other players behind, along the last axis, the
        next seat first. `learn` puts them together.
      compares_rows: whether its update takes the rows of its batch for independent environments, as a baseline does
        that is the mean of the others' returns. It then holds one seat.
    """

    init: InitFn
    act: ActFn
    update: UpdateFn
    policy: PolicyFn = whole_state
    init_memory: InitMemoryFn = no_memory
    reset_memory: ResetMemoryFn | None = None
    act_greedy: ActGreedyFn | None = None
    seat: int | None = None
    gradients: Gradients | None = None
    sync: SyncFn | None = None
    num_seats: int = 1
    sees_all: bool = False
    outputs: OutputsFn | None = None
    compares_rows: bool = False


def keep_state(key: jax.Array, state: LearnerState, trajectory: Trajectory, /) -> tuple[LearnerState, Metrics]:
    """The update of a player that does not learn."""
    del key, trajectory
    return state, {}


def frozen(learner: Learner, state: LearnerState) -> Learner:
    """The learner in a state that it keeps.

    Running statistics of observations are in the memory of a player, and move while it acts.
    """
    return learner._replace(init=lambda key: state, update=keep_state, gradients=None, sync=None)


def learns(learner: Learner) -> bool:
    """False for a fixed strategy, whose update is `keep_state`."""
    return inspect.unwrap(learner.update) is not keep_state
