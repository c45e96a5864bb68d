"""Learners of sampled games by policy gradients that are blind to the co-player's learning.

Returns are sums over an episode of discounted rewards, not multiplied by `1 - discount`, and gradients are of their
mean over the environments, as those of `naive` and `lola` in the exact games. A policy is a table of logits by default,
one for each action; the exact games have one for two actions, whose probabilities a step of the same size moves half as
far. With the default scale of 0.7 the difference of two initial logits is drawn as the one logit there.

An episode is taken to begin with the batch and to end with it at the latest; nothing is bootstrapped, so that a game
with a time limit is one of finite length. `learn` needs `num_envs`, and `steps_per_update` of one episode or several.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import Box, Discrete, Game
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import leave_one_out, returns_to_go
from marl.blocks.distributions import Distribution, categorical
from marl.blocks.networks import Network
from marl.blocks.objectives import dice_objective
from marl.core.learner import Learner, Metrics, Trajectory


class Table(NamedTuple):
    """A policy and a value that are linear in the observation; where that is one-hot, a table of its states."""

    logits: jax.Array  # [observation, actions]
    values: jax.Array  # [observation]


class DiceState(NamedTuple):
    """The learner's state."""

    params: Any  # of the network; a `Table` by default


@factory
def naive_dice(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar = 0.1,
    value_learning_rate: Scalar = 0.5,
    discount: Scalar = 0.96,
    init_scale: Scalar = 0.7,
) -> Learner:
    """Gradient ascent on the sampled return, blind to the co-players' learning, with a learned value for a baseline.

        theta <- theta + learning_rate dL/dtheta - value_learning_rate d/dtheta mean (V(s_t) - G_t)^2 / 2

    with L the `dice_objective` of one's own actions, and G_t the return to go, sum_{k >= t} discount^(k - t) r_k. Its
    baseline is V(s_t) and what V was wrong by at the same step in the other environments, on average: as long as V has
    learned nothing the returns of the prisoner's dilemma would else drive a policy to its ends in a few steps.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      network: without memory; a `Table` by default.
      learning_rate: of the policy. L is a sum over the episode: what suits a long one is small.
      value_learning_rate: of the value. A table bears up to 2 where the observation is one-hot, and 2 over its squared
        norm elsewhere.
      discount: of rewards.
      init_scale: standard deviation of a table's normal initial logits; its values begin at 0.

    Raises:
      ValueError: for actions that are not `Discrete`, observations that are no array, a network with memory, or
        numbers that are none or out of range.

    Source: Foerster et al., DiCE (2018), arXiv:1802.05098; the naive learner of LOLA, arXiv:1709.04326.
    """
    checks.number("value_learning_rate", value_learning_rate, 0)
    return _gradient_learner(game, seat, network, learning_rate, value_learning_rate, discount, init_scale)


@factory
def reinforce(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar = 0.1,
    discount: Scalar = 0.96,
    init_scale: Scalar = 0.7,
) -> Learner:
    """The policy gradient with the reward to go, and the other environments as the baseline.

        theta <- theta + learning_rate / N sum_n sum_t discount^t (G_t - b_t) d log pi(a_t | s_t) / d theta,
        G_t = sum_{k >= t} discount^(k - t) r_k

    with b_t the mean of G_t over the other N - 1 environments at the same step, which therefore biases nothing; 0
    where there is one alone.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      network: without memory; a `Table` by default, whose values are not used.
      learning_rate: step size.
      discount: of rewards.
      init_scale: standard deviation of a table's normal initial logits.

    Raises:
      ValueError: as `naive_dice`.

    Source: Williams, Simple Statistical Gradient-Following Algorithms (1992); the baseline: Kool, van Hoof and Welling,
    Buy 4 REINFORCE Samples, Get a Baseline for Free! (2019).
    """
    return _gradient_learner(game, seat, network, learning_rate, None, discount, init_scale)


