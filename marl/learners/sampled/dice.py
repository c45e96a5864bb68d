"""Policy gradients of any order, and learners of sampled games by them: naive, and aware of the co-player's learning.

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
from games.core.game import Scalar
from marl.blocks.advantages import leave_one_out, returns_to_go
from marl.blocks.distributions import Distribution, categorical
from marl.blocks.networks import Network
from marl.blocks.objectives import dice_objective
from marl.core.learn import Learner, Metrics, Trajectory


class Table(NamedTuple):
    """A policy and a value that are linear in the observation; where that is one-hot, a table of its states."""

    logits: jax.Array  # [observation, actions]
    values: jax.Array  # [observation]


class DiceState(NamedTuple):
    """What learns."""

    params: Any  # of the network; a `Table` by default


def naive_dice(
    game: Game,
    player: int = 0,
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
      player: its number among the game's agents.
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
    return _gradient_learner(game, player, network, learning_rate, value_learning_rate, discount, init_scale)


def reinforce(
    game: Game,
    player: int = 0,
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
      player: its number among the game's agents.
      network: without memory; a `Table` by default, whose values are not used.
      learning_rate: step size.
      discount: of rewards.
      init_scale: standard deviation of a table's normal initial logits.

    Raises:
      ValueError: as `naive_dice`.

    Source: Williams, Simple Statistical Gradient-Following Algorithms (1992); the baseline: Kool, van Hoof and Welling,
    Buy 4 REINFORCE Samples, Get a Baseline for Free! (2019).
    """
    return _gradient_learner(game, player, network, learning_rate, None, discount, init_scale)


def _gradient_learner(
    game: Game,
    player: int,
    network: Network | None,
    learning_rate: Scalar,
    value_learning_rate: Scalar | None,
    discount: Scalar,
    init_scale: Scalar,
) -> Learner:
    """Follows the gradient of the objective; the baseline is a learned value, or the other environments for None."""
    _check(learning_rate, discount, init_scale)
    obs_shape, actions = _observations(game, player), _actions(game, player)
    network = network or _table(obs_shape, actions.num_outputs, init_scale)
    if jax.tree.leaves(network.initial(1)):
        raise ValueError("network: got one with memory; a feed-forward one is needed")

    def init(key: jax.Array) -> DiceState:
        return DiceState(network.init(key))

    def act(key: jax.Array, params: Any, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple[()], tuple[()]]:
        return actions.sample(key, network.apply(params, obs, ())[0]), memory, ()

    def exploit(params: Any, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple[()]]:
        return actions.mode(network.apply(params, obs, ())[0]), memory

    def update(key: jax.Array, state: DiceState, trajectory: Trajectory) -> tuple[DiceState, Metrics]:
        del key
        to_go = returns_to_go(trajectory.reward, trajectory.done, discount)

        def gain(params: Any) -> tuple[jax.Array, Metrics]:
            outputs, values, _ = network.apply(params, trajectory.obs, ())
            log_probs, metrics = actions.log_prob(outputs, trajectory.action), {}
            known = jnp.zeros_like(to_go) if value_learning_rate is None else values
            baseline = known + leave_one_out(to_go - known)
            found = learning_rate * dice_objective(log_probs, trajectory.reward, discount, baseline, trajectory.done)
            if value_learning_rate is not None:
                metrics = {"value_loss": 0.5 * ((values - to_go) ** 2).mean()}
                found = found - value_learning_rate * metrics["value_loss"]
            return found, metrics | {"entropy": actions.entropy(outputs).mean()}

        step, metrics = jax.grad(gain, has_aux=True)(state.params)
        return DiceState(jax.tree.map(jnp.add, state.params, step)), metrics

    return Learner(init, act, update, lambda state: state.params, exploit=exploit)


class LolaState(NamedTuple):
    """What learns."""

    logits: jax.Array  # [observation, actions], the policy
    model: jax.Array  # [observation, the co-player's actions], its policy as a function of one's own observation


