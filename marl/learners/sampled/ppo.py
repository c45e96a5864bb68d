"""Proximal policy optimisation, as a learner of any game."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

import chex
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from configs import shown
from games import Game
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import align, generalized_advantages, mean, standardize
from marl.blocks.distributions import distribution
from marl.blocks.layers import where_done
from marl.blocks.minibatches import minibatch_epochs
from marl.blocks.networks import Network, check_normalized, feed_forward, unroll, with_critic
from marl.blocks.normalization import Statistics, add, first_statistics, normalize
from marl.blocks.objectives import Aligned, Objective, Timed, clipped_surrogate, policy_gradient
from marl.blocks.sparse import SparseState, Sparsity, descent
from marl.blocks.value_losses import ValueLoss, clipped_l2, l2
from marl.core.learner import Learner, Metrics, Trajectory, co_players_rewards
from meta.xla.backend import platform


class OneStepDetails(TypedDict, total=False):
    """Settings in which implementations of a policy gradient with a value differ."""

    adam_epsilon: float
    observation_epsilon: Scalar
    normalize_advantages: bool
    bootstrap_limits: bool
    learn_last_step: bool


class Details(OneStepDetails, total=False):
    """Settings in which implementations of PPO differ."""

    value_clip: Scalar | None


class PPOState(NamedTuple):
    """The learner's state."""

    params: Any
    optimizer: optax.OptState
    statistics: Statistics | None  # up to the last update; None where observations are not normalised


class PPOPolicy(NamedTuple):
    """The policy that acts."""

    params: Any
    statistics: Statistics | None  # with which an actor begins


class PPOMemory(NamedTuple):
    """The memory of an actor."""

    statistics: Statistics | None  # they move with every step
    carry: Any  # of a recurrent network, [N, ...]


class PPOExtras(NamedTuple):
    """Values of a step that `update` needs, `[N, ...]`."""

    log_prob: jax.Array
    value: jax.Array  # with `alignment` [N, 2]: one's own and the co-players'
    obs: jax.Array | None  # as the network saw it, where that is normalised
    carry: Any  # after the step
    statistics: Statistics | None = None  # by which it was normalised, of all environments alike


