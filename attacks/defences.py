"""What a victim could do against talk: what is left of an attack on a learner that defends itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attacks.trials import Life, Schedule, final_return, life_of
from games import Discrete, Game, rollout
from marl.core.learn import Learner, Metrics, Trajectory

MakeVictim = Callable[[Game], Learner]  # (game with cheap talk) -> learner
Defence = Callable[[jax.Array, Game, MakeVictim, Schedule, int], Life]  # (key, game with talk, ..., message size)
Transform = Callable[[jax.Array, jax.Array], jax.Array]  # (key, observations [N, entries]) -> the same


def undefended(key: jax.Array, talk: Game, make_victim: MakeVictim, schedule: Schedule, size: int) -> Life:
    """The victim as it is."""
    del size
    return life_of(key, talk, make_victim(talk), schedule)


def message_dropout(rate: float = 0.5) -> Defence:
    """While it learns, the victim hears every message with probability 1 - rate and zeros otherwise."""

    def defend(key: jax.Array, talk: Game, make_victim: MakeVictim, schedule: Schedule, size: int) -> Life:
        def drop(key: jax.Array, obs: jax.Array) -> jax.Array:
            heard = jax.random.bernoulli(key, 1 - rate, (len(obs), 1))
            return jnp.concatenate([obs[:, :-size], jnp.where(heard, obs[:, -size:], 0.0)], 1)

        return life_of(key, talk, seeing(make_victim(talk), drop), schedule)

    return defend


def input_noise(scale: float = 0.3) -> Defence:
    """While it learns, the victim sees everything with normal noise, in standard deviations of random play."""

    def defend(key: jax.Array, talk: Game, make_victim: MakeVictim, schedule: Schedule, size: int) -> Life:
        del size
        key, play_key = jax.random.split(key)
        played = jax.vmap(lambda key: rollout(key, talk, 64))(jax.random.split(play_key, 16))
        deviation = scale * played.observations["agent_0"].std((0, 1))

        def blur(key: jax.Array, obs: jax.Array) -> jax.Array:
            return obs + deviation * jax.random.normal(key, obs.shape)

        return life_of(key, talk, seeing(make_victim(talk), blur), schedule)

    return defend


def input_decay(rate: float = 0.05) -> Defence:
    """After every learning step the weights that read the input shrink by `rate`, as decoupled weight decay does."""

    def defend(key: jax.Array, talk: Game, make_victim: MakeVictim, schedule: Schedule, size: int) -> Life:
        del size
        victim, entries = make_victim(talk), talk.observation_space("agent_0").shape[0]

        def shrink(path: Any, x: jax.Array) -> jax.Array:
            reads = path[-1].key == "kernel" and x.shape[0] == entries
            return (1 - rate) * x if reads else x

        def update(key: jax.Array, state: Any, trajectory: Trajectory) -> tuple[Any, Metrics]:
            state, metrics = victim.update(key, state, trajectory)
            return state._replace(params=jax.tree_util.tree_map_with_path(shrink, state.params)), metrics

        return life_of(key, talk, victim._replace(update=update), schedule)

    return defend


def ensemble(members: int = 5) -> Defence:
    """Several victims learn apart, and then decide together: by vote, or by the mean of their actions."""

    def defend(key: jax.Array, talk: Game, make_victim: MakeVictim, schedule: Schedule, size: int) -> Life:
        del size
        victim, space = make_victim(talk), talk.action_space("agent_0")
        assert victim.exploit is not None
        best = victim.exploit
        life_key, evaluation_key = jax.random.split(key)
        grown = jax.vmap(lambda key: life_of(key, talk, victim, schedule))(jax.random.split(life_key, members))

        def begin(policies: Any, num_envs: int | None) -> Any:
            return jax.vmap(lambda policy: victim.begin(policy, num_envs))(policies)

        def exploit(policies: Any, memories: Any, obs: jax.Array) -> tuple[jax.Array, Any]:
            actions, memories = jax.vmap(best, in_axes=(0, 0, None))(policies, memories, obs)
            if isinstance(space, Discrete):
                votes = (actions[..., None] == jnp.arange(space.n)).sum(0)
                return jnp.argmax(votes, -1), memories
            return actions.mean(0), memories

        together = victim._replace(policy=jax.vmap(victim.policy), begin=begin, exploit=exploit)
        returns = final_return(evaluation_key, talk, together, grown.state, schedule)
        return Life(returns, jnp.nanmean(grown.curve, 0), grown.state)

    return defend


def masking(threshold: float = 0.05) -> Defence:
    """The victim learns, finds out which inputs its return depends on, and learns anew without the others.

    The importance of an input is what the return loses when it is exchanged between parallel episodes at every step;
    what loses less than the fraction `threshold` of the return is masked.

    Source: the permutation importance of Breiman, Random Forests (2001), section 10.
    """

    def defend(key: jax.Array, talk: Game, make_victim: MakeVictim, schedule: Schedule, size: int) -> Life:
        del size
        victim = make_victim(talk)
        first_key, importance_key, second_key = jax.random.split(key, 3)
        first = life_of(first_key, talk, victim, schedule)
        kept = important_inputs(importance_key, talk, victim, first, schedule, threshold)

        def mask(key: jax.Array, obs: jax.Array) -> jax.Array:
            del key
            return jnp.where(kept, obs, 0.0)

        return life_of(second_key, talk, seeing(victim, mask, always=True), schedule)

    return defend


def important_inputs(
    key: jax.Array, talk: Game, victim: Learner, life: Life, schedule: Schedule, threshold: float
) -> jax.Array:
    """Which inputs cost more than the fraction `threshold` of the return where they are exchanged, `[entries]`."""
    entries = talk.observation_space("agent_0").shape[0]

    def exchanged(entry: jax.Array) -> jax.Array:
        def exchange(key: jax.Array, obs: jax.Array) -> jax.Array:
            del key
            return jnp.where(jnp.arange(entries) == entry, jnp.roll(obs, 1, 0), obs)

        return final_return(key, talk, seeing(victim, exchange, always=True), life.state, schedule)

    loss = life.final_return - jax.lax.map(exchanged, jnp.arange(entries))
    return loss > threshold * jnp.abs(life.final_return)  # returns may be negative


DEFENCES: dict[str, Defence] = {
    "none": undefended,
    "message dropout": message_dropout(),
    "masking by permutation importance": masking(),
    "input noise": input_noise(),
    "weight decay on the inputs": input_decay(),
    "ensemble of five": ensemble(),
}


def seeing(learner: Learner, transform: Transform, *, always: bool = False) -> Learner:
    """The learner with other eyes: `transform` changes what it sees while it learns, or `always`, in evaluation too."""

    assert learner.exploit is not None
    best = learner.exploit

    def act(key: jax.Array, policy: Any, memory: Any, obs: jax.Array) -> tuple[jax.Array, Any, Any]:
        transform_key, act_key = jax.random.split(key)
        seen = transform(transform_key, obs)
        action, memory, extras = learner.act(act_key, policy, memory, seen)
        return action, memory, (seen, extras)

    def update(key: jax.Array, state: Any, trajectory: Trajectory) -> tuple[Any, Metrics]:
        transform_key, update_key = jax.random.split(key)
        seen, extras = trajectory.extras
        keys = jax.random.split(transform_key, len(seen))
        after = jax.vmap(transform)(keys, trajectory.next_obs)
        return learner.update(update_key, state, trajectory._replace(obs=seen, next_obs=after, extras=extras))

    def exploit(policy: Any, memory: Any, obs: jax.Array) -> tuple[jax.Array, Any]:
        return best(policy, memory, transform(jax.random.key(0), obs) if always else obs)

    return learner._replace(act=act, update=update, exploit=exploit)
