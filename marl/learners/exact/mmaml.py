"""Meta-MAPG in its exact form (M-MAML): meta-learned initial parameters and step sizes against other learners."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from games import InfinitelyRepeated, MatrixGame
from games.core import checks
from games.core.arguments import factory
from games.core.modes import in_any_mode
from games.exact.matrix import discounted_payoffs
from marl.core.learner import Learner, Metrics, Trajectory
from marl.learners.exact.naive import PolicyState, naive, one_policy
from marl.learners.exact.trained import load_trained
from meta.loop import Report, Store, iterate
from meta.runs.array_files import same_shapes
from meta.xla.scalar_replacement import scalarize


class MetaLearned(NamedTuple):
    """The result of meta-learning: several initial parameters, from independent draws.

    The first axis is how they were trained: 0 for naive steps of size 1, 1 for a step size that is learned as well.
    The second is the seat: one in a symmetric game, which both players take; otherwise 0 is row and 1 column.
    """

    logits: jax.Array  # `[2, seats, initialisations, logits]`
    learning_rate: jax.Array  # `[2, seats, initialisations]`


class MetaLearnedState(NamedTuple):
    """State of a player that began at learned logits."""

    logits: jax.Array  # `[logits]`
    learning_rate: jax.Array  # `[]`


@in_any_mode
def train_mmaml(
    key: jax.Array,
    game: InfinitelyRepeated,
    *,
    initialisations: int = 10,
    opponents: int = 32,
    meta_steps: int = 100,
    iterations: int = 1000,
    learning_rate: float = 0.01,
    opponent_learning_rate: float = 1.0,
    normalise: bool = True,
    store: Store | None = None,
    report: Report | None = None,
    checkpoint_seconds: float = 15.0,
) -> MetaLearned:
    """Initial logits, and a step size, by differentiating through the whole learning of both players.

        maximise  E_y0 sum_t V1(x_t, y_t)  over x_0 and alpha, where
        x_{t+1} = x_t + alpha dV1/dx (x_t, y_t),        y_{t+1} = y_t + eta dV2/dy (x_t, y_t),        y_0 ~ N(0, 1),

    by Adam, from x_0 ~ N(0, 1) and alpha ~ U(0, 1), each iteration on fresh opponents. Beside it, from the same x_0,
    with alpha kept at 1: the beginnings for the step size that M-MAML plays with in Lu et al. All beginnings and
    seats are trained by one program.

    The gradient along one opponent's learning explodes now and then by orders of magnitude, and such a one would
    decide Adam's steps for hundreds of iterations: with plain means over 64 opponents most beginnings of the
    prisoner's dilemma end near mutual defection. So every opponent's gradient counts with length 1.

    Args:
      key: draws the beginnings and the opponents.
      game: the exact game.
      initialisations: how many beginnings, trained independently; 10 in Lu et al.
      opponents: naive learners per iteration and beginning.
      meta_steps: learning steps of both (t), 100 in Lu et al.
      iterations: of Adam; 1000 in Lu et al.
      learning_rate: of Adam; 0.01 in Lu et al.
      opponent_learning_rate: eta; 1 in Lu et al.
      normalise: whether to divide the gradient along each opponent's learning by its length; the public code of
        Lu et al. does not. One that is not finite counts 0 either way.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(iterations so far, {"payoff": mean over the opponents `[2, seats, initialisations]`},
        seconds)` by the host; payoffs are averages per round.
      checkpoint_seconds: as of `iterate`.

    Source: Kim et al., A Policy Gradient Algorithm for Learning to Learn in Multiagent RL (2021), arXiv:2011.00382;
    the exact form is that of Lu et al. (2022), arXiv:2205.01447, and of its public code.
    """
    seats = jnp.array([game.payoffs.seen_by(seat) for seat in range(num_seats(game))])  # `[seats, 2, 4]`

    def total(parameters: MetaLearned, first: jax.Array, payoffs: jax.Array) -> jax.Array:
        values = partial(discounted_payoffs, MatrixGame.of(game.payoffs.name, *payoffs), discount=game.discount)
        return payoff_of_learning(
            values, *parameters, first, opponent_learning_rate=opponent_learning_rate, meta_steps=meta_steps
        )

    def value_and_direction(
        parameters: MetaLearned, first: jax.Array, payoffs: jax.Array, learns_rate: jax.Array
    ) -> tuple[jax.Array, MetaLearned]:
        value, gradient = jax.value_and_grad(total)(parameters, first, payoffs)
        gradient = gradient._replace(learning_rate=learns_rate * gradient.learning_rate)
        length = jnp.sqrt((gradient.logits**2).sum() + gradient.learning_rate**2)
        usable = jnp.isfinite(length) & (length > 0)
        scale = jnp.where(usable, length, 1.0) if normalise else 1.0
        return value, jax.tree.map(lambda x: jnp.where(usable, x, 0.0) / scale, gradient)

    over_opponents = jax.vmap(scalarize(value_and_direction), (None, 0, None, None))
    over_initialisations = jax.vmap(over_opponents, (0, 0, None, None))
    over_all = jax.vmap(jax.vmap(over_initialisations, (0, 0, 0, None)), (0, 0, None, 0))
    adam = optax.adam(learning_rate)

    def step(
        key: jax.Array, iteration: jax.Array, state: tuple[MetaLearned, optax.OptState]
    ) -> tuple[tuple[MetaLearned, optax.OptState], Metrics]:
        parameters, moments = state
        shape = (*parameters.learning_rate.shape[1:], opponents, game.num_logits)
        first = jax.random.normal(jax.random.fold_in(key, iteration), shape)
        first = jnp.broadcast_to(first, (2, *shape))
        values, directions = over_all(parameters, first, seats, jnp.array([0.0, 1.0]))
        updates, moments = adam.update(jax.tree.map(lambda x: -x.mean(3), directions), moments, parameters)
        payoff = (1 - game.discount) / meta_steps * values.mean(-1)
        return (optax.apply_updates(parameters, updates), moments), {"payoff": payoff}

    logits_key, rate_key, run_key = jax.random.split(key, 3)
    logits = jax.random.normal(logits_key, (len(seats), initialisations, game.num_logits))
    rate = jax.random.uniform(rate_key, (len(seats), initialisations))
    parameters = MetaLearned(jnp.stack([logits, logits]), jnp.stack([jnp.ones_like(rate), rate]))
    found = iterate(
        step,
        (parameters, adam.init(parameters)),
        run_key,
        iterations,
        store=store,
        report=report,
        checkpoint_seconds=checkpoint_seconds,
    )
    return found.state[0]


def payoff_of_learning(
    values: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    logits: jax.Array,
    learning_rate: jax.Array,
    other_logits: jax.Array,
    *,
    opponent_learning_rate: float = 1.0,
    meta_steps: int = 100,
) -> jax.Array:
    """Sum of one's payoffs while both players take naive steps at once: what M-MAML differentiates.

    Args:
      values: `(own, other) -> (own payoff, other's)`.
      logits: where one begins.
      learning_rate: one's step size.
      other_logits: where the other begins.
      opponent_learning_rate: the other's step size.
      meta_steps: how many payoffs are added up, the first of them before any learning.
    """

    def step(policies: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        own, other = policies
        value, own_gradient = jax.value_and_grad(lambda own: values(own, other)[0])(own)
        other_gradient = jax.grad(lambda other: values(own, other)[1])(other)
        return (own + learning_rate * own_gradient, other + opponent_learning_rate * other_gradient), value

    return jax.lax.scan(step, (logits, other_logits), None, meta_steps)[1].sum()


def num_seats(game: InfinitelyRepeated) -> int:
    """1 if the game looks the same to both players, else 2."""
    return 1 if game.payoffs.seen_by(0) == game.payoffs.seen_by(1) else 2


@factory
def mmaml(
    game: InfinitelyRepeated,
    seat: int = 0,
    *,
    learning_rate: float = 1.0,
    learned_rate: bool = False,
    file: str | os.PathLike[str] = "",
) -> Learner:
    """A naive learner that begins where meta-learning has put it: one of the learned beginnings, drawn evenly.

    Args:
      game: the exact game; a file comes with the library for the prisoner's dilemma and for matching pennies
        (discount 0.96) and for chicken played once.
      seat: 0 row, 1 column.
      learning_rate: of its naive steps, from beginnings that were trained for 1. M-MAML plays with 1 in the tables of
        Lu et al. (2022), whose public code leaves the learned step size unused.
      learned_rate: play with the step size that was learned, and from the beginnings that were learned with it.
      file: what `python -m marl.mmaml` wrote; empty for the one that comes with the library.

    Raises:
      ValueError: if there is no file for this game, or if it is damaged or belongs to another; for both rates.
    """
    checks.number("learning_rate", learning_rate, 0)
    if learned_rate and checks.known(learning_rate) and learning_rate != 1:
        raise ValueError(f"learning_rate: got {learning_rate!r} with learned_rate, which takes its place")
    file = os.fspath(file)
    arrays, _ = load_trained("mmaml", game, file)
    shape = (2, num_seats(game), *arrays.get("learning_rate", np.zeros(1)).shape[-1:])
    same_shapes(arrays, {"logits": (*shape, game.num_logits), "learning_rate": shape}, file)
    learned = MetaLearned(jnp.asarray(arrays["logits"]), jnp.asarray(arrays["learning_rate"]))
    return begin_from(learned, game, seat, learning_rate=None if learned_rate else learning_rate)


def begin_from(
    learned: MetaLearned, game: InfinitelyRepeated, seat: int = 0, *, learning_rate: float | None = 1.0
) -> Learner:
    """The learner of `mmaml` from what `train_mmaml` returned; a `learning_rate` of None is the learned one."""
    trained = seat % learned.logits.shape[1]
    beginnings = jax.tree.map(lambda x: x[1 if learning_rate is None else 0, trained], learned)
    payoff = partial(game.value, seat)

    def init(key: jax.Array) -> MetaLearnedState:
        which = jax.random.randint(key, (), 0, len(beginnings.logits))
        drawn = MetaLearnedState(beginnings.logits[which], beginnings.learning_rate[which])
        if learning_rate is None:
            return drawn
        return drawn._replace(learning_rate=jnp.asarray(learning_rate, drawn.learning_rate.dtype))

    def update(key: jax.Array, state: MetaLearnedState, trajectory: Trajectory) -> tuple[MetaLearnedState, Metrics]:
        rate: Any = state.learning_rate
        learner = naive(payoff, learning_rate=rate, num_logits=game.num_logits)
        stepped, metrics = learner.update(key, PolicyState(state.logits), trajectory)
        return state._replace(logits=stepped.logits), metrics

    return one_policy(init, update)._replace(seat=seat)
