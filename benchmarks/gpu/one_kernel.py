"""A whole trial of M-FOS against a naive learner as one Pallas kernel: does it pay on a GPU?

A trial in a repeated game is a hundred steps of some sixty numbers, which registers hold. As a loop of XLA it is
several kernels a step, whose launches take more time than their arithmetic. Here a block of the kernel plays some
trials of one candidate from the first step to the last, on a tile `[trials, hidden units]`. Draws are made before.

`python -m benchmarks.gpu --programs "ipd in one kernel"` compiles it for a card. No card has run it. On a CPU it runs
with `interpret=True`, and agrees with `marl.shaping_trial` to 1e-5 (tests/test_benchmarks_gpu.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from games import InfinitelyRepeated
from games.exact.matrix import discounted_payoffs
from meta.xla.scalar_replacement import apart

LOGITS, PADDED = 5, 8  # Triton's tiles have powers of two as sides
INPUTS = 16
TILE = 256  # elements of a tile for each warp

Trials = Callable[[dict[str, jax.Array], jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def trials_in_one_kernel(
    game: InfinitelyRepeated,
    *,
    candidates: int,
    trials: int,
    meta_steps: int = 100,
    learning_rate: float = 1.0,
    hidden_units: int = 32,
    at_once: int = 8,
    interpret: bool = False,
) -> Trials:
    """Trials of every candidate, as `marl.shaping_trial` of `mfos` and `naive` plays them.

    Args:
      game: the exact game, of five logits.
      candidates: their number C.
      trials: their number T, the same for every candidate.
      meta_steps: learning steps of the opponent.
      learning_rate: of the opponent.
      hidden_units: of the shaper; a power of two.
      at_once: trials of a block, a power of two that divides T.
      interpret: run the kernel's operations one by one, on any device.

    Returns:
      `(parameters [C, ...], first policies [T, 5], opponents' initial logits [T, 5])` -> average payoffs per round of
      shapers and of opponents, `[C, T]` each.
    """

    def payoffs_and_step(own: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        values = discounted_payoffs(game.payoffs, own, other, game.discount)
        gradient = jax.grad(lambda x: discounted_payoffs(game.payoffs, own, x, game.discount)[1])(other)
        return *values, other + learning_rate * gradient

    policy = jax.ShapeDtypeStruct((LOGITS,), jnp.float32)
    play = jax.vmap(apart(payoffs_and_step, policy, policy))

    def kernel(
        w1: Any, b1: Any, w2: Any, b2: Any, first: Any, initial: Any, own_payoff: Any, other_payoff: Any
    ) -> None:
        nothing = jnp.zeros((at_once,), jnp.float32)

        def step(number: jax.Array, carry: Any) -> Any:
            own, other, own_sum, other_sum = carry
            own_now, other_now, *learned = play(*own, *other)
            seen = [jax.nn.sigmoid(x) for x in (*own, *learned)]
            hidden = jnp.broadcast_to(b1[0, :][None], (at_once, hidden_units))
            for i, entry in enumerate(seen):
                hidden = hidden + entry[:, None] * w1[0, i, :][None]
            hidden = jnp.tanh(hidden)
            chosen = [jnp.sum(hidden * w2[0, i, :][None], 1) + b2[0, i] for i in range(LOGITS)]
            counts = jnp.full((at_once,), number > 0)  # the first step is random and not scored
            own_sum = own_sum + jnp.where(counts, own_now, nothing)
            return chosen, learned, own_sum, other_sum + jnp.where(counts, other_now, nothing)

        start = [first[:, i] for i in range(LOGITS)], [initial[:, i] for i in range(LOGITS)], nothing, nothing
        *_, own_sum, other_sum = jax.lax.fori_loop(0, meta_steps + 1, step, start)
        scale = (1 - game.discount) / meta_steps
        own_payoff[0, :], other_payoff[0, :] = own_sum * scale, other_sum * scale

    def of_candidate(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec((1, *shape), lambda candidate, block: (candidate, *[0] * len(shape)))

    drawn = pl.BlockSpec((at_once, PADDED), lambda candidate, block: (block, 0))
    payoff = pl.BlockSpec((1, at_once), lambda candidate, block: (candidate, block))
    weights = [of_candidate(INPUTS, hidden_units), of_candidate(hidden_units)]
    weights += [of_candidate(PADDED, hidden_units), of_candidate(PADDED)]
    warps = max(1, at_once * hidden_units // TILE)
    call = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct((candidates, trials), jnp.float32)] * 2,
        grid=(candidates, trials // at_once),
        in_specs=[*weights, drawn, drawn],
        out_specs=[payoff, payoff],
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=warps, num_stages=1),
    )

    def play_all(parameters: dict[str, jax.Array], first: jax.Array, initial: jax.Array) -> tuple[jax.Array, jax.Array]:
        w1, w2 = _padded(parameters["w1"], 1, INPUTS), _padded(jnp.swapaxes(parameters["w2"], 1, 2), 1, PADDED)
        b2 = _padded(parameters["b2"], 1, PADDED)
        return tuple(call(w1, parameters["b1"], w2, b2, _padded(first, 1, PADDED), _padded(initial, 1, PADDED)))

    return play_all


def _padded(x: jax.Array, axis: int, size: int) -> jax.Array:
    return jnp.pad(x, [(0, size - x.shape[i] if i == axis else 0) for i in range(x.ndim)])
