"""Self-play against past snapshots: the league, and an opponent that plays a learner's latest policy or a past one."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.core.learner import Learner, LearnerState, Memory, Metrics, Parameters, Trajectory

RATE = 0.01  # by which the quality of one that was beaten falls, eta
MOST = 64  # that are kept
LATEST = -1  # stands for the latest policy in place of a version


class League(NamedTuple):
    """Past selves, each in a place of its own."""

    policies: Parameters  # [most, ...]
    version: jax.Array  # [most], of how many updates each is; -1 where a place is free
    quality: jax.Array  # [most]; minus infinity where a place is free


class PastState(NamedTuple):
    """State of an opponent that plays the learner's latest policy or a past snapshot."""

    league: League
    policy: Parameters  # which plays until the next update
    played: jax.Array  # its version where it is of the league, and `LATEST` otherwise
    version: jax.Array  # of the latest
    key: jax.Array  # of the draws from the league


class PastPolicy(NamedTuple):
    """The policy that acts, and its version."""

    policy: Parameters
    played: jax.Array


class PastMemory(NamedTuple):
    """The memory of an actor."""

    own: Memory  # the learner's
    played: jax.Array  # [N], the version that acted, because a remote actor has an older policy than the learner


@factory
def past_selves(learner: Learner, share: Scalar = 0.2, *, every: int = 10, most: int = MOST) -> Learner:
    """The opponent of a learner that plays itself: its latest policy, and in a share of the updates one of its past.

    The learner is in the first seat, and one of these in each other seat, which draws by itself:

        learn(key, game, [learner, past_selves(learner)], num_updates=100, num_envs=8)

    A past self is drawn with a probability in proportion to exp(quality). It begins with the highest quality of all,
    and when it is beaten, which is when the learner got more than it between two updates, its quality falls by
    RATE / (number of past selves * its probability): a past self that is still hard to beat is drawn more often. If the
    learner normalises observations, a past self has its old weights, and the statistics of its own seat.

    Args:
      learner: any, in a game that looks the same from all seats.
      share: of the updates that are played against the past.
      every: so many updates a policy is kept.
      most: that are kept; then a new one takes the place of the oldest of those with the lowest quality.

    Returns:
      A learner whose metric `against_past` is whether an update was one of the share.

    Raises:
      ValueError: for a learner made for another seat than the first, or one that copies from others, a share outside
        [0, 1], or numbers that are none.

    Source: OpenAI et al., Dota 2 with Large Scale Deep Reinforcement Learning (2019), arXiv:1912.06680, appendix N.
    """
    checks.number("past_selves", share, 0, 1)
    checks.size("every", every, 1)
    checks.size("most", most, 1)
    if learner.sees_all:
        raise ValueError("learner: got one whose critic sees the observations of all; one that sees its own is needed")
    if learner.sync:
        raise ValueError("learner: got one that copies from the states of others; one that does not is needed")
    if learner.seat not in (None, 0):
        raise ValueError(f"past_selves: got a learner for seat {learner.seat}; one for seat 0 is needed")

    def init(key: jax.Array) -> PastState:
        policy = learner.policy(learner.init(key))
        policies = jax.tree.map(lambda x: jnp.broadcast_to(x, (most, *jnp.shape(x))), policy)
        league = League(policies, jnp.full(most, LATEST), jnp.full(most, -jnp.inf))
        return PastState(league, policy, jnp.int32(LATEST), jnp.int32(0), key)

    def sync(state: PastState, states: tuple[LearnerState, ...]) -> PastState:
        latest = learner.policy(states[0])
        league = keep(state.league, state.version, latest, every)
        place = draw_opponent(jax.random.fold_in(state.key, state.version), league, share)
        past = place != LATEST
        policy = jax.tree.map(lambda kept, new: jnp.where(past, kept[place], new), league.policies, latest)
        return state._replace(league=league, policy=policy, played=jnp.where(past, league.version[place], LATEST))

    def init_memory(parameters: PastPolicy, num_envs: int | None) -> PastMemory:
        played = jnp.full(() if num_envs is None else num_envs, LATEST)
        return PastMemory(learner.init_memory(parameters.policy, num_envs), played)

    def act(key: jax.Array, parameters: PastPolicy, memory: PastMemory, obs: jax.Array) -> tuple[Any, PastMemory, Any]:
        action, own, _ = learner.act(key, parameters.policy, memory.own, obs)
        return action, PastMemory(own, jnp.full_like(memory.played, parameters.played)), ()

    def reset_memory(memory: PastMemory, done: jax.Array) -> PastMemory:
        return memory._replace(own=learner.reset_memory(memory.own, done)) if learner.reset_memory else memory

    def act_greedy(parameters: PastPolicy, memory: PastMemory, obs: jax.Array) -> tuple[jax.Array, PastMemory]:
        assert learner.act_greedy is not None
        action, own = learner.act_greedy(parameters.policy, memory.own, obs)
        return action, memory._replace(own=own)

    def update(key: jax.Array, state: PastState, trajectory: Trajectory) -> tuple[PastState, Metrics]:
        del key
        played = trajectory.last_memory.played.reshape(-1)[0]  # the same in all environments
        beaten = trajectory.others_reward[0].mean() > trajectory.reward.mean()
        league = update_quality(state.league, played, beaten)
        return state._replace(league=league, version=state.version + 1), {
            "against_past": jnp.where(played != LATEST, 1.0, 0.0)
        }

    def policy(state: PastState) -> PastPolicy:
        return PastPolicy(state.policy, state.played)

    best = act_greedy if learner.act_greedy else None
    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        reset_memory=reset_memory,
        act_greedy=best,
        sync=sync,
    )


def keep(league: League, version: jax.Array, policy: Parameters, every: int) -> League:
    """The league with a new policy, if it is one to be kept."""
    lowest = league.quality == league.quality.min()
    place = jnp.where(lowest, league.version, jnp.iinfo(jnp.int32).max).argmin()
    place = jnp.where(version % every == 0, place, len(league.version))  # where there is none nothing is put
    quality = jnp.where((league.version == LATEST).all(), 0.0, league.quality.max())
    return jax.tree.map(lambda x, new: x.at[place].set(new), league, League(policy, version, quality))


def draw_opponent(key: jax.Array, league: League, share: Scalar) -> jax.Array:
    """The place of the past self that is drawn; `LATEST` for none."""
    share_key, place_key = jax.random.split(key)
    past = jax.random.uniform(share_key) < share
    return jnp.where(past, jax.random.categorical(place_key, league.quality), LATEST)


def update_quality(league: League, version: jax.Array, beaten: jax.Array) -> League:
    """The league after a match with one of it; that of a version that is not kept any more is as it was."""
    probability = jax.nn.softmax(league.quality)
    kept = league.version != LATEST
    fall = RATE / (kept.sum() * probability)
    falls = kept & (league.version == version) & beaten
    return league._replace(quality=jnp.where(falls, league.quality - fall, league.quality))
