"""Meta-self-play: two shapers trained together, one in each seat, each against what the other has become."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import InfinitelyRepeated, MatrixGame
from games.core.modes import in_any_mode
from marl.core.learner import Learner, Metrics, Trajectory
from marl.learners.exact.naive import naive
from marl.shapers.exact_policies import Shaper

MEETING = 2**32 - 2  # branch of the key of a pair: whether naive learners are played
ANNEALING = 0.65  # lambda falls from 1 by 0.0015 in each of 1024 iterations in the public code of Lu et al. (2022)


class Rival(NamedTuple):
    """The rival of one shaper of a pair in a generation; of K pairs, `[2 K]`, row and column seats in turn."""

    parameters: Any  # of the shaper in the other seat
    against_naive: jax.Array  # `[]`, whether a naive learner sits there instead
    payoffs: jax.Array  # `[2, 4]`, one's own and the other's after CC, CD, DC, DD, one's own action first


class RivalState(NamedTuple):
    """State of the rival: a naive learner or a shaper."""

    logits: jax.Array  # `[logits]`, the policy that is seen: a learner's new one, a shaper's last
    naive: Any
    shaper: Any


def annealing(opponent: str) -> float | None:
    """The annealing of `self_play(annealing=...)`; None for an opponent of another kind.

    Raises:
      ValueError: if it is no number from 0 to 1, or something else is set.
    """
    if not re.match(r"\s*self_play\b", opponent):
        return None
    form = re.fullmatch(r"\s*self_play\s*(?:\(\s*(?:annealing\s*=\s*([^\s,()]+)\s*)?\))?\s*", opponent)
    if not form:
        raise ValueError(f"opponent: got {opponent!r}; self_play, or self_play(annealing={ANNEALING}), is needed")
    try:
        fraction = ANNEALING if form[1] is None else float(form[1])
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction <= 1:
        raise ValueError(f"opponent: self_play: annealing: got {form[1]}; a number from 0 to 1 is needed")
    return fraction


def rivals(
    game: InfinitelyRepeated, annealing: float, num_generations: int
) -> Callable[[jax.Array, jax.Array, Any], Rival]:
    """The `context` of an evolution of pairs: the rival in each generation.

    With a probability that falls linearly from 1 to 0 over the first `annealing * num_generations` generations both
    shapers of a pair play naive learners, otherwise each plays the other as it is then (the mean of its search
    distribution).

    Args:
      game: as the row player sees it.
      annealing: the fraction of the generations, from 0 (never a naive learner) to 1.
      num_generations: of the whole evolution.

    Returns:
      `(keys [2 K], generation, parameters [2 K]) -> Rival [2 K]`, of K pairs, row and column seats in turn.

    Source: Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447, meta-self-play, and its public code.
    """
    payoffs = jnp.asarray([game.payoffs.seen_by(seat) for seat in (0, 1)], jnp.float32)

    def swap(x: jax.Array) -> jax.Array:
        return jnp.flip(x.reshape(-1, 2, *x.shape[1:]), 1).reshape(x.shape)

    @in_any_mode
    def context(keys: jax.Array, generation: jax.Array, parameters: Any) -> Rival:
        chance = jnp.maximum(0.0, 1 - generation / (annealing * num_generations)) if annealing else jnp.zeros(())
        draw = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, MEETING), generation))
        draws = draw(keys[::2])  # of the row seats
        against_naive = jnp.repeat(jax.vmap(lambda key: jax.random.bernoulli(key, chance))(draws), 2)
        seats = jnp.tile(payoffs, (len(keys) // 2, 1, 1))
        return Rival(jax.tree.map(swap, parameters), against_naive, seats)

    return context


def pair_keys(keys: jax.Array) -> jax.Array:
    """Keys of the runs `[2 K]`, row and column seats in turn, of K pairs `[K]`."""
    return jax.vmap(jax.random.split)(keys).reshape(-1)


def by_seat(metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The returns of pairs `[..., 2 K]` as those of row (`shaper_return`) and column (`opponent_return`) `[..., K]`.

    Without the last axis where there is one pair. A shaper's return is against a naive learner, or against the other.
    """
    found = {}
    for number, name in enumerate(("shaper_return", "opponent_return")):
        for suffix in ("", "_deviation"):
            values = metrics[f"shaper_return{suffix}"][..., number::2]
            found[name + suffix] = values[..., 0] if values.shape[-1] == 1 else values
    return found


def seat_rival(game: InfinitelyRepeated, shaper: Shaper, rival: Rival) -> tuple[InfinitelyRepeated, Learner]:
    """The game as one shaper of a pair sees it, itself the row player, and its rival.

    Both see the policies that were played last; of a naive learner, the one that it has learned since, as always.
    """
    view = InfinitelyRepeated(MatrixGame.of(game.payoffs.name, *rival.payoffs), game.discount)
    learner = naive(partial(view.value, 1), num_logits=view.num_logits)
    partner = shaper.learner(rival.parameters)

    def either(naive: jax.Array, shaper: jax.Array) -> jax.Array:
        return jnp.where(rival.against_naive, naive, shaper)

    def init(key: jax.Array) -> RivalState:
        naive_key, shaper_key = jax.random.split(key)
        states = learner.init(naive_key), partner.init(shaper_key)
        return RivalState(states[0].logits, *states)  # both play at random first, before anything is seen

    def policy(state: RivalState) -> tuple[Any, Any]:
        return learner.policy(state.naive), partner.policy(state.shaper)

    def init_memory(parameters: tuple[Any, Any], num_envs: int | None) -> Any:
        return partner.init_memory(parameters[1], num_envs)  # the other one remembers nothing

    def act(key: jax.Array, parameters: tuple[Any, Any], memory: Any, obs: jax.Array) -> tuple[jax.Array, Any, tuple]:
        naive_logits, _, _ = learner.act(key, parameters[0], (), obs)
        shaper_logits, memory, _ = partner.act(key, parameters[1], memory, obs)
        return either(naive_logits, shaper_logits), memory, ()

    def update(key: jax.Array, state: RivalState, trajectory: Trajectory) -> tuple[RivalState, Metrics]:
        learned, metrics = learner.update(key, state.naive, trajectory)
        return RivalState(either(learned.logits, trajectory.action[-1]), learned, state.shaper), metrics

    return view, Learner(init=init, act=act, update=update, policy=policy, init_memory=init_memory)
