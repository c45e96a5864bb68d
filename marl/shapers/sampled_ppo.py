"""Shapers of sampled games by reinforcement learning: proximal policy optimisation over whole trials."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from games.core.modes import in_any_mode
from marl.blocks.advantages import generalized_advantages
from marl.blocks.objectives import clipped_surrogate
from marl.core.learn import History
from marl.core.learner import Metrics, Trajectory
from marl.shapers.exact_ppo import PPOState, batch_metrics, train_meta_ppo
from marl.shapers.meta_ppo_config import SampledMetaPPO
from marl.shapers.sampled_policies import Parameters, Policy, replay
from meta import Evolved
from meta.loop import Report, Store


class Trial(NamedTuple):
    """One shaper's view of a trial, `[episodes, T, N, ...]`."""

    obs: jax.Array
    action: jax.Array
    done: jax.Array
    log_prob: jax.Array
    advantage: jax.Array
    target: jax.Array


@in_any_mode
def sampled_ppo(
    play: Callable[[jax.Array, Parameters], History],
    policy: Policy,
    key: jax.Array,
    settings: SampledMetaPPO | None = None,
    *,
    num_shapers: int = 1,
    store: Store | None = None,
    report: Report | None = None,
) -> Evolved:
    """Trains a policy by PPO, a trial being one episode of a Markov decision process with many steps.

    Rewards to come are discounted across the ends of the game's episodes, up to the end of the trial, and gradients go
    back through the policy's memory to the trial's first step. So what is learned is credited with what the others
    learn from it. An environment's rewards are credited to the actions in that environment, or those of later episodes
    to the actions in all.

    With `advantages="coala"` an action is credited as COALA-PG does, with `coala_returns`, for the others learn from
    all environments. These are compared with the mean over the other trials at the same step, divided by their standard
    deviation, and the value, which is fitted to the result, is the baseline; nothing is discounted. That is right for a
    policy that learns in no environment what happens in another one in the same episode: `shaper(averaging=False)`.

    Args:
      play: `(key, parameters) -> History` of one trial, with trajectories.
      policy: what is trained.
      key: of the whole training, or K of them `[K]` for as many, one after the other in one program.
      settings: None for `SampledMetaPPO()`.
      num_shapers: how many of the players, the first ones, play the policy; all of them are learned from.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(iterations so far, their last metrics, seconds of running)` by the host.

    Returns:
      `Evolved`, with metrics over the batch. Leading axes `[K]` where it was given K keys.

    Raises:
      NonFiniteFitness: if the return of an iteration, or what it made of the parameters, is not finite.

    Source: Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447, section 4.3; PPO: Schulman et al. (2017),
    arXiv:1707.06347; COALA-PG: Meulemans et al., Multi-agent cooperation through learning-aware policy gradients
    (2024), arXiv:2410.18636.
    """
    settings = settings or SampledMetaPPO()
    optimizer = optax.chain(optax.clip_by_global_norm(settings.max_gradient_norm), optax.adam(settings.learning_rate))
    objective = clipped_surrogate(clip=settings.clip)

    def compared(trajectory: Trajectory) -> Trial:
        returns = jax.vmap(coala_returns)(trajectory.reward)
        of_trial = returns.mean(-1, keepdims=True)
        target = returns - (of_trial.sum(0) - of_trial) / (len(of_trial) - 1)
        target = target / (target.std() + 1e-8)
        return Trial(
            trajectory.obs,
            trajectory.action,
            trajectory.done,
            trajectory.extras.log_prob,
            target - trajectory.extras.value,
            target,
        )

    def seen(trajectory: Trajectory) -> Trial:
        def before(ahead: jax.Array, episode: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            """The advantages of an episode, and what is ahead of the one before it; only the trial ends."""
            reward, value = episode
            goes_on = jnp.zeros_like(reward, bool)
            later = jnp.concatenate([value[1:], ahead[None]])
            found = generalized_advantages(
                reward, value, later, goes_on, goes_on, settings.discount, settings.gae_lambda
            )
            first = value[0] + settings.gae_lambda * found[0]
            return jnp.full_like(first, first.mean()) if settings.later_episodes == "mean" else first, found

        rewards, values = trajectory.reward, trajectory.extras.value
        advantage = jax.lax.scan(before, jnp.zeros_like(values[0, 0]), (rewards, values), reverse=True)[1]
        return Trial(
            trajectory.obs,
            trajectory.action,
            trajectory.done,
            trajectory.extras.log_prob,
            advantage,
            advantage + values,
        )

    def loss(parameters: Parameters, trials: Trial) -> tuple[jax.Array, Metrics]:
        outputs, value = jax.vmap(partial(replay, policy, parameters))(trials.obs, trials.done)
        advantage = (trials.advantage - trials.advantage.mean()) / (trials.advantage.std() + 1e-8)
        log_ratio = policy.distribution.log_prob(outputs, trials.action) - trials.log_prob
        chex.assert_equal_shape((log_ratio, advantage, value, trials.target))
        value_loss = 0.5 * ((value - trials.target) ** 2).mean()
        entropy = policy.distribution.entropy(outputs).mean()
        total = settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy
        kl = (jnp.expm1(log_ratio) - log_ratio).mean()
        metrics = {"entropy": entropy, "value_loss": value_loss, "kl": kl}
        return total - objective(log_ratio, advantage).mean(), metrics

    def improve(state: PPOState, trials: Trial) -> tuple[PPOState, Metrics]:
        gradient, metrics = jax.grad(loss, has_aux=True)(state.parameters, trials)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.parameters)
        return PPOState(optax.apply_updates(state.parameters, updates), optimizer_state), metrics

    def iteration(number: jax.Array, key: jax.Array, state: PPOState) -> tuple[PPOState, Metrics]:
        play_key, order_key = jax.random.split(jax.random.fold_in(jax.random.split(key)[1], number))
        played = jax.vmap(play, (0, None))(jax.random.split(play_key, settings.batch_size), state.parameters)
        assert played.trajectories is not None
        view = compared if settings.advantages == "coala" else jax.vmap(seen)
        views = [view(trajectory) for trajectory in played.trajectories[:num_shapers]]

        def epoch(state: PPOState, key: jax.Array) -> tuple[PPOState, Metrics]:
            order = jax.random.permutation(key, settings.batch_size).reshape(settings.minibatches, -1)

            def part(state: PPOState, chosen: jax.Array) -> tuple[PPOState, Metrics]:
                return improve(state, jax.tree.map(lambda *x: jnp.concatenate([one[chosen] for one in x]), *views))

            return jax.lax.scan(part, state, order)

        state, metrics = jax.lax.scan(epoch, state, jax.random.split(order_key, settings.epochs))
        own = jnp.stack(played.rewards[:num_shapers]).mean((0, 2))
        others = jnp.stack(played.rewards[num_shapers:]).mean((0, 2))
        # Logits that are no numbers play on as if nothing were wrong.
        own = jnp.where(jnp.isfinite(optax.tree.norm(state.parameters)), own, jnp.nan)
        return state, batch_metrics(own, others) | jax.tree.map(lambda x: x[-1, -1], metrics)

    def step(keys: jax.Array, number: jax.Array, state: PPOState) -> tuple[PPOState, Metrics]:
        if not keys.ndim:
            return iteration(number, keys, state)
        return jax.lax.map(lambda run: iteration(number, *run), (keys, state))

    advice = "; a smaller meta_ppo.batch_size or more meta_ppo.minibatches bound it"
    return train_meta_ppo(policy.init, optimizer, step, key, settings, store=store, report=report, advice=advice)


def coala_returns(reward: jax.Array) -> jax.Array:
    """The return that an action is credited with in each environment, `[episodes, T, N]`.

        sum_{k >= t} r_k^n to the end of the episode + sum_{later episodes} sum_k sum_{n'} r_k^{n'}

    Within the episode there is no learning, and the rest of it depends on the own environment's actions alone; after it
    the others have learned from all environments, and all rewards depend on it. Summed with the scores of all actions
    it is N times an unbiased estimate of the gradient of the rewards of a trial, their mean over the environments.

    Args:
      reward: `[episodes, T, N]`, where the others learn after each of the episodes.

    Source: Meulemans et al. (2024), arXiv:2410.18636, theorem 3.1.
    """
    chex.assert_rank(reward, 3)
    rest = jnp.cumsum(reward[:, ::-1], 1)[:, ::-1]
    of_episode = reward.sum((1, 2))
    later = jnp.cumsum(of_episode[::-1])[::-1] - of_episode
    return rest + later[:, None, None]