def lola_dice(
    game: Game,
    player: int = 0,
    *,
    learning_rate: Scalar = 0.3,
    lookahead_rate: Scalar = 0.5,
    lookaheads: int = 1,
    episodes: int = 32,
    model_memory: Scalar = 20.0,
    model_smoothing: Scalar = 0.05,
    discount: Scalar = 0.96,
    init_scale: Scalar = 0.7,
) -> Learner:
    """Learning with opponent-learning awareness from samples: one's influence on the co-player's next steps counts.

    It knows the game and models the co-player. In an update it plays both policies against each other in its
    imagination, lets the co-player take its naive steps there, and plays once more against what comes of them:

        y_0 = the model,        y_{i+1} = y_i + lookahead_rate d/dy L2(x, y_i),        i < lookaheads,
        x <- x + learning_rate d/dx L1(x, y_lookaheads(x)),

    L1 and L2 being the `dice_objective` of both players' actions with one's own rewards and with the co-player's, each
    of episodes of its own, with the mean of the other episodes as the baseline. The derivative goes through the steps.

    Both policies are tables of logits, linear in the observation of this player: it is taken to tell all that the
    co-player sees, as in games where nothing is hidden. The model is fitted to what the co-player did, after every
    batch by one step of generalised iterative scaling, which climbs the likelihood. Where the observation is one-hot
    the step goes all the way: with n visits of a state, n_a of them answered with a, out of A actions,

        p_a <- (model_memory p_a + (1 - model_smoothing) n_a + model_smoothing n / A) / (model_memory + n).

    Args:
      game: what is played and imagined.
      player: 0 or 1.
      learning_rate: of the policy. What is noise in the gradient depends on the number of imagined episodes.
      lookahead_rate: of the co-player's imagined steps; 0.5 is the step of `lola` in the exact games, see above.
      lookaheads: how many steps; each costs a further batch of episodes, and more derivatives.
      episodes: imagined at once, 2 or more, each as long as the batch that was played.
      model_memory: of how many visits the old estimate of an answer has the weight, above 0.
      model_smoothing: share of even play in the model, in (0, 1): nobody is taken to be beyond influence.
      discount: of rewards, one's own and the co-player's.
      init_scale: standard deviation of the normal initial logits. The model begins even.

    Raises:
      ValueError: for games of more or fewer than two players, actions that are not `Discrete`, observations that are no
        array or can be below 0, or numbers that are none or out of range.

    Source: Foerster et al., Learning with Opponent-Learning Awareness (2018), arXiv:1709.04326, with its opponent
    modelling; LOLA-DiCE: Foerster et al. (2018), arXiv:1802.05098, section 5; the model: Darroch and
    Ratcliff, Generalized Iterative Scaling for Log-Linear Models (1972).
    """
    if game.num_agents != 2:
        raise ValueError(f"lola_dice: got a game of {game.num_agents} players; one of two is needed")
    _check(learning_rate, discount, init_scale)
    checks.number("lookahead_rate", lookahead_rate, 0)
    checks.size("lookaheads", lookaheads, 1, 16)
    checks.size("episodes", episodes, 2, 1_000_000)
    checks.number("model_memory", model_memory, 0, brackets="(]")
    checks.number("model_smoothing", model_smoothing, 0, 1, brackets="()")
    obs_shape = _observations(game, player)
    low = getattr(game.observation_space(game.agents[player]), "low", 0.0)
    if checks.known(low) and np.min(low) < 0:
        raise ValueError(f"observations: got a space that begins at {np.min(low)}; entries of at least 0 are needed")
    mine, theirs = _actions(game, player), _actions(game, 1 - player)

    def flat(obs: jax.Array) -> jax.Array:
        return obs.reshape(*obs.shape[: obs.ndim - len(obs_shape)], -1).astype(jnp.float32)

    def init(key: jax.Array) -> LolaState:
        size = int(np.prod(obs_shape))
        logits = init_scale * jax.random.normal(key, (size, mine.num_outputs))
        return LolaState(logits, jnp.zeros((size, theirs.num_outputs)))

    def act(
        key: jax.Array, logits: jax.Array, memory: tuple[()], obs: jax.Array
    ) -> tuple[jax.Array, tuple[()], tuple[()]]:
        return mine.sample(key, flat(obs) @ logits), memory, ()

    def exploit(logits: jax.Array, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple[()]]:
        return mine.mode(flat(obs) @ logits), memory

    def imagine(key: jax.Array, own: jax.Array, other: jax.Array, steps: int) -> _Imagined:
        """Episodes of both policies against each other."""
        own, other = jax.lax.stop_gradient((own, other))

        def step_keys(key: jax.Array) -> tuple[jax.Array, ...]:
            keys = jax.random.split(key, 4)
            return keys[0], keys[1], jax.random.split(keys[2], episodes), jax.random.split(keys[3], episodes)

        def step(carry: Any, keys: tuple[jax.Array, ...]) -> Any:
            observations, state = carry
            obs = flat(observations[game.agents[player]])
            played = mine.sample(keys[0], obs @ own), theirs.sample(keys[1], obs @ other)
            actions = {game.agents[player]: played[0], game.agents[1 - player]: played[1]}
            after, state, rewards, dones, _ = jax.vmap(game.step_env)(keys[2], state, actions)
            paid = rewards[game.agents[player]], rewards[game.agents[1 - player]]
            return jax.vmap(game.auto_reset)(keys[3], after, state, dones), _Imagined(
                obs, *played, *paid, dones["__all__"]
            )

        reset_key, run_key = jax.random.split(key)
        carry = jax.vmap(game.reset)(jax.random.split(reset_key, episodes))
        return jax.lax.scan(step, carry, jax.vmap(step_keys)(jax.random.split(run_key, steps)))[1]

    def objective(seen: _Imagined, own: jax.Array, other: jax.Array, rewards: jax.Array) -> jax.Array:
        log_probs = mine.log_prob(seen.obs @ own, seen.own_action) + theirs.log_prob(seen.obs @ other, seen.action)
        baseline = leave_one_out(returns_to_go(rewards, seen.done, discount))
        return dice_objective(log_probs, rewards, discount, baseline, seen.done)

    def fitted(model: jax.Array, obs: jax.Array, actions: jax.Array) -> jax.Array:
        obs, actions = obs.reshape(-1, len(model)), actions.reshape(-1)
        answers = (actions[:, None] == jnp.arange(theirs.num_outputs)).astype(jnp.float32)
        observed = obs.T @ ((1 - model_smoothing) * answers + model_smoothing / theirs.num_outputs)
        expected, visits = obs.T @ jax.nn.softmax(obs @ model), obs.sum(0)[:, None]
        old = jnp.where(visits > 0, model_memory * expected / visits, 1.0)
        return model + jnp.log((old + observed) / (old + expected)) / obs.sum(1).max()

    def update(key: jax.Array, state: LolaState, trajectory: Trajectory) -> tuple[LolaState, Metrics]:
        obs, steps = flat(trajectory.obs), len(trajectory.reward)
        likelihood = theirs.log_prob(obs @ state.model, trajectory.others[0]).mean()
        model = fitted(state.model, obs, trajectory.others[0])
        *inner_keys, key = jax.random.split(key, lookaheads + 1)

        def gain(own: jax.Array) -> jax.Array:
            other = model
            for inner_key in inner_keys:
                seen = imagine(inner_key, own, other, steps)
                pull = jax.grad(objective, 2)(seen, own, other, seen.reward)
                other = other + lookahead_rate * pull
            seen = imagine(key, own, other, steps)
            return objective(seen, own, other, seen.own_reward)

        metrics = {"model_log_likelihood": likelihood, "entropy": mine.entropy(obs @ state.logits).mean()}
        return LolaState(state.logits + learning_rate * jax.grad(gain)(state.logits), model), metrics

    return Learner(init, act, update, lambda state: state.logits, exploit=exploit)