def _gradient_learner(
    game: Game,
    seat: int,
    network: Network | None,
    learning_rate: Scalar,
    value_learning_rate: Scalar | None,
    discount: Scalar,
    init_scale: Scalar,
) -> Learner:
    """Follows the gradient of the objective; the baseline is a learned value, or the other environments for None."""
    checks.number("learning_rate", learning_rate, 0)
    checks.number("discount", discount, 0, 1)
    checks.number("init_scale", init_scale, 0)
    obs_shape, actions = observation_shape(game, seat), discrete_actions(game, seat)
    network = network or _table(obs_shape, actions.num_outputs, init_scale)
    if jax.tree.leaves(network.initial(1)):
        raise ValueError("network: got one with memory; a feed-forward one is needed")

    def init(key: jax.Array) -> DiceState:
        return DiceState(network.init(key))

    def act(key: jax.Array, params: Any, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple[()], tuple[()]]:
        return actions.sample(key, network.apply(params, obs, ())[0]), memory, ()

    def outputs(params: Any, memory: tuple[()], obs: jax.Array) -> jax.Array:
        return network.apply(params, obs, ())[0]

    def act_greedy(params: Any, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple[()]]:
        return actions.mode(outputs(params, memory, obs)), memory

    def update(key: jax.Array, state: DiceState, trajectory: Trajectory) -> tuple[DiceState, Metrics]:
        del key
        to_go = returns_to_go(trajectory.reward, trajectory.done, discount)

        def gain(params: Any) -> tuple[jax.Array, Metrics]:
            own, values, _ = network.apply(params, trajectory.obs, ())
            log_probs, metrics = actions.log_prob(own, trajectory.action), {}
            known = jnp.zeros_like(to_go) if value_learning_rate is None else values
            baseline = known + leave_one_out(to_go - known)
            found = learning_rate * dice_objective(log_probs, trajectory.reward, discount, baseline, trajectory.done)
            if value_learning_rate is not None:
                metrics = {"value_loss": 0.5 * ((values - to_go) ** 2).mean()}
                found = found - value_learning_rate * metrics["value_loss"]
            return found, metrics | {"entropy": actions.entropy(own).mean()}

        step, metrics = jax.grad(gain, has_aux=True)(state.params)
        return DiceState(jax.tree.map(jnp.add, state.params, step)), metrics

    return Learner(
        init=init,
        act=act,
        update=update,
        policy=lambda state: state.params,
        act_greedy=act_greedy,
        seat=seat,
        outputs=outputs,
        compares_rows=True,
    )


def _table(obs_shape: tuple[int, ...], num_actions: int, init_scale: Scalar) -> Network:
    size = int(np.prod(obs_shape))

    def init(key: jax.Array) -> Table:
        return Table(init_scale * jax.random.normal(key, (size, num_actions)), jnp.zeros(size))

    def apply(params: Table, obs: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        flat = obs.reshape(*obs.shape[: obs.ndim - len(obs_shape)], -1).astype(jnp.float32)
        return flat @ params.logits, flat @ params.values, carry

    return Network(init, apply, lambda num_envs: ())


def discrete_actions(game: Game, seat: int) -> Distribution:
    """The distribution of a player's actions; raises ValueError where they are not `Discrete`."""
    space = game.action_space(game.agents[seat])
    if not isinstance(space, Discrete):
        raise ValueError(f"action space: got {space}; Discrete is needed")
    return categorical(space.n)


def observation_shape(game: Game, seat: int) -> tuple[int, ...]:
    """The shape of a player's observations; raises ValueError where they are no array."""
    space = game.observation_space(game.agents[seat])
    if not isinstance(space, Box):
        raise ValueError(f"observation space: got {space}; a Box is needed")
    return tuple(space.shape)


def nonnegative_observations(game: Game, seat: int) -> tuple[int, ...]:
    """The shape of a player's; raises ValueError where it sees no array, or one whose entries can be below 0."""
    shape = observation_shape(game, seat)
    low = getattr(game.observation_space(game.agents[seat]), "low", 0.0)
    if checks.known(low) and np.min(low) < 0:
        raise ValueError(f"observations: got a space that begins at {np.min(low)}; entries of at least 0 are needed")
    return shape
