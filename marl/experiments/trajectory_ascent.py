"""Ascent through an opponent's learning: the best sequence of policies that can be found, knowing all that follows."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from games import InfinitelyRepeated
from marl.core.learner import Learner, Trajectory
from marl.shapers.registry import make_shaper
from marl.shapers.trial import play
from meta import scalarize
from meta.loop import Report, Store, compiler_options, iterate
from meta.screening import rescaled

# Starts: a policy that is played throughout, as logits, and the standard deviation of what each step adds to it.
NOISE = 2**32 - 2  # branch of the key of a bound's initial states: what is added to them
TIT_FOR_TAT = (2.0, 2.0, -2.0, 2.0, -2.0)
NOISY = {
    "tit for tat": (TIT_FOR_TAT, 0.1),
    "extortion": ((-3.0, 2.0, -1.0, 0.0, -3.0), 0.1),  # near the extortioners of Press and Dyson (2012)
    "defection": ((-2.0,) * 5, 0.1),
    "random": ((0.0,) * 5, 1.0),
    "tit for tat, noise 0.5": (TIT_FOR_TAT, 0.5),
    "tit for tat, noise 1": (TIT_FOR_TAT, 1.0),
    "tit for tat, noise 2": (TIT_FOR_TAT, 2.0),
}
HORIZON, SURE = 18, 4.0  # steps that a plan looks ahead, and the logit of a certain action
SHAPERS, TOGETHER = 8192, 1024  # random ones, of which the best in a state is one start there, and so many at a time
LARGEST_FACTOR = 20.0  # of their weights


class Bound(NamedTuple):
    """The best sequences that were found, one for each initial state."""

    shaper_payoffs: jax.Array  # `[states]`, mean over the trial
    opponent_payoffs: jax.Array  # `[states]`
    policies: jax.Array  # `[states, meta_steps, logits]`, logits
    start: jax.Array  # `[states]`, the number of the start that led there
    by_start: jax.Array  # `[starts, states]`, the shaper's payoff from each
    history: np.ndarray  # `[iterations]`, mean over states of the best start's payoff so far in the ascent


def start_names(number: int) -> list[str]:
    """The first so many starts: what is quickly made, the plan, and as many draws of random shapers as are left."""
    return [*NOISY, "plan", *(f"the best of random shapers, {i + 1}" for i in range(number))][:number]


def white_box_bound(
    key: jax.Array,
    game: InfinitelyRepeated,
    opponent: Learner,
    *,
    meta_steps: int = 100,
    num_states: int = 64,
    num_starts: int = 16,
    iterations: int = 600,
    learning_rate: float = 0.1,
    store: Store | None = None,
    report: Report | None = None,
    checkpoint_seconds: float = 15.0,
) -> Bound:
    """Ascends the shaper's mean payoff over a trial, on its sequence of policies, from several starts.

    The initial states are those of `marl.play_trials` with the same key and number of trials, so that a shaper's
    payoffs there can be compared trial by trial. Draws of a learner that samples differ from those there.

    Args:
      key: of the initial states.
      game: whose first agent is the shaper.
      opponent: a learner whose update is differentiable by the co-player's policy.
      meta_steps: learning steps of the opponent that count.
      num_states: how many initial states.
      num_starts: from how many sequences Adam goes up in each state, `start_names(num_starts)`.
      iterations: steps of Adam.
      learning_rate: of Adam, on logits; it falls to zero along half a cosine.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(iterations so far, {"shaper_return": ...}, seconds of running)` by the host.
      checkpoint_seconds: as of `iterate`.
    """
    keys = jax.random.split(key, num_states)
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, iterations))

    shape = (num_starts, num_states, meta_steps, game.num_logits)

    def begin_with(starts: jax.Array) -> Any:
        nothing = jnp.full(starts.shape[:2], jnp.inf)
        return starts, optimiser.init(starts), (starts, nothing, nothing)

    def loss(sequence: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        own, other = play_sequence(key, game, opponent, sequence)
        return -own, other

    batched = jax.vmap(jax.vmap(scalarize(jax.value_and_grad(loss, has_aux=True))), (0, None))

    def step(keys: jax.Array, iteration: jax.Array, carry: Any) -> tuple[Any, dict[str, jax.Array]]:
        del iteration  # nothing is drawn
        sequences, state, best = carry
        (losses, others), gradients = batched(sequences, keys)
        best = jax.tree.map(partial(_better, losses < best[1]), (sequences, losses, others), best)  # Adam overshoots
        updates, state = optimiser.update(jax.tree.map(_finite, gradients), state)
        return (optax.apply_updates(sequences, updates), state, best), {"shaper_return": -best[1].min(0).mean()}

    found = iterate(
        step,
        jax.eval_shape(begin_with, jax.ShapeDtypeStruct(shape, float)),
        keys,
        iterations,
        begin=lambda: begin_with(make_starts(key, game, opponent, shape)),
        store=store,
        report=report,
        checkpoint_seconds=checkpoint_seconds,
    )
    policies, losses, others = found.state[2]
    best, each = jnp.argmin(losses, axis=0), jnp.arange(num_states)
    return Bound(
        -losses[best, each], others[best, each], policies[best, each], best, -losses, found.metrics["shaper_return"]
    )


def _better(better: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(better.reshape(better.shape + (1,) * (new.ndim - better.ndim)), new, old)


def _finite(gradient: jax.Array) -> jax.Array:
    """A long trajectory of a learner that shapes may explode; what is not finite does not move."""
    return jnp.clip(jnp.nan_to_num(gradient, posinf=0.0, neginf=0.0), -1.0, 1.0)


def curve(by_start: np.ndarray) -> np.ndarray:
    """The result of m of the starts: the mean over states of the best of m, for m from 1 to all.

    Args:
      by_start: payoffs `[starts, states]`.

    Returns:
      `[starts]`, the expectation over which starts the m are: of S sorted ones, number i (from 0) is the best of m
      with a probability of C(i, m - 1) / C(S, m).
    """
    number = len(by_start)
    shares = [[math.comb(i, m - 1) / math.comb(number, m) for i in range(number)] for m in range(1, number + 1)]
    return np.asarray(shares) @ np.sort(by_start, axis=0).mean(1)


def make_starts(
    key: jax.Array, game: InfinitelyRepeated, opponent: Learner, shape: tuple[int, ...], *, inside: bool = False
) -> jax.Array:
    """The sequences that the ascent begins with, logits `[starts, states, meta_steps, game.num_logits]`: that shape.

    Inside another program, options of the compiler are that program's.
    """
    number, num_states, meta_steps, n = shape
    noise_key, keys = jax.random.fold_in(key, NOISE), jax.random.split(key, num_states)

    def draw(key: jax.Array, policy: tuple[float, ...], deviation: float) -> jax.Array:
        return jnp.asarray(policy[:n]) + deviation * jax.random.normal(key, (num_states, meta_steps, n))

    def jit(function: Any) -> Any:
        return jax.jit(function, static_argnums=0, compiler_options=None if inside else compiler_options())

    own = jax.random.split(noise_key, number)
    found = [draw(key, *noisy) for key, noisy in zip(own, NOISY.values(), strict=False)]
    if number > len(NOISY):
        found.append(jit(partial(_plan, game, opponent))(meta_steps, keys))
    shapers = jit(partial(_best_of_random_shapers, game, opponent))
    found.extend(shapers(meta_steps, keys, key) for key in own[len(found) :])
    return jnp.stack(found)


def _plan(game: InfinitelyRepeated, opponent: Learner, meta_steps: int, keys: jax.Array) -> jax.Array:
    """In each step the policy with which the best short plan begins, of all whose logits are -4, 0 or 4.

    A plan goes on with that policy for up to three steps, or with one or three of tit for tat or of indifference, and
    then defects to its end; what it pays is found by letting a copy of the opponent learn from it.
    """
    sure = SURE * jnp.sign(jnp.asarray([TIT_FOR_TAT, (0.0,) * 5, (-1.0,) * 5])[:, : game.num_logits])
    nice, even, defect = sure
    grid = jnp.asarray(list(itertools.product((-SURE, 0.0, SURE), repeat=game.num_logits)))

    def go_on(first: jax.Array) -> jax.Array:
        ways = [[first], [first] * 2, [first] * 3, *([first] + [way] * k for way in (nice, even) for k in (1, 3))]
        return jnp.stack([jnp.stack(way + [defect] * (HORIZON - len(way))) for way in ways])

    plans = jax.vmap(go_on)(grid)  # `[policies, ways, HORIZON, logits]`

    def worth(key: jax.Array, state: Any, plan: jax.Array) -> jax.Array:
        own, _ = jax.lax.scan(partial(_respond, key, game, opponent), state, plan)[1]
        return own.mean()

    over_plans = jax.vmap(jax.vmap(scalarize(worth), (None, None, 0)), (None, None, 0))

    def choose(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        policy = grid[jnp.argmax(over_plans(key, state, plans).max(1))]
        return _respond(key, game, opponent, state, policy)[0], policy

    def of_state(key: jax.Array) -> jax.Array:
        first, state, step_keys = _begin(key, game, opponent, meta_steps)
        state, _ = _respond(step_keys[0], game, opponent, state, first)
        return jax.lax.scan(choose, state, step_keys[1:])[1]

    return jax.vmap(of_state)(keys)


def _best_of_random_shapers(
    game: InfinitelyRepeated, opponent: Learner, meta_steps: int, keys: jax.Array, key: jax.Array
) -> jax.Array:
    """The policies of the best of many random shapers in a state, as `meta.screening` draws them."""
    shaper = make_shaper("mfos(hidden_units=16)", game)

    def trial(shaper_key: jax.Array, key: jax.Array, **options: Any) -> Any:
        player = shaper.learner(rescaled(shaper.init, shaper_key, LARGEST_FACTOR))
        return play(key, game, player, opponent, meta_steps=meta_steps, **options)

    def payoff(shaper_key: jax.Array, key: jax.Array) -> jax.Array:
        return trial(shaper_key, key).rewards[0][1:].mean()

    over_pairs = jax.vmap(jax.vmap(scalarize(payoff), (None, 0)), (0, None))
    shapers = jax.random.split(key, (SHAPERS // TOGETHER, TOGETHER))
    payoffs = jax.lax.map(lambda some: over_pairs(some, keys), shapers).reshape(SHAPERS, -1)
    best = shapers.reshape(-1)[jnp.argmax(jnp.nan_to_num(payoffs, nan=-jnp.inf), 0)]
    return jax.vmap(partial(trial, keep_trajectories=True))(best, keys).trajectories[0].action[:, 1:, 0]


def play_sequence(
    key: jax.Array, game: InfinitelyRepeated, opponent: Learner, sequence: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean payoffs (shaper's, opponent's) of a fixed sequence of policies `[meta_steps, logits]`, differentiable.

    The same trial as `play` with this key: the first step is random and does not count.
    """
    first, state, keys = _begin(key, game, opponent, len(sequence))

    # The way back computes each step again: what XLA need not store it need not compute many times over (`scalarize`),
    # which makes the gradient through a LOLA learner three times as fast to compile and twice as fast to run.
    def step(state: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        policy, step_key = inputs
        return _respond(step_key, game, opponent, state, policy)

    policies = jnp.concatenate([first[None], sequence])
    _, (own, other) = jax.lax.scan(jax.checkpoint(step, prevent_cse=False), state, (policies, keys))
    return own[1:].mean(), other[1:].mean()


def _begin(
    key: jax.Array, game: InfinitelyRepeated, opponent: Learner, meta_steps: int
) -> tuple[jax.Array, Any, jax.Array]:
    """(the shaper's first policy, the opponent's state, keys of all steps) of the trial of `play` with this key."""
    _, run_key, first_key, state_key = jax.random.split(key, 4)
    first = jax.random.normal(first_key, (game.num_logits,))
    return first, opponent.init(state_key), jax.random.split(run_key, meta_steps + 1)


def _respond(
    key: jax.Array, game: InfinitelyRepeated, opponent: Learner, state: Any, policy: jax.Array
) -> tuple[Any, tuple[jax.Array, jax.Array]]:
    """The opponent's state after learning from a policy, and both players' payoffs."""
    own, other = ((1 - game.discount) * value for value in game.values(0, policy, state.logits))
    nothing = jnp.zeros((1,))
    obs = jax.nn.sigmoid(jnp.concatenate([state.logits, policy]))[None]
    trajectory = Trajectory(obs, state.logits[None], other[None], nothing > 0, (), (policy[None],), nothing > 0, obs)
    state, _ = opponent.update(key, state, trajectory)
    return state, (own, other)