class _Imagined(NamedTuple):
    """Episodes `[T, episodes, ...]` of a learner and its model of the co-player."""

    obs: jax.Array
    own_action: jax.Array
    action: jax.Array
    own_reward: jax.Array
    reward: jax.Array
    done: jax.Array


def _table(obs_shape: tuple[int, ...], num_actions: int, init_scale: Scalar) -> Network:
    size = int(np.prod(obs_shape))

    def init(key: jax.Array) -> Table:
        return Table(init_scale * jax.random.normal(key, (size, num_actions)), jnp.zeros(size))

    def apply(params: Table, obs: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        flat = obs.reshape(*obs.shape[: obs.ndim - len(obs_shape)], -1).astype(jnp.float32)
        return flat @ params.logits, flat @ params.values, carry

    return Network(init, apply, lambda num_envs: ())


def _check(learning_rate: Scalar, discount: Scalar, init_scale: Scalar) -> None:
    checks.number("learning_rate", learning_rate, 0)
    checks.number("discount", discount, 0, 1)
    checks.number("init_scale", init_scale, 0)


def _actions(game: Game, player: int) -> Distribution:
    space = game.action_space(game.agents[player])
    if not isinstance(space, Discrete):
        raise ValueError(f"action space: got {space}; Discrete is needed")
    return categorical(space.n)


def _observations(game: Game, player: int) -> tuple[int, ...]:
    space = game.observation_space(game.agents[player])
    if not isinstance(space, Box):
        raise ValueError(f"observation space: got {space}; a Box is needed")
    return tuple(space.shape)
