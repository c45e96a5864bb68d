"""One seat for any of several learners, chosen by a number, so that one program plays them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import InfinitelyRepeated
from marl.core.learner import Learner, Metrics, Trajectory, learns
from meta.prng_data import data_of, kind_of, typed

SEAT = 2**32 - 1  # branch of a player's key: what it draws in each step, where it is one of several


class SeatState(NamedTuple):
    """State of the chosen learner."""

    logits: jax.Array  # `[logits]`, what others may see: the policy after learning; of a shaper the last one played
    state: tuple[jax.Array, ...]  # the numbers of the chosen learner's state, and zeros
    key: jax.Array  # its own, for a reason given in `switch`
    step: jax.Array  # `[]`, how often it has updated
    late: jax.Array  # `[]`, whether it sees what the other played, and not what it has learned since


def switch(learners: Sequence[Learner], which: jax.Array, game: InfinitelyRepeated) -> Learner:
    """A learner that is the one of `learners` with the number `which`, a traced integer: one program for all of them.

    Only what is chosen runs, also in a batch of trials, as long as the batch shares the number. Given the same key,
    a learner that draws nothing after its first policy has exactly the trial that it has by itself.

    Args:
      learners: players of `game`; extras of their actions are dropped.
      which: `[]`, below their number.
      game: what is played.
    """
    states = [jax.eval_shape(learner.init, jax.random.key(0)) for learner in learners]
    memories = [
        jax.eval_shape(lambda state, learner=learner: learner.init_memory(learner.policy(state), None), state)
        for learner, state in zip(learners, states, strict=True)
    ]
    state_size, memory_size = (max(_size(shape) for shape in shapes) for shapes in (states, memories))
    # A memory crosses the border of a switch number by number; where no learner learns from it, it need not.
    remembered = any(_size(m) and learns(one) for m, one in zip(memories, learners, strict=True))

    def choose(make: Callable[[int], Callable[..., Any]], *operands: Any) -> Any:
        return jax.lax.switch(which, [make(i) for i in range(len(learners))], *operands)

    def public(state: Any, otherwise: jax.Array) -> jax.Array:
        return getattr(state, "logits", otherwise)

    def init(key: jax.Array) -> SeatState:
        def init_of(i: int) -> Callable[..., Any]:
            def one(key: jax.Array) -> Any:
                state = learners[i].init(key)
                return public(state, jnp.zeros(game.num_logits)), _pack(state, state_size)

            return one

        logits, state = choose(init_of, key)
        late = jnp.asarray([bool(getattr(state, "late", False)) for state in states])[which]
        return SeatState(logits, state, jax.random.fold_in(key, SEAT), jnp.zeros((), jnp.uint32), late)

    def init_memory(seat: SeatState, num_envs: int | None) -> tuple[jax.Array, ...]:
        def begin_of(i: int) -> Callable[..., Any]:
            def one(state: Any) -> Any:
                policy = learners[i].policy(_unpack(state, states[i]))
                return _pack(learners[i].init_memory(policy, num_envs), memory_size)

            return one

        return choose(begin_of, seat.state)

    def act(
        key: jax.Array, seat: SeatState, memory: tuple[jax.Array, ...], obs: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, ...], tuple[()]]:
        # Keys from outside would be computed for learners that draw nothing too, and cost more than a naive
        # learner's whole step; so they are made inside the branches, from a key that stays.
        del key

        def act_of(i: int) -> Callable[..., Any]:
            def one(key: jax.Array, step: jax.Array, state: Any, memory: Any, obs: jax.Array) -> Any:
                policy, own = learners[i].policy(_unpack(state, states[i])), _unpack(memory, memories[i])
                action, own, _ = learners[i].act(jax.random.fold_in(key, 2 * step), policy, own, obs)
                return action, _pack(own, memory_size)

            return one

        action, memory = choose(act_of, seat.key, seat.step, seat.state, memory, obs)
        return action, memory, ()

    def update(key: jax.Array, seat: SeatState, trajectory: Trajectory) -> tuple[SeatState, Metrics]:
        del key

        def update_of(i: int) -> Callable[..., Any]:
            def one(key: jax.Array, step: jax.Array, state: Any, trajectory: Trajectory) -> Any:
                if remembered:
                    first, last = (_unpack(m, memories[i]) for m in (trajectory.first_memory, trajectory.last_memory))
                    trajectory = trajectory._replace(first_memory=first, last_memory=last)
                own = _unpack(state, states[i])
                own, _ = learners[i].update(jax.random.fold_in(key, 2 * step + 1), own, trajectory)
                return public(own, trajectory.action[-1]), _pack(own, state_size)

            return one

        if not remembered:
            trajectory = trajectory._replace(first_memory=(), last_memory=())
        logits, state = choose(update_of, seat.key, seat.step, seat.state, trajectory)
        return seat._replace(logits=logits, state=state, step=seat.step + 1), {}

    return Learner(init=init, act=act, update=update, init_memory=init_memory)


def _apart(tree: Any) -> list[jax.Array]:
    """All numbers of all arrays."""
    leaves = jax.tree.leaves(tree)
    return [
        x for leaf in leaves for x in (map(leaf.reshape(-1).__getitem__, range(leaf.size)) if leaf.shape else [leaf])
    ]


def _together(scalars: Sequence[jax.Array], like: Any) -> Any:
    """The pytree of the shapes of `like` that `_apart` took apart; numbers beyond its end are left out."""
    leaves, first = [], 0
    for leaf in jax.tree.leaves(like):
        if not leaf.shape:
            leaves.append(scalars[first])
            first += 1
        else:
            own = scalars[first : first + leaf.size]
            leaves.append(jnp.stack(own).reshape(leaf.shape) if leaf.size else jnp.zeros(leaf.shape, leaf.dtype))
            first += leaf.size
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _size(shape: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(_data(shape)))


def _data(shape: Any) -> Any:
    """The shapes of a state whose keys are data."""
    return jax.eval_shape(lambda tree: jax.tree.map(data_of, tree), shape)


def _pack(state: Any, size: int) -> tuple[jax.Array, ...]:
    """The numbers of a state as floats, and zeros up to `size`."""
    numbers = [_as_float(x) for x in _apart(jax.tree.map(lambda x: data_of(jnp.asarray(x)), state))]
    return (*numbers, *[jnp.zeros(())] * (size - len(numbers)))


def _as_float(x: jax.Array) -> jax.Array:
    x = jnp.asarray(x)
    if x.dtype in (jnp.int32, jnp.uint32):  # bit by bit, for not each of them is a float
        return jax.lax.bitcast_convert_type(x, jnp.float32)
    return x.astype(jnp.float32)


def _unpack(memory: Sequence[jax.Array], shape: Any) -> Any:
    data = _data(shape)
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(data) for _ in range(leaf.size)]
    found = _together([_from_float(x, dtype) for x, dtype in zip(memory, dtypes, strict=False)], data)
    return jax.tree.map(lambda leaf, x: typed(x, kind_of(leaf)), shape, found)


def _from_float(x: jax.Array, dtype: Any) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, dtype) if dtype in (jnp.int32, jnp.uint32) else x.astype(dtype)
