"""A population of opponents: each trial draws a learner and its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from configs import shown
from games.core.arguments import factory
from marl.core.learner import Learner, Metrics, Trajectory
from marl.learners.exact.naive import one_policy


class Member(NamedTuple):
    """One kind of learner in a population.

    Attributes:
      make: (drawn settings) -> the learner
      ranges: lowest and highest of each setting that is drawn
    """

    make: Callable[[dict[str, Any]], Learner]
    ranges: Mapping[str, tuple[float, float]] = {}


class PopulationState(NamedTuple):
    """State of the member that was drawn, and of the others, which are not seen and may learn along."""

    logits: jax.Array  # `[logits]`, the policy of the one that was drawn
    which: jax.Array  # `[]`, its number
    settings: tuple[dict[str, jax.Array], ...]
    states: tuple[Any, ...]


@factory
def population(members: Sequence[Member], *, alone: bool = False) -> Learner:
    """A learner that is one of several, drawn evenly when it is initialised, with settings drawn from their ranges.

    A shaper that is evolved against it has another opponent in every trial, which shows only by how it
    learns. Every member's arithmetic is done in every trial, so that it costs as much as all of them, unless they
    learn `alone`.

    Args:
      members: learners whose states hold their policy as `logits`. A range is drawn from evenly, on a logarithmic
        scale if both its ends are above 0.
      alone: whether only the one that was drawn learns: one branch of a program, in a batch in which all share the key
        of the trial, as those of `evolve(together="trial")` do. In any other it is slower than all together.

    Raises:
      ValueError: if there is none.
    """
    if not len(members) or not all(isinstance(member, Member) for member in members):
        raise ValueError(f"members: got {shown(members)}; a list of at least one Member is needed")

    def chosen(which: jax.Array, states: Sequence[Any]) -> jax.Array:
        return sum((jnp.where(which == i, state.logits, 0.0) for i, state in enumerate(states)), jnp.zeros(()))

    def init(key: jax.Array) -> PopulationState:
        which_key, *keys = jax.random.split(key, 1 + len(members))
        which = jax.random.randint(which_key, (), 0, len(members))
        settings, states = [], []
        for member, member_key in zip(members, keys, strict=True):
            state_key, *setting_keys = jax.random.split(member_key, 1 + len(member.ranges))
            drawn = {name: _draw(k, *r) for k, (name, r) in zip(setting_keys, member.ranges.items(), strict=True)}
            settings.append(drawn)
            states.append(member.make(drawn).init(state_key))
        return PopulationState(chosen(which, states), which, tuple(settings), tuple(states))

    def update(key: jax.Array, state: PopulationState, trajectory: Trajectory) -> tuple[PopulationState, Metrics]:
        if not alone:
            keys = jax.random.split(key, len(members))
            each = zip(keys, members, state.settings, state.states, strict=True)
            updated = [member.make(drawn).update(k, one, trajectory)[0] for k, member, drawn, one in each]
            return state._replace(logits=chosen(state.which, updated), states=tuple(updated)), {}

        def update_of(i: int) -> Callable[..., Any]:
            def one(key: jax.Array, settings: Any, states: Any, trajectory: Trajectory) -> Any:
                own_key = jax.random.split(key, len(members))[i]
                own, _ = members[i].make(settings[i]).update(own_key, states[i], trajectory)
                return own.logits, (*states[:i], own, *states[i + 1 :])

            return one

        branches = [update_of(i) for i in range(len(members))]
        logits, states = jax.lax.switch(state.which, branches, key, state.settings, state.states, trajectory)
        return state._replace(logits=logits, states=states), {}

    return one_policy(init, update)


def _draw(key: jax.Array, low: float, high: float) -> jax.Array:
    if low > 0:
        return jnp.exp(jax.random.uniform(key, minval=jnp.log(low), maxval=jnp.log(high)))
    return jax.random.uniform(key, minval=low, maxval=high)
