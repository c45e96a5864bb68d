"""Learners of sampled games that are aware of the co-player's learning: LOLA-DiCE, and POLA-DiCE.

They have the game as a model and fit a policy to the co-player's actions. An update simulates the game, lets
the co-player learn there, and differentiates through its steps. Returns and tables are as in `dice.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import Game
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import leave_one_out, returns_to_go
from marl.blocks.objectives import dice_objective
from marl.core.learner import Learner, Metrics, Trajectory
from marl.learners.sampled.dice import discrete_actions, nonnegative_observations


class LolaState(NamedTuple):
    """The learner's state."""

    logits: jax.Array  # [observation, actions], the policy
    model: jax.Array  # [observation, the co-player's actions], its policy as a function of one's own observation


@factory
def lola_dice(
    game: Game,
    seat: int = 0,
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

    It has the game as a model and fits a policy to the co-player's actions. An update simulates both policies
    against each other, lets the co-player take its naive steps there, and plays once more against what comes of them:

        y_0 = the model,        y_{i+1} = y_i + lookahead_rate d/dy L2(x, y_i),        i < lookaheads,
        x <- x + learning_rate d/dx L1(x, y_lookaheads(x)),

    L1 and L2 being the `dice_objective` of both players' actions with one's own rewards and with the co-player's, each
    of episodes of its own, with the mean of the other episodes as the baseline. The derivative goes through the steps.

    Both policies are tables of logits, linear in the observation of this player: it is taken to show all that the
    co-player sees, as in games where nothing is hidden. The model is fitted to what the co-player did, after every
    batch by one step of generalised iterative scaling, which climbs the likelihood. Where the observation is one-hot
    the step goes all the way: with n visits of a state, n_a of them answered with a, out of A actions,

        p_a <- (model_memory p_a + (1 - model_smoothing) n_a + model_smoothing n / A) / (model_memory + n).

    Args:
      game: what is played and imagined.
      seat: 0 or 1.
      learning_rate: of the policy. What is noise in the gradient depends on the number of imagined episodes.
      lookahead_rate: of the co-player's imagined steps; 0.5 is the step of `lola` in the exact games, see above.
      lookaheads: how many steps; each costs a further batch of episodes, and more derivatives.
      episodes: imagined at once, 2 or more, each as long as the batch that was played.
      model_memory: of how many visits the old estimate of an answer has the weight, above 0.
      model_smoothing: share of even play in the model, in (0, 1), so that every action of the co-player can be
        influenced.
      discount: of rewards, one's own and the co-player's.
      init_scale: standard deviation of the normal initial logits. The model begins even.

    Raises:
      ValueError: for games of more or fewer than two players, actions that are not `Discrete`, observations that are no
        array or can be below 0, or numbers that are none or out of range.

    Source: Foerster et al., Learning with Opponent-Learning Awareness (2018), arXiv:1709.04326, with its opponent
    modelling; LOLA-DiCE: Foerster et al. (2018), arXiv:1802.05098, section 5; the model: Darroch and
    Ratcliff, Generalized Iterative Scaling for Log-Linear Models (1972).
    """
    checks.number("learning_rate", learning_rate, 0)
    checks.number("lookahead_rate", lookahead_rate, 0)
    checks.size("lookaheads", lookaheads, 1, 16)

    def step(key: jax.Array, logits: jax.Array, model: jax.Array, imagined: _Imagination) -> jax.Array:
        *inner_keys, key = jax.random.split(key, lookaheads + 1)

        def gain(own: jax.Array) -> jax.Array:
            other = model
            for inner_key in inner_keys:
                seen = imagined.play(inner_key, own, other)
                pull = jax.grad(imagined.value, 2)(seen, own, other, seen.reward)
                other = other + lookahead_rate * pull
            seen = imagined.play(key, own, other)
            return imagined.value(seen, own, other, seen.own_reward)

        return logits + learning_rate * jax.grad(gain)(logits)

    return _imagining("lola_dice", step, game, seat, episodes, model_memory, model_smoothing, discount, init_scale)


@factory
def pola_dice(
    game: Game,
    seat: int = 0,
    *,
    learning_rate: Scalar = 0.02,
    lookahead_rate: Scalar = 0.1,
    outer_beta: Scalar = 100.0,
    inner_beta: Scalar = 10.0,
    outer_steps: int = 10,
    inner_steps: int = 2,
    episodes: int = 32,
    model_memory: Scalar = 20.0,
    model_smoothing: Scalar = 0.05,
    discount: Scalar = 0.96,
    init_scale: Scalar = 0.7,
) -> Learner:
    """Proximal LOLA from samples: `lola_dice` with both steps as proximal steps in the space of policies.

        y'(x) = argmax_y L2(x, y) - inner_beta D(y, y_0),        y_0 = the model,
        x <- argmax_x L1(x, y'(x)) - outer_beta D(x, x_0),

    with L1 and L2 as in `lola_dice` and D the mean over the imagined steps of the Kullback-Leibler divergence of the
    new probabilities of action from the old. Both maxima are climbed from where they begin, the outer one through the
    inner one, each step with imagined episodes of its own:

        y_{i+1} = y_i + lookahead_rate d/dy [ L2(x_j, y_i) - inner_beta D(y_i, y_0) ],
        x_{j+1} = x_j + learning_rate d/dx [ L1(x_j, y_inner_steps(x_j)) - outer_beta D(x_j, x_0) ].

    At the old policy D curves by at most 1/2 where observations are one-hot, so that steps of up to 2 / beta do not
    overshoot by the divergence there; further away, and of observations that are larger, it may curve more. The model
    of the co-player, and both policies, are those of `lola_dice`.

    Args:
      game: what is played and imagined.
      seat: 0 or 1.
      learning_rate: of the outer steps; 0.003 in the paper's prisoner's dilemma, for a recurrent network.
      lookahead_rate: of the inner steps; 0.005 there.
      outer_beta: weight of one's own divergence; 100 there.
      inner_beta: weight of the co-player's; 10 there.
      outer_steps: towards the outer maximum; 200 there, of Adam.
      inner_steps: towards the inner one, in each outer step; 2 there.
      episodes: as of `lola_dice`; 2000 there.
      model_memory: as of `lola_dice`.
      model_smoothing: as of `lola_dice`.
      discount: of rewards, one's own and the co-player's.
      init_scale: standard deviation of the normal initial logits. The model begins even.

    Raises:
      ValueError: as `lola_dice`.

    Source: Zhao et al., Proximal Learning with Opponent-Learning Awareness (2022), arXiv:2210.10125, algorithm 2, with
    its opponent modelling; weights, steps and the direction of the divergence: its public code.
    """
    checks.number("learning_rate", learning_rate, 0)
    checks.number("lookahead_rate", lookahead_rate, 0)
    checks.number("outer_beta", outer_beta, 0)
    checks.number("inner_beta", inner_beta, 0)
    checks.size("outer_steps", outer_steps, 1)
    checks.size("inner_steps", inner_steps, 1, 16)

    def divergence(obs: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
        new_logs, old_logs = jax.nn.log_softmax(obs @ new), jax.nn.log_softmax(obs @ old)
        return (jnp.exp(new_logs) * (new_logs - old_logs)).sum(-1).mean()

    def step(key: jax.Array, logits: jax.Array, model: jax.Array, imagined: _Imagination) -> jax.Array:
        def inner(seen: _Imagined, own: jax.Array, other: jax.Array) -> jax.Array:
            return imagined.value(seen, own, other, seen.reward) - inner_beta * divergence(seen.obs, other, model)

        def outer(own: jax.Array, keys: jax.Array) -> jax.Array:
            other = model
            for inner_key in keys[:-1]:
                other = other + lookahead_rate * jax.grad(inner, 2)(imagined.play(inner_key, own, other), own, other)
            seen = imagined.play(keys[-1], own, other)
            return imagined.value(seen, own, other, seen.own_reward) - outer_beta * divergence(seen.obs, own, logits)

        def climb(own: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            return own + learning_rate * jax.grad(outer)(own, jax.random.split(key, inner_steps + 1)), None

        return jax.lax.scan(climb, logits, jax.random.split(key, outer_steps))[0]

    return _imagining("pola_dice", step, game, seat, episodes, model_memory, model_smoothing, discount, init_scale)


class _Imagined(NamedTuple):
    """Episodes `[T, episodes, ...]` of a learner and its model of the co-player."""

    obs: jax.Array
    own_action: jax.Array
    action: jax.Array
    own_reward: jax.Array
    reward: jax.Array
    done: jax.Array


class _Imagination(NamedTuple):
    """The imagined rollouts of an update."""

    play: Callable[[jax.Array, jax.Array, jax.Array], _Imagined]  # (key, own logits, the other's) -> episodes
    value: Callable[..., jax.Array]  # (episodes, own logits, the other's, rewards) -> the DiCE objective


def _imagining(
    name: str,
    step: Callable[[jax.Array, jax.Array, jax.Array, _Imagination], jax.Array],
    game: Game,
    seat: int,
    episodes: int,
    model_memory: Scalar,
    model_smoothing: Scalar,
    discount: Scalar,
    init_scale: Scalar,
) -> Learner:
    """A learner that fits its model of the co-player and then steps: `(key, logits, model, imagined) -> logits`."""
    if game.num_agents != 2:
        raise ValueError(f"{name}: got a game of {game.num_agents} players; one of two is needed")
    checks.number("discount", discount, 0, 1)
    checks.number("init_scale", init_scale, 0)
    checks.size("episodes", episodes, 2, 1_000_000)
    checks.number("model_memory", model_memory, 0, brackets="(]")
    checks.number("model_smoothing", model_smoothing, 0, 1, brackets="()")
    obs_shape = nonnegative_observations(game, seat)
    mine, theirs = discrete_actions(game, seat), discrete_actions(game, 1 - seat)

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

    def act_greedy(logits: jax.Array, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple[()]]:
        return mine.mode(flat(obs) @ logits), memory

    def imagine(steps: int, key: jax.Array, own: jax.Array, other: jax.Array) -> _Imagined:
        """Episodes of both policies against each other."""
        own, other = jax.lax.stop_gradient((own, other))

        def step_keys(key: jax.Array) -> tuple[jax.Array, ...]:
            keys = jax.random.split(key, 4)
            return keys[0], keys[1], jax.random.split(keys[2], episodes), jax.random.split(keys[3], episodes)

        def step(carry: Any, keys: tuple[jax.Array, ...]) -> Any:
            observations, state = carry
            obs = flat(observations[game.agents[seat]])
            played = mine.sample(keys[0], obs @ own), theirs.sample(keys[1], obs @ other)
            actions = {game.agents[seat]: played[0], game.agents[1 - seat]: played[1]}
            after, state, rewards, dones, _ = jax.vmap(game.step_env)(keys[2], state, actions)
            paid = rewards[game.agents[seat]], rewards[game.agents[1 - seat]]
            return jax.vmap(game.auto_reset)(keys[3], after, state, dones), _Imagined(
                obs, *played, *paid, dones["__all__"]
            )

        reset_key, run_key = jax.random.split(key)
        carry = jax.vmap(game.reset)(jax.random.split(reset_key, episodes))
        return jax.lax.scan(step, carry, jax.vmap(step_keys)(jax.random.split(run_key, steps)))[1]

    def value(seen: _Imagined, own: jax.Array, other: jax.Array, rewards: jax.Array) -> jax.Array:
        log_probs = mine.log_prob(seen.obs @ own, seen.own_action) + theirs.log_prob(seen.obs @ other, seen.action)
        baseline = leave_one_out(returns_to_go(rewards, seen.done, discount))
        return dice_objective(log_probs, rewards, discount, baseline, seen.done)

    def fitted(model: jax.Array, obs: jax.Array, actions: jax.Array) -> jax.Array:
        obs, actions = obs.reshape(-1, len(model)), actions.reshape(-1)
        answers = (actions[:, None] == jnp.arange(theirs.num_outputs)).astype(jnp.float32)
        observed = obs.T @ ((1 - model_smoothing) * answers + model_smoothing / theirs.num_outputs)
        expected, visits = obs.T @ jax.nn.softmax(obs @ model), obs.sum(0)[:, None]
        old = jnp.where(visits > 0, model_memory * expected / visits, 1.0)
        return model + jnp.log((old + observed) / (old + expected)) / jnp.maximum(obs.sum(1).max(), 1e-6)

    def update(key: jax.Array, state: LolaState, trajectory: Trajectory) -> tuple[LolaState, Metrics]:
        obs, steps = flat(trajectory.obs), len(trajectory.reward)
        likelihood = theirs.log_prob(obs @ state.model, trajectory.others[0]).mean()
        model = fitted(state.model, obs, trajectory.others[0])
        imagination = _Imagination(partial(imagine, steps), value)
        metrics = {"model_log_likelihood": likelihood, "entropy": mine.entropy(obs @ state.logits).mean()}
        return LolaState(step(key, state.logits, model, imagination), model), metrics

    return Learner(
        init=init, act=act, update=update, policy=lambda state: state.logits, act_greedy=act_greedy, seat=seat
    )
