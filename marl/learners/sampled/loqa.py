"""Learning with opponent Q-learning awareness: a policy gradient through the co-players' action values."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from games import Discrete, Game
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import generalized_advantages, returns_to_go
from marl.blocks.distributions import categorical
from marl.blocks.layers import where_done
from marl.blocks.networks import Network, feed_forward, unroll
from marl.blocks.objectives import magic_box
from marl.core.learner import Learner, Metrics, Trajectory, co_players_rewards


class LOQAParams(NamedTuple):
    """Parameters of networks of one kind."""

    actor: Any  # the outputs are the logits of the policy
    own: Any  # the value is that of one's own rewards
    others: tuple[Any, ...]  # of each co-player: the outputs are its action values, Q, and the value is of its rewards


class LOQAState(NamedTuple):
    """The learner's state."""

    params: LOQAParams
    target: tuple[Any, ...]  # of all values, one's own first, which they follow
    optimizers: tuple[optax.OptState, optax.OptState]  # of the actor, and of all values


@factory
def loqa(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar | optax.Schedule = 1e-3,
    value_learning_rate: Scalar = 0.03,
    discount: Scalar = 0.96,
    influence_discount: Scalar = 0.9,
    temperature: Scalar = 1.0,
    influence: Scalar = 1.0,
    entropy_coefficient: Scalar = 0.0,
    tau: Scalar = 1.0,
    max_gradient_norm: Scalar = 1.0,
) -> Learner:
    """Learning with opponent Q-learning awareness: what one does later changes what the co-player does now.

    The co-player is taken to choose b with a probability that grows as exp(Q(s, b) / temperature). Its Q of what it did
    is the return that it got from there on, which depends on one's own later actions: the actor climbs

        mean A_t [ log pi(a_t | s_t) + influence log q_t ] + entropy_coefficient H,
        q_t = exp(Q_t / temperature) / (exp(Q_t / temperature) + sum_{b != b_t} exp(Q(s_t, b) / temperature)),
        Q_t = G_t + discount sum_{u > t} (discount influence_discount)^(u - t - 1) (M(log pi(a_u | s_u)) - 1) B_u

    with A_t = r_t + discount V(s'_t) - V(s_t) of one's own rewards, G_t the discounted return of the co-player's and
    B_t = G_t - V'(s_t), u of the same episode, and DiCE's operator M(x) = exp(x - stop_gradient(x)), which is 1 and has
    the derivative of x: the sum is 0, and its derivative is the policy gradient of the co-player's return. Where the
    batch or a time limit cuts an episode off, the values of what would have come count. With several co-players,
    log q_t is summed over them, with values for each; the paper has games of two.

    V, V' and Q learn by temporal differences: Huber's loss of V(s_t), and of V'(s_t) and Q(s_t, b_t), against the
    reward plus discount times the value of the next observation, by target networks that move the share `tau` of their
    way in each update. All of them see one's own observations, which are taken to show the whole state. The
    values have to be learned before the policy is: where the actor is faster than they are, A_t is little but the
    reward of the step, and two of them defect.

    Three things are not as in the paper's code: values are learned beside Q and not taken from it and a policy, so that
    nothing is read of the co-player but its actions and rewards; Q does not see the time, and instead of ending with
    the batch the returns are bootstrapped; and there is no play against earlier versions.

    Args:
      game: whose players have equally many actions.
      seat: the number among the game's agents.
      network: of all, `feed_forward` of the game's observations by default. The carry of a recurrent value
        network begins at zero in each batch.
      learning_rate: of the actor, by Adam: a number, or a schedule of optax over the updates.
      value_learning_rate: of the values, by Adam.
      discount: of rewards.
      influence_discount: how far ahead one's own actions count for the co-player's Q, beside `discount`.
      temperature: of the co-players.
      influence: weight of the co-players' answers; 0 is an actor-critic.
      entropy_coefficient: weight of the policy's entropy; 0.05 in the paper's coin game.
      tau: 1 takes the values themselves for targets; 0.01 in the paper's code, whose actor is ten times slower.
      max_gradient_norm: of the actor's gradient.

    Raises:
      ValueError: for games of one player, actions that are not `Discrete` or not as many as a co-player's, or numbers
        that are none or out of range.

    Source: Aghajohari et al., LOQA: Learning with Opponent Q-Learning Awareness (2024), arXiv:2405.01035.
    The returns: Farquhar et al., Loaded DiCE (2019), arXiv:1909.10549.
    """
    if game.num_agents < 2:
        raise ValueError(f"loqa: got a game of {game.num_agents} players; one of two or more is needed")
    for name, number in {
        "learning_rate": learning_rate,
        "value_learning_rate": value_learning_rate,
        "influence": influence,
        "entropy_coefficient": entropy_coefficient,
    }.items():
        checks.number(name, number, 0)
    checks.number("discount", discount, 0, 1)
    checks.number("influence_discount", influence_discount, 0, 1)
    checks.number("temperature", temperature, 0, brackets="()")
    checks.number("tau", tau, 0, 1, brackets="(]")
    checks.number("max_gradient_norm", max_gradient_norm, 0, brackets="()")
    theirs = [game.action_space(agent) for agent in game.agents]
    mine = theirs.pop(seat)
    if not isinstance(mine, Discrete) or any(space != mine for space in theirs):
        raise ValueError(f"action space: got {mine} and {theirs}; Discrete, and the same for all, is needed")
    actions = categorical(mine.n)
    network = network or feed_forward(game.observation_space(game.agents[seat]).shape, mine.n)
    has_memory = bool(jax.tree.leaves(network.initial(1)))
    clipped = optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate))
    optimizers = tuple(map(optax.flatten, (clipped, optax.adam(value_learning_rate))))

    def init(key: jax.Array) -> LOQAState:
        actor, *values = map(network.init, jax.random.split(key, 1 + game.num_agents))
        target = tuple(values)
        params = LOQAParams(actor, target[0], target[1:])
        return LOQAState(params, target, (optimizers[0].init(actor), optimizers[1].init(target)))

    def init_memory(params: Any, num_envs: int | None) -> Any:
        if has_memory and num_envs is None:
            raise ValueError("num_envs: got None; a recurrent network needs the number of environments")
        return network.initial(num_envs or 0)

    def act(key: jax.Array, params: Any, memory: Any, obs: jax.Array) -> tuple[jax.Array, Any, tuple[()]]:
        outputs, _, memory = network.apply(params, obs, memory)
        return actions.sample(key, outputs), memory, ()

    def act_greedy(params: Any, memory: Any, obs: jax.Array) -> tuple[jax.Array, Any]:
        outputs, _, memory = network.apply(params, obs, memory)
        return actions.mode(outputs), memory

    def reset_memory(memory: Any, done: jax.Array) -> Any:
        return where_done(done, network.initial(len(done)), memory)

    def update(key: jax.Array, state: LOQAState, trajectory: Trajectory) -> tuple[LOQAState, Metrics]:
        del key
        chex.assert_rank(trajectory.reward, 2)
        done, truncated = trajectory.done, trajectory.truncated
        rewards = trajectory.reward, *co_players_rewards(trajectory)

        def critic(params: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
            """Action values `[T, N, actions]`, and values before and after each step."""
            found, value, carry = unroll(network, params, trajectory.obs, done, network.initial(done.shape[1]))
            return found, value, network.apply(params, trajectory.next_obs, carry)[1]

        def advantages(reward: jax.Array, value: jax.Array, next_value: jax.Array, share: Scalar) -> jax.Array:
            return generalized_advantages(reward, value, next_value, done, truncated, discount, share)

        def log_answer(log_prob: jax.Array, params: Any, reward: jax.Array, answers: jax.Array) -> jax.Array:
            """Log q_t of one co-player, `[T, N]`."""
            action_values, value, next_value = critic(params)
            advantage = advantages(reward, value, next_value, 1.0)
            shaped = returns_to_go((magic_box(log_prob) - 1) * advantage, done, discount * influence_discount)
            later = jnp.where(done, 0.0, jnp.append(shaped[1:], jnp.zeros_like(shaped[:1]), 0))
            got = value + advantage + discount * later
            chosen = answers[..., None] == jnp.arange(actions.num_outputs)
            return actions.log_prob(jnp.where(chosen, got[..., None], action_values) / temperature, answers)

        def gain(params: Any) -> tuple[jax.Array, Metrics]:
            outputs = unroll(network, params, trajectory.obs, done, trajectory.first_memory)[0]
            log_prob, entropy = actions.log_prob(outputs, trajectory.action), actions.entropy(outputs).mean()
            own = advantages(rewards[0], *critic(state.params.own)[1:], 0.0)
            co_players = zip(state.params.others, rewards[1:], trajectory.others, strict=True)
            answers = jnp.stack([log_answer(log_prob, *co_player) for co_player in co_players])
            found = (own * (log_prob + influence * answers.sum(0))).mean() + entropy_coefficient * entropy
            return -found, {"entropy": entropy, "answer": jnp.exp(answers).mean()}

        def value_loss(params: tuple[Any, ...]) -> jax.Array:
            total = jnp.zeros(())
            taken = None, *trajectory.others  # one's own action values are not used
            for one, target, reward, action in zip(params, state.target, rewards, taken, strict=True):
                found, value, _ = critic(one)
                after = jnp.where(done & ~truncated, 0.0, discount * critic(target)[2])
                goal = jax.lax.stop_gradient(reward + after)
                total = total + optax.huber_loss(value - goal).mean()
                if action is not None:
                    chosen = jnp.take_along_axis(found, action[..., None], -1)[..., 0]
                    total = total + optax.huber_loss(chosen - goal).mean()
            return total

        gradient, metrics = jax.grad(gain, has_aux=True)(state.params.actor)
        values = state.params.own, *state.params.others
        loss, value_gradient = jax.value_and_grad(value_loss)(values)
        parts = (state.params.actor, gradient), (values, value_gradient)
        moved, kept = [], []
        for optimizer, old, (params, slope) in zip(optimizers, state.optimizers, parts, strict=True):
            step, new = optimizer.update(slope, old, params)
            moved.append(optax.apply_updates(params, step))
            kept.append(new)
        actor, values = moved
        target = optax.incremental_update(values, state.target, tau)
        return LOQAState(LOQAParams(actor, values[0], values[1:]), target, tuple(kept)), metrics | {"value_loss": loss}

    def policy(state: LOQAState) -> Any:
        return state.params.actor

    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        reset_memory=reset_memory if has_memory else None,
        act_greedy=act_greedy,
        seat=seat,
    )