@factory
def ppo(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar | optax.Schedule = 2.5e-4,
    epochs: int = 4,
    minibatches: int = 4,
    discount: Scalar = 0.99,
    gae_lambda: Scalar = 0.95,
    objective: Objective | Timed | Aligned | None = None,
    value_loss: ValueLoss | None = None,
    value_coefficient: Scalar = 0.5,
    entropy_coefficient: Scalar = 0.01,
    max_gradient_norm: Scalar | None = 0.5,
    normalize_observations: bool = False,
    details: Details = {
        "value_clip": 0.2,
        "adam_epsilon": 1e-5,
        "observation_epsilon": 1e-8,
        "normalize_advantages": True,
        "bootstrap_limits": True,
        "learn_last_step": True,
    },
    sparsity: Sparsity | None = None,
) -> Learner:
    """Learns a policy and a value from the episodes between two updates, several steps up a clipped surrogate.

    The advantages are generalised: with delta_t = r_t + discount V(s'_t) - V(s_t), and V(s'_t) = 0 where the episode
    terminated,

        A_t = delta_t + discount gae_lambda A_{t+1},      the sum ending where the episode does.

    Where it was truncated by a time limit the value of its last observation counts, as at the end of the batch, unless
    `bootstrap_limits` is false. The loss of a minibatch is

        - mean objective(log rho, A) + value_coefficient L_V - entropy_coefficient H,

    L_V half the mean square of V - (V_old + A), or of that and of V clipped to within `value_clip` of V_old what is
    larger. Adam follows it, its gradient clipped by norm. `learn` needs `num_envs`.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      network: `feed_forward` of the game's observations by default.
      learning_rate: a number, or a schedule of optax over the steps of the optimiser, `epochs * minibatches` in each
        update.
      epochs: over the same batch.
      minibatches: of an epoch, shuffled in each; 1 is the full batch. A recurrent network's are of whole environments.
      discount: of rewards.
      gae_lambda: 0 trusts the value, 1 the return.
      objective: `clipped_surrogate()` by default; anything of log ratios and advantages, elementwise. One that is
        `Timed` gets how much of the training is over, and one that is `Aligned` gets advantages of co-players.
      value_loss: in place of L_V; anything of values, targets and the values before the update, elementwise.
      value_coefficient: weight of the value's loss.
      entropy_coefficient: weight of the policy's entropy.
      max_gradient_norm: of the gradient of all parameters together; None does not clip it.
      normalize_observations: by their running mean and standard deviation, which move with every step: they are the
        actor's, and reach the learner with the trajectory. The first observations are normalised too, unlike in
        code that wraps the game, where those of the first reset pass as they are. The value of the observation after a
        step is of that observation as the next step sees it, by the statistics of then.
      details: a dict of settings in which implementations differ, each with a default:
        value_clip: None does not clip.
        adam_epsilon: of Adam.
        observation_epsilon: added to the variance by which observations are normalised.
        normalize_advantages: in each minibatch.
        bootstrap_limits: whether an episode that a time limit ends is worth what would have come; otherwise the limit
          is an end like any other, which the observation does not announce.
        learn_last_step: from all steps of the batch; otherwise the last one only lends its value to those before, as
          in code that saves the network one evaluation.
      sparsity: of the parameters, what `sparse` returns; None is dense.

    Raises:
      ValueError: for a timed objective without its number of updates, integers in a `Box` of actions, observations that
        are no array, an aligned objective in a game of one player, or numbers that are none or out of range.

    Example:
      >>> import games, jax, marl
      >>> learner = marl.ppo(games.make("CartPole-v1"), network=marl.feed_forward((4,), 2, hidden=[8]))
      >>> weights = jax.eval_shape(learner.init, jax.random.key(0)).params  # 5 x 8 + 9 x 2, and 5 x 8 + 9 of the value
      >>> sum(x.size for x in jax.tree.leaves(weights))
      107

    Source: Schulman et al. (2017), arXiv:1707.06347; the advantages: Schulman et al. (2016), arXiv:1506.02438,
    equation 16; the defaults: PureJaxRL (Lu et al., 2022).
    """
    value_clip, normalize_advantages = details["value_clip"], details["normalize_advantages"]
    adam_epsilon, observation_epsilon = details["adam_epsilon"], details["observation_epsilon"]
    bootstrap_limits, learn_last_step = details["bootstrap_limits"], details["learn_last_step"]
    alignment, estimate = None, generalized_advantages
    if isinstance(objective, Aligned):
        alignment, objective, of_one = objective
        estimate = jax.vmap(of_one, (2, 2, 2, None, None, None, None), 2)
    checks.size("epochs", epochs, 1)
    checks.size("minibatches", minibatches, 1)
    checks.number("discount", discount, 0, 1)
    checks.number("gae_lambda", gae_lambda, 0, 1)
    checks.number("learning_rate", learning_rate, 0)
    checks.number("value_coefficient", value_coefficient, 0)
    checks.number("entropy_coefficient", entropy_coefficient, 0)
    checks.number("value_clip", 1 if value_clip is None else value_clip, 0, brackets="()")
    checks.number("max_gradient_norm", 1 if max_gradient_norm is None else max_gradient_norm, 0, brackets="()")
    checks.number("adam_epsilon", adam_epsilon, 0, brackets="()")
    checks.number("observation_epsilon", observation_epsilon, 0, brackets="()")
    if alignment is not None:
        checks.number("alignment", alignment, 0)
        if game.num_agents < 2:
            raise ValueError(f"alignment: got {alignment} in a game of one player; a co-player is needed")
    agent = game.agents[seat]
    obs_shape, actions = game.observation_space(agent).shape, distribution(game.action_space(agent))
    network = network or feed_forward(obs_shape, actions.num_outputs, num_scales=actions.num_scales)
    check_normalized(network, normalize_observations)
    if alignment is not None:
        network = with_critic(network, network)
    objective = objective or clipped_surrogate()
    all_steps = epochs * minibatches
    if isinstance(objective, Timed):
        if objective.num_updates is None:
            raise ValueError("objective: got one that depends on time; the number of updates, num_updates, is needed")
        checks.size("num_updates", objective.num_updates, 1)
        all_steps *= objective.num_updates
    value_loss = value_loss or (l2 if value_clip is None else clipped_l2(clip=value_clip))
    has_memory = bool(jax.tree.leaves(network.initial(1)))
    clip = optax.identity() if max_gradient_norm is None else optax.clip_by_global_norm(max_gradient_norm)
    optimizer = descent(optax.chain(clip, optax.adam(learning_rate, eps=adam_epsilon)), sparsity)

    def init(key: jax.Array) -> PPOState:
        params, optimizer_state = optimizer.init(key, network.init(key))
        statistics = first_statistics(obs_shape) if normalize_observations else None
        return PPOState(params, optimizer_state, statistics)

    def policy(state: PPOState) -> PPOPolicy:
        return PPOPolicy(state.params, state.statistics)

    def init_memory(parameters: PPOPolicy, num_envs: int | None) -> PPOMemory:
        if has_memory and num_envs is None:
            raise ValueError("num_envs: got None; a recurrent network needs the number of environments")
        return PPOMemory(parameters.statistics, network.initial(num_envs or 0))

    def act(
        key: jax.Array, parameters: PPOPolicy, memory: PPOMemory, obs: jax.Array
    ) -> tuple[jax.Array, PPOMemory, PPOExtras]:
        seen, statistics = None, memory.statistics
        if statistics:
            statistics = add(statistics, obs)
            obs = seen = normalize(statistics, obs, observation_epsilon)
        outputs, value, carry = network.apply(parameters.params, obs, memory.carry)
        action = actions.sample(key, outputs)
        extras = PPOExtras(actions.log_prob(outputs, action), value, seen, carry, statistics)
        return action, PPOMemory(statistics, carry), extras

    def see(parameters: PPOPolicy, memory: PPOMemory, obs: jax.Array) -> tuple[jax.Array, Any]:
        if memory.statistics:
            obs = normalize(memory.statistics, obs, observation_epsilon)
        outputs, _, carry = network.apply(parameters.params, obs, memory.carry)
        return outputs, carry

    def act_greedy(parameters: PPOPolicy, memory: PPOMemory, obs: jax.Array) -> tuple[jax.Array, PPOMemory]:
        outputs, carry = see(parameters, memory, obs)
        return actions.mode(outputs), memory._replace(carry=carry)

    def reset_memory(memory: PPOMemory, done: jax.Array) -> PPOMemory:
        return memory._replace(carry=where_done(done, network.initial(len(done)), memory.carry))

    def loss(params: Any, batch: _Batch, steps: jax.Array) -> tuple[jax.Array, Metrics]:
        outputs, value, _ = unroll(network, params, batch.obs, batch.done, batch.first_carry)
        log_ratio = actions.log_prob(outputs, batch.action) - batch.log_prob
        advantage, valid = batch.advantage, batch.valid
        if normalize_advantages:
            advantage = standardize(advantage, valid)
        now = objective
        if isinstance(now, Timed):
            now = now.at(steps / all_steps)
        gain = mean(now(log_ratio, advantage), valid)
        chex.assert_equal_shape((value, batch.value, batch.target))
        error = mean(value_loss(value, batch.target, batch.value), valid)
        entropy = mean(actions.entropy(outputs), valid)
        metrics = {"value_loss": error, "entropy": entropy, "kl": mean(jnp.expm1(log_ratio) - log_ratio, valid)}
        return value_coefficient * error - entropy_coefficient * entropy - gain, metrics

    def update(key: jax.Array, state: PPOState, trajectory: Trajectory) -> tuple[PPOState, Metrics]:
        chex.assert_rank(trajectory.reward, 2)
        extras: PPOExtras = trajectory.extras
        obs, next_obs, statistics = trajectory.obs, trajectory.next_obs, trajectory.last_memory.statistics
        if statistics and extras.obs is not None:
            # By the statistics of the step that follows, as that step saw it; of the last step by what they will be.
            coming = add(statistics, next_obs[-1])
            following = jax.tree.map(lambda x, last: jnp.append(x[1:], last[None], 0), extras.statistics, coming)
            next_obs = jax.vmap(normalize, (0, 0, None))(following, next_obs, observation_epsilon)
            obs = extras.obs
        next_value = network.apply(state.params, next_obs, extras.carry)[1]
        # Values of one network: those of the actor, which may be an older one, but where it did not see what came.
        done = trajectory.done if alignment is None else trajectory.done[..., None]
        next_value = jnp.where(done, next_value, jnp.append(extras.value[1:], next_value[-1:], 0))
        if not learn_last_step and len(trajectory.reward) < 2:
            raise ValueError("learn_last_step: got False of one step in an update; at least 2 are needed")
        truncated = trajectory.truncated & bootstrap_limits
        rewards = trajectory.reward
        if alignment is not None:  # advantages of several co-players add up as their rewards do
            rewards = jnp.stack([rewards, co_players_rewards(trajectory).sum(0)], -1)
        of_step = obs, trajectory.action, extras.log_prob, extras.value, rewards, trajectory.done, truncated
        until = None if learn_last_step else -1
        obs, action, log_prob, value, reward, done, truncated, next_value = (x[:until] for x in (*of_step, next_value))
        valid = None if trajectory.valid is None else trajectory.valid[:until]
        advantage = estimate(reward, value, next_value, done, truncated, discount, gae_lambda)
        target = value + advantage
        if alignment is not None:
            both = (advantage[..., i] for i in range(2))
            own, others = (standardize(x, valid) for x in both) if normalize_advantages else both
            advantage = own + alignment * align(own, others, done, discount)
        batch = _Batch(obs, action, log_prob, value, advantage, target, done, network.initial(0), valid)
        if has_memory:  # whole environments stay together
            batch = batch._replace(first_carry=jax.tree.map(lambda x: x[None], trajectory.first_memory.carry))
            batch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), batch)
        else:
            batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
        if normalize_advantages and batch.advantage.size == minibatches:
            raise ValueError(
                f"minibatches: got {minibatches}; two steps at least in each, whose advantages differ, are needed"
            )

        def step(carry: Any, minibatch: _Batch, may_change: bool) -> Any:
            params, optimizer_state = carry
            if has_memory:
                minibatch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), minibatch)
                minibatch = minibatch._replace(first_carry=jax.tree.map(lambda x: x[0], minibatch.first_carry))
            gradient, metrics = jax.grad(loss, has_aux=True)(restored(params), minibatch, _steps(optimizer_state))
            if flat:
                gradient = ravel_pytree(gradient)[0]
            return optimizer.update(gradient, optimizer_state, params, may_change), metrics

        # One vector, on a GPU: each array of its own has a kernel in each step.
        flat = platform() != "cpu" and not sparsity
        params, restored = ravel_pytree(state.params) if flat else (state.params, lambda params: params)
        rows = "environments" if has_memory else "steps times environments"
        (params, optimizer_state), metrics = minibatch_epochs(
            key, step, (params, state.optimizer), batch, epochs, minibatches, every=optimizer.every, rows=rows
        )
        return PPOState(restored(params), optimizer_state, statistics), jax.tree.map(jnp.mean, metrics)

    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        reset_memory=reset_memory if has_memory else None,
        act_greedy=act_greedy,
        seat=seat,
        outputs=lambda *seen: see(*seen)[0],
    )


