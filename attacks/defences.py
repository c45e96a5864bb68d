"""Defences of victims against messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attacks.victim_training import (
    Defence,
    MakeVictim,
    TrainingSchedule,
    VictimTraining,
    final_return,
    spoken_and_muted,
    train_in,
    undefended,
)
from games import Discrete, Game, rollout
from games.core import checks
from games.core.arguments import check_arguments
from games.wrappers.cheap_talk import CheapTalk
from marl.blocks.distributions import distribution
from marl.blocks.fan_in import has_fan_in
from marl.core.learner import Learner, Metrics, Trajectory

__all__ = [
    "DEFENCES",
    "Defence",
    "disturbed",
    "ensemble",
    "input_decay",
    "input_noise",
    "masking",
    "message_dropout",
    "power_regularization",
    "seeing",
    "undefended",
]

MEMBERS = 5  # of an ensemble

Transform = Callable[[jax.Array, jax.Array], jax.Array]  # (key, observations [N, entries]) -> the same


@check_arguments
def message_dropout(rate: float = 0.5) -> Defence:
    """While it learns, the victim hears every message with probability 1 - rate and zeros otherwise.

    Args:
      rate: in [0, 1].

    Raises:
      ValueError: for a rate out of range.
    """
    checks.number("rate", rate, 0, 1)

    def defend(key: jax.Array, talk: CheapTalk, make_victim: MakeVictim, schedule: TrainingSchedule) -> VictimTraining:
        size = talk.message_size

        def drop(key: jax.Array, obs: jax.Array) -> jax.Array:
            heard = jax.random.bernoulli(key, 1 - rate, (len(obs), 1))
            return jnp.concatenate([obs[:, :-size], jnp.where(heard, obs[:, -size:], 0.0)], 1)

        return train_in(key, talk, disturbed(make_victim(talk), drop), schedule)

    return defend


@check_arguments
def input_noise(scale: float = 0.3) -> Defence:
    """While it learns, the victim sees everything with normal noise.

    Args:
      scale: of the noise, in standard deviations of random play.

    Raises:
      ValueError: for a scale below 0.
    """
    checks.number("scale", scale, 0)

    def defend(key: jax.Array, talk: CheapTalk, make_victim: MakeVictim, schedule: TrainingSchedule) -> VictimTraining:
        key, play_key = jax.random.split(key)
        played = jax.vmap(lambda key: rollout(key, talk, 64))(jax.random.split(play_key, 16))
        deviation = scale * played.observations["agent_0"].std((0, 1))

        def blur(key: jax.Array, obs: jax.Array) -> jax.Array:
            return obs + deviation * jax.random.normal(key, obs.shape)

        return train_in(key, talk, disturbed(make_victim(talk), blur), schedule)

    return defend


@check_arguments
def input_decay(rate: float = 0.05) -> Defence:
    """After every learning step the weights that read the input shrink by `rate`, as decoupled weight decay does.

    Of a learner with critics, theirs too.

    Args:
      rate: in [0, 1].

    Raises:
      ValueError: for a rate out of range, or, in training, a victim with a constant fan-in or with weights whose shapes
        do not depend on the observation.
    """
    checks.number("rate", rate, 0, 1)

    def defend(key: jax.Array, talk: CheapTalk, make_victim: MakeVictim, schedule: TrainingSchedule) -> VictimTraining:
        victim = make_victim(talk)
        # Input-layer kernels are those whose shape changes when the observation is wider (traced only).
        wider = dataclasses.replace(talk, message_size=talk.message_size + 1)
        shapes = [weights_of(jax.eval_shape(make_victim(game).init, key)) for game in (talk, wider)]
        if any(map(has_fan_in, shapes)):
            raise ValueError("victim: got kernels with a constant fan-in; input_decay needs dense ones or masks")
        keep = jax.tree.map(lambda x, y: 1.0 if x.shape == y.shape else 1.0 - rate, *shapes)
        if rate and all(x == 1 for x in jax.tree.leaves(keep)):
            raise ValueError("victim: got no weights whose shape depends on the observation; input_decay needs them")

        def update(key: jax.Array, state: Any, trajectory: Trajectory) -> tuple[Any, Metrics]:
            state, metrics = victim.update(key, state, trajectory)
            return with_weights(state, jax.tree.map(jnp.multiply, keep, weights_of(state))), metrics

        return train_in(key, talk, victim._replace(update=update), schedule)

    return defend


@check_arguments
def power_regularization(rate: float = 0.3, steps: int = 8) -> Defence:
    """After every learning step the policy is moved so that messages have less power over it.

        w <- w - rate d/dw mean_t D(pi_w(. | o_t, m_t) | pi_w(. | o_t, 0)),        `steps` times

    with D the divergence of Kullback and Leibler, over all observations o and messages m since the last learning step;
    a message of zeros is silence. That is for victims with a stochastic policy and no memory, such as ppo.

    Args:
      rate: step size, 0 or more.
      steps: in each learning step, 1 or more.

    Raises:
      ValueError: for numbers out of range, or a victim of another kind.

    Source: after Communicative Power Regularization; Piazza et al., Robust Coordination under Misaligned Communication
    via Power Regularization (2024), arXiv:2404.06387. There power is a penalty on the reward of a teammate; here, where
    one victim hears one adversary, the influence on the policy is lowered by its own gradient.
    """
    checks.number("rate", rate, 0)
    checks.size("steps", steps, 1)

    def defend(key: jax.Array, talk: CheapTalk, make_victim: MakeVictim, schedule: TrainingSchedule) -> VictimTraining:
        victim, actions = make_victim(talk), distribution(talk.action_space("agent_0"))
        outputs = victim.outputs
        if outputs is None or victim.reset_memory is not None:
            raise ValueError("got a victim without a stochastic policy or with memory; one such as ppo is needed")

        def update(key: jax.Array, state: Any, trajectory: Trajectory) -> tuple[Any, Metrics]:
            state, metrics = victim.update(key, state, trajectory)
            obs, memory = trajectory.obs, trajectory.last_memory

            def power(weights: Any) -> jax.Array:
                policy = victim.policy(with_weights(state, weights))
                spoken, silent = (
                    jax.vmap(outputs, (None, None, 0))(policy, memory, seen)
                    for seen in (obs, obs.at[..., -talk.message_size :].set(0.0))
                )
                return actions.divergence(spoken, silent).mean()

            def step(weights: Any, _: None) -> tuple[Any, None]:
                # Weights of kernels that are exactly 0 are not there, in a sparse victim, and stay so.
                there = jax.tree.map(lambda w: (w != 0) | (w.ndim < 2), weights)
                gradient = jax.grad(power)(weights)
                return jax.tree.map(lambda w, g, one: w - rate * g * one, weights, gradient, there), None

            weights, _ = jax.lax.scan(step, weights_of(state), None, steps)
            return with_weights(state, weights), metrics | {"power": power(weights)}

        return train_in(key, talk, victim._replace(update=update), schedule)

    return defend


def weights_of(state: Any) -> Any:
    """The weights in the state of a learner with networks."""
    networks = getattr(state, "networks", None)
    return state.params if networks is None else (networks.actor, networks.critics)


def with_weights(state: Any, weights: Any) -> Any:
    """The state with other weights of that kind."""
    if not hasattr(state, "networks"):
        return state._replace(params=weights)
    actor, critics = weights
    return state._replace(networks=state.networks._replace(actor=actor, critics=critics))


@check_arguments
def ensemble(members: int = MEMBERS, experience: float = 1.0) -> Defence:
    """Several victims learn apart, and then decide together: by vote, or by the mean of their actions.

    A message function with a memory has one for each member, and goes on with that of the first. A message that turns
    late in a training run of full length does not turn in a shorter one.

    The final and the muted return are those of the vote. The return with exploration, and those of training, are means
    over the members, each of which acts alone.

    Args:
      members: how many.
      experience: of all members together, in training runs: by default they learn from as many steps as one victim
        alone, each in as many updates as its share of a run has. A learning rate that falls over a run does not fall
        faster.

    Raises:
      ValueError: for numbers out of range, or a victim that cannot play its best.
    """
    checks.size("members", members, 1)
    checks.number("experience", experience, 0, brackets="()")

    def defend(key: jax.Array, talk: CheapTalk, make_victim: MakeVictim, schedule: TrainingSchedule) -> VictimTraining:
        victim, space = make_victim(talk), talk.action_space("agent_0")
        best = _act_greedy_of(victim)
        training_key, evaluation_key = jax.random.split(key)
        short = schedule._replace(num_updates=share_of(schedule.num_updates, experience / members))
        grown = jax.vmap(lambda key: train_in(key, talk, victim, short))(jax.random.split(training_key, members))

        def init_memory(policies: Any, num_envs: int | None) -> Any:
            return jax.vmap(lambda policy: victim.init_memory(policy, num_envs))(policies)

        def act_greedy(policies: Any, memories: Any, obs: jax.Array) -> tuple[jax.Array, Any]:
            actions, memories = jax.vmap(best, in_axes=(0, 0, None))(policies, memories, obs)
            if isinstance(space, Discrete):
                votes = (actions[..., None] == jnp.arange(space.n)).sum(0)
                return jnp.argmax(votes, -1), memories
            return actions.mean(0), memories

        together = victim._replace(policy=jax.vmap(victim.policy), init_memory=init_memory, act_greedy=act_greedy)
        goes_on = jax.tree.map(lambda x: x[0], grown.talk)  # as with the first of them
        final, muted = spoken_and_muted(evaluation_key, goes_on, together, grown.state, schedule)
        explored, last_update = grown.explored_return.mean(), grown.last_update.mean()
        return VictimTraining(final, explored, muted, last_update, jnp.nanmean(grown.curve, 0), grown.state, goes_on)

    return defend


@check_arguments
def masking(threshold: float = 0.05) -> Defence:
    """The victim learns, finds the inputs on which its return depends, and learns again without the others.

    The memory of the message function is reset between the two, as if it knew which training run counts.

    The importance of an input is what the return loses when it is exchanged between parallel episodes at every step;
    what loses less than the fraction `threshold` of the return is masked. That takes two environments at least.

    Args:
      threshold: of the loss, as a share of the return; at least 0.

    Raises:
      ValueError: for a number out of range, a victim that cannot play its best, or a single environment.

    Source: the permutation importance of Breiman, Random Forests (2001), section 10.
    """
    checks.number("threshold", threshold, 0)

    def defend(key: jax.Array, talk: CheapTalk, make_victim: MakeVictim, schedule: TrainingSchedule) -> VictimTraining:
        if schedule.num_envs < 2:
            raise ValueError("num_envs: got 1; masking exchanges inputs between environments, and needs 2 at least")
        victim = make_victim(talk)
        first_key, importance_key, second_key = jax.random.split(key, 3)
        first = train_in(first_key, talk, victim, schedule)
        kept = important_inputs(importance_key, first.talk, victim, first, schedule, threshold)
        return train_in(second_key, talk, seeing(victim, lambda obs: jnp.where(kept, obs, 0.0)), schedule)

    return defend


def important_inputs(
    key: jax.Array, talk: Game, victim: Learner, training: VictimTraining, schedule: TrainingSchedule, threshold: float
) -> jax.Array:
    """Which inputs cost more than the fraction `threshold` of the return where they are exchanged, `[entries]`."""
    entries = talk.observation_space("agent_0").shape[0]

    def exchanged(entry: jax.Array) -> jax.Array:
        def exchange(obs: jax.Array) -> jax.Array:
            return jnp.where(jnp.arange(entries) == entry, jnp.roll(obs, 1, 0), obs)

        return final_return(key, talk, seeing(victim, exchange), training.state, schedule)

    found = jax.lax.map(exchanged, jnp.arange(-1, entries))  # first of none, in the same episodes
    return found[0] - found[1:] > threshold * jnp.abs(found[0])  # returns may be negative


DEFENCES: dict[str, Defence] = {
    "none": undefended,
    "dropout": message_dropout(),
    "masking": masking(),
    "noise": input_noise(),
    "decay": input_decay(),
    "power": power_regularization(),
    "ensemble": ensemble(),
    "ensemble_of_trainings": ensemble(experience=MEMBERS),
}
SHARES = {"ensemble": 1 / MEMBERS}  # of a training run that a victim learns for, where that is not all of it


def share_of(num_updates: int, share: float) -> int:
    """The learning steps of a share of a training run, one at least."""
    return max(round(share * num_updates), 1)


def learned_steps(schedule: TrainingSchedule, defence: str) -> int:
    """Steps of each environment that a victim learns from, of which a defence may leave a share."""
    return share_of(schedule.num_updates, SHARES.get(defence, 1.0)) * schedule.steps_per_update


@check_arguments
def seeing(learner: Learner, transform: Callable[[jax.Array], jax.Array]) -> Learner:
    """The learner with other observations, while it learns and after.

    Args:
      learner: one with `act_greedy`.
      transform: changes observations `[N, entries]`.

    Raises:
      ValueError: for a learner without `act_greedy`.
    """
    best = _act_greedy_of(learner)

    def act(key: jax.Array, policy: Any, memory: Any, obs: jax.Array) -> tuple[jax.Array, Any, Any]:
        return learner.act(key, policy, memory, transform(obs))

    def update(key: jax.Array, state: Any, trajectory: Trajectory) -> tuple[Any, Metrics]:
        obs, next_obs = (jax.vmap(transform)(x) for x in (trajectory.obs, trajectory.next_obs))
        return learner.update(key, state, trajectory._replace(obs=obs, next_obs=next_obs))

    def act_greedy(policy: Any, memory: Any, obs: jax.Array) -> tuple[jax.Array, Any]:
        return best(policy, memory, transform(obs))

    return learner._replace(act=act, update=update, act_greedy=act_greedy, outputs=None)


def _act_greedy_of(learner: Learner) -> Any:
    if learner.act_greedy is None:
        raise ValueError("learner: got one without act_greedy; one that acts without exploration, too, is needed")
    return learner.act_greedy


class Disturbed(NamedTuple):
    """A state, or a policy, of a learner that is disturbed."""

    key: jax.Array  # of all disturbances
    own: Any  # the learner's


class DisturbedMemory(NamedTuple):
    """The memory of an actor."""

    key: jax.Array
    step: jax.Array  # [], how many observations there were
    own: Any  # the learner's


@check_arguments
def disturbed(learner: Learner, transform: Transform) -> Learner:
    """The learner with disturbed observations while it learns, and with the true ones afterwards.

    Every observation is disturbed once: the observation after a step is the one that the next step sees.

    Args:
      learner: one with `act_greedy`.
      transform: `(key, observations [N, entries]) -> observations`.

    Raises:
      ValueError: for a learner without `act_greedy`.
    """
    best, reset_own = _act_greedy_of(learner), learner.reset_memory

    def init(key: jax.Array) -> Disturbed:
        key, own_key = jax.random.split(key)
        return Disturbed(key, learner.init(own_key))

    def policy(state: Disturbed) -> Disturbed:
        return state._replace(own=learner.policy(state.own))

    def init_memory(policy: Disturbed, num_envs: int | None) -> DisturbedMemory:
        return DisturbedMemory(policy.key, jnp.int32(0), learner.init_memory(policy.own, num_envs))

    def act(key: jax.Array, policy: Disturbed, memory: DisturbedMemory, obs: jax.Array) -> tuple[jax.Array, Any, Any]:
        seen = transform(jax.random.fold_in(memory.key, memory.step), obs)
        action, own, extras = learner.act(key, policy.own, memory.own, seen)
        return action, memory._replace(step=memory.step + 1, own=own), (seen, extras)

    def update(key: jax.Array, state: Disturbed, trajectory: Trajectory) -> tuple[Disturbed, Metrics]:
        seen, extras = trajectory.extras
        first, last = trajectory.first_memory, trajectory.last_memory
        following = last.step - len(seen) + 1 + jnp.arange(len(seen))
        after = jax.vmap(lambda step, obs: transform(jax.random.fold_in(last.key, step), obs))(
            following, trajectory.next_obs
        )
        own = trajectory._replace(obs=seen, next_obs=after, extras=extras, first_memory=first.own, last_memory=last.own)
        learned, metrics = learner.update(key, state.own, own)
        return state._replace(own=learned), metrics

    def reset_memory(memory: DisturbedMemory, done: jax.Array) -> DisturbedMemory:
        return memory._replace(own=reset_own(memory.own, done) if reset_own else memory.own)

    def act_greedy(policy: Disturbed, memory: DisturbedMemory, obs: jax.Array) -> tuple[jax.Array, DisturbedMemory]:
        action, own = best(policy.own, memory.own, obs)
        return action, memory._replace(own=own)

    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        reset_memory=reset_memory if reset_own else None,
        act_greedy=act_greedy,
        seat=learner.seat,
    )
