"""Shapers by reinforcement learning: proximal policy optimisation of a Gaussian meta-policy over the meta-game."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from games import InfinitelyRepeated
from games.core.arguments import factory
from games.core.modes import in_any_mode
from marl.core.learner import Learner, Metrics
from marl.shapers.exact_policies import Observe, Shaper, after_a_random_step
from marl.shapers.meta_ppo_config import ExactMetaPPO, MetaPPO
from marl.shapers.trial import play
from meta import Evolved, NonFiniteFitness, scalarize
from meta.loop import Report, Store, iterate

Parameters = dict[str, dict[str, jax.Array]]


class TrialBatch(NamedTuple):
    """A batch of trials without their random first steps; the batch axis is last, where the vector units work."""

    obs: jax.Array  # `[meta_steps, 2 logits, batch]`
    action: jax.Array  # `[meta_steps, logits, batch]`
    log_prob: jax.Array  # `[meta_steps, batch]`
    reward: jax.Array  # `[meta_steps, batch]`
    other_reward: jax.Array  # `[meta_steps, batch]`


class PPOState(NamedTuple):
    """The state that goes on from iteration to iteration."""

    parameters: Any
    optimizer: optax.OptState


@in_any_mode
def meta_ppo(
    make_match: Callable[..., tuple[InfinitelyRepeated, Learner]],
    num_logits: int,
    key: jax.Array,
    settings: ExactMetaPPO | None = None,
    *,
    meta_steps: int = 100,
    observe: Observe = "after",
    store: Store | None = None,
    report: Report | None = None,
    context: Callable[[jax.Array, jax.Array, Any], Any] | None = None,
) -> Evolved:
    """Trains a shaper as Lu et al. (2022) do: the meta-game is a Markov decision process, solved by PPO.

    In each iteration a batch of trials is played, `R` is the discounted return from each meta-step on, normalised over
    the whole batch, and `epochs` Adam steps are taken on the mean of

        -min(rho A, clip(rho, 1 - c, 1 + c) A) + value_coefficient (V - R)^2 - entropy H,        A = R - V,

    with rho the ratio of the new and the old probability of the action, V the critic's value and H the entropy of the
    Gaussian.

    On COALA-PG. There B inner episodes are played at once and the opponent learns from all of them, so that an action
    in one of them changes the later rewards of all: the gradient of the mean return is

        sum_b sum_l grad log pi(a_l^b) 1/B [ sum_{k = l}^{end of its episode} r_k^b + sum_{later k} sum_b' r_k^b' ].

    In the exact game an opponent's step depends on one policy, a single action, and its inner episode is that one
    meta-step: B = 1 and T = 1. Both sums become one, and what is left is the plain policy gradient with the
    undiscounted return from l on. What M-FOS gets wrong elsewhere, the weight of the two sums, cannot be wrong here;
    so the estimator as such does not carry over as something new. What does is its form: no discount, and the
    returns at each meta-step compared with one another over the batch, with no critic. That is `advantages="coala"`.

    Args:
      make_match: `() -> (game, opponent)`, the shaper in the row seat; with a context, `(context) -> (game, opponent)`.
      num_logits: length of a policy.
      key: a key, or K of them `[K]` for as many independent runs in one program.
      settings: None for those of the paper.
      meta_steps: learning steps of the opponent in a trial.
      observe: as of `marl.shapers.exact_policies.mfos`; "before" in the public code.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(iterations so far, their last metrics, seconds of running)` by the host.
      context: as of `evolve`: `(key, iteration, parameters) -> pytree`, `[K]` where there are K runs.

    Returns:
      `Evolved`, whose parameters make a learner by `gaussian_mfos(...).learner`, and whose metrics are over the batch.

    Raises:
      NonFiniteFitness: if the return of an iteration is not finite.

    Source: Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447, and its public code; PPO: Schulman et al.
    (2017), arXiv:1707.06347; COALA-PG: Meulemans et al., Multi-agent cooperation through learning-aware policy
    gradients (2024), arXiv:2410.18636.
    """
    settings = settings or ExactMetaPPO()
    shaper = gaussian_mfos(num_logits, hidden_units=settings.hidden_units, observe=observe)
    optimizer = optax.adam(settings.learning_rate)

    def iteration(number: jax.Array, key: jax.Array, state: PPOState, context: tuple) -> Any:
        keys = jax.random.split(jax.random.fold_in(jax.random.split(key)[1], number), settings.batch_size)
        game, opponent = make_match(*context)
        rollout = _play_batch(keys, game, shaper, opponent, state.parameters, meta_steps)
        return improve(optimizer, settings, state, rollout)

    def step(keys: jax.Array, number: jax.Array, state: PPOState) -> Any:
        run = partial(iteration, number)
        # One after the other: a batch is wide enough as it is, and so many hidden units fill the memory.
        each = (lambda *x: jax.lax.map(lambda y: run(*y), x)) if keys.ndim else run
        return each(keys, state, (context(keys, number, state.parameters),) if context else ())

    return train_meta_ppo(shaper.init, optimizer, step, key, settings, store=store, report=report)


def train_meta_ppo(
    init: Callable[[jax.Array], Any],
    optimizer: optax.GradientTransformation,
    step: Callable[..., tuple[PPOState, Any]],
    key: jax.Array,
    settings: MetaPPO,
    *,
    store: Store | None,
    report: Report | None,
    advice: str = "",
) -> Evolved:
    """Goes through the iterations, each a `step(key, number, state)`, as of `iterate`, from parameters of `init`."""

    def first(key: jax.Array) -> PPOState:
        parameters = init(jax.random.split(key)[0])
        return PPOState(parameters, optimizer.init(parameters))

    started = time.perf_counter()
    state = jax.jit(jax.vmap(first) if key.ndim else first)(key)
    seconds = time.perf_counter() - started
    found = iterate(
        step,
        state,
        key,
        settings.iterations,
        store=store,
        report=report,
        checkpoint_seconds=settings.checkpoint_seconds,
        process_metrics=check_finite,
        advice=advice,
    )
    return Evolved.of(found.state.parameters, found, seconds)


def batch_metrics(own: jax.Array, other: jax.Array) -> Metrics:
    """Metrics of a batch, from the mean payoffs of shapers and opponents in each trial, `[batch]`."""
    found = {"fitness": own.mean(), "fitness_deviation": own.std(), "fitness_best": own.max()}
    found |= {"non_finite": jnp.sum(~jnp.isfinite(own))}
    for name, values in (("shaper_return", own), ("opponent_return", other)):
        found |= {name: values.mean(), f"{name}_deviation": values.std()}
    return found


@factory
def gaussian_mfos(
    num_logits: int = 5, *, hidden_units: int = 256, sample: bool = True, observe: Observe = "after"
) -> Shaper:
    """The meta-policy that PPO trains: M-FOS with a Gaussian over the next logits.

        (m, s) = W2 tanh(W1 [sigmoid(own), sigmoid(other)] + b1) + b2,        logits ~ N(m, softplus(s))

    The parameters hold the `actor` and, for training alone, a `critic` of the same form with one output. The first
    step of a trial is played with random logits.

    Args:
      num_logits: length of a policy, 5 for memory one.
      hidden_units: width of both networks.
      sample: whether to play samples, or else the mean m.
      observe: as of `marl.shapers.exact_policies.mfos`.

    Source: Lu et al. (2022), arXiv:2205.01447, public code; weights and biases uniform in +-1 / sqrt(inputs), as there.
    """

    def init(key: jax.Array) -> Parameters:
        actor_key, critic_key = jax.random.split(key)
        return {
            "actor": _init_network(actor_key, 2 * num_logits, hidden_units, 2 * num_logits),
            "critic": _init_network(critic_key, 2 * num_logits, hidden_units, 1),
        }

    def learner(parameters: Parameters) -> Learner:
        actor = parameters["actor"]

        def policy(key: jax.Array, hidden: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
            # The first product as a sum of columns: elementwise, it fuses with tanh and with what made `obs`.
            columns = sum(obs[..., i, None] * actor["w1"][:, i] for i in range(2 * num_logits))
            mean, raw = jnp.split(jnp.tanh(columns + actor["b1"]) @ actor["w2"].T + actor["b2"], 2, -1)
            variance = jax.nn.softplus(raw)
            noise = jax.random.normal(key, mean.shape) if sample else jnp.zeros_like(mean)
            logits = mean + jnp.sqrt(variance) * noise
            return logits, hidden, (_log_prob(logits, mean, variance, -1), obs)

        return after_a_random_step(policy, num_logits, observe=observe)

    return Shaper(init, learner)


def _init_network(key: jax.Array, inputs: int, hidden_units: int, outputs: int) -> dict[str, jax.Array]:
    shapes = {"w1": (hidden_units, inputs), "b1": (hidden_units,), "w2": (outputs, hidden_units), "b2": (outputs,)}
    bounds = {"w1": inputs, "b1": inputs, "w2": hidden_units, "b2": hidden_units}
    return {
        name: jax.random.uniform(k, shapes[name], minval=-1, maxval=1) / bounds[name] ** 0.5
        for k, name in zip(jax.random.split(key, len(shapes)), shapes, strict=True)
    }


def _network(parameters: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """`[inputs, batch] -> [outputs, batch]`."""
    hidden = jnp.tanh(parameters["w1"] @ x + parameters["b1"][:, None])
    return parameters["w2"] @ hidden + parameters["b2"][:, None]


def _log_prob(action: jax.Array, mean: jax.Array, variance: jax.Array, axis: int) -> jax.Array:
    return -0.5 * ((action - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance)).sum(axis)


def _play_batch(
    keys: jax.Array,
    game: InfinitelyRepeated,
    shaper: Shaper,
    opponent: Learner,
    parameters: Parameters,
    meta_steps: int,
) -> TrialBatch:
    def one(key: jax.Array, actor: dict[str, jax.Array]) -> TrialBatch:
        learner = shaper.learner({"actor": actor})
        history = play(key, game, learner, opponent, meta_steps=meta_steps, keep_trajectories=True)
        assert history.trajectories is not None
        own = history.trajectories[0]
        log_prob, obs = own.extras
        steps = TrialBatch(obs[:, 0], own.action[:, 0], log_prob[:, 0], *history.rewards)
        return jax.tree.map(lambda x: x[1:], steps)

    return jax.vmap(scalarize(one), (0, None), -1)(keys, parameters["actor"])


def rewards_to_go(reward: jax.Array, discount: float) -> jax.Array:
    """Discounted sums of the rewards from each step on, `[steps, ...]`."""

    def back(later: jax.Array, reward: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = reward + discount * later
        return total, total

    return jax.lax.scan(back, jnp.zeros(reward.shape[1:]), reward, reverse=True)[1]


def _normalise(x: jax.Array, axis: int | None) -> jax.Array:
    return (x - x.mean(axis, keepdims=True)) / (x.std(axis, ddof=1, keepdims=True) + 1e-5)


def improve(
    optimizer: optax.GradientTransformation, settings: MetaPPO, state: PPOState, rollout: TrialBatch
) -> tuple[PPOState, dict[str, jax.Array]]:
    """The epochs of gradient steps on one batch, and its metrics."""
    with_critic = settings.advantages == "critic"
    returns = rewards_to_go(rollout.reward, settings.discount if with_critic else 1.0)
    targets = _normalise(returns, None if with_critic else -1)

    def loss(parameters: Parameters, rollout: TrialBatch, target: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The mean over one meta-step, `[..., batch]`."""
        mean, raw = jnp.split(_network(parameters["actor"], rollout.obs), 2)
        variance = jax.nn.softplus(raw)
        log_ratio = _log_prob(rollout.action, mean, variance, 0) - rollout.log_prob
        ratio = jnp.exp(log_ratio)
        value = _network(parameters["critic"], rollout.obs)[0] if with_critic else jnp.zeros_like(target)
        chex.assert_equal_shape((ratio, target, value))
        advantage = target - jax.lax.stop_gradient(value)
        clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = ((value - target) ** 2).mean()
        entropy = 0.5 * jnp.log(2 * jnp.pi * jnp.e * variance).sum(0).mean()
        total = policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy
        kl = (ratio - 1 - log_ratio).mean()
        return total, {"entropy": entropy, "value_loss": value_loss, "kl": kl}

    def epoch(state: PPOState, _: None) -> tuple[PPOState, dict[str, jax.Array]]:
        def add(total: Any, step: Any) -> tuple[Any, None]:
            (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(state.parameters, *step)
            return jax.tree.map(jnp.add, total, (gradient, metrics)), None

        # Meta-step by meta-step, so that the hidden units of one at a time stay in the cache.
        shapes = jax.eval_shape(jax.grad(loss, has_aux=True), state.parameters, *_first((rollout, targets)))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        (gradient, metrics), _ = jax.lax.scan(add, zeros, (rollout, targets))
        gradient, metrics = jax.tree.map(lambda x: x / len(targets), (gradient, metrics))
        updates, opt_state = optimizer.update(gradient, state.optimizer, state.parameters)
        return PPOState(optax.apply_updates(state.parameters, updates), opt_state), metrics

    state, metrics = jax.lax.scan(epoch, state, None, settings.epochs)
    report = batch_metrics(rollout.reward.mean(0), rollout.other_reward.mean(0))
    return state, report | jax.tree.map(lambda x: x[-1], metrics)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


def check_finite(metrics: dict[str, np.ndarray], iteration: int) -> dict[str, np.ndarray]:
    """The metrics, for `iterate`; raises `NonFiniteFitness`."""
    failed = ~np.isfinite(metrics["fitness"])
    for i in np.flatnonzero(failed.reshape(len(failed), -1).any(1))[:1]:
        raise NonFiniteFitness(
            f"generation {iteration + i + 1}: the return is not finite; a smaller meta_ppo.learning_rate may help"
        )
    return metrics