def _steps(state: optax.OptState) -> jax.Array:
    """The number of steps that an optimiser has taken."""
    if isinstance(state, SparseState):
        return state.steps
    counts = optax.tree_utils.tree_get_all_with_path(state, "count")
    return counts[0][1]


class _Batch(NamedTuple):
    """Inputs of the loss: steps of all environments in one row, or `[T, N, ...]` for a recurrent network."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    target: jax.Array  # of the value
    done: jax.Array
    first_carry: Any
    valid: jax.Array | None  # whether there was such a step; None where all are


@factory
def a2c(
    game: Game,
    seat: int = 0,
    *,
    learning_rate: Scalar | optax.Schedule = 1e-3,
    gae_lambda: Scalar = 1.0,
    details: OneStepDetails = {"normalize_advantages": False},
    **settings: Any,
) -> Learner:
    """Learns a policy and a value from the episodes between two updates, by one step up the policy gradient.

        loss = - mean A log pi(a | s) + value_coefficient L_V - entropy_coefficient H,

    with the advantages A of `ppo` and L_V half the mean square of V - (V_old + A). It is `ppo` with one epoch of the
    full batch, where the ratio of new and old probability is 1 and nothing can be clipped: the gradient of the log
    ratio times A is that of the policy gradient.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      learning_rate: a number, or a schedule of optax over the updates.
      gae_lambda: 0 trusts the value, 1 the return; 1 in the paper.
      details: as of `ppo` but without `value_clip`; advantages are not normalised by default.
      **settings: of `ppo`, but for those in `ONE_STEP`. The paper's optimiser is RMSProp, and here it is Adam.

    Raises:
      ValueError: as `ppo`.

    Source: Mnih et al., Asynchronous Methods for Deep Reinforcement Learning (2016), arXiv:1602.01783, of which this
    is the synchronous form; Huang et al., A2C Is a Special Case of PPO (2022), arXiv:2205.09123.
    """
    own = {"learning_rate": learning_rate, "gae_lambda": gae_lambda}
    refuse_own(settings, *ONE_STEP)
    return one_step(game, seat, policy_gradient, details, **own, **settings)


ONE_STEP = ("epochs", "minibatches", "objective", "value_clip")  # settings of `ppo` that `one_step` chooses


def refuse_own(settings: Mapping[str, Any], *names: str) -> None:
    """Raises ValueError for a setting of `ppo` that a learner made of it chooses by itself."""
    if name := next((name for name in names if name in settings), None):
        raise ValueError(f"{name}: got {shown(settings[name])}; this learner chooses it, and none is needed")


def one_step(
    game: Game, seat: int, objective: Objective | Aligned, details: OneStepDetails, **settings: Any
) -> Learner:
    """`ppo` with one step of the optimiser in each update, from the whole batch."""
    whole: Details = {**details, "value_clip": None}
    return ppo(game, seat, epochs=1, minibatches=1, objective=objective, details=whole, **settings)
